"""Folding a log shard by shard, beside each other.

What one topic's state is never depends on another topic's, so each shard is folded by itself: events are brought
together by shard key, sorted by offset within it, and handed to a Python function one shard after another. Only one
shard's state is in memory at a time, whatever the size of the log or of the shard. Where a frame has the events of
several logs, each with offsets of its own (`log_partition`), shards of different logs are different shards.

Broker and settings events concern every topic. They are few, so they are not joined to the shards: `cluster_events`
reads them once, and the function that folds carries them along.

What it does not do: it knows nothing of what events say. It imports nothing of the machine, so that a check
which is to be independent of it can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from events.codec import decode_event
from events.logs.log import read_one, shard_offsets
from events.names import CLUSTER_SHARD
from projections.replay.log.log_ref import End, KafkaRef, Ref, events_before, in_partitions, looked_at
from projections.replay.spark.columns import ddl
from projections.replay.spark.mapping import map_in_arrow
from projections.replay.spark.options import collector_off
from projections.replay.spark.source import events_frame

Stored = tuple[int, bytes]
"""An event as it is stored: its offset and its canonical bytes."""
Clusters = Mapping[int, Sequence[Stored]]
"""The events that concern every topic, by log partition."""
Row = tuple[Any, ...]
ShardFold = Callable[[str, Iterator[Stored]], Iterable[Row]]
"""What one shard's events come to: gets the shard key and the events in order, gives rows."""
Sorted = tuple[int, str, int, bytes]
"""An event with its place: log partition, shard key, offset, bytes."""
PartitionReader = Callable[[Iterator[Sorted]], Iterator[Row]]
"""The same for many shards at once: gets the events sorted by their places."""

_PLACED = ("log_partition", "shard", "offset", "value")
FOLDED_COLUMNS = (*_PLACED, "topic")
"""What folds need; `topic` is null of events that concern every topic."""
OF_TOPICS = "topic is not null"
SHARES = 8
"""Into how many parts the shards are divided where nobody says."""
SHARE_EVENTS = 100_000  # of a task: long beside its start, many enough for all cores
_ROWS_PER_BATCH = 5_000  # Arrow's batches between Python and Java


def cluster_events(ref: Ref, end: End) -> Clusters:
    """The events before `end` that concern every topic, in order, by log partition. Raises ReplayError.

    Under their shard key there may be requests for a topic without a name too, which were refused.
    """
    ends = in_partitions(ref, end)
    if isinstance(ref, KafkaRef):
        return {
            one.partition: tuple(stored for stored in one.cluster if stored[0] < ends[one.partition])
            for one in ref.scan.partitions
        }
    with looked_at(ref) as log:
        offsets = shard_offsets(log, CLUSTER_SHARD, 0, ends[ref.partition])
        stored = ((offset, read_one(log, offset)) for offset in offsets)
        return {ref.partition: tuple((offset, value) for offset, value in stored if _concerns_all(offset, value))}


def shards_frame(spark: SparkSession, ref: Ref, end: End) -> DataFrame:
    """The events of topics before `end`, as folds need them."""
    return events_frame(spark, ref, end=end, columns=FOLDED_COLUMNS).where(OF_TOPICS)


def _concerns_all(offset: int, value: bytes) -> bool:
    return not hasattr(decode_event(offset, value).event, "topic")


def shares_for(end: End) -> int:
    """Into how many parts to divide the shards of the events before `end`."""
    return max(1, -(-events_before(end) // SHARE_EVENTS))


def fold_shards(frame: DataFrame, fold: ShardFold, schema: pa.Schema, shares: int = SHARES) -> DataFrame:
    """What `fold` makes of each shard in a frame with the columns FOLDED_COLUMNS, as rows of `schema`; that begins with
    `log_partition`, which the fold leaves out."""

    def each_shard(events: Iterator[Sorted]) -> Iterator[Row]:
        for (log_partition, shard), run in groupby(events, key=itemgetter(0, 1)):
            for row in fold(shard, map(itemgetter(2, 3), run)):
                yield (log_partition, *row)

    return fold_partitions(frame, each_shard, schema, shares)


def fold_partitions(frame: DataFrame, fold: PartitionReader, schema: pa.Schema, shares: int = SHARES) -> DataFrame:
    """The same with a fold that sees all shards of one share, one after another."""

    def folded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with collector_off():
            yield from as_batches(fold(_events(batches)), schema)

    return map_in_arrow(sorted_by_shard(frame, shares), folded, ddl(schema))


def as_batches(rows: Iterable[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in Arrow, some thousand at a time."""
    left = iter(rows)
    while some := list(islice(left, _ROWS_PER_BATCH)):
        arrays = [pa.array(column, field.type) for column, field in zip(zip(*some, strict=True), schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def sorted_by_shard(frame: DataFrame, shares: int = SHARES) -> DataFrame:
    """A frame with each shard's events in one partition, in order."""
    placed = frame.select(*_PLACED).repartition(shares, "log_partition", "shard")
    return placed.sortWithinPartitions("log_partition", "shard", "offset")


def _events(batches: Iterator[pa.RecordBatch]) -> Iterator[Sorted]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in _PLACED), strict=True)
