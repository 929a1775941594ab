"""The files of the metadata log, for `files`: segments with their offset index, and snapshots.

A segment has complete batches. Its index, in memory, has eight bytes for each. Records are not held in memory.

Snapshots (KIP-630) are Kafka's checkpoints. One is written to a temporary file (`.part` for a download, `.made` for one
written here), validated, made durable, and only then renamed. So every `.checkpoint` file is complete. The next start
deletes temporary files.
"""

import mmap
import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from controller.quorum.log.batches import (
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    BatchHead,
    BrokenBatch,
    RecordBatch,
    control_type,
    decode_batches,
    scan_batches,
    whole_batches,
)
from controller.quorum.raft.log import SnapshotId
from events.files import sync_folder

_PIECE_BYTES: Final = 1 << 20


class FilePart(NamedTuple):
    """A range of bytes of a file, from `start` to `stop`, with whole batches."""

    path: Path
    start: int
    stop: int

    def batches(self) -> Iterator[RecordBatch]:
        """The batches, read with a separate file handle, so that a thread may do it. Raises BrokenBatch and OSError."""
        at, size = self.start, _PIECE_BYTES
        with self.path.open("rb") as file:
            while at < self.stop:
                file.seek(at)
                data = file.read(min(size, self.stop - at))
                whole = whole_batches(data)
                if not whole and len(data) < size:
                    raise BrokenBatch(f"{self.path}, byte {at}: not a complete batch")
                yield from decode_batches(whole, str(self.path))
                at, size = at + len(whole), _PIECE_BYTES if whole else 2 * size


def batches_of(parts: Iterable[FilePart]) -> Iterator[RecordBatch]:
    """The batches of several parts, in order. Raises BrokenBatch and OSError."""
    return chain.from_iterable(each.batches() for each in parts)


class Segment:
    """A file of `size` bytes, with the offsets from `base` to below `end`."""

    def __init__(self, partition: Path, base: int, *, new: bool = False) -> None:
        """Open or create the file. Raises OSError."""
        self.base = self.end = base
        self.path = partition / f"{base:020d}.log"
        flags = os.O_RDWR | (os.O_CREAT | os.O_TRUNC if new else 0)
        self._file = os.open(self.path, flags, 0o600)
        self._offsets, self._ends = array("I"), array("I")
        """The base offset of each batch, counted from `base`, and the position after it."""

    @property
    def size(self) -> int:
        return self._ends[-1] if self._ends else 0

    def load(self, on_batch: Callable[[BatchHead], None], epoch: int) -> BrokenBatch | None:
        """Scan the file for batches that begin at `base`, of `epoch` or later epochs, and call `on_batch` with the head
        of each. The segment ends at a batch that is damaged or does not continue the log; returns the reason."""
        file_size = os.fstat(self._file).st_size
        if not file_size:
            return None
        view = memoryview(mmap.mmap(self._file, file_size, access=mmap.ACCESS_READ))
        try:
            for head in in_order(scan_batches(view, str(self.path)), str(self.path), self.end, epoch):
                self._take(head, 0)
                on_batch(head)
        except BrokenBatch as broken:
            return broken.with_traceback(None)  # its frames hold the file's memory
        return None

    def append(self, data: bytes, heads: list[BatchHead]) -> None:
        """Append batches. Raises OSError, and then the file is unchanged, unless truncating it fails too."""
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._file, memoryview(data)[written:], self.size + written)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        start = self.size
        for head in heads:
            self._take(head, start)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the batch that contains `offset`: at least one, at most `max_bytes`."""
        position = self.position(offset)
        first, last = bisect_right(self._ends, position), bisect_right(self._ends, position + max_bytes) - 1
        return os.pread(self._file, self._ends[max(first, last)] - position, position)

    def position(self, offset: int) -> int:
        """The position of the batch with `offset`; `size` if the offset is beyond the end."""
        before = bisect_right(self._offsets, offset - self.base) - (offset < self.end)
        return self._ends[before - 1] if before else 0

    def truncate(self, offset: int) -> None:
        """Durably remove the batches that reach beyond `offset`."""
        if offset < self.end:
            retained = bisect_right(self._offsets, offset - self.base) - 1
            self.end = self.base + self._offsets[retained]
            del self._offsets[retained:], self._ends[retained:]
        os.ftruncate(self._file, self.size)
        self.sync()

    def sync(self) -> None:
        """Make all writes durable. Raises OSError."""
        os.fdatasync(self._file)

    def remove(self) -> None:
        """Delete the file. The deletion is durable once the folder is synced."""
        self.close()
        self.path.unlink()

    def close(self) -> None:
        os.close(self._file)

    def _take(self, head: BatchHead, start: int) -> None:
        self._offsets.append(head.base_offset - self.base)
        self._ends.append(start + head.end)
        self.end = head.last_offset + 1


class Epochs:
    """The start offset of each epoch in the log (Kafka's `LeaderEpochFileCache`), and the control batches."""

    def __init__(self) -> None:
        self._begun: list[tuple[int, int]] = []  # epoch, and offset of its first batch
        self.control: list[int] = []
        """The base offsets of the control batches."""

    @property
    def last(self) -> int | None:
        """The newest epoch; None if the log is empty."""
        return self._begun[-1][0] if self._begun else None

    @property
    def first(self) -> int:
        """The oldest epoch of a log that is not empty."""
        return self._begun[0][0]

    def add(self, head: BatchHead) -> None:
        """The log has another batch."""
        if not self._begun or head.epoch > self._begun[-1][0]:
            self._begun.append((head.epoch, head.base_offset))
        if head.is_control:
            self.control.append(head.base_offset)

    def start_of(self, epoch: int) -> int | None:
        """The offset of the first batch of an epoch; None if the log has none."""
        return dict(self._begun).get(epoch)

    def floor(self, epoch: int) -> tuple[int, int] | None:
        """The newest epoch up to `epoch`, and the start of the next one; None if there is no newer epoch. For an epoch
        before the first: `epoch` itself and the start of the first."""
        above = bisect_left(self._begun, (epoch + 1, 0))
        if above == len(self._begun):
            return None
        return self._begun[above - 1][0] if above else epoch, self._begun[above][1]

    def truncate(self, end: int) -> None:
        """The log now ends at `end`."""
        self._begun = [each for each in self._begun if each[1] < end]
        self.control = [each for each in self.control if each < end]

    def begin(self, start: int) -> None:
        """The log now begins at `start`."""
        later = [each for each in self._begun if each[1] > start]
        current = self._begun[: len(self._begun) - len(later)][-1:]
        self._begun = [*((epoch, start) for epoch, _ in current), *later]
        self.control = [each for each in self.control if each >= start]


def in_order(heads: Iterator[BatchHead], where: str, offset: int, epoch: int) -> Iterator[BatchHead]:
    """Yield batches that begin at `offset`, continue one another, and are of `epoch` or later epochs. Raises
    BrokenBatch otherwise."""
    for head in heads:
        if head.base_offset != offset or head.epoch < epoch:
            raise BrokenBatch(
                f"{where}, byte {head.position}: a batch of offset {head.base_offset} and epoch {head.epoch}; "
                f"expected offset {offset}, and epoch {epoch} or later"
            )
        offset, epoch = head.last_offset + 1, head.epoch
        yield head


CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART: Final = ".part"
_MADE: Final = ".made"


class SnapshotFiles:
    """The snapshot files in a partition's folder, for `QuorumFiles`. `raft.log.QuorumLog` documents the methods without
    a docstring. All may raise OSError."""

    def __init__(self, partition: Path) -> None:
        self._partition = partition
        for leftover in partition.glob("*.checkpoint.*"):
            leftover.unlink()
        found = (CHECKPOINT.fullmatch(each.name) for each in partition.iterdir())
        self._snapshots = sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)
        """The ids of all complete snapshots, the newest last."""
        self._download: tuple[SnapshotId, BinaryIO] | None = None

    @property
    def snapshot(self) -> SnapshotId | None:
        return self._snapshots[-1] if self._snapshots else None

    def snapshot_control_batches(self) -> Sequence[RecordBatch]:
        return _control_batches(self._path(self.snapshot)) if self.snapshot else ()

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        if snapshot not in self._snapshots:
            return None
        with self._path(snapshot).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not 0 <= position < size or max_bytes <= 0:  # an invalid request, which is no failure of the disk
                return size, b""
            file.seek(position)
            return size, file.read(max_bytes)

    def newest_snapshot(self) -> Sequence[FilePart]:
        """The file of the newest snapshot; empty if there is none."""
        if self.snapshot is None:
            return ()
        path = self._path(self.snapshot)
        return (FilePart(path, 0, path.stat().st_size),)

    def begin_snapshot(self, snapshot: SnapshotId) -> None:
        self._drop_download()
        self._download = snapshot, _new_file(self._unfinished(snapshot, _PART))

    def append_snapshot(self, data: bytes) -> None:
        assert self._download is not None, "a snapshot was begun"
        self._download[1].write(data)

    def _finish_download(self) -> SnapshotId:
        """Validate the download and rename it, durably. Raises BrokenBatch and OSError, and then drops it."""
        assert self._download is not None, "a snapshot was begun"
        snapshot, file = self._download
        part = self._unfinished(snapshot, _PART)
        try:
            file.flush()
            os.fsync(file.fileno())
            _control_batches(part)
        except BaseException:
            self._drop_download()
            raise
        file.close()
        self._download = None
        self._name(part, snapshot)
        return snapshot

    def _drop_download(self) -> None:
        if self._download is not None:
            snapshot, file = self._download
            self._download = None
            try:
                file.close()
            finally:
                self._unfinished(snapshot, _PART).unlink(missing_ok=True)

    def write_snapshot(self, snapshot: SnapshotId, data: Iterable[bytes]) -> None:
        """Write a snapshot, durably; `keep_snapshot` then makes it the newest one. May run in a thread, concurrently
        with all other methods. Raises BrokenBatch, OSError and errors of `data`, and then leaves no file."""
        made = self._unfinished(snapshot, _MADE)
        try:
            with _new_file(made) as file:
                file.writelines(data)
                file.flush()
                os.fsync(file.fileno())
            _control_batches(made)
        except BaseException:
            made.unlink(missing_ok=True)
            raise

    def keep_snapshot(self, snapshot: SnapshotId) -> bool:
        """Make a written snapshot the newest. If a newer one was fetched meanwhile, deletes it and returns False."""
        made = self._unfinished(snapshot, _MADE)
        if self._snapshots and snapshot <= self._snapshots[-1]:
            made.unlink()
            return False
        self._name(made, snapshot)
        return True

    def _retain_snapshots(self, count: int) -> None:
        while len(self._snapshots) > count:
            self._path(self._snapshots[0]).unlink(missing_ok=True)
            del self._snapshots[0]

    def _path(self, snapshot: SnapshotId) -> Path:
        return self._partition / f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"

    def _unfinished(self, snapshot: SnapshotId, suffix: str) -> Path:
        path = self._path(snapshot)
        return path.with_name(path.name + suffix)

    def _name(self, unfinished: Path, snapshot: SnapshotId) -> None:
        unfinished.rename(self._path(snapshot))
        sync_folder(self._partition)
        self._snapshots = sorted({*self._snapshots, snapshot})


def _new_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "w+b")


def _control_batches(path: Path) -> Sequence[RecordBatch]:
    """The control batches of a snapshot. Raises BrokenBatch unless its batches continue one another from offset 0, with
    a header first and a footer last."""
    if not path.stat().st_size:
        raise BrokenBatch(f"{path}: an empty snapshot")
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    found: list[RecordBatch] = []
    last: BatchHead | None = None
    for last in in_order(scan_batches(view, str(path)), str(path), 0, 0):
        if last.is_control:
            found += decode_batches(bytes(view[last.position : last.end]), str(path))
        elif not found:
            break
    keys = [key for batch in found for key, _ in batch.records if key is not None]
    kinds = [control_type(key) for key in keys]
    if last is None or not last.is_control or (kinds[:1], kinds[-1:]) != ([SNAPSHOT_HEADER], [SNAPSHOT_FOOTER]):
        raise BrokenBatch(f"{path}: an incomplete snapshot, without a header first and a footer last")
    return found
