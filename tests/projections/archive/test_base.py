"""Bases in a folder and in a real S3 server: the two newest stay, and are what was put."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from events.catalog import EVENT_VERSION
from events.logs.archive import base
from events.logs.archive.base import Base, bases, download_base, write_base
from events.logs.archive.manifest import ArchiveDamaged, read_object
from events.logs.archive.store import ArchiveStore, Folder, open_store, within
from events.logs.rocksdb_log import RocksDbLog
from tests.projections.archive.archives import open_any
from tests.support.s3_server import ENV, S3Server


def base_at(offset: int, start: int = 0) -> Base:
    return Base(
        cluster_id="c",
        topic_id="t",
        history="h",
        start=start,
        offset=offset,
        kafka_offset=0,
        event_version=EVENT_VERSION,
    )


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArchiveStore]:
    """A place that is there until the end of the test."""
    if request.param == "folder":
        yield Folder(tmp_path / "place")
        return
    for key, value in ENV.items():
        monkeypatch.setenv(key, value)
    server = S3Server(tmp_path / "s3")
    with server.running():
        yield open_store(within(server.url("archive"), "partition-00000"))


def test_the_two_newest_stay_and_are_what_was_put(
    place: ArchiveStore, cut: RocksDbLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "PART_BYTES", 3000)
    end = cut.next_offset
    for offset in (end - 2, end - 1, end):
        write_base(place, base_at(offset, cut.start_offset), cut.frozen_pairs())
    found = list(bases(place, "c", "t"))
    assert [one.offset for one in found] == [end, end - 1]
    assert len(found[0].parts) > 1
    left = {int(name[:20]) for name in place.names("bases")}
    assert left == {end, end - 1}, "no part of another is left"
    download_base(place, found[0], tmp_path / "again")
    with closing(open_any(tmp_path / "again")) as log:
        assert (log.start_offset, log.next_offset) == (cut.start_offset, end)
        assert list(log.scan()) == list(cut.scan())
        assert list(log.read()) == list(cut.read())


def test_what_somebody_put_beside_them_stays(tmp_path: Path) -> None:
    """A copy of an object, by hand: no name of ours, so it is nobody's to remove, and in nobody's way."""
    place, names = Folder(tmp_path), (f"{1:020}.json.bak", f"{1:020}-copy of.part", "notes")
    (tmp_path / "bases").mkdir()
    for name in names:
        (tmp_path / "bases" / name).write_bytes(b"")
    for offset in (2, 3, 4):
        write_base(place, base_at(offset), iter([(b"mnext", b"")]))
    assert set(names) < set(place.names("bases"))
    assert [one.offset for one in bases(place, "c", "t")] == [4, 3]


CHANGED: dict[str, Callable[[dict[str, object]], object]] = {
    "no offset": lambda one: one.pop("offset"),
    "a name with a line feed": lambda one: one.update(topic_id="t\n"),
    "more parts than there may be": lambda one: one.update(parts=[{"sha256": "0" * 64, "size": 1}] * 10_001),
    "a size below 0": lambda one: one.update(parts=[{"sha256": "0" * 64, "size": -1}]),
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_says_nothing_sound_is_passed_over(what: str, tmp_path: Path) -> None:
    place = Folder(tmp_path)
    put = write_base(place, base_at(2), iter([(b"mnext", b"")]))
    said = json.loads((tmp_path / put.name).read_bytes())
    CHANGED[what](said)
    (tmp_path / put.name).write_text(json.dumps(said))
    with pytest.raises(ArchiveDamaged):
        read_object(place, put.name, Base)
    assert list(bases(place, "c", "t")) == []


def test_a_base_with_keys_that_are_none_of_a_log_is_refused(tmp_path: Path) -> None:
    place = Folder(tmp_path / "place")
    put = write_base(place, base_at(2), iter([(b"x", b"")]))
    with pytest.raises(ArchiveDamaged, match="which is none of a log"):
        download_base(place, put, tmp_path / "log")
    assert [one.name for one in tmp_path.iterdir()] == ["place"], "nothing is left of it"
