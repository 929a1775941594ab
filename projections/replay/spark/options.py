"""Options of the data source `topicwright`, and reading one range of a log by them."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from events.catalog import Event
from events.codec import EventDecodeError, decode_event
from events.names import CLUSTER_SHARD, shard_key
from projections.replay.errors import ReplayError
from projections.replay.log.kafka_ref import KafkaTopic
from projections.replay.log.log_ref import LogRef
from projections.replay.log.ranges import Range, look_at, stored_events
from projections.replay.log.secondary import Look
from projections.replay.spark.column_batches import Columns
from projections.replay.spark.columns import arrow_schema

RANGE_EVENTS = 50_000
"""How many events one task reads at most."""
_BATCH_ROWS = 10_000
_BATCH_BYTES = 4 << 20
CLUSTER = "-"
"""How option `shards` names the shard of events that concern every topic."""


@contextmanager
def collector_off() -> Iterator[None]:
    """Python's collector off meanwhile: events and states hold no cycles, and looking for some takes half of the
    time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_range(
    log: LogRef | KafkaTopic, wanted: Range, names: Sequence[str], shards: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """The events of a range in batches: what is archived as it stands there in columns, the others decoded.

    Raises LogError, EventDecodeError; LogCorrupted where one is missing.
    """
    with collector_off():
        if isinstance(log, KafkaTopic) or wanted.start == wanted.end:
            yield from _decoded(log, stored_events(log, wanted), wanted.partition, names, shards)
            return
        with look_at(log, wanted) as opened:
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
    for offset, value in stored:
        try:
            recorded = decode_event(offset, value)
        except EventDecodeError as error:
            if isinstance(log, LogRef):
                raise
            raise ReplayError(f"{log.text}: partition {partition}, {error}") from None
        if shards is not None and _shard_of(recorded.event) not in shards:
            continue
        columns.add(recorded, value)
        room -= len(value)
        if room <= 0 or len(columns) >= _BATCH_ROWS:
            yield columns.batch()
            room = _BATCH_BYTES
    if len(columns):
        yield columns.batch()


def _archived(
    log: Look, start: int, end: int, partition: int, names: Sequence[str], shards: frozenset[str] | None
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


def positive(options: Mapping[str, str], name: str, otherwise: int) -> int:
    """An option that is a whole number above 0. Raises ReplayError."""
    number = number_option(options, name, otherwise)
    if number == 0:
        raise ReplayError(f"option {name} must be above 0")
    return number


def number_option(options: Mapping[str, str], name: str, otherwise: int) -> int:
    """An option that is a whole number, 0 or more. Raises ReplayError."""
    text = options.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit()):
        raise ReplayError(f"option {name}={text!r} is not a whole number, 0 or more")
    return int(text)


def wanted_shards(text: str | None) -> frozenset[str] | None:
    """The shard keys that option `shards` names; None for all."""
    if text is None:
        return None
    return frozenset("" if one == CLUSTER else shard_key(one) for one in map(str.strip, text.split(",")) if one)


def _shard_of(event: Event) -> str:
    topic: str | None = getattr(event, "topic", None)
    return CLUSTER_SHARD if topic is None else shard_key(topic)
