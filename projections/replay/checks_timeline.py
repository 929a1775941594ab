"""The brokers and settings of every moment, as a table that events are joined to by their offset.

Broker and settings events are few, and concern every topic. They are read to the driver and folded here, in plain
Python that shares nothing with the machine, to spans of offsets in which nothing changes. A join on "offset between"
would compare every event with every span; so offsets are cut into chunks of equal size, each span stands once in every
chunk that it touches, and the join is one on equal chunks, broadcast, with the bounds compared within the chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, expr

CLUSTER_COLUMNS = ("log_partition", "offset", "at_ms", "type", "broker_id", "settings")
"""What is read of cluster events."""

CHUNKS = 4096
"""About how many chunks a log is cut into."""
CHUNK_EVENTS_MIN = 1024

_FOREVER = (1 << 63) - 1
_UNDER_REPLICATED = "enable.under.replicated.topic.creation"
_MIN_ISR = "min.insync.replicas"


class Span(NamedTuple):
    """What held for events at offsets above `since` and below `until` of one log partition."""

    log_partition: int
    since: int
    until: int
    live: tuple[int, ...]
    registered: tuple[int, ...]
    enabled: bool
    """Whether topics might be created with fewer brokers than their factor (KIP-409)."""
    min_isr: int


class LiveBroker(NamedTuple):
    """A broker that is live when a log ends, and since when."""

    broker_id: int
    since_ms: int


class Timeline(NamedTuple):
    """All spans of a log, the brokers that are live when it ends, and the log partitions in which placeholders were
    ever allowed."""

    spans: tuple[Span, ...]
    live_at_end: dict[int, tuple[LiveBroker, ...]]
    ever_enabled: frozenset[int]


class Brokers:
    """The fold of one log partition's cluster events."""

    def __init__(self, log_partition: int) -> None:
        self.log_partition = log_partition
        self.since = -1
        self.fenced: dict[int, bool] = {}
        self.since_ms: dict[int, int] = {}
        self.settings: dict[str, str] = {}

    def span(self, until: int) -> Span:
        """What holds until an offset."""
        return Span(
            self.log_partition,
            self.since,
            until,
            tuple(sorted(broker for broker, fenced in self.fenced.items() if not fenced)),
            tuple(sorted(self.fenced)),
            self.settings.get(_UNDER_REPLICATED) == "true",
            _count(self.settings.get(_MIN_ISR, "1")),
        )

    def see(self, row: Any) -> None:
        """Take in one cluster event."""
        self.since = row.offset
        match row.type:
            case "BrokerRegistered" | "BrokerFenced" | "BrokerLeaving":
                self.fenced[row.broker_id] = True
            case "BrokerUnfenced":
                if self.fenced.get(row.broker_id, True):
                    self.since_ms[row.broker_id] = row.at_ms
                self.fenced[row.broker_id] = False
            case "BrokerUnregistered":
                self.fenced.pop(row.broker_id, None)
            case "SettingsChanged":
                self.settings = dict(row.settings or {})

    def live(self) -> tuple[LiveBroker, ...]:
        """The brokers that are live now."""
        live = sorted(broker for broker, fenced in self.fenced.items() if not fenced)
        return tuple(LiveBroker(broker, self.since_ms[broker]) for broker in live)


def _count(value: str) -> int:
    return int(value) if value.isascii() and value.isdecimal() else 1


def timeline(rows: Iterable[Any]) -> Timeline:
    """The timeline of cluster events, each partition's in the order of their offsets."""
    spans: list[Span] = []
    folds: dict[int, Brokers] = {}
    for row in rows:
        fold = folds.setdefault(row.log_partition, Brokers(row.log_partition))
        spans.append(fold.span(row.offset))
        fold.see(row)
    spans += [fold.span(_FOREVER) for fold in folds.values()]
    return Timeline(
        tuple(spans),
        {log_partition: fold.live() for log_partition, fold in folds.items()},
        frozenset(span.log_partition for span in spans if span.enabled),
    )


def read_timeline(events: DataFrame) -> Timeline:
    """The timeline of a log's events."""
    cluster = events.where("shard = ''").select(*CLUSTER_COLUMNS)
    return timeline(sorted(cluster.collect(), key=lambda row: (row.log_partition, row.offset)))


class SpanTable:
    """Spans on the workers: joined to frames that have the columns `log_partition` and `offset`."""

    def __init__(self, session: SparkSession, spans: Sequence[Span], end_offset: int) -> None:
        self._chunk_events = max(CHUNK_EVENTS_MIN, end_offset // CHUNKS)
        pieces = [(span, chunk) for span in spans for chunk in self._chunks(span, end_offset)]
        columns = {
            "span_partition": pa.array([span.log_partition for span, _ in pieces], pa.int32()),
            "span_chunk": pa.array([chunk for _, chunk in pieces], pa.int64()),
            "since": pa.array([span.since for span, _ in pieces], pa.int64()),
            "until": pa.array([span.until for span, _ in pieces], pa.int64()),
            "live": pa.array([span.live for span, _ in pieces], pa.list_(pa.int32())),
            "registered": pa.array([span.registered for span, _ in pieces], pa.list_(pa.int32())),
            "enabled": pa.array([span.enabled for span, _ in pieces], pa.bool_()),
            "min_isr": pa.array([span.min_isr for span, _ in pieces], pa.int32()),
        }
        self._frame = session.createDataFrame(pa.table(columns))

    def _chunks(self, span: Span, end_offset: int) -> Iterator[int]:
        first = (span.since + 1) // self._chunk_events
        last = min(span.until, end_offset) // self._chunk_events
        return iter(range(first, last + 1))

    def joined(self, frame: DataFrame, where: str) -> DataFrame:
        """The frame with `live`, `registered`, `enabled` and `min_isr` beside the rows of which `where` is true; null
        beside the others, and before the first cluster event."""
        chunk = expr(f"case when {where} then offset div {self._chunk_events} end")
        keyed = frame.withColumn("chunk", chunk)
        on = "log_partition = span_partition and chunk = span_chunk and offset > since and offset < until"
        joined = keyed.join(broadcast(self._frame), expr(on), "left")
        return joined.drop("chunk", "span_partition", "span_chunk", "since", "until")
