"""Snapshots of a voter's log: written, fetched and interrupted, and the log that they replace."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from controller.quorum import files
from controller.quorum.files import QuorumFiles
from controller.quorum.folder import PARTITION
from controller.quorum.log.batches import BrokenBatch, encode_batch, snapshot_footer, snapshot_header
from controller.quorum.raft.log import EpochEnd, SnapshotId
from tests.quorum.logs import kept, led, opened, snapshot, some

SMALL = 200  # bytes of a segment, which is two batches


def _ten_records(folder: Path) -> QuorumFiles:
    log = opened(folder, SMALL)
    for offset in range(10):
        log.append(some(offset, epoch=1 + offset // 4))
    log.flush()
    return log


def _names(folder: Path, pattern: str) -> list[str]:
    return sorted(each.name for each in (folder / PARTITION).glob(pattern))


def test_two_snapshots_are_retained_and_the_log_from_the_older_one(tmp_path: Path) -> None:
    log = _ten_records(tmp_path)
    for end, epoch in ((3, 1), (5, 2), (8, 2)):
        kept(log, SnapshotId(end, epoch), [snapshot(epoch)])
    for again in (False, True):
        if again:
            log.close()
            log = opened(tmp_path, SMALL)
        assert (log.start, log.end, log.snapshot) == (5, 10, SnapshotId(8, 2))
        assert _names(tmp_path, "*.checkpoint*") == [f"{5:020d}-{2:010d}.checkpoint", f"{8:020d}-{2:010d}.checkpoint"]
        assert _names(tmp_path, "*.log") == [f"{base:020d}.log" for base in (4, 6, 8, 10)]
        assert [each.base_offset for each in log.batches()] == [5, 6, 7, 8, 9]
        assert log.read(4, 1000) == b""
        assert log.mismatch(4, 1) == SnapshotId(8, 2)
        assert log.mismatch(5, 1) == SnapshotId(8, 2)
        assert [log.mismatch(5, 2), log.mismatch(8, 2), log.mismatch(10, 3)] == [None] * 3
        assert log.mismatch(9, 2) == EpochEnd(2, 8)
        assert log.end_of_epoch(1) == EpochEnd(1, 5)
    assert log.truncate(8) == 8
    assert log.last_epoch == 2
    log.close()


def test_batches_before_the_snapshot_are_retained_up_to_retention_bytes(tmp_path: Path) -> None:
    """A voter that was away then needs no snapshot; also with an epoch from before the oldest snapshot."""
    log, room = opened(tmp_path, SMALL, 2000), 2000
    for offset in range(40):
        log.append(some(offset, epoch=1 + offset // 4))
        log.flush()
        if offset % 4 == 3:
            kept(log, SnapshotId(offset + 1, 1 + offset // 4), [snapshot(1 + offset // 4)])
        if offset == 10:
            assert (log.start, log.mismatch(1, 1)) == (0, None)
    log.close()
    log = opened(tmp_path, SMALL, room)
    start = log.start
    assert 8 < start < 32
    assert _names(tmp_path, "*.checkpoint*") == [f"{end:020d}-{end // 4:010d}.checkpoint" for end in (36, 40)]
    assert sum(each.stat().st_size for each in (tmp_path / PARTITION).iterdir()) < room + 200
    assert [each.base_offset for each in log.batches()] == list(range(start, 40))
    epoch = 1 + (start + 1) // 4
    assert log.mismatch(start + 1, epoch) is None
    assert log.mismatch(start + 1, epoch - 1) in (SnapshotId(40, 10), EpochEnd(epoch - 1, start))
    assert log.mismatch(start - 1, epoch - 1) == SnapshotId(40, 10)
    assert log.mismatch(start, epoch) == SnapshotId(40, 10), "the epoch before the start is unknown"
    log.close()


def test_a_snapshot_has_the_voter_set_and_is_read_in_parts(tmp_path: Path) -> None:
    log, data = _ten_records(tmp_path), snapshot(2)
    assert log.snapshot_control_batches() == ()
    kept(log, SnapshotId(8, 2), [data])
    (head, foot) = log.snapshot_control_batches()
    assert [len(head.records), len(foot.records)] == [3, 1]
    assert log.read_snapshot(SnapshotId(8, 2), 3, 5) == (len(data), data[3:8])
    for position, size in ((len(data), 5), (-1, 5), (1 << 62, 5), ((1 << 63) - 1, 5), (0, 0), (0, -1), (0, -7)):
        assert log.read_snapshot(SnapshotId(8, 2), position, size) == (len(data), b""), "expected no bytes"
    assert log.read_snapshot(SnapshotId(8, 1), 0, 5) is None
    log.close()


@pytest.mark.parametrize("killed_at", ["never", "named", "emptied"])
def test_a_fetched_snapshot_replaces_the_log(tmp_path: Path, killed_at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log, data, wanted = _ten_records(tmp_path), snapshot(7), SnapshotId(9, 7)
    kept(log, SnapshotId(5, 2), [snapshot(2)])
    log.begin_snapshot(SnapshotId(8, 7))
    log.append_snapshot(b"another")
    log.begin_snapshot(wanted)
    log.append_snapshot(data[:50])
    log.append_snapshot(data[50:])
    with monkeypatch.context() as patched:
        if killed_at == "named":
            patched.setattr(QuorumFiles, "_replace_log", lambda *_: 1 / 0)
        elif killed_at == "emptied":
            patched.setattr(files, "Segment", lambda *_, **__: 1 / 0)
        with nullcontext() if killed_at == "never" else pytest.raises(ZeroDivisionError):
            log.finish_snapshot()
    if killed_at != "never":
        log = opened(tmp_path, SMALL)
    assert (log.start, log.end, log.durable_end, log.last_epoch, log.snapshot) == (9, 9, 9, 7, wanted)
    assert _names(tmp_path, "*.checkpoint*") == [f"{9:020d}-{7:010d}.checkpoint"]
    assert log.mismatch(9, 7) is None
    assert log.mismatch(5, 2) == wanted
    log.append(led(9, 8))
    assert (log.flush(), log.mismatch(9, 7), log.end_of_epoch(7)) == (10, None, EpochEnd(7, 9))
    log.close()
    again_opened = opened(tmp_path, SMALL)
    assert (again_opened.start, again_opened.end, again_opened.last_epoch) == (9, 10, 8)
    again_opened.close()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "an empty snapshot"),
        (snapshot(2)[:-1], "not a complete batch"),
        (snapshot(2)[:-60], "too short for a batch header|not a complete batch"),
        (snapshot(2)[: -len(encode_batch(0, 2, 5, [snapshot_footer()], is_control=True))], "incomplete snapshot"),
        (some(0), "incomplete snapshot"),
        (encode_batch(0, 2, 5, [snapshot_header(5)], is_control=True) + some(1, epoch=2), "incomplete snapshot"),
        (some(1), "expected offset 0"),
        (snapshot(2)[:70] + b"x" + snapshot(2)[71:], "checksum"),
    ],
    ids=["empty", "cut", "cut more", "no footer", "no header", "no end", "offset", "changed"],
)
def test_an_invalid_snapshot_download_is_rejected_and_dropped(tmp_path: Path, data: bytes, why: str) -> None:
    log = _ten_records(tmp_path)
    log.begin_snapshot(SnapshotId(20, 7))
    log.append_snapshot(data)
    with pytest.raises(BrokenBatch, match=why):
        log.finish_snapshot()
    assert (log.start, log.end, log.snapshot, _names(tmp_path, "*checkpoint*")) == (0, 10, None, [])
    log.close()


def test_an_interrupted_snapshot_download_is_deleted_at_start(tmp_path: Path) -> None:
    log = _ten_records(tmp_path)
    log.begin_snapshot(SnapshotId(20, 7))
    log.append_snapshot(snapshot(7))
    assert len(_names(tmp_path, "*.checkpoint.part")) == 1
    again = opened(tmp_path, SMALL)  # after a kill of the previous process
    assert (again.snapshot, _names(tmp_path, "*checkpoint*")) == (None, [])
    again.close()
    log.close()
