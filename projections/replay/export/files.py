"""Writes the Parquet files of an export, in the tasks that read the log.

Passing events through Java as rows costs more than decoding them. So each task writes its own range of offsets as
columns, and reports only the number of events to Spark.

Method. One file for each range, named by its first offset, in row groups that fit memory. A file is written under a
name that readers ignore, synced, and renamed. All files go to the folder of this run. The export takes them over once
every task has reported its file and the file exists. So files of a task that failed, was retried or ran twice do not
count, and a task that outlives its run fails because its folder is gone.

Non-goal: folders that this process and the workers do not share.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from secrets import token_hex  # noqa: TID251 - for the name of a file
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from projections.replay.errors import ReplayError
from projections.replay.log.column_batches import gathered
from projections.replay.log.columns import COLUMNS, arrow_schema
from projections.replay.log.kafka_ref import KafkaTopic
from projections.replay.log.log_ref import LogRef, Ref, log_of
from projections.replay.log.ranges import Range, ranges_of
from projections.replay.log.reading import read_range
from projections.replay.runner import Batches, Runner, Source, whole

FILE_EVENTS = 250_000  # a task's share, and what one reader takes at a time
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
        if not (place / part.file).is_file():
            raise ReplayError(
                f"the workers wrote to a folder {place} of their own: name one that they share with this machine"
            )
    for file in place.glob("*/*"):
        if str(file.relative_to(place)) not in events:
            file.unlink()  # of a task that was tried again


def _write(log: LogRef | KafkaTopic, part: Part, place: Path) -> dict[str, object]:
    """Write one file; returns its name and its number of events."""
    target = place / part.file
    fresh = target.with_name(f".{target.name}.{token_hex(8)}")
    events = 0
    try:
        with fresh.open("xb") as file:
            with pq.ParquetWriter(file, arrow_schema(_NAMES), compression="snappy") as parquet:
                for group in gathered(read_range(log, part.wanted, _NAMES), GROUP_EVENTS, GROUP_BYTES):
                    parquet.write_table(pa.Table.from_batches(group))
                    events += sum(map(len, group))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return {"file": part.file, "events": events}
