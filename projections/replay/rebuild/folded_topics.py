"""Folds the events of some shards into topics. Runs in Spark's workers."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
from msgspec.structs import astuple

from controller.machine.apply import apply_topic
from controller.machine.state import Topic
from events import catalog
from events.codec import OF_NO_PARTITION, decode_event
from projections.replay.spark.columns import PARTITION, TEXTS
from projections.replay.spark.folding import Row, Stored
from projections.replay.spark.packed import Pack
from projections.replay.spark.snapshot_packs import begun
from projections.store.stored_topics import decode_topic, encode_topic
from projections.text.names import topic_id_text

TOPICS = pa.schema(
    [
        ("log_partition", pa.int32()),
        ("topic", pa.string()),
        ("shard", pa.string()),
        ("topic_id", pa.string()),
        ("num_partitions", pa.int32()),
        ("replication_factor", pa.int32()),
        ("partitions", pa.list_(PARTITION)),
        ("configs", TEXTS),
        ("created_at_ms", pa.int64()),
        ("created_offset", pa.int64()),
        ("ready_at_ms", pa.int64()),
        ("waiting_request", pa.string()),
        ("last_offset", pa.int64()),
        ("state_hash", pa.string()),
    ]
)
"""`waiting_request` is the unanswered create request, if any; `last_offset` is the newest event of the shard."""


def state_hash(stored: bytes) -> str:
    """The SHA-256 of a topic's bytes in the store."""
    return sha256(stored).hexdigest()


def topics_of_share(packs: Iterator[Pack]) -> Iterator[Row]:
    """Fold the events of some shards into topics, as rows of TOPICS.

    A change of a partition overwrites the previous one. So only the last change of each partition is decoded, before
    the next event that depends on partitions, or at the end. Events that leave a topic unchanged are not decoded. So
    this does not detect every damaged event; the checks of invariants decode all events.
    """
    for log_partition, of_partition in groupby(packs, key=itemgetter(0)):
        shards = _Shards()
        for _, pack in of_partition:
            for key, offset, value, place in pack:
                shard = shards[key]
                if offset < 0:
                    shard.topic, shard.newest = decode_topic([value]), begun(offset)
                    continue
                shard.newest = offset
                if place >= 0:
                    if shard.pending:
                        shard.pending[place] = offset, value
                    else:
                        shard.pending = {place: (offset, value)}
                elif place == OF_NO_PARTITION:
                    record = decode_event(offset, value)
                    if shard.pending and type(record.event) not in _INDEPENDENT_OF_LEADERS:
                        shard.apply_pending()
                    shard.topic = apply_topic(shard.topic, record)
        for key, shard in shards.items():
            shard.apply_pending()
            if shard.topic is not None:
                yield _topic_row(log_partition, key, shard.topic, shard.newest)


class _Shard:
    """The state of a fold: the topic, its newest offset, and the last unapplied change of each partition."""

    __slots__ = ("newest", "pending", "topic")

    def __init__(self) -> None:
        self.topic: Topic | None = None
        self.newest = -1
        self.pending: dict[int, Stored] | None = None

    def apply_pending(self) -> None:
        for offset, value in (self.pending or {}).values():
            self.topic = apply_topic(self.topic, decode_event(offset, value))
        self.pending = None


class _Shards(dict[str, _Shard]):
    def __missing__(self, key: str) -> _Shard:
        shard = self[key] = _Shard()
        return shard


_INDEPENDENT_OF_LEADERS = frozenset(
    (catalog.TopicConfigsChanged, catalog.MetadataPropagated, catalog.TopicReady, catalog.CreateAnswered)
)
"""Events that change other fields of a topic than leaders and ISRs, so they may be applied in any order with those."""


def _topic_row(log_partition: int, shard: str, topic: Topic, last_offset: int) -> Row:
    return (
        log_partition,
        topic.name,
        shard,
        topic_id_text(topic.topic_id),
        len(topic.partitions),
        topic.replication_factor,
        [astuple(one)[: PARTITION.num_fields] for one in topic.partitions],
        topic.configs,
        topic.created_at_ms,
        topic.created_offset,
        topic.ready_at_ms,
        None if topic.pending_create is None else topic.pending_create.request_id,
        last_offset,
        state_hash(encode_topic(topic)),
    )
