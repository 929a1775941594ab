"""Reads a range of a log as Arrow batches with the columns of `columns`, in the tasks of a replay."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from events.codec import decode_event
from projections.replay.log.columns import Columns, arrow_schema, shard_of
from projections.replay.log.kafka_ref import KafkaTopic
from projections.replay.log.kafka_scan import Range, decoded
from projections.replay.log.log_ref import LogRef, open_range, stored_events
from projections.replay.log.secondary import FrozenLog

RANGE_EVENTS = 50_000
"""The maximum number of events that one task reads."""
_BATCH_ROWS = 10_000
_BATCH_BYTES = 4 << 20


@contextmanager
def collector_off() -> Iterator[None]:
    """Turn off Python's garbage collector: events and states have no cycles, and a search for cycles takes half of the
    time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_range(
    log: LogRef | KafkaTopic, wanted: Range, names: Sequence[str], shards: frozenset[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The events of a range, of some shards (None: all): archived events as the columns in the archive, others decoded.

    Raises LogError, EventDecodeError; LogCorrupted if an event is missing.
    """
    with collector_off():
        if isinstance(log, KafkaTopic) or wanted.start == wanted.end:
            yield from _decoded(log, stored_events(log, wanted), wanted.partition, names, shards)
            return
        with open_range(log, wanted) as opened:
            here = min(max(wanted.start, opened.start_offset), wanted.end)
            if wanted.start < here:
                yield from _archived(opened, wanted.start, here, wanted.partition, names, shards)
            yield from _decoded(log, opened.read(here, wanted.end), wanted.partition, names, shards)


def _decoded(
    log: LogRef | KafkaTopic,
    stored: Iterable[tuple[int, bytes]],
    partition: int,
    names: Sequence[str],
    shards: frozenset[str] | None,
) -> Iterator[pa.RecordBatch]:
    columns, room = Columns(names, partition), _BATCH_BYTES
    decode = decode_event if isinstance(log, LogRef) else partial(decoded, log, partition)
    for offset, value in stored:
        recorded = decode(offset, value)
        if shards is not None and shard_of(recorded.event) not in shards:
            continue
        columns.add(recorded, value)
        room -= len(value)
        if room <= 0 or len(columns) >= _BATCH_ROWS:
            yield columns.batch()
            room = _BATCH_BYTES
    if len(columns):
        yield columns.batch()


def _archived(
    log: FrozenLog, start: int, end: int, partition: int, names: Sequence[str], shards: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    from events.logs.archive.segment import SegmentFile

    schema = arrow_schema(tuple(dict.fromkeys((*names, "shard"))))
    for segment in log.archive.segments(start, end):
        file = SegmentFile(segment, log.archive.content(segment))
        for batch in file.batches(start, end, schema):
            chosen = batch
            if shards is not None:
                chosen = batch.filter(pc.is_in(batch.column("shard"), pa.array(sorted(shards), pa.string())))
            if "log_partition" in names and partition:
                at = schema.get_field_index("log_partition")
                chosen = chosen.set_column(at, schema[at], pa.repeat(pa.scalar(partition, pa.int32()), len(chosen)))
            yield chosen.select(list(names))
