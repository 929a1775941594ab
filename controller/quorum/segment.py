"""One file of the metadata log, with complete batches, and its sparse offset index in memory. `files` uses it.

The index has an entry of sixteen bytes for every INDEX_BYTES of the file. Other batches are found by reading the file
from the preceding entry on. Records are not held in memory.
"""

from __future__ import annotations

import mmap
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from controller.quorum.log.batches import (
    LENGTH_END,
    BatchHead,
    BrokenBatch,
    RecordBatch,
    decode_batches,
    scan_batches,
    whole_batches,
)

INDEX_BYTES: Final = 4096
_OFFSET_BYTES: Final = 8
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


class Segment:
    """A file of `size` bytes, with the offsets from `base` to below `end`."""

    def __init__(self, partition: Path, base: int, *, new: bool = False) -> None:
        """Open or create the file. Raises OSError."""
        self.base = self.end = base
        self.path = partition / f"{base:020d}.log"
        self.size = 0
        flags = os.O_RDWR | (os.O_CREAT | os.O_TRUNC if new else 0)
        self._file = os.open(self.path, flags, 0o600)
        self._offsets = array("q")
        self._positions = array("q")

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
        data = os.pread(self._file, min(max(max_bytes, INDEX_BYTES), self.size - position), position)
        whole = whole_batches(data[: max(max_bytes, 0)])
        if whole:
            return whole
        first = LENGTH_END + int.from_bytes(data[_OFFSET_BYTES:LENGTH_END], "big")
        return os.pread(self._file, first, position)

    def position(self, offset: int) -> int:
        """The position of the batch with `offset`; `size` if the offset is beyond the end."""
        if offset >= self.end:
            return self.size
        position = self._positions[bisect_right(self._offsets, offset) - 1]
        while True:
            base, length = self._head(position)
            following = position + LENGTH_END + length
            if following >= self.size or self._head(following)[0] > offset:
                return position if base <= offset else self.size
            position = following

    def truncate(self, offset: int) -> None:
        """Durably remove the batches that reach beyond `offset`."""
        position = self.position(offset)
        if position < self.size:
            self.end = self._head(position)[0]
            self.size = position
            count = bisect_right(self._offsets, self.end - 1)
            del self._offsets[count:], self._positions[count:]
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
        position = start + head.position
        if not self._positions or position - self._positions[-1] >= INDEX_BYTES:
            self._offsets.append(head.base_offset)
            self._positions.append(position)
        self.end = head.last_offset + 1
        self.size = start + head.end

    def _head(self, position: int) -> tuple[int, int]:
        """The base offset of the batch at a position, and its length field."""
        head = os.pread(self._file, LENGTH_END, position)
        return int.from_bytes(head[:_OFFSET_BYTES], "big"), int.from_bytes(head[_OFFSET_BYTES:], "big")


class Epochs:
    """The start offset of each epoch in the log (Kafka's `LeaderEpochFileCache`)."""

    def __init__(self) -> None:
        self._begun: list[tuple[int, int]] = []  # epoch, and offset of its first batch

    @property
    def last(self) -> int | None:
        """The newest epoch; None if the log is empty."""
        return self._begun[-1][0] if self._begun else None

    @property
    def first(self) -> int:
        """The oldest epoch of a log that is not empty."""
        return self._begun[0][0]

    def add(self, epoch: int, offset: int) -> None:
        """A batch of `epoch` begins at `offset`."""
        if not self._begun or epoch > self._begun[-1][0]:
            self._begun.append((epoch, offset))

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

    def begin(self, start: int) -> None:
        """The log now begins at `start`."""
        later = [each for each in self._begun if each[1] > start]
        current = self._begun[: len(self._begun) - len(later)][-1:]
        self._begun = [*((epoch, start) for epoch, _ in current), *later]


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
