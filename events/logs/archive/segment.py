"""Reads segments of an archive: Parquet files with events in offset order, and an index in the footer.

Events have the columns of `topicwright replay export`, for SQL. The column `value` hides secrets. For an event with a
secret, the column `canonical` has the original bytes. Row groups are small, so that reading some events decompresses
one group and two columns.

The index has pairs in the format of snapshots (`events.logs.snapshots`): in key order, in blocks with checksums, so
that one key is found without reading the others. A run is a range of consecutive events of one topic or one request.

    t SHARD_KEY NUL, r REQUEST_ID NUL     runs of events of that key: MessagePack of [gap, length, gap, length …]; a gap
                                          is the distance from the end of the previous run, the first one from the
                                          segment's start
    s STATE_KEY                           the state keys of the requests that began in the segment, as the log had them
                                          when it was archived
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from events.catalog import Recorded
from events.codec import EventDecodeError, decode_event
from events.external_decision import indexed_under
from events.logs.archive.manifest import ArchiveDamaged, Segment, Stored
from events.logs.archive.parquet import ParquetFile, footer_of, index_in
from events.logs.log import REQUEST, SHARD
from events.logs.rocksdb_database import STATE, run_prefix
from events.logs.snapshots import Snapshot

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[int]).decode
CANONICAL, VALUE = "canonical", "value"
Pairs = dict[bytes, bytes]


class IndexBuilder:
    """Collects the runs of a segment's events, by shard key and by request id, for the index."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._runs: dict[bytes, list[int]] = {}
        self._ends: dict[bytes, int] = {}

    def add(self, record: Recorded) -> None:
        for kind, of_requests in ((SHARD, False), (REQUEST, True)):
            name = indexed_under(record, of_requests)
            if of_requests and not name:
                continue
            key = run_prefix(kind, name)
            runs, end = self._runs.setdefault(key, []), self._ends.get(key, self._start)
            if runs and end == record.offset:
                runs[-1] += 1
            else:
                runs += (record.offset - end, 1)
            self._ends[key] = record.offset + 1

    def pairs(self) -> Pairs:
        return {key: _encode(runs) for key, runs in self._runs.items()}


class SegmentIndex(Snapshot):
    """The index of a segment: runs of events by index key, and state keys, which `get` and `scan` read. Any thread may
    read it. All methods raise ArchiveDamaged."""

    def __init__(self, segment: Segment, content: bytes) -> None:
        """`content` is the segment's file, or only its footer."""
        self._segment = segment
        with NamedTemporaryFile(prefix="topicwright-archive-") as file:  # stays readable as long as it is open
            file.write(index_in(segment.name, content))
            file.flush()
            super().__init__(Path(file.name))

    def runs(self, prefix: bytes) -> list[range]:
        """The runs of events under an index key."""
        value = super().get(prefix)
        return [] if value is None else _ranges(self._segment.start, _decode(value))

    def names(self, kind: bytes, after: bytes) -> Iterator[bytes]:
        """The index keys of one kind, in order, after a given key (b"": all)."""
        return (key for key, _ in super().scan(kind, after or None))

    def each(self) -> Iterator[tuple[bytes, list[range]]]:
        for key, value in self.pairs().items():
            yield key, _ranges(self._segment.start, _decode(value))

    def get(self, key: bytes) -> bytes | None:
        return super().get(STATE + key)

    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        pairs = super().scan(STATE + prefix, None if start_after is None else STATE + start_after)
        return ((key[len(STATE) :], value) for key, value in pairs)

    def pairs(self) -> Pairs:
        """The pairs with runs."""
        return {key: value for kind in (REQUEST, SHARD) for key, value in Snapshot.scan(self, kind)}

    def _damaged(self, why: str) -> ArchiveDamaged:
        return ArchiveDamaged(f"{self._segment.name} has no index that can be read: {why}")


def _ranges(start: int, runs: Sequence[int]) -> list[range]:
    found, end = [], start
    for gap, length in zip(runs[::2], runs[1::2], strict=True):
        found.append(range(end + gap, end + gap + length))
        end += gap + length
    return found


class SegmentFile(ParquetFile):
    """The events of a segment; any thread may read them. All methods raise ArchiveDamaged."""

    def __init__(self, segment: Segment, content: bytes) -> None:
        super().__init__(segment.name, content)
        self.segment = segment
        self.firsts: list[int] = list(accumulate(self.group_rows, initial=segment.start))
        """The offset of the first event of each group, and the end."""
        if self.firsts[-1] != segment.end:
            raise ArchiveDamaged(
                f"{segment.name} has {sum(self.group_rows)} events instead of {segment.end - segment.start}"
            )

    @property
    def footer(self) -> Stored:
        return Stored.of(footer_of(self.content))

    def index(self) -> SegmentIndex:
        return SegmentIndex(self.segment, self.content)

    def groups(self, start: int, end: int) -> list[int]:
        """The row groups that hold the events in [start, end)."""
        pairs = enumerate(pairwise(self.firsts))
        return [number for number, (first, after) in pairs if first < end and after > start]

    def values(self, group: int) -> list[bytes]:
        table = self.read(group, (VALUE, CANONICAL), plain=True)
        try:
            found: list[bytes] = pc.coalesce(table[CANONICAL], table[VALUE]).cast(pa.binary()).to_pylist()
        except pa.ArrowException as error:
            raise self._unreadable(error) from None
        if None in found:
            raise ArchiveDamaged(f"{self.name} lacks an event")
        return found

    def each_value(self) -> Iterator[bytes]:
        """The bytes of all events; one group at a time is decompressed."""
        for group in range(len(self.firsts) - 1):
            yield from self.values(group)

    def records(self) -> Iterator[tuple[Recorded, bytes]]:
        for offset, value in enumerate(self.each_value(), self.segment.start):
            try:
                yield decode_event(offset, value), value
            except EventDecodeError as error:
                raise ArchiveDamaged(f"{self.name}: {error}") from None

    def batches(self, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Some columns of the events in [start, end); null if the file lacks a column."""
        own = self.schema.names
        there = [name for name in schema.names if name in own]
        for group in self.groups(start, end):
            first, table = self.firsts[group], self.read(group, there)
            low, high = max(start - first, 0), min(end - first, table.num_rows)
            for batch in table.slice(low, high - low).combine_chunks().to_batches():
                arrays = [
                    batch.column(field.name) if field.name in there else pa.nulls(len(batch), field.type)
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
