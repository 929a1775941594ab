"""Topics in snapshots, as rows: what the machine's state has of each, and what only the events of its creation say.

    t SHARD_KEY             the topic's state keys (`projections.store.stored_topics`)
    t SHARD_KEY NUL FF      after them: MessagePack of `Birth`
    v                       MessagePack of `ClusterRow`, brokers and settings

The events of its creation may be far back in the log, and each stands in a block of its own there: to read two of them
for each row takes longer than all else. So a snapshot has what they say, most of it as the one before had it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

import msgspec

from controller.machine.partitions.blocks import BLOCK
from controller.machine.state import Topic
from events.catalog import Configs, Partition, Verdict
from events.codec import decode_event
from events.logs.log import EventLog
from events.logs.snapshot_file import Snapshot
from events.names import BrokerId, Offset, ShardKey, TopicId, TopicName
from projections.store.stored_topics import BESIDE, TOPIC, decode_topic, is_beside, stored_values
from projections.views.brokers import ClusterRow
from projections.views.topics import CreatedBy, TopicRow, bare_row, with_birth

CLUSTER_ROW = b"v"

Pair = tuple[bytes, bytes]


class Birth(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a row has of the events of the topic's creation; `projections.views.topics.TopicRow` says what each is."""

    created_offset: Offset
    created_by: CreatedBy | None
    verdict: Verdict | None
    placed_on: tuple[BrokerId, ...]


class _Created(msgspec.Struct, array_like=True, gc=False):
    """A stored topic, decoded as far as when it was created."""

    name: msgspec.Raw
    topic_id: msgspec.Raw
    partitions: msgspec.Raw
    configs: msgspec.Raw
    created_at_ms: msgspec.Raw
    created_offset: int


class _Few(msgspec.Struct, array_like=True, gc=False):
    """A stored topic of few partitions, without what a row has no place for."""

    name: TopicName
    topic_id: TopicId
    partitions: tuple[Partition, ...]
    configs: Configs
    created_at_ms: int
    created_offset: Offset
    ready_at_ms: int | None = None


class _Born(msgspec.Struct, array_like=True, gc=False):
    created_offset: int


_encode = msgspec.msgpack.Encoder().encode
_decode_birth = msgspec.msgpack.Decoder(Birth).decode
_decode_created = msgspec.msgpack.Decoder(_Created).decode
_decode_few = msgspec.msgpack.Decoder(_Few).decode
_decode_born = msgspec.msgpack.Decoder(_Born).decode
_decode_cluster = msgspec.msgpack.Decoder(ClusterRow).decode


# --- reading


def snapshot_topic(snapshot: Snapshot, key: ShardKey) -> TopicRow | None:
    """The row of the topic under a shard key. Raises SnapshotDamaged, msgspec.DecodeError."""
    head = TOPIC + key.encode()
    birth = snapshot.get(head + BESIDE)
    return None if birth is None else _row(_but_birth(stored_values(snapshot, key), birth), birth)


def snapshot_topics(snapshot: Snapshot, after: str) -> Iterator[tuple[ShardKey, TopicRow]]:
    """The rows of the topics after a shard key ("": all), in order. Raises SnapshotDamaged, msgspec.DecodeError."""
    start = TOPIC + after.encode("utf-8", "surrogatepass") + BESIDE if after else None
    values: list[bytes] = []
    for key, value in snapshot.scan(TOPIC, start):
        if is_beside(key):
            yield ShardKey(key[len(TOPIC) : -len(BESIDE)].decode()), _row(values, value)
            values = []
        else:
            values.append(value)


def has_more_topics(snapshot: Snapshot, count: int) -> bool:
    """Whether it has more than so many topics, of which none is decoded. Raises SnapshotDamaged."""
    births = (key for key, _ in snapshot.scan(TOPIC) if is_beside(key))
    return next(islice(births, count, None), None) is not None


def snapshot_cluster(snapshot: Snapshot) -> ClusterRow | None:
    """Brokers and settings, if it has them. Raises SnapshotDamaged, msgspec.DecodeError."""
    stored = snapshot.get(CLUSTER_ROW)
    return None if stored is None else _decode_cluster(stored)


def _row(values: list[bytes], birth: bytes) -> TopicRow:
    topic: Topic | _Few = _decode_few(values[0]) if len(values) == 1 else decode_topic(values)
    if len(topic.partitions) > BLOCK and isinstance(topic, _Few):
        topic = decode_topic(values)  # as earlier releases wrote it
    born = _decode_birth(birth)
    return TopicRow(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        configs=topic.configs,
        created_at_ms=topic.created_at_ms,
        created_offset=topic.created_offset,
        created_by=born.created_by,
        verdict=born.verdict,
        placed_on=born.placed_on,
        ready_at_ms=topic.ready_at_ms,
    )


def _but_birth(values: list[bytes], birth: bytes) -> list[bytes]:
    """The values under a topic's keys, of which the last may be its birth: those of its state."""
    return values[:-1] if len(values) > 1 and values[-1] == birth else values


# --- writing


def with_rows(log: EventLog, pairs: Iterable[Pair], previous: Snapshot | None, cluster: ClusterRow) -> Iterator[Pair]:
    """The state keys of a snapshot, in order, with what rows need beside them; `previous` is the snapshot before.

    Raises LogError, SnapshotDamaged.
    """
    births = _Births(log, previous)
    waiting: Pair | None = None
    row: Iterator[Pair] = iter(((CLUSTER_ROW, _encode(cluster)),))
    for key, value in pairs:
        if waiting is not None and not key.startswith(waiting[0] + b"\0"):
            yield births.of(*waiting)
            waiting = None
        if key > CLUSTER_ROW:
            yield from row
        yield key, value
        if key.startswith(TOPIC) and b"\0" not in key:
            waiting = (key, value)
    yield from chain(() if waiting is None else (births.of(*waiting),), row)


class _Births:
    """The births of topics, asked for in the order of their keys: from the snapshot before, or else from the events."""

    def __init__(self, log: EventLog, previous: Snapshot | None) -> None:
        self._log = log
        self._known = iter(()) if previous is None else (one for one in previous.scan(TOPIC) if is_beside(one[0]))
        self._next: Pair = next(self._known, (b"\xff", b""))

    def of(self, head: bytes, topic: bytes) -> Pair:
        """The pair of the topic with a key and its value."""
        key, created = head + BESIDE, _decode_created(topic).created_offset
        while self._next[0] < key:
            self._next = next(self._known, (b"\xff", b""))
        if self._next[0] == key and _decode_born(self._next[1]).created_offset == created:
            return self._next
        first = max(0, created - 1)
        records = list(map(decode_event, (first, created), self._log.read_many((first, created))))
        row = with_birth(bare_row(decode_topic([topic])), requested=records[0], created=records[1])
        return key, _encode(Birth(row.created_offset, row.created_by, row.verdict, row.placed_on))
