"""Exports a log to Parquet, and keeps the export up to date.

An export is for SQL queries, in Spark or any other engine that reads Parquet. Reading it is several times faster than
decoding the log, and needs no code of this project.

    OUTPUT/from_offset=0/part-….parquet             events by columns (`columns`), in segments of a million events
    OUTPUT/from_offset=1000000/part-….parquet
    OUTPUT/_topicwright.json                        the note: cluster, next offset, hash of the last event

A log in Kafka is exported to one such folder for each partition, OUTPUT/partition-00000/ and so on.

Method. Each run adds the events that are new since the last run. Each task writes its own range of offsets as a file,
in row groups that fit memory, because passing events through Java as rows costs more than decoding them. A file gets a
name that readers ignore, in a temporary folder of the run; it is synced and renamed. Once every task has reported its
file and the file exists, the segments are moved to their places, and the note is replaced in one step. So files of a
task that failed, was retried or ran twice do not count, and a task that outlives its run fails because its folder is
gone. Files of a run that died are in no note; the next run removes them. Before a run adds anything, it checks that the
log is the exported one: the cluster id and the bytes of the last exported event must be the same.

Non-goals: removing exported events, object stores, and folders that this process and the workers do not share. Only
synced events are exported.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from hashlib import sha256
from itertools import pairwise
from operator import or_
from pathlib import Path
from secrets import token_hex  # noqa: TID251 - for the names of files
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import dataset

from events.files import replacing
from events.logs.log import read_one
from projections.replay.log.columns import COLUMNS, arrow_schema
from projections.replay.log.kafka_ref import KafkaTopic
from projections.replay.log.kafka_scan import event_at
from projections.replay.log.log_ref import (
    Ends,
    KafkaRef,
    LogRef,
    Range,
    Ref,
    end_of,
    ends_of,
    log_of,
    open_frozen,
    ranges_of,
)
from projections.replay.log.reading import read_range
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.runner import Batches, Runner, Source, check_written, whole
from projections.text.wording import many

FILE_EVENTS = 250_000  # the most events in a file; one task writes or reads it
GROUP_EVENTS = 50_000
"""About how many events a row group has. A reader of an export has as many in memory."""
GROUP_BYTES = 64 << 20
"""A row group also ends at this size in memory."""
_NAMES = tuple(COLUMNS)
_WRITTEN = pa.schema([("file", pa.string()), ("events", pa.int64())])


class Part(NamedTuple):
    """A file to write: its range of events, and its path in the folder of the run."""

    wanted: Range
    file: str


def parts(ref: Ref, starts: Sequence[int], end: int, folders: Sequence[str]) -> list[Part]:
    """The files for the events of one log partition from the first of `starts` up to `end` (exclusive), by segment."""
    (partition,) = [ref.partition] if isinstance(ref, LogRef) else [one.partition for one in ref.scan.partitions]
    return [
        Part(wanted, f"{folder}/part-{wanted.start:012}.parquet")
        for (first, last), folder in zip(pairwise((*starts, end)), folders, strict=True)
        for wanted in ranges_of(ref, first, {partition: last}, FILE_EVENTS)
    ]


def write_parts(runner: Runner, ref: Ref, place: Path, wanted: Sequence[Part]) -> None:
    """Write files below the folder `place`, and remove all others from its folders. Raises ReplayError if the workers
    write to a folder that this process does not see."""
    log = log_of(ref)

    def written(part: Part) -> Batches:
        yield pa.RecordBatch.from_pylist([_write(log, part, place)], schema=_WRITTEN)

    rows = runner.fold(Source(wanted, written, _WRITTEN), whole, _WRITTEN).to_pylist()
    events = {row["file"]: row["events"] for row in rows}
    for part in wanted:
        assert events[part.file] == part.wanted.end - part.wanted.start, f"{part.file} has all events of its range"
    check_written(place, events, "*/*")


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Groups of batches, each for a row group."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        if len(batch):
            group.append(batch)
        if sum(map(len, group)) >= GROUP_EVENTS or sum(one.nbytes for one in group) >= GROUP_BYTES:
            yield group
            group = []
    if group:
        yield group


def _write(log: LogRef | KafkaTopic, part: Part, place: Path) -> dict[str, object]:
    """Write one file; returns its name and its number of events."""
    target = place / part.file
    fresh = target.with_name(f".{target.name}.{token_hex(8)}")
    events = 0
    try:
        with fresh.open("xb") as file:
            with pq.ParquetWriter(file, arrow_schema(_NAMES), compression="snappy") as parquet:
                for group in _gathered(read_range(log, part.wanted, _NAMES)):
                    parquet.write_table(pa.Table.from_batches(group))
                    events += sum(map(len, group))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return {"file": part.file, "events": events}


NOTE = "_topicwright.json"
SEGMENT_EVENTS = 1_000_000  # a folder of an export; those that are full are never written again
SEGMENT = "from_offset"
RUN = "_run-"
"""The prefix of the temporary folder of a run."""
PARTITION = "partition-"
"""The prefix of the folder of a log partition."""


class Note(msgspec.Struct, frozen=True):
    """The contents of an export: the events of a cluster's log before `next_offset`, in these segments."""

    cluster_id: str
    next_offset: int
    last_event: str
    """SHA-256 of the bytes of the event before `next_offset`."""
    columns: tuple[str, ...]
    segments: tuple[int, ...]


def run_export(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Add the new events up to `options.at` to the export in `options.output`. Raises ReplayError."""
    assert options.output is not None, "the command line requires it"
    rows, said = [], []
    for place, (added, note) in export_all(runner, ref, Path(options.output), options.at).items():
        said.append(f"{many(added, 'event')} added: {place} holds {_held(note)}")
        row = {"output": str(place), "added": added, "next_offset": note.next_offset, "cluster_id": note.cluster_id}
        rows.append(row)
    return Outcome(rows, False, said)


def _held(note: Note) -> str:
    return f"{many(note.next_offset, 'event')} of cluster {note.cluster_id}, up to offset {note.next_offset - 1}"


def check_export(ref: Ref, options: Options) -> None:
    """Check, before Spark starts, that the output folder can hold an export of this log. Raises ReplayError."""
    if options.output is None:
        return
    folder = Path(options.output)
    if not isinstance(ref, KafkaRef):
        noted(folder)
    elif (folder / NOTE).exists():
        raise ReplayError(f"{folder} is an export of a data directory: export {ref.text} to another folder")


Exported = dict[Path, tuple[int, Note]]
"""By folder: the number of added events, and the new note."""


def export_all(runner: Runner, ref: Ref, folder: Path, at: str | None = None) -> Exported:
    """Add the new events of all partitions up to a point in time. Raises ReplayError, as `export`."""
    if not isinstance(ref, KafkaRef):
        return {folder: export(runner, ref, folder, at)}
    return {
        folder / f"{PARTITION}{partition:05}": export(
            runner, ref.alone(partition), folder / f"{PARTITION}{partition:05}", at_end=end
        )
        for partition, end in ends_of(ref, at).items()
        if end
    }


def export(
    runner: Runner,
    ref: Ref,
    folder: Path,
    at: str | None = None,
    segment_events: int = SEGMENT_EVENTS,
    at_end: int | None = None,
) -> tuple[int, Note]:
    """Add the new events of one log partition, up to a point in time or before `at_end`. Returns how many, and the new
    note.

    Raises ReplayError if the folder holds something else, an export of another log, or one with other columns.
    """
    before = noted(folder)
    with _log_end(ref, at) as log:
        end = log.end if at_end is None else at_end
        start = 0 if before is None else _continued(log, before, folder, ref)
        if before is not None and end <= start:
            return 0, before
        last = log.hash_at(end - 1)
    kept = () if before is None else before.segments
    _remove_leftovers(folder, kept)
    added = segment_starts(start, end, segment_events)
    _add_segments(runner, ref, folder, added, end)
    note = Note(log.cluster_id, end, last, tuple(COLUMNS), (*kept, *added))
    with replacing(folder / NOTE) as file:
        file.write(msgspec.json.format(msgspec.json.encode(note)) + b"\n")
    return end - start, note


def exported(
    folder: Path,
    ends: Ends,
    columns: Sequence[str],
    starts: Ends | None = None,
    shards: Mapping[int, Collection[str]] | None = None,
) -> Source:
    """The events of an export from `starts` up to `ends`, of some shards by log partition (None: of all), with some of
    their columns. Raises ReplayError."""
    partition, offset, shard = map(dataset.field, ("log_partition", "offset", "shard"))
    wanted = [(partition == one) & (offset >= (starts or {}).get(one, 0)) & (offset < end) for one, end in ends.items()]
    if shards is not None:
        of_shards = [(partition == one) & shard.isin(list(some)) for one, some in shards.items()]
        wanted = [reduce(or_, wanted) & reduce(or_, of_shards)]

    def read(file: str) -> Batches:
        yield from dataset.dataset(file).to_batches(list(columns), filter=reduce(or_, wanted), batch_size=GROUP_EVENTS)

    return Source(exported_files(folder), read, arrow_schema(columns))


def exported_files(folder: Path) -> list[str]:
    """The Parquet files of an export. Raises ReplayError."""
    return [str(file) for segment in _segment_folders(folder) for file in sorted(segment.glob("*.parquet"))]


def _segment_folders(folder: Path) -> list[Path]:
    """The segments of an export; of a log in Kafka those of all partitions. Raises ReplayError."""
    notes = [(each, noted(each)) for each in sorted(folder.glob(f"{PARTITION}*")) or (folder,)]
    found = [each / f"{SEGMENT}={segment}" for each, note in notes if note is not None for segment in note.segments]
    if not found:
        raise ReplayError(f"{folder} holds no export: make one with `topicwright replay export LOG --output {folder}`")
    return found


class _LogEnd(NamedTuple):
    """A log partition: `end` is where this export stops, `newest` where the log ends."""

    cluster_id: str
    end: int
    newest: int
    hash_at: Callable[[int], str]


@contextmanager
def _log_end(ref: Ref, at: str | None) -> Iterator[_LogEnd]:
    if isinstance(ref, KafkaRef):
        (one,) = ref.scan.partitions
        name, end = f"{ref.scan.cluster_id}, topic {ref.topic.topic}", ends_of(ref, at)[one.partition]
        yield _LogEnd(name, end, one.end, lambda offset: sha256(event_at(ref.topic, one, offset)).hexdigest())
        return
    with open_frozen(ref) as log:
        yield _LogEnd(
            log.cluster_id,
            end_of(log, at),
            log.durable_offset,
            lambda offset: sha256(read_one(log, offset)).hexdigest(),
        )


def noted(folder: Path) -> Note | None:
    """The note of an export; None if there is no export yet. Raises ReplayError if the folder holds something else."""
    try:
        note = msgspec.json.decode((folder / NOTE).read_bytes(), type=Note)
    except FileNotFoundError:
        if folder.is_dir() and any(not one.name.startswith((SEGMENT, "_")) for one in folder.iterdir()):
            raise ReplayError(f"{folder} holds files that are not an export: name another folder") from None
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ReplayError(f"{folder / NOTE} cannot be read ({error}): export to another folder") from error
    if note.columns != tuple(COLUMNS):
        raise ReplayError(f"{folder} was exported by another release, with other columns: export to another folder")
    return note


def segment_starts(start: int, end: int, segment_events: int) -> list[int]:
    """The starts of the segments for these offsets: `start`, then each multiple of their size."""
    return [start, *range((start // segment_events + 1) * segment_events, end, segment_events)]


def _add_segments(runner: Runner, ref: Ref, folder: Path, starts: Sequence[int], end: int) -> None:
    """Write the segments that begin at `starts`; move them to their places once all are complete."""
    names = [f"{SEGMENT}={start}" for start in starts]
    folder.mkdir(0o700, parents=True, exist_ok=True)
    run = folder.resolve() / f"{RUN}{token_hex(8)}"
    for name in names:
        (run / name).mkdir(parents=True)
    try:
        write_parts(runner, ref, run, parts(ref, starts, end, names))
    except BaseException:
        shutil.rmtree(run, ignore_errors=True)  # the next run removes files that a task still writes
        raise
    for name in names:
        (run / name).rename(folder / name)
    run.rmdir()


def _continued(log: _LogEnd, note: Note, folder: Path, ref: Ref) -> int:
    """The offset where the export continues. Raises ReplayError if this is not the exported log."""
    if log.cluster_id != note.cluster_id:
        raise ReplayError(f"{folder} is an export of cluster {note.cluster_id}, {ref.text} the log of {log.cluster_id}")
    if log.newest < note.next_offset:
        raise ReplayError(
            f"{folder} holds events up to offset {note.next_offset - 1}, but {ref.text} ends at offset "
            f"{log.newest - 1}: it has lost events, or is an older copy"
        )
    if log.hash_at(note.next_offset - 1) != note.last_event:
        raise ReplayError(
            f"the last event in {folder}, at offset {note.next_offset - 1}, is not the one in {ref.text}, though both "
            f"are of cluster {note.cluster_id}; export to another folder"
        )
    return note.next_offset


def _remove_leftovers(folder: Path, kept: tuple[int, ...]) -> None:
    """Remove the files of a run that died."""
    known = {f"{SEGMENT}={segment}" for segment in kept}
    for one in (*folder.glob(f"{SEGMENT}=*"), *folder.glob(f"{RUN}*")):
        if one.name not in known:
            shutil.rmtree(one)
