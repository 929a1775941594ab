"""A voter's log in files: compared with the simulator's disk, after crashes at any byte, damage and disk failures."""

import errno
import os
import resource
import shutil
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.quorum.files import LogCorrupted, QuorumFiles
from controller.quorum.folder import PARTITION
from controller.quorum.log.batches import BrokenBatch, RecordBatch, decode_batches
from tests.quorum.logs import led, opened, some
from tests.simulation.quorum.disk import Disk

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 2)),
        st.tuples(st.just("lead"), st.integers(1, 2), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("reopen"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=30, deadline=None)
@given(STEPS, st.sampled_from([100, 400, 1 << 20]))
def test_the_log_behaves_like_a_list_of_batches(steps: list[tuple[str, int, int]], segment_bytes: int) -> None:
    with TemporaryDirectory() as folder:
        log, model = opened(Path(folder), segment_bytes), Disk(b"", lambda *_: None)
        for step, number, more in steps:
            log = _step(Path(folder), segment_bytes, log, model, (step, number, more))
            _is_same(log, model)
        log.close()


def _step(folder: Path, segment_bytes: int, log: QuorumFiles, model: Disk, step: tuple[str, int, int]) -> QuorumFiles:
    name, number, more = step
    epoch = max(model.last_epoch, 1)
    match name:
        case "append" | "lead":
            data = led(model.end, epoch + number) if name == "lead" else some(model.end, number, epoch + more // 2)
            assert b"".join(each.data for each in log.append(data)) == data
            model.append(data)
        case "flush":
            assert log.flush() == model.end
            model.flush_to(model.end)
        case "truncate":
            offset = model.end * number // 100
            assert log.truncate(offset) == model.truncate(offset)
        case "reopen":
            log.close()
            model.flush_to(model.end)
            return opened(folder, segment_bytes)
    return log


def _is_same(log: QuorumFiles, model: Disk) -> None:
    assert (log.start, log.end, log.last_epoch) == (0, model.end, model.last_epoch)
    assert model.durable_end <= log.durable_end <= model.end
    assert list(log.batches()) == model.kept
    assert list(log.control_batches()) == list(model.control_batches())
    for epoch in range(model.last_epoch + 2):
        end = model.end_of_epoch(epoch)
        assert log.end_of_epoch(epoch) == end, f"wrong end of epoch {epoch}"
        for offset in {0, end.offset, end.offset + 1}:
            assert log.mismatch(offset, epoch) == model.mismatch(offset, epoch), f"offset {offset}, epoch {epoch}"
    for offset in range(0, model.end + 1, 3):
        for limit in (0, 150, 1 << 20):
            read, wanted = log.read(offset, limit), model.read(offset, 1 << 30)
            assert wanted.startswith(read), f"wrong bytes from offset {offset}"
            assert bool(read) == bool(wanted), f"no bytes from offset {offset}"
            assert len(read) <= limit or len(list(decode_batches(read))) == 1, f"too many bytes from {offset}"


# --- crashes

BATCHES = [led(0, 1), some(1, 2), some(3), some(4, 3, epoch=2), some(7, epoch=2)]


@pytest.mark.parametrize("rest", [b"", b"\0" * 70, b"\xff" * 7, some(9)[:-1] + b"x"], ids=["none", "0", "1", "batch"])
def test_an_unflushed_tail_is_truncated_at_any_byte(tmp_path: Path, rest: bytes) -> None:
    log = opened(tmp_path / "whole")
    for batch in BATCHES[:2]:
        log.append(batch)
    flushed = log.flush()
    for batch in BATCHES[2:]:
        log.append(batch)
    log.close()
    data = (tmp_path / "whole" / PARTITION / f"{0:020d}.log").read_bytes()
    assert data == b"".join(BATCHES)
    around = (end for edge in _edges() for end in (edge - 1, edge, edge + 1))
    for cut in [*range(0, len(data), 13 if rest else 3), *around]:
        folder = tmp_path / f"{cut}"
        shutil.copytree(tmp_path / "whole", folder)
        (folder / PARTITION / f"{0:020d}.log").write_bytes(data[:cut] + rest)
        whole = list(_whole(data[:cut] + rest))
        end = whole[-1].last_offset + 1 if whole else 0
        if end < flushed:
            with pytest.raises(LogCorrupted, match=r"0\.log, byte \d+.*flushed data is damaged"):
                opened(folder)
        else:
            again = opened(folder)
            assert (again.end, again.durable_end, list(again.batches())) == (end, end, whole)
            again.append(some(end, epoch=9))
            assert again.flush() == end + 1
            again.close()
        shutil.rmtree(folder)


def _edges() -> list[int]:
    """The end positions of batches."""
    return list(accumulate(map(len, BATCHES)))[:-1]


def _whole(data: bytes) -> Iterator[RecordBatch]:
    try:
        yield from decode_batches(data)
    except BrokenBatch:
        return


def test_damage_in_an_earlier_segment_is_reported_with_its_position(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=200)
    for offset in range(9):
        log.append(some(offset))
    log.close()
    (tmp_path / PARTITION / "flushed-offset").write_bytes(b"")
    path = tmp_path / PARTITION / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogCorrupted, match=rf"{path.name}, byte {len(data) // 2}: wrong checksum in the batch"):
        opened(tmp_path, segment_bytes=200)


def test_a_missing_segment_is_reported(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=200)
    for offset in range(9):
        log.append(some(offset))
    log.close()
    (tmp_path / PARTITION / f"{2:020d}.log").unlink()
    with pytest.raises(LogCorrupted, match="offsets 2 to 4 are missing"):
        opened(tmp_path, segment_bytes=200)
    (tmp_path / PARTITION / f"{0:020d}.log").unlink()
    with pytest.raises(LogCorrupted, match="begins at offset 4, and has no snapshot of earlier records"):
        opened(tmp_path, segment_bytes=200)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_appending_invalid_bytes_changes_nothing(data: st.DataObject) -> None:
    good = b"".join(BATCHES[3:])
    at = data.draw(st.integers(0, len(good) - 1))
    change = data.draw(st.binary(max_size=8))
    bad = good[:at] + change + good[at + data.draw(st.integers(0, 8)) :]
    with TemporaryDirectory() as folder:
        log = opened(Path(folder))
        for batch in BATCHES[:3]:
            log.append(batch)
        try:
            taken = log.append(bad)
        except BrokenBatch:
            taken = ()
        assert [_but_for_epoch(each.data) for each in taken] in [
            [_but_for_epoch(each) for each in BATCHES[3 : 3 + count]] for count in range(3)
        ], "a damaged batch was appended"
        assert b"".join(each.data for each in log.batches()) == b"".join(BATCHES[:3]) + b"".join(e.data for e in taken)
        log.close()


def _but_for_epoch(batch: bytes) -> bytes:
    """The batch without its epoch: it is not in the checksum, and a changed epoch is only detected if it decreases."""
    return batch[:12] + batch[16:]


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (some(4), "offset 4 and epoch 1; expected offset 3, and epoch 1 or later"),
        (some(2), "offset 2"),
        (led(3, 0), "epoch 0; expected offset 3"),
        (some(3)[:-1], "byte 0: not a complete batch"),
        (some(3) + some(5), "byte 88: a batch of offset 5"),
    ],
    ids=["gap", "again", "old epoch", "half", "gap within"],
)
def test_batches_that_do_not_continue_the_log_are_rejected(tmp_path: Path, batch: bytes, why: str) -> None:
    log = opened(tmp_path)
    for each in BATCHES[:2]:
        log.append(each)
    with pytest.raises(BrokenBatch, match=why):
        log.append(batch)
    assert log.end == 3
    log.append(some(3))
    log.close()


# --- disk failures


@contextmanager
def _files_no_larger_than(size: int) -> Iterator[None]:
    """Limit the size of this process' files: beyond it the kernel fails writes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_failed_append_is_truncated(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(some(0, size=4000))
    path = tmp_path / PARTITION / f"{0:020d}.log"
    size = path.stat().st_size
    with _files_no_larger_than(size + 100), pytest.raises(OSError, match="too large"):
        log.append(some(1, size=4000))
    assert (log.end, path.stat().st_size) == (1, size)
    log.append(some(1))
    assert log.flush() == 2
    log.close()
    again = opened(tmp_path)
    assert again.end == 2
    again.close()


def test_after_a_failed_flush_the_log_continues_from_the_durable_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    log.append(some(0))
    log.flush()
    log.append(some(1))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", Mock(side_effect=OSError(errno.EIO, "the disk is gone")))
        with pytest.raises(OSError, match="the disk is gone"):
            log.flush()
        with pytest.raises(OSError, match="the disk is gone"):
            log.truncate(log.durable_end)
    assert log.durable_end == 1
    with pytest.raises(OSError, match="a flush has failed: truncate to 1 first"):
        log.flush()
    with pytest.raises(OSError, match="a flush has failed: truncate to 1 first"):
        log.append(some(log.end))
    assert log.truncate(log.durable_end) == 1
    log.append(some(1, size=7))
    assert log.flush() == 2
    log.close()


def test_batches_appended_during_a_flush_are_not_durable_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    log.append(some(0))
    sync = os.fdatasync

    def sync_and_append(file: int) -> None:
        sync(file)
        if log.end == 1:
            log.append(some(1))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", sync_and_append)
        assert log.flush() == 1
    assert (log.end, log.durable_end) == (2, 1)
    assert log.flush() == 2
    log.close()


def test_log_files_do_not_hold_records_in_memory(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=1 << 20)
    for base in range(0, 8_000, 500):
        log.append(b"".join(some(offset, size=100) for offset in range(base, base + 500)))
    log.close()
    tracemalloc.start()
    try:
        again = opened(tmp_path)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert again.end == 8_000
    assert kept < 80_000, f"{kept} bytes of memory for a log of 1.3 MB in 8,000 batches"
    again.close()
