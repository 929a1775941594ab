"""One file of the metadata log: whole batches, one behind the other, and an index of some of them in memory.

One batch in every INDEX_BYTES is in the index; the way from there to any other is read from the file. So memory grows
by sixteen bytes for each INDEX_BYTES of the log, and nothing of its records is kept.
"""

from __future__ import annotations

import mmap
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from controller.brokers.kraft.log.batches import (
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
    """Whole batches of a file: its bytes from `start` to `stop`."""

    path: Path
    start: int
    stop: int

    def batches(self) -> Iterator[RecordBatch]:
        """The batches, read by a handle of their own, so that a thread may. Raises BrokenBatch and OSError."""
        at, size = self.start, _PIECE_BYTES
        with self.path.open("rb") as file:
            while at < self.stop:
                file.seek(at)
                data = file.read(min(size, self.stop - at))
                whole = whole_batches(data)
                if not whole and len(data) < size:
                    raise BrokenBatch(f"{self.path}, byte {at}: not a whole batch")
                yield from decode_batches(whole, str(self.path))
                at, size = at + len(whole), _PIECE_BYTES if whole else 2 * size


class Segment:
    """A file that begins with offset `base` and ends before offset `end`, with `size` bytes."""

    def __init__(self, partition: Path, base: int, *, new: bool = False) -> None:
        """Open the file, or make it. Raises OSError."""
        self.base = self.end = base
        self.path = partition / f"{base:020d}.log"
        self.size = 0
        flags = os.O_RDWR | (os.O_CREAT | os.O_TRUNC if new else 0)
        self._file = os.open(self.path, flags, 0o600)
        self._offsets = array("q")
        self._positions = array("q")

    def load(self, note: Callable[[BatchHead], None], epoch: int) -> BrokenBatch | None:
        """Find the batches in the file, beginning with the one at `base`, of `epoch` or a later one. Where one is not
        whole or does not follow, the segment ends, and why is returned. `note` is given the head of each."""
        file_size = os.fstat(self._file).st_size
        if not file_size:
            return None
        view = memoryview(mmap.mmap(self._file, file_size, access=mmap.ACCESS_READ))
        try:
            for head in in_order(scan_batches(view, str(self.path)), str(self.path), self.end, epoch):
                self._take(head, 0)
                note(head)
        except BrokenBatch as broken:
            return broken.with_traceback(None)  # its frames hold the file's memory
        return None

    def append(self, data: bytes, heads: list[BatchHead]) -> None:
        """Write batches behind the others. Raises OSError, and then the file is as it was, unless cutting it fails."""
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
        """Whole batches from the one that holds `offset`, up to `max_bytes`, but at least one."""
        position = self.position(offset)
        data = os.pread(self._file, min(max(max_bytes, INDEX_BYTES), self.size - position), position)
        whole = _whole_bytes(data, max_bytes)
        if whole:
            return data[:whole]
        first = LENGTH_END + int.from_bytes(data[_OFFSET_BYTES:LENGTH_END], "big")
        return os.pread(self._file, first, position)

    def position(self, offset: int) -> int:
        """Where the batch that holds `offset` begins; `size` if it is behind all."""
        if offset >= self.end:
            return self.size
        position = self._positions[bisect_right(self._offsets, offset) - 1]
        while True:
            base, length = self._head(position)
            following = position + LENGTH_END + length
            if following >= self.size or self._head(following)[0] > offset:
                return position if base <= offset else self.size
            position = following

    def cut(self, offset: int) -> None:
        """Let go of the batches that reach beyond `offset`, durably."""
        position = self.position(offset)
        if position < self.size:
            self.end = self._head(position)[0]
            self.size = position
            kept = bisect_right(self._offsets, self.end - 1)
            del self._offsets[kept:], self._positions[kept:]
        os.ftruncate(self._file, self.size)
        self.sync()

    def sync(self) -> None:
        """Make all that was written durable. Raises OSError."""
        os.fdatasync(self._file)

    def remove(self) -> None:
        """Take the file away; the name is gone durably when the folder is synced."""
        self.close()
        self.path.unlink()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _take(self, head: BatchHead, start: int) -> None:
        position = start + head.position
        if not self._positions or position - self._positions[-1] >= INDEX_BYTES:
            self._offsets.append(head.base_offset)
            self._positions.append(position)
        self.end = head.last_offset + 1
        self.size = start + head.end

    def _head(self, position: int) -> tuple[int, int]:
        """The first offset of the batch at a position, and how many bytes follow its length."""
        head = os.pread(self._file, LENGTH_END, position)
        return int.from_bytes(head[:_OFFSET_BYTES], "big"), int.from_bytes(head[_OFFSET_BYTES:], "big")


def in_order(heads: Iterator[BatchHead], where: str, offset: int, epoch: int) -> Iterator[BatchHead]:
    """Batches that begin at `offset`, follow one another, and are of `epoch` or later ones. Raises BrokenBatch."""
    for head in heads:
        if head.base_offset != offset or head.epoch < epoch:
            raise BrokenBatch(
                f"{where}, byte {head.position}: a batch of offset {head.base_offset} and epoch {head.epoch} does not "
                f"follow on; next is offset {offset}, epoch {epoch} or later"
            )
        offset, epoch = head.last_offset + 1, head.epoch
        yield head


def _whole_bytes(data: bytes, limit: int) -> int:
    """Up to where `data` has whole batches, of `limit` bytes at most."""
    at = 0
    while len(data) - at >= LENGTH_END:
        end = at + LENGTH_END + int.from_bytes(data[at + _OFFSET_BYTES : at + LENGTH_END], "big")
        if end > min(len(data), limit):
            break
        at = end
    return at
