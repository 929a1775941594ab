"""A topic as a row: its partitions, configs and origin. A pure fold over the topic's events.

The fold does not use the machine's `apply`: tests compare the two at every offset, so a mistake in one shows. A row
holds nothing that depends on broker state: `offline_replicas` and `health` derive that from the live brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from controller.machine.partitions.blocks import changed, extended
from controller.machine.state import Topic
from events import catalog
from events.catalog import Configs, Partition, Recorded, ReplicaMetadata, Verdict
from events.external_decision import external_decision
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName, is_placeholder

Status = Literal["pending", "offline", "under-replicated", "ready"]


class CannotFold(AssertionError):
    """An event does not fit the events before it: the log is incomplete."""

    def __init__(self, record: Recorded, why: str) -> None:
        super().__init__(f"event {type(record.event).__name__} at offset {record.offset} does not fit: {why}")


class CreatedBy(msgspec.Struct, frozen=True, gc=False):
    """The request that created a topic. `api` is `CreateTopics`, `Metadata` (an auto-creation) or `HTTP`."""

    request_id: RequestId
    principal: str
    client_id: str | None
    api: str
    api_version: int


class TopicRow(msgspec.Struct, frozen=True, gc=False):
    """A topic at one offset.

    `created_by` is None only if the log does not hold the request. `verdict` is None if no policy was configured.
    `placed_on` lists the brokers that were live at the creation; `ready_at_ms` is None until the topic was ready once.
    """

    name: TopicName
    topic_id: TopicId
    partitions: Sequence[Partition]
    configs: Configs
    created_at_ms: int
    created_offset: Offset
    created_by: CreatedBy | None
    verdict: Verdict | None
    placed_on: tuple[BrokerId, ...]
    ready_at_ms: int | None = None


class Deletion(msgspec.Struct, frozen=True, gc=False):
    """The deletion of a topic."""

    topic_id: TopicId
    offset: Offset
    at_ms: int
    request_id: RequestId
    principal: str
    client_id: str | None


class TopicPast(msgspec.Struct, frozen=True, gc=False):
    """The result of the events of one name: the topic, if it exists, and the last deletion."""

    row: TopicRow | None = None
    deletion: Deletion | None = None
    request: CreatedBy | None = None
    """The newest create request for the name; its TopicCreated, if any, is the next event."""


NO_PAST = TopicPast()

THE_CLUSTER = "the cluster"
"""The principal of a deletion that was observed at the target cluster."""


def fold_topic(past: TopicPast, record: Recorded) -> TopicPast:
    """The past of a name after one more event. Events that change no row are accepted. Raises CannotFold."""
    event = record.event
    match event:
        case catalog.CreateRequested():
            return replace(past, request=_created_by(event))
        case catalog.TopicCreated():
            if past.row is not None:
                raise CannotFold(record, "the topic exists")
            return replace(past, row=_new_row(record, event, past.request))
        case catalog.TopicDiscovered() if past.row is None:
            return replace(past, row=_new_row(record, event, None))
        case catalog.TopicDeleted():
            return _ended(past, record, event.topic_id, event.request_id, event.principal, event.client_id)
        case catalog.TopicVanished() | catalog.CreationRefused():
            decided = external_decision(record.cause)
            by = THE_CLUSTER if decided is None else decided.leader
            return _ended(past, record, event.topic_id, record.cause.request_id, by, None)
        case (
            catalog.TopicDiscovered()
            | catalog.PartitionsAdded()
            | catalog.TopicConfigsChanged()
            | catalog.TopicReady()
            | catalog.LeaderElected()
            | catalog.IsrChanged()
            | catalog.PartitionChanged()
            | catalog.PlaceholderFilled()
        ):
            return replace(past, row=_changed(_row(past, record), record, event))
        case _:
            return past


def fold_topics(past: TopicPast, records: Iterable[Recorded]) -> TopicPast:
    """The past of a name after some events, in order. Events of a partition that later ones overwrite are skipped.
    Raises CannotFold."""
    newest: dict[int, Recorded] = {}
    for record in records:
        event = record.event
        if isinstance(event, catalog.LeaderElected | catalog.IsrChanged):
            newest[event.partition] = record
            continue
        if newest:
            past = _with_newest(past, newest)
            newest = {}
        past = fold_topic(past, record)
    return _with_newest(past, newest) if newest else past


def topic_row(topic: Topic, created: Recorded, requested: Recorded | None) -> TopicRow:
    """The row of a topic in the machine's state, given its creation event and, if known, its request event."""
    return with_creation(bare_row(topic), created, requested)


def bare_row(topic: Topic) -> TopicRow:
    """The row of a topic in the machine's state, without the fields that only its creation events hold."""
    return TopicRow(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        configs=topic.configs,
        created_at_ms=topic.created_at_ms,
        created_offset=topic.created_offset,
        created_by=None,
        verdict=None,
        placed_on=(),
        ready_at_ms=topic.ready_at_ms,
    )


def with_creation(row: TopicRow, created: Recorded, requested: Recorded | None) -> TopicRow:
    """A row with the fields that come from its creation event and its request event. Raises CannotFold."""
    event = created.event
    if not isinstance(event, catalog.TopicCreated | catalog.TopicDiscovered):
        raise CannotFold(created, f"topic {row.name!r} was to be created there")
    if isinstance(event, catalog.TopicDiscovered):
        return row
    request = requested.event if requested is not None else None
    return replace(
        row,
        created_by=_created_by(request)
        if isinstance(request, catalog.CreateRequested) and request.request_id == event.request_id
        else None,
        verdict=event.verdict,
        placed_on=event.live_brokers,
    )


# --- derived from the live brokers


def offline_replicas(partition: Partition, live: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    """The replicas on brokers that are not live, and placeholders."""
    return tuple(replica for replica in partition.replicas if replica not in live)


class Health(NamedTuple):
    """The status of a topic, its counts of under-replicated and offline partitions, and of placeholders (KIP-409)."""

    status: Status
    under_replicated: int
    offline: int
    placeholders: int


def health(row: TopicRow, live: Collection[BrokerId]) -> Health:
    """The health of a topic. The status is `pending` until the topic was ready once, then `offline` if a partition has
    no live leader, `under-replicated` if a replica is out of sync, else `ready`."""
    under_replicated = offline = placeholders = 0
    for one in row.partitions:
        offline += one.leader not in live
        if len(one.isr) < len(one.replicas):
            under_replicated += 1
            placeholders += sum(map(is_placeholder, one.replicas))  # which are never in sync
    status: Status = "pending"
    if row.ready_at_ms is not None:
        status = "offline" if offline else "under-replicated" if under_replicated else "ready"
    return Health(status, under_replicated, offline, placeholders)


# --- the folds

_Creation = catalog.TopicCreated | catalog.TopicDiscovered
_OfPartition = catalog.LeaderElected | catalog.IsrChanged | catalog.PartitionChanged | catalog.PlaceholderFilled
_Change = (
    catalog.TopicDiscovered | catalog.PartitionsAdded | catalog.TopicConfigsChanged | catalog.TopicReady | _OfPartition
)


def _created_by(request: catalog.CreateRequested) -> CreatedBy:
    return CreatedBy(request.request_id, request.principal, request.client_id, request.api, request.api_version)


def _row(past: TopicPast, record: Recorded) -> TopicRow:
    if past.row is None:
        raise CannotFold(record, "the topic does not exist")
    return past.row


def _new_row(record: Recorded, event: _Creation, newest: CreatedBy | None) -> TopicRow:
    """A new topic; `newest` is the newest request for its name, which may be an older one."""
    row = TopicRow(
        name=event.topic,
        topic_id=event.topic_id,
        partitions=event.partitions,
        configs=event.configs,
        created_at_ms=record.at_ms,
        created_offset=record.offset,
        created_by=None,
        verdict=None,
        placed_on=(),
        ready_at_ms=record.at_ms,
    )
    if isinstance(event, catalog.TopicDiscovered):
        return row
    return replace(
        row,
        created_by=newest if newest is not None and newest.request_id == event.request_id else None,
        verdict=event.verdict,
        placed_on=event.live_brokers,
        ready_at_ms=record.at_ms if event.is_adopted else None,
    )


def _ended(
    past: TopicPast, record: Recorded, topic_id: TopicId, request_id: RequestId, principal: str, client_id: str | None
) -> TopicPast:
    _row(past, record)
    deletion = Deletion(topic_id, record.offset, record.at_ms, request_id, principal, client_id)
    return replace(past, row=None, deletion=deletion)


def _changed(row: TopicRow, record: Recorded, event: _Change) -> TopicRow:
    match event:
        case catalog.TopicDiscovered():
            return replace(row, topic_id=event.topic_id, partitions=event.partitions, configs=event.configs)
        case catalog.PartitionsAdded():
            if event.first != len(row.partitions):
                raise CannotFold(record, f"the topic has {len(row.partitions)} partitions")
            return replace(row, partitions=extended(row.partitions, event.partitions))
        case catalog.TopicConfigsChanged():
            return replace(row, configs=event.configs)
        case catalog.TopicReady():
            return replace(row, ready_at_ms=record.at_ms)
        case _:
            return replace(row, partitions=changed(row.partitions, {event.partition: _partition(row, record, event)}))


def _with_newest(past: TopicPast, newest: Mapping[int, Recorded]) -> TopicPast:
    """The past of a name with the newest event of some partitions; each has the full leader and ISR."""
    row = _row(past, next(iter(newest.values())))
    after = {index: _partition(row, record, record.event) for index, record in newest.items()}  # type: ignore[arg-type]
    return replace(past, row=replace(row, partitions=changed(row.partitions, after)))


def _partition(row: TopicRow, record: Recorded, event: _OfPartition) -> Partition:
    if not 0 <= event.partition < len(row.partitions):
        raise CannotFold(record, f"the topic has {len(row.partitions)} partitions")
    partition = row.partitions[event.partition]
    if isinstance(event, catalog.PlaceholderFilled):
        return _filled(partition, record, event)
    changed = replace(partition, leader_epoch=event.leader_epoch, partition_epoch=event.partition_epoch)
    if not isinstance(event, catalog.PartitionChanged):
        return replace(changed, leader=event.leader, isr=event.isr)
    facts, replica_metadata = _given(event, _FACTS), _given(event, _METADATA)
    return replace(
        changed, replica_metadata=replace(partition.replica_metadata or ReplicaMetadata(), **replica_metadata), **facts
    )


_FACTS = ("replicas", "isr", "leader")
_METADATA = ("directories", "adding", "removing", "elr", "last_known_elr", "recovering")


def _given(event: catalog.PartitionChanged, names: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name in names if (value := getattr(event, name)) is not None}


def _filled(partition: Partition, record: Recorded, event: catalog.PlaceholderFilled) -> Partition:
    if event.placeholder not in partition.replicas:
        raise CannotFold(record, f"partition {event.partition} has no placeholder {event.placeholder}")
    place = partition.replicas.index(event.placeholder)
    replicas = (*partition.replicas[:place], event.broker_id, *partition.replicas[place + 1 :])
    replica_metadata = partition.replica_metadata
    if replica_metadata is not None and event.directory is not None:
        directories = (
            *replica_metadata.directories[:place],
            event.directory,
            *replica_metadata.directories[place + 1 :],
        )
        replica_metadata = replace(replica_metadata, directories=directories)
    return replace(
        partition, replicas=replicas, partition_epoch=event.partition_epoch, replica_metadata=replica_metadata
    )
