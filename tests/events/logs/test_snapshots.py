"""Snapshots of a log are complete or missing, found by offset, and rejected if they belong to another history."""

import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from events.logs import snapshots
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import (
    FOLDER,
    Block,
    Head,
    Snapshot,
    SnapshotDamaged,
    SnapshotInfo,
    nearest_snapshot,
    newest_snapshot,
    open_snapshot,
    snapshot_info,
    snapshot_offsets,
    store_snapshot,
    write_snapshot,
)
from tests.events.logs.rocksdb_folders import cut, flip, open_log, write_counted
from tests.support.memory_log import InMemoryLog

ABOUT = SnapshotInfo("made-here", 7, 1, 0)
PAIRS = [(b"t%06d" % number, b"v%d" % number * (number % 50)) for number in range(5000)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RocksDbLog]:
    opened = open_log(tmp_path / "log")
    write_counted(opened, range(10))
    yield opened
    opened.close()


def put(log: RocksDbLog, offset: int) -> Path:
    store_snapshot(log, snapshot_info(log, offset), PAIRS[:100])
    return log.path / FOLDER / f"{offset:020}.snapshot"


def nearest(log: RocksDbLog, end: int) -> int | None:
    snapshot = nearest_snapshot(log, end)
    if snapshot is None:
        return None
    with snapshot:
        return snapshot.offset


keys = st.binary(max_size=4)


def written(path: Path, pairs: Iterable[tuple[bytes, bytes]]) -> int:
    with path.open("wb") as file:
        return write_snapshot(file, ABOUT, pairs)


@given(st.dictionaries(keys, st.binary(max_size=20_000), max_size=12), keys, st.none() | keys)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_snapshot_reads_equal_the_in_memory_log(
    tmp_path: Path, state: dict[bytes, bytes], prefix: bytes, after: bytes | None
) -> None:
    memory = InMemoryLog("x")
    memory.put(state)
    place = tmp_path / "one"
    place.unlink(missing_ok=True)
    written(place, sorted(state.items()))
    with Snapshot(place) as snapshot:
        assert snapshot.about == ABOUT
        assert list(snapshot.scan(prefix, after)) == list(memory.scan(prefix, after)), f"{prefix!r} after {after!r}"
        assert [snapshot.get(key) for key in (*state, prefix)] == [memory.get(key) for key in (*state, prefix)]
        snapshot.check()


def test_any_flipped_byte_of_a_snapshot_is_detected(tmp_path: Path) -> None:
    place = tmp_path / "one"
    size = written(place, PAIRS[:300])
    whole = place.read_bytes()
    for at in range(8, size, 7):
        place.write_bytes(whole)
        flip(place, at, 0x10)
        with pytest.raises(SnapshotDamaged, match=str(place)), Snapshot(place) as snapshot:
            snapshot.check()


def test_truncated_snapshot_is_rejected(tmp_path: Path) -> None:
    place = tmp_path / "one"
    written(place, PAIRS)
    for size in (1, 20, 300, 10_000):
        cut(place, size)
        with pytest.raises(SnapshotDamaged):
            Snapshot(place)


def with_head(place: Path, *blocks: Block, content: bytes = b"", cluster_id: bytes = b"cccc", shift: int = 0) -> None:
    """Write a file with valid checksums and an arbitrary head."""
    said = Head(SnapshotInfo("cccc", 7, 1, 0), tuple(blocks))
    head = msgspec.msgpack.encode(said).replace(b"cccc", cluster_id)
    end = struct.pack(">QI8s", 8 + len(content) + shift, zlib.crc32(head), b"TWSNAP01")
    place.write_bytes(b"TWSNAP01" + content + head + end)


ODD = zlib.compress(msgspec.msgpack.encode([b"a", b"1", b"b"]))
FORGED: dict[str, Callable[[Path], None]] = {
    "text that is no UTF-8": lambda place: with_head(place, cluster_id=b"c\xffcc"),
    "a head behind its end": lambda place: with_head(place, shift=len(msgspec.msgpack.encode(Head(ABOUT, ())))),
    "a key without a value": lambda place: with_head(place, Block(b"a", 8, len(ODD), zlib.crc32(ODD)), content=ODD),
    "a block before the file": lambda place: with_head(place, Block(b"a", -8, 4, 0)),
    "a block of less than nothing": lambda place: with_head(place, Block(b"a", 8, -1, 0)),
    "a block that no memory holds": lambda place: with_head(place, Block(b"a", 8, 1 << 62, 0)),
    "a block beyond all files": lambda place: with_head(place, Block(b"a", 1 << 63, 4, 0)),
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_snapshot_is_rejected(what: str, tmp_path: Path) -> None:
    """Bases in an archive have this format, so forged ones must be skipped."""
    FORGED[what](tmp_path / "one")
    with pytest.raises(SnapshotDamaged), Snapshot(tmp_path / "one") as snapshot:
        list(snapshot.scan())


def test_block_with_too_large_decompressed_size_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "one", [(b"a", bytes(1 << 20))])
    assert (tmp_path / "one").stat().st_size < 10_000
    monkeypatch.setattr(snapshots, "UNPACKED_BYTES_MAX", 1 << 20)
    with pytest.raises(SnapshotDamaged, match="block 0 does not end within 1048576 bytes"):
        Snapshot(tmp_path / "one").get(b"a")


def test_newest_usable_snapshot_before_an_offset_is_found(log: RocksDbLog) -> None:
    assert (nearest(log, 50), newest_snapshot(log)) == (None, None)
    for offset in (10, 30, 20):
        put(log, offset)
    assert snapshot_offsets(log) == [10, 20, 30]
    assert [nearest(log, end) for end in (9, 10, 29, 50)] == [None, 10, 20, 30]
    assert newest_snapshot(log) == 30
    flip(log.path / FOLDER / f"{30:020}.snapshot", -1 % (log.path / FOLDER / f"{30:020}.snapshot").stat().st_size)
    assert (nearest(log, 50), newest_snapshot(log)) == (20, 20)


def test_snapshots_of_another_history_are_ignored(log: RocksDbLog, tmp_path: Path) -> None:
    put(log, 30)
    shorter = open_log(tmp_path / "shorter")
    write_counted(shorter, range(4))
    shutil.copytree(log.path / FOLDER, shorter.path / FOLDER)
    assert newest_snapshot(shorter) is None, "the snapshot has events that this log lacks"
    write_counted(shorter, range(5, 9))
    with pytest.raises(SnapshotDamaged, match="not of this log's history"):
        open_snapshot(shorter, 30)
    shorter.close()


def test_no_snapshot_beyond_the_durable_offset(log: RocksDbLog) -> None:
    end = log.next_offset
    put(log, end)
    assert newest_snapshot(log) == end
    log._durable_offset = end - 1
    assert newest_snapshot(log) is None


def test_a_failed_snapshot_leaves_no_files(log: RocksDbLog) -> None:
    def pairs() -> Iterator[tuple[bytes, bytes]]:
        yield from PAIRS
        raise OSError("no room left")

    with pytest.raises(OSError, match="no room"):
        store_snapshot(log, snapshot_info(log, 10), pairs())
    assert list((log.path / FOLDER).iterdir()) == []


def test_frozen_state_excludes_later_writes(log: RocksDbLog) -> None:
    before = list(log.scan(b"commit:"))
    frozen = log.frozen_scan([b"commit:", b"count"])
    write_counted(log, range(10, 20))
    assert list(frozen) == [*before, (b"count", b"9")]
    assert log.get(b"count") == b"19"
