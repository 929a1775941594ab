"""Exports a log to Parquet, and adds new events to an existing export (`topicwright replay export`).

An export is for SQL queries, in Spark or any other engine that reads Parquet. Reading it is several times faster than
decoding the log, and needs no code of this project.

    OUTPUT/events-000000000000-000000250000.parquet    events by columns (`columns`) from one offset up to another
    OUTPUT/_topicwright.json                           the `Note`: cluster, next offset, last event, files

OUTPUT is a folder, or a URL of an object store as for an archive (`events.logs.archive.store`). A log in Kafka is
exported to one such folder for each partition, OUTPUT/partition-00000/ and so on.

Method. Each run of the command adds the events that are new since the last run. Each task writes its own range of
offsets as a file, because passing events through Java as rows costs more than decoding them. A row group has the events
of one bucket of shards, so that a task reads all events of a bucket and no others, without a shuffle. A file appears
when it is complete, and a task that runs twice writes the same file. The note is replaced once every task has reported
its file and the file exists. A run that fails removes its files; the next run removes those of a run that died. Before
a run adds anything, it checks that the log is the exported one: the cluster id and the bytes of the last exported event
must be the same.

An object store has no paths for DuckDB: each task copies a file to a temporary folder, and all events of a shard come
together in a shuffle. Non-goals: removing exported events, and folders that this process and the workers do not share.
Only synced events are exported.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zlib import crc32

import duckdb
import msgspec
import pyarrow as pa

from events.logs.archive.store import Folder, open_store, within
from events.logs.log import read_one
from projections.replay.log.columns import COLUMNS, arrow_schema
from projections.replay.log.kafka_ref import KafkaTopic
from projections.replay.log.kafka_scan import KafkaRef, Range, event_at
from projections.replay.log.log_ref import Ends, LogRef, Ref, ends_of, log_of, ranges_of, read_range
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.runner import WRITTEN, Batches, Runner, Source, events_of
from projections.text.wording import many

FILE_EVENTS = 250_000  # the most events in a file; one task writes or reads it
BUCKETS = 32
"""A shard is in the bucket of the CRC-32 of its key, modulo this number."""
CHUNK_BYTES = 128 << 20
"""The size in memory after which a file's events are written, a row group for each bucket."""
GROUP_EVENTS = 5_000
"""About the fewest events in a row group of a file with more events: each row group takes some ms to write and read."""
_BATCH_ROWS = 50_000
"""The number of rows in a batch of `exported`."""
_NAMES = tuple(COLUMNS)
_BUCKET = pa.field("bucket", pa.int32())
SCHEMA = arrow_schema(_NAMES).append(_BUCKET)
"""The columns of an export's files."""


def write_files(runner: Runner, ref: Ref, place: str, start: int, ends: Ends) -> tuple[str, ...]:
    """Write the events from `start` up to `ends` (exclusive) as files; returns their names. Raises ReplayError if the
    workers write to a folder that this process does not see."""
    log, wanted = log_of(ref), ranges_of(ref, start, ends, FILE_EVENTS)

    def written(one: Range) -> Batches:
        yield pa.RecordBatch.from_pydict({"file": [_write(log, one, place)]}, schema=WRITTEN)

    files = runner.fold(Source(wanted, written, WRITTEN), lambda batches: batches, WRITTEN)["file"].to_pylist()
    assert len(files) == len(wanted), "each range has a file"
    if not {*files} <= {*open_store(place).names("")}:
        raise ReplayError(
            f"{place} lacks files that the Spark workers wrote: name a folder that they share with this machine"
        )
    return tuple(sorted(files))


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The events as row groups, each with the events of one bucket, or of several if there are few events."""
    import pyarrow.compute as pc

    chunk, size = list[pa.RecordBatch](), 0
    for batch in chain(batches, (None,)):
        if batch is not None:
            chunk, size = [*chunk, batch], size + batch.nbytes
        if chunk and (batch is None or size >= CHUNK_BYTES):
            table = pa.Table.from_batches(chunk)
            shards = table["shard"].combine_chunks().dictionary_encode()
            known = pa.array([crc32(shard.encode()) % BUCKETS for shard in shards.dictionary.to_pylist()], _BUCKET.type)
            table = table.append_column(_BUCKET, known.take(shards.indices))
            together = -(-BUCKETS // max(1, len(table) // GROUP_EVENTS))
            groups = pc.divide(table["bucket"], together)
            yield from filter(len, (table.filter(pc.equal(groups, one)) for one in range(BUCKETS)))
            chunk, size = [], 0


def _write(log: LogRef | KafkaTopic, wanted: Range, place: str) -> str:
    """Write the file of a range; returns its name."""
    import pyarrow.parquet as pq

    name, out, events = f"{PREFIX}{wanted.start:012}-{wanted.end:012}{_SUFFIX}", pa.BufferOutputStream(), 0
    with pq.ParquetWriter(out, SCHEMA, compression="snappy") as parquet:
        for group in _row_groups(read_range(log, wanted, _NAMES)):
            parquet.write_table(group)
            events += len(group)
    assert events == wanted.end - wanted.start, f"{name} has all events of its range"
    open_store(place).write(name, memoryview(out.getvalue()))
    return name


NOTE = "_topicwright.json"
PREFIX = "events-"
"""The prefix of the files of events."""
_SUFFIX = ".parquet"
PARTITION = "partition-"
"""The prefix of the folder of a log partition."""


class Note(msgspec.Struct, frozen=True):
    """The file `_topicwright.json`: the export has the events before `next_offset`, in these files."""

    cluster_id: str
    next_offset: int
    last_event: str
    """SHA-256 of the bytes of the event before `next_offset`."""
    columns: tuple[str, ...]
    files: tuple[str, ...]


def run_export(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay export`: add the new events up to `options.at` to an export. Raises ReplayError."""
    rows, lines = [], []
    for place, (added, note) in export(runner, ref, options.export or "", ends_of(ref, options.at)).items():
        held = f"{many(note.next_offset, 'event')} of cluster {note.cluster_id}, up to offset {note.next_offset - 1}"
        lines.append(f"{many(added, 'event')} added: {place} holds {held}")
        row = {"output": place, "added": added, "next_offset": note.next_offset, "cluster_id": note.cluster_id}
        rows.append(row)
    return Outcome(rows, False, lines)


def check_export(ref: Ref, options: Options) -> None:
    """Check, before Spark starts, that the folder can hold an export of this log. Raises ReplayError."""
    if (folder := options.export) is None:
        return
    if isinstance(ref, KafkaRef) and open_store(folder).read(NOTE) is not None:
        raise ReplayError(f"{folder} is an export of a data directory: export {ref.text} to another folder")
    for place, (partition,) in _places(ref, folder, ends_of(ref)).items():
        note = read_note(place)
        if note is not None:
            with _log_end(ref, partition) as log:
                _continued(log, note, place, ref)


def export(runner: Runner, ref: Ref, folder: str, ends: Ends) -> dict[str, tuple[int, Note]]:
    """Add the new events before `ends`; of a log in Kafka to a folder for each partition. Returns, by folder, how many
    were added, and the new note.

    Raises ReplayError if a folder holds something else, an export of another log, or one with other columns.
    """
    return {place: _add_events(runner, ref, place, some) for place, some in _places(ref, folder, ends).items()}


def _places(ref: Ref, folder: str, ends: Ends) -> dict[str, Ends]:
    """The folder of each log partition, with its end."""
    if isinstance(ref, LogRef):
        return {folder: ends}
    return {_partition(folder, partition): {partition: end} for partition, end in ends.items() if end}


def _partition(folder: str, partition: int) -> str:
    return within(folder, f"{PARTITION}{partition:05}")


def _add_events(runner: Runner, ref: Ref, place: str, ends: Ends) -> tuple[int, Note]:
    """Add the events of one log partition."""
    before, ((partition, end),) = read_note(place), ends.items()
    with _log_end(ref, partition) as log:
        start = 0 if before is None else _continued(log, before, place, ref)
        if before is not None and end <= start:
            return 0, before
        last = log.hash_at(end - 1)
    files = () if before is None else before.files
    _remove_others(place, files)
    try:
        files = (*files, *write_files(runner, ref, place, start, ends))
    except BaseException:
        _remove_others(place, files)
        raise
    note = Note(log.cluster_id, end, last, tuple(SCHEMA.names), files)
    open_store(place).write(NOTE, msgspec.json.format(msgspec.json.encode(note)) + b"\n")
    return end - start, note


class _Part(NamedTuple):
    """The events in some files of an export, each with its folder; of one bucket, or of all (None)."""

    files: tuple[tuple[str, str], ...]
    bucket: int | None = None


def exported(folder: str, ends: Ends, columns: Sequence[str], starts: Ends | None = None) -> Source:
    """The events of an export from `starts` up to `ends`, with some of their columns. Raises ReplayError."""
    ranges = " or ".join(
        f'(log_partition = {one} and "offset" >= {(starts or {}).get(one, 0)} and "offset" < {end})'
        for one, end in ends.items()
    )
    schema, names = arrow_schema(columns), ", ".join(f'"{name}"' for name in columns)

    def query(some: Sequence[_Part], copies: str = "") -> str:
        wanted = ", ".join(str(part.bucket) for part in some if part.bucket is not None)
        files = dict.fromkeys(file for part in some for file in part.files)
        paths = ", ".join("'" + _path(*file, copies).replace("'", "''") + "'" for file in files)
        buckets = f"and bucket in ({wanted})" if wanted else ""
        return f"select {names} from read_parquet([{paths}]) where ({ranges}) {buckets}"

    def read(part: _Part) -> Batches:
        with TemporaryDirectory(prefix="topicwright-export-") as copies, duckdb.connect() as database:
            database.execute("set threads = 1")  # pyarrow takes twice as long for nested columns
            found = database.sql(query([part], copies)).to_arrow_reader(_BATCH_ROWS)
            yield from (batch.cast(schema) for batch in found)

    files = tuple(exported_files(folder, ends, starts or {}))
    parts, buckets = [_Part((file,)) for file in files], [_Part(files, number) for number in range(BUCKETS)]
    if not isinstance(open_store(folder), Folder):
        return Source(parts, read, schema)
    return Source(parts, read, schema, buckets, query)


def _path(place: str, name: str, copies: str) -> str:
    """The path of a file; one in an object store is copied to the folder `copies`."""
    store = open_store(place)
    if isinstance(store, Folder):
        return f"{store.url}/{name}"
    content = store.read(name)
    if content is None:
        raise ReplayError(f"{place} lacks {name}: export to another folder")
    (copy := Path(copies, name)).write_bytes(content)
    return str(copy)


def exported_files(folder: str, ends: Ends, starts: Ends) -> list[tuple[str, str]]:
    """The Parquet files of an export that may have events from `starts` on, each with its folder; of a log in Kafka
    those of its partitions. Raises ReplayError."""
    whole = open_store(folder).read(NOTE) is not None
    places = {one: folder if whole else _partition(folder, one) for one in ends}
    notes = {one: note.files for one, place in places.items() if (note := read_note(place)) is not None}
    if not any(notes.values()):
        raise ReplayError(f"{folder} holds no export: make one with `topicwright replay export LOG --to {folder}`")
    return [
        (places[one], name)
        for one, names in notes.items()
        for name in names
        if int(name.removesuffix(_SUFFIX).rpartition("-")[2]) >= starts.get(one, 0)
    ]


def events_from(runner: Runner, ref: Ref, ends: Ends, options: Options) -> Callable[[Sequence[str]], Source]:
    """The events of a log before `ends`; from its export in the folder `options.export`, if given, to which the
    new events are added first. Raises ReplayError."""
    if options.export is None:
        return partial(events_of, ref, ends)
    export(runner, ref, options.export, ends)
    return partial(exported, options.export, ends)


class _LogEnd(NamedTuple):
    """A log partition up to its newest event, before `end`."""

    cluster_id: str
    end: int
    hash_at: Callable[[int], str]


@contextmanager
def _log_end(ref: Ref, partition: int) -> Iterator[_LogEnd]:
    if isinstance(ref, KafkaRef):
        one = next(one for one in ref.partitions if one.partition == partition)
        cluster = f"{ref.cluster_id}, topic {ref.topic.topic}"
        yield _LogEnd(cluster, one.end, lambda offset: sha256(event_at(ref.topic, one, offset)).hexdigest())
        return
    with frozen_log(ref.path) as log:
        yield _LogEnd(log.cluster_id, log.durable_offset, lambda offset: sha256(read_one(log, offset)).hexdigest())


def read_note(place: str) -> Note | None:
    """The note of an export; None if there is no export yet. Raises ReplayError if the folder holds something else."""
    store = open_store(place)
    content = store.read(NOTE)
    if content is None:
        if any(not name.startswith((PREFIX, "_")) for name in store.names("")):
            raise ReplayError(f"{place} holds files that are not an export: name another folder")
        return None
    try:
        note = msgspec.json.decode(content, type=Note)
    except msgspec.DecodeError as error:
        raise ReplayError(f"{NOTE} in {place} cannot be read ({error}): export to another folder") from error
    if note.columns != tuple(SCHEMA.names):
        raise ReplayError(f"{place} was exported by another release, with other columns: export to another folder")
    return note


def _continued(log: _LogEnd, note: Note, folder: str, ref: Ref) -> int:
    """The offset where the export continues. Raises ReplayError if this is not the exported log."""
    if log.cluster_id != note.cluster_id:
        raise ReplayError(f"{folder} is an export of cluster {note.cluster_id}, {ref.text} the log of {log.cluster_id}")
    if log.end < note.next_offset:
        raise ReplayError(
            f"{folder} holds events up to offset {note.next_offset - 1}, but {ref.text} ends at offset "
            f"{log.end - 1}: it has lost events, or is an older copy"
        )
    if log.hash_at(note.next_offset - 1) != note.last_event:
        raise ReplayError(
            f"the last event in {folder}, at offset {note.next_offset - 1}, is not the one in {ref.text}, though both "
            f"are of cluster {note.cluster_id}; export to another folder"
        )
    return note.next_offset


def _remove_others(place: str, kept: tuple[str, ...]) -> None:
    """Remove the files of events that are not `kept`: those of a run that failed or died."""
    store = open_store(place)
    for name in store.names(""):
        if name.startswith(PREFIX) and name not in kept:
            store.remove(name)
