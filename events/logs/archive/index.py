"""Where the topics and requests of an archived segment are: what the log's index had of it.

A file as snapshots are (`events.logs.snapshot_file`): names in order, in blocks with checksums, so that one name is
found without reading the others.

    t SHARD_KEY NUL, r REQUEST_ID NUL     the runs of events under it: MessagePack of [gap, length, gap, length …], the
                                          gaps counted from the segment's start and from the end of the run before
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from events.catalog import EVENT_VERSION, Recorded
from events.followed import indexed_under
from events.logs.log import LogCorrupted
from events.logs.rocksdb_batch import REQUEST, SHARD
from events.logs.rocksdb_runs import run_prefix
from events.logs.snapshot_file import About, Snapshot, SnapshotDamaged, write_snapshot

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[int]).decode


class IndexBuilder:
    """Takes the events of a segment in order."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._runs: dict[bytes, list[int]] = {}
        self._ends: dict[bytes, int] = {}

    def add(self, record: Recorded) -> None:
        """One more event."""
        for kind, of_requests in ((SHARD, False), (REQUEST, True)):
            name = indexed_under(record, of_requests)
            if name or not of_requests:
                self._take(run_prefix(kind, name), record.offset)

    def content(self, cluster_id: str, last_event: bytes, event_version: int = EVENT_VERSION) -> bytes:
        """The file."""
        about = About(cluster_id, max(self._ends.values()), event_version, zlib.crc32(last_event))
        return packed(about, ((key, _encode(self._runs[key])) for key in sorted(self._runs)))

    def _take(self, key: bytes, offset: int) -> None:
        runs = self._runs.setdefault(key, [])
        end = self._ends.get(key, self._start)
        if runs and end == offset:
            runs[-1] += 1
        else:
            runs += (offset - end, 1)
        self._ends[key] = offset + 1


def packed(about: About, pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A file of pairs in the order of their keys."""
    with TemporaryDirectory(prefix="topicwright-index-") as folder:
        path = Path(folder) / "index"
        write_snapshot(path, about, pairs)
        return path.read_bytes()


class SegmentIndex:
    """The index of a segment, open for reading in any thread."""

    def __init__(self, file: Snapshot, start: int) -> None:
        self._file = file
        self._start = start

    def runs(self, prefix: bytes) -> list[range]:
        """The offsets of the events under a name, by its key. Raises LogCorrupted."""
        try:
            value = self._file.get(prefix)
        except (SnapshotDamaged, OSError) as error:
            raise LogCorrupted(str(error)) from None
        return [] if value is None else _ranges(self._start, _decode(value))

    def names(self, kind: bytes, after: bytes) -> Iterator[bytes]:
        """The keys of one kind, in order, after one of them (b"": all). Raises LogCorrupted."""
        try:
            for key, _ in self._file.scan(kind, after or None):
                yield key
        except (SnapshotDamaged, OSError) as error:
            raise LogCorrupted(str(error)) from None

    def each(self) -> Iterator[tuple[bytes, list[range]]]:
        """All names with their runs. Raises LogCorrupted."""
        try:
            for key, value in self._file.scan():
                yield key, _ranges(self._start, _decode(value))
        except (SnapshotDamaged, OSError) as error:
            raise LogCorrupted(str(error)) from None


def _ranges(start: int, runs: Sequence[int]) -> list[range]:
    found, end = [], start
    for gap, length in zip(runs[::2], runs[1::2], strict=True):
        found.append(range(end + gap, end + gap + length))
        end += gap + length
    return found
