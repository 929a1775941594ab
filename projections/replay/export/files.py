"""The Parquet files of an export, written by the tasks that read the log.

What it is for: as rows, events cost more on their way through Java than it takes to decode them. So a task that reads a
range of offsets writes what it has read itself, as columns, and reports to Spark only how much that was.

Method. One file for each range, named by its first offset, in groups of rows that fit memory. A file is written under a
name that readers pass over, synced, and renamed. All files go to a folder that belongs to this run alone, with a folder
for each segment; the export takes these over once every task has reported what it wrote, and that is there. So nothing
counts that a task has left which failed, was tried again, ran twice, or went on after its run had died: it finds its
folder gone.

What it does not do: write where this process and the workers do not both see the folder.
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
"""About how many events a group of rows has; what reads an export has as many in memory."""
GROUP_BYTES = 64 << 20
"""The size in memory at which a group ends earlier."""
_NAMES = tuple(COLUMNS)
_WRITTEN = pa.schema([("file", pa.string()), ("events", pa.int64())])


class Part(NamedTuple):
    """A file to be written: what it is to hold, and its place below the folder of the run."""

    wanted: Range
    file: str


def parts(ref: Ref, starts: Sequence[int], end: int, folders: Sequence[str]) -> list[Part]:
    """The files that hold the events of one log partition from the first of `starts` up to but not including `end`: for
    each start those of its segment, in its folder."""
    (partition,) = [ref.partition] if isinstance(ref, LogRef) else [one.partition for one in ref.scan.partitions]
    return [
        Part(wanted, f"{folder}/part-{wanted.start:012}.parquet")
        for (first, last), folder in zip(pairwise((*starts, end)), folders, strict=True)
        for wanted in ranges_of(ref, first, {partition: last}, FILE_EVENTS)
    ]


def write_parts(runner: Runner, ref: Ref, place: Path, wanted: Sequence[Part]) -> None:
    """Write files below the folder `place`, where their own folders are; nothing else is left in those.

    Raises ReplayError where the workers write to a folder that this process does not see.
    """
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
    """Write one file; its name, and how many events it has."""
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
