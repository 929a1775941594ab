"""Folds the events of shards into topics, with the machine's `apply`, and into requests with their outcomes.

Spark's workers run these functions for `rebuild` and `compare`. All events of a request for one topic are in the shard
of that topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

import pyarrow as pa
from msgspec.structs import astuple

from controller.machine.apply import apply_topic
from controller.machine.state import Topic
from controller.store.stored_topics import decode_topic, encode_topic
from events import catalog
from events.codec import OF_NO_PARTITION, decode_event, place_of
from events.external_decision import FOLLOW
from events.names import TopicName
from projections.replay.log.columns import PARTITION, arrow_schema
from projections.replay.log.kafka_scan import Stored
from projections.replay.shards import BEGUN, Row, Shard
from projections.text.names import topic_id_text
from projections.views.requests import RequestTopicView, fold_request_topic

REQUESTS = arrow_schema(
    ("log_partition", "request_id", "topic", "status", "error_code", "message", "rule", "principal", "client_id", "api",
     "requested_at_ms", "requested_offset", "waited_ms", "last_offset"),
    status=pa.string(), requested_at_ms=pa.int64(), requested_offset=pa.int64(), last_offset=pa.int64(),
)  # fmt: skip
"""One row for each topic of a request; `projections.views.requests` has the values of `status`."""
_REQUEST_ENDS = catalog.CreateAnswered | catalog.ChangeRejected | catalog.ChangeCarriedOut
_CHANGES = catalog.PartitionsAdded | catalog.TopicDeleted | catalog.TopicConfigsChanged
"""These events end their request unless a target cluster carries out decisions; then ChangeCarriedOut ends it."""


def request_rows(shards: Iterable[Shard]) -> Iterator[Row]:
    """The requests of each shard, as rows of REQUESTS. A request is returned when it is answered, so only open requests
    are in memory."""
    for log_partition, _, events in shards:
        waiting: dict[tuple[str, TopicName], tuple[RequestTopicView, Row]] = {}
        carried_out = False
        for offset, value in events:
            record = decode_event(offset, value)
            event: Any = record.event
            request_id: str | None = getattr(event, "request_id", None)
            if record.cause.command == FOLLOW and not isinstance(event, catalog.CreateAnswered):
                continue  # decided by another controller, so requested there
            carried_out = carried_out or isinstance(event, catalog.TopicDiscovered)
            if request_id is None:
                continue
            key = (request_id, event.topic)
            known, client = waiting.get(key, (None, ()))
            if known is None:
                is_adopted = isinstance(event, catalog.TopicCreated) and event.is_adopted
                if is_adopted or isinstance(event, catalog.ChangeCarriedOut):
                    continue  # adopted without a request; or answered before it was discovered in the cluster
                api = event.api if hasattr(event, "api") else event.request.api
                client = event.principal, event.client_id, api, record.at_ms, offset
            view = fold_request_topic(known, record)
            if isinstance(event, _REQUEST_ENDS) or (isinstance(event, _CHANGES) and not carried_out):
                waiting.pop(key, None)
                yield _request_row(log_partition, request_id, view, client)
            else:
                waiting[key] = view, client
        for (request_id, _topic), (view, client) in waiting.items():
            yield _request_row(log_partition, request_id, view, client)


def _request_row(log_partition: int, request_id: str, view: RequestTopicView, client: Row) -> Row:
    outcome = view.topic, view.status, view.code, view.message, view.rule
    return log_partition, request_id, *outcome, *client, view.waited_ms, view.offset


TOPICS = arrow_schema(
    ("log_partition", "topic", "shard", "topic_id", "num_partitions", "replication_factor", "partitions", "configs",
     "created_at_ms", "created_offset", "ready_at_ms", "waiting_request", "state_hash"),
    created_at_ms=pa.int64(), created_offset=pa.int64(), ready_at_ms=pa.int64(), waiting_request=pa.string(),
    state_hash=pa.string(),
)  # fmt: skip
"""`waiting_request` is the unanswered create request, if any."""
HASHES = arrow_schema(("log_partition", "shard", "state_hash"), state_hash=pa.string())


def state_hash(stored: bytes) -> str:
    """The SHA-256 of a topic's bytes in the store."""
    return sha256(stored).hexdigest()


def topic_rows(shards: Iterable[Shard]) -> Iterator[Row]:
    """The topic of each shard that has one, as a row of TOPICS."""
    for log_partition, shard, events in shards:
        topic = folded(events)
        if topic is not None:
            yield _topic_row(log_partition, shard, topic)


def hash_rows(shards: Iterable[Shard]) -> Iterator[Row]:
    """The hash of the topic of each shard that has one, as a row of HASHES."""
    for log_partition, shard, events in shards:
        topic = folded(events)
        if topic is not None:
            yield log_partition, shard, state_hash(encode_topic(topic))


def folded(events: Iterable[Stored]) -> Topic | None:
    """The topic after the events of a shard.

    A change of a partition overwrites the previous one. So only the last change of each partition is decoded, before
    the next event that depends on partitions, or at the end. Events that leave a topic unchanged are not decoded. So
    this function does not detect every damaged event; the checks of invariants decode all events.
    """
    topic: Topic | None = None
    pending = dict[int, Stored]()
    for offset, value in events:
        if offset == BEGUN:
            topic = decode_topic([value])
            continue
        place = place_of(offset, value)[1]
        if place >= 0:
            pending[place] = offset, value
        elif place == OF_NO_PARTITION:
            record = decode_event(offset, value)
            if pending and type(record.event) not in _INDEPENDENT_OF_LEADERS:
                topic = _applied(topic, pending)
            topic = apply_topic(topic, record)
    return _applied(topic, pending)


def _applied(topic: Topic | None, pending: dict[int, Stored]) -> Topic | None:
    for offset, value in pending.values():
        topic = apply_topic(topic, decode_event(offset, value))
    pending.clear()
    return topic


_INDEPENDENT_OF_LEADERS = frozenset(
    (catalog.TopicConfigsChanged, catalog.MetadataPropagated, catalog.TopicReady, catalog.CreateAnswered)
)
"""Events that change other fields of a topic than leaders and ISRs, so they may be applied in any order with those."""


def _topic_row(log_partition: int, shard: str, topic: Topic) -> Row:
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
        state_hash(encode_topic(topic)),
    )
