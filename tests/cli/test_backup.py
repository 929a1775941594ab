"""`topicwright backup` copies new events; `recover` restores the log up to any point in time."""

import hashlib
import json
import os
import shutil
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from controller.cli.main import main
from controller.store.tree import head_of
from events.codec import decode_event
from events.logs.archive import parquet
from events.logs.archive.manifest import ARCHIVE_KEY, MANIFEST, archive_status, history_of
from events.logs.archive.parquet import GROUP
from events.logs.log import Commit, Entry, read_one, request_offsets, shard_offsets
from events.logs.snapshots import SnapshotInfo, open_snapshot, snapshot_offsets, store_snapshot, write_snapshot
from projections.text.points_in_time import iso
from tests.cli.commands import Printed, Run
from tests.replay.history import CLUSTER_ID, open_log
from tests.store.archive.archives import archive_all, take_snapshot


@pytest.fixture(scope="module")
def _backup(day: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backup") / "backup"
    assert main(["backup", str(folder), "--data", str(day)]) == 0
    return folder


@pytest.fixture
def place(_backup: Path, tmp_path: Path) -> Path:
    """A backup of the log `day`."""
    return Path(shutil.copytree(_backup, tmp_path / "backup"))


def state_of(folder: Path) -> tuple[list[tuple[int, bytes]], dict[bytes, bytes]]:
    """The events of a log, and its state without the archive status."""
    with closing(open_log(folder)) as log:
        return list(log.read()), {key: value for key, value in log.scan() if not key.startswith(ARCHIVE_KEY)}


def test_a_recovered_log_equals_the_original(day: Path, tmp_path: Path, printed: Printed) -> None:
    place, again = tmp_path / "backup", tmp_path / "again"
    said = printed("backup", place, "--data", day)
    events, state = state_of(day)
    assert f"{len(events)} events added" in said
    assert f"has cluster {CLUSTER_ID} as of event {len(events) - 1}" in printed("recover", place, "--data", again)
    assert state_of(again) == (events, state)
    with closing(open_log(day)) as log, closing(open_log(again)) as other:
        assert head_of(log) == head_of(other)
        for key in ("", *log.shard_keys()):
            assert list(shard_offsets(log, key)) == list(shard_offsets(other, key)), key
        for name in {one for one, _, _ in log.index_runs(of_requests=True)}:
            assert list(request_offsets(log, name)) == list(request_offsets(other, name)), name
        assert history_of(other) == archive_status(other).history != history_of(log), "it has its own history"


def test_a_second_backup_copies_only_new_events(day: Path, tmp_path: Path, printed: Printed) -> None:
    place, folder = tmp_path / "backup", Path(shutil.copytree(day, tmp_path / "log"))
    printed("backup", place, "--data", folder)
    assert printed("backup", place, "--data", folder).startswith("0 events added, 0 bytes")
    with closing(open_log(folder)) as log:
        newest = read_one(log, log.next_offset - 1)
        log.write(Commit([Entry(newest)] * 3))
    assert printed("backup", place, "--data", folder).startswith("3 events added")
    assert len(json.loads((place / MANIFEST).read_text())["segments"]) == 2
    events, _ = state_of(folder)
    assert f"has all {len(events)} of" in printed("backup", place, "--data", folder)


@pytest.mark.parametrize("at", [0, 1, 100, 101, 250])
def test_recover_at_an_offset(day: Path, place: Path, tmp_path: Path, at: int, printed: Printed) -> None:
    printed("recover", place, "--data", tmp_path / "again", "--at", at)
    events, _ = state_of(tmp_path / "again")
    before, _ = state_of(day)
    assert events == before[: len(events)]
    of = [decode_event(*one).cause for one in before]
    assert of[at] == of[len(events) - 1] != of[len(events)]
    assert len(events) > at


def test_recover_names_the_end_of_the_archive(day: Path, place: Path, tmp_path: Path, run: Run) -> None:
    events, _ = state_of(day)
    ended = decode_event(*events[-1])
    outcome = run("recover", place, "--data", tmp_path / "again", "--at", 5)
    assert f"{place} ends with event {ended.offset}, of {iso(ended.at_ms)}; it has no later events\n" in outcome.err
    assert "ends with event" not in outcome.out


def test_recover_at_a_time_ends_at_that_time(day: Path, place: Path, tmp_path: Path, printed: Printed) -> None:
    with closing(open_log(day)) as log:
        at_ms = decode_event(200, read_one(log, 200)).at_ms
    printed("recover", place, "--data", tmp_path / "again", "--at", f"{at_ms}ms")
    with closing(open_log(tmp_path / "again")) as log:
        assert decode_event(log.next_offset - 1, read_one(log, log.next_offset - 1)).at_ms <= at_ms
        assert log.next_offset > 200


def test_backup_into_the_archive(day: Path, tmp_path: Path, printed: Printed) -> None:
    folder = Path(shutil.copytree(day, tmp_path / "log"))
    with closing(open_log(folder)) as log:
        manifests = archive_all(log, tmp_path / "archive")
    said = printed("backup", tmp_path / "archive", "--data", folder, code=2)
    assert "is the archive of the service: name another place" in said
    printed("recover", tmp_path / "archive", "--data", tmp_path / "again")
    with closing(open_log(tmp_path / "again")) as log:
        assert log.next_offset == manifests[-1].end
        assert archive_status(log).url == "", "a recovered log has no archive"


def test_verify_accepts_a_valid_backup(day: Path, place: Path, tmp_path: Path, printed: Printed) -> None:
    with closing(open_log(day)) as log:
        size, root = head_of(log)
        _, older = head_of(log, 123)
    assert f"{size} events match its head; root {root.hex()}" in printed("verify", place)
    head = {"log": CLUSTER_ID, "size": 123, "root": older.hex(), "at_ms": 0}
    (tmp_path / "head.json").write_text(json.dumps(head))
    assert "its first 123 match the saved head" in printed("verify", place.as_uri(), "--head", tmp_path / "head.json")
    (tmp_path / "head.json").write_text(json.dumps({**head, "root": "0" * 64}))
    said = printed("verify", place, "--head", tmp_path / "head.json", code=1)
    assert "the first 123 events were changed: their root is not that of the tree head" in said


def _change(place: Path, **fields: object) -> dict[str, Any]:
    """Change fields of a segment's entry in the manifest; returns the entry before."""
    manifest = json.loads((place / MANIFEST).read_text())
    before = manifest["segments"][0]
    manifest["segments"] = [{**before, **fields}]
    (place / MANIFEST).write_text(json.dumps(manifest))
    return dict(before)


def _put(place: Path, content: bytes) -> None:
    """Replace a segment's file, and update the manifest."""
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") :]
    name, end = ({"sha256": hashlib.sha256(part).hexdigest(), "size": len(part)} for part in (content, footer))
    _change(place, events=name, footer=end)
    (place / "events" / f"{0:020}-{str(name['sha256'])[:16]}.parquet").write_bytes(content)


def _write_table(place: Path, index: object = None, value: object = None, canonical: object = None, **how: Any) -> None:
    """Write a segment file with these columns; the default of each is the segment's own value."""
    sink = pa.BufferOutputStream()
    table = pq.read_table(next((place / "events").iterdir()), columns=["value", "canonical"])
    if value is not None:
        table = pa.table({"value": value} if canonical is None else {"value": value, "canonical": canonical})
    with pq.ParquetWriter(sink, table.schema, **{"use_dictionary": False, **how}) as writer:
        writer.write_table(table)
        if index is not None:
            writer.add_key_value_metadata({"topicwright.index": index})
    _put(place, sink.getvalue().to_pybytes())


def _flip_footer(place: Path) -> None:
    one = next((place / "events").iterdir())
    one.write_bytes(one.read_bytes()[:-1] + b"?")


def _other_index(place: Path) -> None:
    """Keep the events, but write the index of an empty segment."""
    empty = BytesIO()
    write_snapshot(empty, SnapshotInfo("c", 1, 1, 0), [])
    _write_table(place, b64encode(empty.getvalue()), compression="zstd")


def _end_of(place: Path) -> int:
    return int(json.loads((place / MANIFEST).read_text())["segments"][0]["end"])


def _no_event(place: Path) -> None:
    nothing = pa.nulls(_end_of(place), pa.binary())
    _write_table(place, value=nothing, canonical=nothing)


def _write_repeated_value(place: Path, value: bytes = b"0" * 4000, **how: object) -> None:
    count = _end_of(place)
    repeated, nothing = pa.array([value] * count), pa.nulls(count, pa.binary())
    _write_table(place, value=repeated, canonical=nothing, compression="zstd", write_statistics=False, **how)


def _many_rows(place: Path) -> None:
    _change(place, end=GROUP + 1)
    _write_repeated_value(place, b"")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_flip_footer, "parquet is not as it was archived"),
        (_other_index, "parquet does not match its events"),
        (lambda place: _write_table(place, "?"), "parquet has no index that can be read"),
        (lambda place: _change(place, last_ms=1), "parquet does not match its events"),
        (lambda place: _write_table(place, value=[b""] * _end_of(place)), "parquet cannot be read"),
        (_no_event, "parquet lacks an event"),
        (_write_repeated_value, "has a group that unpacks to 16"),
        (partial(_write_repeated_value, use_dictionary=True), "has values in an encoding that is not an archive's"),
        (
            partial(_write_repeated_value, column_encoding={"value": "DELTA_BYTE_ARRAY"}),
            "has values in an encoding that is not an archive's",
        ),
        (
            lambda place: _put(place, b"PAR1" + (1 << 30).to_bytes(4, "little") + b"PAR1"),
            "it has no footer of at most 33554432 bytes",
        ),
        (_many_rows, "has a group of 8193 rows; allowed: 1 to 8192"),
    ],
)
def test_verify_a_forged_backup(
    place: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], says: str
) -> None:
    monkeypatch.setattr(parquet, "UNPACKED_BYTES_MAX", 1 << 20)
    change(place)
    assert says in printed("verify", place, code=1)


@pytest.mark.parametrize("name", [MANIFEST, "events"])
def test_a_backup_with_special_files_is_rejected(name: str, place: Path, tmp_path: Path, printed: Printed) -> None:
    one = place / name if name.endswith("json") else next((place / name).iterdir())
    one.unlink()
    os.mkfifo(one)
    assert "is not a regular file" in printed("recover", place, "--data", tmp_path / "again", code=2)


@pytest.mark.parametrize("pattern", ["*.log", "*.sst", "DURABLE", "MANIFEST-*", "snapshots/*"])
def test_a_log_with_special_files_is_rejected(pattern: str, day: Path, tmp_path: Path, printed: Printed) -> None:
    folder = Path(shutil.copytree(day, tmp_path / "log"))
    with closing(open_log(folder)) as log:
        take_snapshot(log, 100)
    one = next(folder.glob(pattern))
    one.unlink()
    os.mkfifo(one)
    assert "is not a regular file" in printed("verify", folder, code=2 if pattern == "snapshots/*" else 1)
    if pattern != "snapshots/*":
        assert "is not a regular file" in printed("topics", "--data", folder, code=2)
        assert "is not a regular file" in printed("backup", tmp_path / "backup", "--data", folder, code=2)


def test_an_oversized_manifest_is_not_read(place: Path, tmp_path: Path, printed: Printed) -> None:
    os.truncate(place / MANIFEST, 1 << 29)
    said = printed("recover", place, "--data", tmp_path / "again", code=2)
    assert f"{MANIFEST} has 536870912 bytes; allowed: 33554432" in said


def test_verify_finds_changed_snapshots_indexes_and_state_of_a_log(day: Path, tmp_path: Path, printed: Printed) -> None:
    folder = Path(shutil.copytree(day, tmp_path / "log"))
    with closing(open_log(folder)) as log:
        for offset in (100, 200):
            take_snapshot(log, offset)
        first, second = (log.path / "snapshots" / f"{offset:020}.snapshot" for offset in snapshot_offsets(log))
    assert "events match its head" in printed("verify", folder)
    content = first.read_bytes()
    first.write_bytes(content[:50] + b"?" + content[51:])
    assert "were changed; it is rebuilt" in printed("verify", folder, code=1)
    first.unlink()
    with closing(open_log(folder)) as log, open_snapshot(log, snapshot_offsets(log)[0]) as snapshot:
        about, pairs = snapshot.about, [*snapshot.scan()][:-1]
        store_snapshot(log, about, pairs)
    assert f"{second} does not match the events before it" in printed("verify", folder, code=1)
    second.unlink()
    with closing(open_log(folder)) as log:
        log.write(Commit(own={next(key for key, _ in log.scan(b"t")): b"another"}))
    assert "its state does not match its events" in printed("verify", folder, code=1)


def test_backup_inside_the_log(day: Path, tmp_path: Path, printed: Printed) -> None:
    folder = Path(shutil.copytree(day, tmp_path / "log"))
    for place in (folder, folder / "snapshots" / ".." / "backup"):
        said = printed("backup", place, "--data", folder, code=2)
        assert "is inside the data folder: name a place outside it" in said
    printed("backup", tmp_path / "backup", "--data", folder)
    shutil.copytree(tmp_path / "backup", folder, dirs_exist_ok=True)
    with closing(open_log(folder)) as log:
        log.write(Commit(own={next(key for key, _ in log.scan(b"t")): b"another"}))
    assert "its state does not match its events" in printed("verify", folder, code=1)


def _flip(place: Path) -> None:
    one = next((place / "events").iterdir())
    content = bytearray(one.read_bytes())
    content[len(content) // 3] ^= 1
    one.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_flip, "is not as it was archived"),
        (lambda place: _change(place, tree="0" * 64), "does not hold the events of its manifest"),
        (lambda place: shutil.rmtree(place / "events"), "is missing: restore it from a copy"),
        (lambda place: (place / MANIFEST).unlink(), "holds no archive"),
    ],
)
def test_recover_a_forged_backup(
    change: Callable[[Path], object], said: str, place: Path, tmp_path: Path, printed: Printed
) -> None:
    change(place)
    assert said in printed("recover", place, "--data", tmp_path / "again", code=2)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["backup"], "a failed recovery leaves no folder"


WRONG = """
recover {place} --data {day}                | exists and is not empty: name a new folder
recover {place} --data {new} --at 99999     | offset 99999 is not reached yet: the newest event in
recover {place} --data {new} --at 1999-01-01| has no event at this point in time
recover {new} --data {new}                  | holds no archive
recover http://a/b --data {new}             | is not a place for an archive
recover s3://a:b@c --data {new}             | may hold a secret
backup {place} --data {new}                 | does not exist
backup {place} --data {place}               | holds no log
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_invalid_backup_arguments_are_reported(
    line: str, day: Path, place: Path, tmp_path: Path, printed: Printed
) -> None:
    words, said = line.split("|")
    arguments = [one.format(place=place, day=day, new=tmp_path / "new") for one in words.split()]
    assert said.strip() in printed(*arguments, code=2)
