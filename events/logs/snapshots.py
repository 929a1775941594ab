"""Writes and reads snapshots of a log: the state keys at one offset, in a file that is never changed afterwards.

    snapshots/00000000000000250000.snapshot     in the log's folder: the state after event 249,999
    snapshots/….snapshot.tmp                    being written, or left by a process that died

    TWSNAP01             eight bytes
    blocks               some pairs each, in key order: MessagePack of [key, value, key, value …], compressed by zlib
    head                 MessagePack of `Head`: the log and offset of the snapshot, and the position of each block
    position of the head eight bytes, its CRC-32 four bytes, then TWSNAP01 again

Method. The file is written under a temporary name, synced and renamed. The head has a checksum of each block, and the
end of the file has one of the head, so readers detect a flipped byte. Keys are found by binary search in the head: a
page of some topics reads some blocks, however many there are.

A snapshot contains nothing that the events do not: any snapshot may be deleted at any time. A damaged snapshot, one of
another log, or one of events that the log lacks (it was restored from an older copy, or a torn tail was cut off) is
ignored.

Non-goals: when to take a snapshot, and what its keys mean; see `controller.store.snapshotting`.
"""

import os
import re
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from events.catalog import EVENT_VERSION
from events.codec import UNREADABLE
from events.files import UNFINISHED, replacing
from events.logs.log import EventLog, grouped, key_range, open_regular, pair_size, read_one

FORMAT = 1
_MAGIC = b"TWSNAP01"
_END = struct.Struct(">QI8s")
_BLOCK_BYTES = 32 << 10
"""The size of a block before it is compressed: a page of a hundred topics reads about one."""
UNPACKED_BYTES_MAX = 128 << 20
"""The limit of a decompressed block. A block ends with the pair that fills it, which may be an event."""
_HEAD_BYTES_MAX = 64 << 20
_COMPRESSION = 1

_encode = msgspec.msgpack.Encoder().encode
_decode_block = msgspec.msgpack.Decoder(list[bytes]).decode


class SnapshotDamaged(Exception):
    """A snapshot that cannot be used: incomplete, changed, or of a newer release.

    The message names the file and says why. The log works without the snapshot, which is rebuilt.
    """


class Block(msgspec.Struct, frozen=True, array_like=True):
    """A part of a snapshot's file: its first key, place, size in bytes, and CRC-32."""

    first_key: bytes
    position: int
    size: int
    checksum: int


class SnapshotInfo(msgspec.Struct, frozen=True):
    """The state after the last event before `offset`."""

    cluster_id: str
    offset: int
    event_version: int
    last_event: int
    """The CRC-32 of the event at `offset` - 1, which tells histories apart."""
    format: int = FORMAT


class Head(msgspec.Struct, frozen=True):
    about: SnapshotInfo
    blocks: tuple[Block, ...]


_decode_head = msgspec.msgpack.Decoder(Head).decode


def write_snapshot(file: BinaryIO, info: SnapshotInfo, pairs: Iterable[tuple[bytes, bytes]]) -> int:
    """Write a snapshot of pairs, in key order, to an empty file. Returns its size. Raises OSError, and what `pairs`
    raises."""
    blocks: list[Block] = []
    file.write(_MAGIC)
    for some in grouped(pairs, _BLOCK_BYTES, pair_size):
        stored = zlib.compress(_encode([part for pair in some for part in pair]), _COMPRESSION)
        blocks.append(Block(some[0][0], file.tell(), len(stored), zlib.crc32(stored)))
        file.write(stored)
    head, position = _encode(Head(info, tuple(blocks))), file.tell()
    file.write(head + _END.pack(position, zlib.crc32(head), _MAGIC))
    return file.tell()


class Snapshot:
    """An open snapshot: `get` and `scan` as of `EventLog`, for the state at `offset`.

    Any thread may read; the file may be deleted meanwhile. Every method raises SnapshotDamaged and OSError.
    """

    _file = -1

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_regular(path)
        try:
            self.size = os.fstat(self._file).st_size
            """In bytes."""
            head = self._read_head()
        except BaseException:
            self.close()
            raise
        self.about = head.about
        self.offset = head.about.offset
        """The offset of the first event that is not included."""
        self._blocks = head.blocks
        self._first_keys = [block.first_key for block in head.blocks]
        self._last: tuple[int, list[bytes]] = (-1, [])
        """The block read last: reading names in order reads each block once."""

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def get(self, key: bytes) -> bytes | None:
        number = bisect_right(self._first_keys, key) - 1
        block = self._block(number) if number >= 0 else []
        return next((block[at + 1] for at in range(0, len(block), 2) if block[at] == key), None)

    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        lower, upper = key_range(prefix, start_after)
        for number in range(max(0, bisect_right(self._first_keys, lower) - 1), len(self._first_keys)):
            if upper is not None and self._first_keys[number] >= upper:
                return
            block = self._block(number)
            for at in range(0, len(block), 2):
                key = block[at]
                if key >= lower and (upper is None or key < upper):
                    yield key, block[at + 1]

    def check(self) -> None:
        """Verify all checksums."""
        for number in range(len(self._first_keys)):
            self._stored(number)

    def _block(self, number: int) -> list[bytes]:
        at, block = self._last
        if at == number:
            return block
        try:
            unpacking = zlib.decompressobj()
            unpacked = unpacking.decompress(self._stored(number), UNPACKED_BYTES_MAX)
            if not unpacking.eof:
                raise self._damaged(f"block {number} does not end within {UNPACKED_BYTES_MAX} bytes")
            block = _decode_block(unpacked)
        except (zlib.error, *UNREADABLE) as error:
            raise self._damaged(str(error)) from None
        if len(block) % 2:
            raise self._damaged(f"block {number} has a key without a value")
        self._last = (number, block)
        return block

    def _stored(self, number: int) -> bytes:
        block = self._blocks[number]
        is_inside = 0 <= block.position <= block.position + block.size <= self.size
        stored = os.pread(self._file, block.size, block.position) if is_inside else b""
        if not is_inside or zlib.crc32(stored) != block.checksum:
            raise self._damaged(f"{block.size} bytes at {block.position} were changed")
        return stored

    def _read_head(self) -> Head:
        size = self.size
        end = os.pread(self._file, _END.size, max(0, size - _END.size))
        if len(end) < _END.size or size < len(_MAGIC) + _END.size:
            raise self._damaged(f"it has {size} bytes, too few")
        position, checksum, magic = _END.unpack(end)
        if magic != _MAGIC:
            raise self._damaged("it has no valid end")
        length = size - _END.size - position
        head = os.pread(self._file, length, position) if 0 <= length <= _HEAD_BYTES_MAX else b""
        if zlib.crc32(head) != checksum:
            raise self._damaged("its head was changed")
        try:
            decoded = _decode_head(head)
        except UNREADABLE as error:
            raise self._damaged(str(error)) from None
        if decoded.about.format > FORMAT:
            raise self._damaged(f"it is in format {decoded.about.format}; this release reads up to {FORMAT}")
        return decoded

    def _damaged(self, why: str) -> Exception:
        return SnapshotDamaged(f"{self.path}: {why}")


FOLDER = "snapshots"
_NAME = re.compile(r"(\d{20})\.snapshot")


def snapshot_offsets(log: EventLog) -> list[int]:
    """The offsets of all snapshots, usable or not, in order. Raises OSError."""
    try:
        names = os.listdir(log.path / FOLDER)
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found)


def open_snapshot(log: EventLog, offset: int) -> Snapshot:
    """The snapshot at an offset; the caller closes it. Raises SnapshotDamaged if it is not of this log's durable
    history, or of another event version; OSError."""
    snapshot = Snapshot(_path(log, offset))
    try:
        about = snapshot.about
        if about.event_version != EVENT_VERSION:
            raise SnapshotDamaged(f"{snapshot.path}: it is of event version {about.event_version}, not {EVENT_VERSION}")
        if not 0 < offset <= log.durable_offset or about != snapshot_info(log, offset):
            raise SnapshotDamaged(f"{snapshot.path}: it is not of this log's history")
    except BaseException:
        snapshot.close()
        raise
    return snapshot


def nearest_snapshot(log: EventLog, end: int) -> Snapshot | None:
    """The newest usable snapshot at or before `end`, which the caller closes; None if there is none. Raises
    LogError."""
    for offset in reversed(snapshot_offsets(log)):
        if offset <= end:
            with suppress(SnapshotDamaged, OSError):
                return open_snapshot(log, offset)
    return None


def newest_snapshot(log: EventLog) -> int | None:
    """The offset of the newest usable snapshot; None if there is none. Raises LogError."""
    snapshot = nearest_snapshot(log, log.durable_offset)
    if snapshot is None:
        return None
    with snapshot:
        return snapshot.offset


def snapshot_info(log: EventLog, offset: int) -> SnapshotInfo:
    """The description of a snapshot of a log at an offset above 0. Raises LogError."""
    return SnapshotInfo(log.cluster_id, offset, EVENT_VERSION, zlib.crc32(read_one(log, offset - 1)))


def store_snapshot(log: EventLog, info: SnapshotInfo, pairs: Iterable[tuple[bytes, bytes]]) -> int:
    """Store a snapshot of these pairs, in key order, atomically. Returns its size in bytes. Only one call may run at a
    time. Raises OSError, and what `pairs` raises."""
    path = _path(log, info.offset)
    path.parent.mkdir(0o700, exist_ok=True)
    with replacing(path) as file:
        return write_snapshot(file, info, pairs)


def remove_snapshot(log: EventLog, offset: int) -> None:
    """Delete a snapshot; readers that have it open are unaffected. Raises OSError."""
    _path(log, offset).unlink(missing_ok=True)


def remove_unfinished(log: EventLog) -> None:
    """Delete temporary files of a process that died. Raises OSError."""
    for one in (log.path / FOLDER).glob(f"*{UNFINISHED}"):
        one.unlink(missing_ok=True)


def _path(log: EventLog, offset: int) -> Path:
    return log.path / FOLDER / f"{offset:020}.snapshot"
