"""Bases in a folder and on a real S3 server: the two newest are retained, and are restored unchanged."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from events.logs.archive import base
from events.logs.archive.base import bases, download_base, write_base
from events.logs.archive.manifest import MANIFEST, ArchiveDamaged, Base, Manifest, ManifestWriter, Stored, read_manifest
from events.logs.archive.store import ArchiveStore, Folder, open_store, within
from events.logs.rocksdb_log import RocksDbLog
from events.logs.tree_heads import HeadSigner
from tests.store.archive.archives import WRITER, open_any
from tests.support.s3_server import ENV, S3Server


def base_at(offset: int, start: int = 0) -> Base:
    return Base(topic_id="t", start=start, offset=offset, kafka_offset=0)


def writer_of(place: ArchiveStore) -> ManifestWriter:
    writer = ManifestWriter(place, WRITER)
    writer.register(Manifest(cluster_id="c", history="h", writer=WRITER))
    return writer


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ArchiveStore]:
    """An empty store that lives as long as the test."""
    if request.param == "folder":
        yield Folder(tmp_path / "place")
        return
    for key, value in ENV.items():
        monkeypatch.setenv(key, value)
    server = S3Server(tmp_path / "s3")
    with server.running():
        yield open_store(within(server.url("archive"), "partition-00000"))


def test_the_two_newest_bases_are_retained_and_restorable(
    place: ArchiveStore, cut: RocksDbLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("PART_BYTES", "_GROUP_BYTES"):
        monkeypatch.setattr(base, limit, 3000)
    end, writer = cut.next_offset, writer_of(place)
    for offset in (end - 2, end - 1, end):
        write_base(writer, base_at(offset, cut.start_offset), cut.frozen_pairs())
    found = list(bases(place, "c", "t"))
    assert [one.offset for one in found] == [end, end - 1]
    assert len(found[0].parts) > 1
    left = {int(name[:20]) for name in place.names("state")}
    assert left == {end, end - 1}, "no part of another base remains"
    download_base(place, found[0], tmp_path / "again")
    with closing(open_any(tmp_path / "again")) as log:
        assert (log.start_offset, log.next_offset) == (cut.start_offset, end)
        assert list(log.scan()) == list(cut.scan())
        assert list(log.read()) == list(cut.read())


def test_other_files_in_the_base_folder_are_not_deleted(tmp_path: Path) -> None:
    """Files under other names, such as manual copies, are neither deleted nor read."""
    place, names = Folder(tmp_path), (f"{1:020}.parquet.bak", f"{1:020}-copy of.parquet", "notes")
    (tmp_path / "state").mkdir()
    for name in names:
        (tmp_path / "state" / name).write_bytes(b"")
    writer = writer_of(place)
    for offset in (2, 3, 4):
        write_base(writer, base_at(offset), iter([(b"mnext", b"")]))
    assert set(names) < set(place.names("state"))
    assert [one.offset for one in bases(place, "c", "t")] == [4, 3]


def test_base_parts_of_a_dead_process_are_removed(tmp_path: Path) -> None:
    place = Folder(tmp_path)
    writer, left = writer_of(place), base_at(7).part_name(Stored.of(b"half"))
    place.write(left, b"half")
    write_base(writer, base_at(8), iter([(b"mnext", b"")]))
    assert place.read(left) is None


CHANGED: dict[str, Callable[[dict[str, object]], object]] = {
    "no offset": lambda one: one.pop("offset"),
    "a name with a line feed": lambda one: one.update(topic_id="t\n"),
    "more parts than there may be": lambda one: one.update(parts=[{"sha256": "0" * 64, "size": 1}] * 10_001),
    "a size below 0": lambda one: one.update(parts=[{"sha256": "0" * 64, "size": -1}]),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_malformed_base_manifest_is_rejected(what: str, tmp_path: Path) -> None:
    place = Folder(tmp_path)
    write_base(writer_of(place), base_at(2), iter([(b"mnext", b"")]))
    said = json.loads((tmp_path / MANIFEST).read_bytes())
    CHANGED[what](said["bases"][0])
    (tmp_path / MANIFEST).write_text(json.dumps(said))
    with pytest.raises(ArchiveDamaged, match="cannot be read"):
        list(bases(place, "c", "t"))


def test_a_base_with_unknown_keys_is_rejected(tmp_path: Path) -> None:
    place = Folder(tmp_path / "place")
    put = write_base(writer_of(place), base_at(2), iter([(b"x", b"")]))
    with pytest.raises(ArchiveDamaged, match="which is none of a log"):
        download_base(place, put, tmp_path / "log")
    assert [one.name for one in tmp_path.iterdir()] == ["place"], "no part of the download remains"


def test_a_signed_manifest_verifies_only_with_its_public_key(tmp_path: Path) -> None:
    place, signer = Folder(tmp_path), HeadSigner(Ed25519PrivateKey.generate())
    writer = ManifestWriter(place, WRITER, signer)
    writer.register(Manifest(cluster_id="c", history="h", writer=WRITER))
    write_base(writer, base_at(2), iter([(b"mnext", b"")]))
    signed = read_manifest(place)
    assert signed.is_signed_by(signer.public_key)
    assert not signed.is_signed_by(bytes(32))
    assert not replace(signed, bases=()).is_signed_by(signer.public_key)
