"""The objects of an archived segment: its events as Parquet, and the index of its topics and requests.

Events have the columns of an export, for SQL, and `canonical`: the bytes of an event where the column `value`, which
hides secrets, differs. Rows are in offset order, in row groups, so that reading some events decompresses one group and
two columns. An archive may be forged, so nothing is decompressed before its size is known (`pages`): a group holds at
most GROUP events of about GROUP_BYTES, and `value` and `canonical` are written without a dictionary.

The index is a file in the format of snapshots (`events.logs.snapshots`): names in order, in blocks with checksums, so
that one name is found without reading the others.

    t SHARD_KEY NUL, r REQUEST_ID NUL     runs of events of that name: MessagePack of [gap, length, gap, length …]; gaps
                                          are counted from the segment's start and from the end of the run before
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from events.catalog import EVENT_VERSION, Recorded
from events.codec import decode_event
from events.external_decision import indexed_under
from events.logs.archive.manifest import ArchiveDamaged, ArchiveInfo, Manifest, Stored
from events.logs.archive.pages import BadPages, Sizes, check_footer, sizes
from events.logs.log import LogCorrupted
from events.logs.merkle import PATH_LENGTH_MAX, Frontier
from events.logs.rocksdb_keys import REQUEST, SHARD, run_prefix
from events.logs.snapshots import Snapshot, SnapshotDamaged, SnapshotInfo, write_snapshot

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[int]).decode


class SegmentIndexBuilder:
    def __init__(self, start: int) -> None:
        self._start = start
        self._runs: dict[bytes, list[int]] = {}
        self._ends: dict[bytes, int] = {}

    def add(self, record: Recorded) -> None:
        for kind, of_requests in ((SHARD, False), (REQUEST, True)):
            name = indexed_under(record, of_requests)
            if name or not of_requests:
                self._take(run_prefix(kind, name), record.offset)

    def content(self, cluster_id: str, last_event: bytes, event_version: int = EVENT_VERSION) -> bytes:
        about = SnapshotInfo(cluster_id, max(self._ends.values()), event_version, zlib.crc32(last_event))
        return pairs_file(about, ((key, _encode(self._runs[key])) for key in sorted(self._runs)))

    def _take(self, key: bytes, offset: int) -> None:
        runs = self._runs.setdefault(key, [])
        end = self._ends.get(key, self._start)
        if runs and end == offset:
            runs[-1] += 1
        else:
            runs += (offset - end, 1)
        self._ends[key] = offset + 1


def pairs_file(info: SnapshotInfo, pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A file of pairs, which are in key order."""
    file = BytesIO()
    write_snapshot(file, info, pairs)
    return file.getvalue()


class SegmentIndex:
    """The index of a segment; any thread may read it."""

    def __init__(self, file: Snapshot, start: int) -> None:
        self._file = file
        self._start = start

    def runs(self, prefix: bytes) -> list[range]:
        """The runs of events under a name, by its key. Raises LogCorrupted."""
        try:
            value = self._file.get(prefix)
        except (SnapshotDamaged, OSError) as error:
            raise LogCorrupted(str(error)) from None
        return [] if value is None else _ranges(self._start, _decode(value))

    def names(self, kind: bytes, after: bytes) -> Iterator[bytes]:
        """The keys of one kind, in order, after a given one (b"": all). Raises LogCorrupted."""
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


GROUP: Final = 8192
"""Maximum events of a row group."""
GROUP_BYTES: Final = 16 << 20
_BATCH: Final = 512
_BATCH_BYTES: Final = 2 << 20
"""Size of a batch between two calls of `rest`: some milliseconds of work."""
UNPACKED_BYTES_MAX: Final = 128 << 20
_VALUES_MAX: Final = 1 << 25
"""Limits of the decompressed columns of a row group. An event is smaller than its request, 100 MiB by default."""
CANONICAL, VALUE = "canonical", "value"


class ColumnMaker(Protocol):
    """Makes columns of events; one of them is `value`."""

    def add(self, recorded: Recorded, value: bytes) -> None: ...

    def batch(self) -> pa.RecordBatch: ...


class PackedSegment(NamedTuple):
    """A segment ready to be archived: its manifest and the objects that it names."""

    manifest: Manifest
    events: bytes
    names: bytes
    """The index."""


class _Packing:
    def __init__(self, columns: ColumnMaker, start: int) -> None:
        self._columns = columns
        self._index = SegmentIndexBuilder(start)
        self._frontier = Frontier()
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._group: list[pa.RecordBatch] = []
        self._group_bytes = 0

    def take(self, records: Sequence[tuple[Recorded, bytes]]) -> None:
        for record, value in records:
            self._index.add(record)
            self._columns.add(record, value)
        self._frontier.extend([value for _, value in records], PATH_LENGTH_MAX)
        self._group.append(_with_canonical(self._columns.batch(), records))
        self._group_bytes += sum(len(value) for _, value in records)
        if sum(map(len, self._group)) >= GROUP or self._group_bytes >= GROUP_BYTES:
            self._write_group()

    def done(self, cluster_id: str, last_event: bytes) -> tuple[bytes, bytes, bytes]:
        """The events, the index, and the root over the events."""
        if self._group:
            self._write_group()
        assert self._writer is not None, "a segment has events"
        self._writer.close()
        index = self._index.content(cluster_id, last_event)
        return self._sink.getvalue().to_pybytes(), index, self._frontier.root()

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._group)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._sink, table.schema, compression="zstd", use_dictionary=_with_dictionary(table.schema)
            )
        self._writer.write_table(table, row_group_size=GROUP)
        self._group, self._group_bytes = [], 0


def _with_dictionary(schema: pa.Schema) -> list[str]:
    """The paths of all columns except the two with event bytes, which rarely repeat."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    columns = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [one.path for one in columns if one.path not in (VALUE, CANONICAL)]


def _batches(values: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[Recorded, bytes]]]:
    batch, room = [], _BATCH_BYTES
    for offset, value in values:
        batch.append((decode_event(offset, value), value))
        room -= len(value)
        if len(batch) == _BATCH or room <= 0:
            yield batch
            batch, room = [], _BATCH_BYTES
    if batch:
        yield batch


def pack_segment(
    values: Iterator[tuple[int, bytes]], of: ArchiveInfo, columns: ColumnMaker, rest: Callable[[], None]
) -> PackedSegment:
    """The objects of a segment with these events, at least one. `rest` is called between batches, and may raise to
    stop.

    Raises LogError, EventDecodeError.
    """
    packing: _Packing | None = None
    first: Recorded | None = None
    size = 0
    for batch in _batches(values):
        if packing is None or first is None:
            first = batch[0][0]
            packing = _Packing(columns, first.offset)
        packing.take(batch)
        size += sum(len(value) for _, value in batch)
        last, last_value = batch[-1]
        rest()
    assert packing is not None, "a segment has events"
    assert first is not None, "a segment has events"
    events, index, root = packing.done(of.cluster_id, last_value)
    manifest = Manifest(
        cluster_id=of.cluster_id,
        history=of.history,
        start=first.offset,
        end=last.offset + 1,
        first_ms=first.at_ms,
        last_ms=last.at_ms,
        event_version=EVENT_VERSION,
        event_bytes=size,
        tree=root.hex(),
        events=Stored.of(events),
        index=Stored.of(index),
    )
    return PackedSegment(manifest, events, index)


def _with_canonical(batch: pa.RecordBatch, records: Sequence[tuple[Recorded, bytes]]) -> pa.RecordBatch:
    visible = batch.column(VALUE).to_pylist()
    rest = [None if value == one else value for one, (_, value) in zip(visible, records, strict=True)]
    arrays = [*batch.columns, pa.array(rest, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, CANONICAL])


class SegmentFile:
    """The events of a segment; any thread may read them."""

    def __init__(self, manifest: Manifest, content: bytes) -> None:
        self.manifest = manifest
        self._bytes, self._content = content, pa.py_buffer(content)
        self._metadata: pq.FileMetaData | None = None
        try:
            check_footer(content)
            metadata = self._metadata = self._open().metadata
        except (BadPages, pa.ArrowException, OSError) as error:
            raise ArchiveDamaged(f"{manifest.events_name} cannot be read: {error}") from None
        if metadata.num_rows != manifest.end - manifest.start:
            raise ArchiveDamaged(f"{manifest.events_name} has {metadata.num_rows} events, and its manifest says more")
        self._firsts = [manifest.start]
        for group in range(metadata.num_row_groups):
            rows = metadata.row_group(group).num_rows
            if not 0 < rows <= GROUP:
                raise ArchiveDamaged(f"{manifest.events_name} has a group of {rows} events; allowed: 1 to {GROUP}")
            self._firsts.append(self._firsts[-1] + rows)

    def groups(self, start: int, end: int) -> list[int]:
        """The row groups that hold the events in [start, end)."""
        pairs = enumerate(zip(self._firsts, self._firsts[1:], strict=False))
        return [number for number, (first, after) in pairs if first < end and after > start]

    def first_of(self, group: int) -> int:
        """The offset of the first event of a group."""
        return self._firsts[group]

    def values(self, group: int) -> list[bytes]:
        """The bytes of the events of a group. Raises ArchiveDamaged."""
        columns = [VALUE, CANONICAL]
        if not self._sized(group, columns).are_plain:
            raise ArchiveDamaged(f"{self.manifest.events_name} has events in an encoding that is not an archive's")
        try:
            table = self._open().read_row_group(group, columns=columns, use_threads=False)  # two: soon read
            found: list[bytes] = pc.coalesce(table[CANONICAL], table[VALUE]).cast(pa.binary()).to_pylist()
        except (pa.ArrowException, OSError, KeyError) as error:
            raise ArchiveDamaged(f"{self.manifest.events_name} cannot be read: {error}") from None
        if None in found:
            raise ArchiveDamaged(f"{self.manifest.events_name} lacks an event")
        return found

    def each_value(self) -> Iterator[bytes]:
        """The bytes of all events; one group at a time is decompressed. Raises ArchiveDamaged."""
        for group in range(len(self._firsts) - 1):
            yield from self.values(group)

    def batches(self, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Some columns of the events in [start, end); null if the file lacks a column."""
        file: Any = self._open()
        there = [name for name in schema.names if name in file.schema_arrow.names]
        for group in self.groups(start, end):
            first = self._firsts[group]
            self._sized(group, there)
            table = file.read_row_group(group, columns=there)
            low, high = max(start - first, 0), min(end - first, table.num_rows)
            for batch in table.slice(low, high - low).combine_chunks().to_batches():
                arrays = [
                    batch.column(field.name) if field.name in there else pa.nulls(len(batch), field.type)
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _sized(self, group: int, columns: Sequence[str]) -> Sizes:
        """The decompressed sizes of some columns. Raises ArchiveDamaged if they exceed the limits."""
        assert self._metadata is not None, "it was read at first"
        try:
            found = sizes(self._bytes, self._metadata.row_group(group), columns)
        except BadPages as error:
            raise ArchiveDamaged(f"{self.manifest.events_name} cannot be read: {error}") from None
        if found.unpacked > UNPACKED_BYTES_MAX or found.values > _VALUES_MAX:
            raise ArchiveDamaged(
                f"{self.manifest.events_name} has a group that unpacks to {found.unpacked} bytes, {found.values} "
                f"values; allowed: {UNPACKED_BYTES_MAX} bytes, {_VALUES_MAX} values"
            )
        return found

    def _open(self) -> pq.ParquetFile:
        """A reader for one thread. The file's metadata is decoded once."""
        return pq.ParquetFile(pa.BufferReader(self._content), metadata=self._metadata)
