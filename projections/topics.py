"""One topic as a row: what it is, who asked for it, and how it came to be so. A pure fold over the topic's events.

The fold stands on its own and does not use the machine's `apply`: the two agree because tests compare them at every
offset, so a mistake in one shows. Rows tell what the events say and nothing of brokers: which replicas serve depends on
the brokers of the same moment, and is told by the functions below, which take the live ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from controller.machine.state import Topic
from events.catalog import (
    Configs,
    CreateRequested,
    CreationRefused,
    IsrChanged,
    LeaderElected,
    Partition,
    PartitionChanged,
    PartitionsAdded,
    PlaceholderFilled,
    Recorded,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
    TopicDiscovered,
    TopicReady,
    TopicVanished,
    Upkeep,
    Verdict,
)
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName, is_placeholder

Status = Literal["pending", "offline", "under-replicated", "ready"]


class CannotFold(AssertionError):
    """An event that does not fit what came before: a log that is not whole."""

    def __init__(self, record: Recorded, why: str) -> None:
        super().__init__(f"event {type(record.event).__name__} at offset {record.offset} does not fit: {why}")


class CreatedBy(msgspec.Struct, frozen=True, gc=False):
    """Who asked for a topic, and how. `api` is `CreateTopics`, `Metadata` (an auto-creation) or `HTTP`."""

    request_id: RequestId
    principal: str
    client_id: str | None
    api: str
    api_version: int


class TopicRow(msgspec.Struct, frozen=True, gc=False):
    """A topic as it stands.

    `created_by` is None only where the log does not hold the ask. `verdict` is None where no policy was set;
    `placed_on` are the brokers that were live when it was created; `ready_at_ms` is None until it was complete once.
    """

    name: TopicName
    topic_id: TopicId
    partitions: tuple[Partition, ...]
    configs: Configs
    created_at_ms: int
    created_offset: Offset
    created_by: CreatedBy | None
    verdict: Verdict | None
    placed_on: tuple[BrokerId, ...]
    ready_at_ms: int | None = None


class Deletion(msgspec.Struct, frozen=True, gc=False):
    """The end of a topic's life: when, and by whom."""

    topic_id: TopicId
    offset: Offset
    at_ms: int
    request_id: RequestId
    principal: str
    client_id: str | None


class TopicPast(msgspec.Struct, frozen=True, gc=False):
    """What the events of one name have led to: the topic where there is one, and how its life before it ended."""

    row: TopicRow | None = None
    deletion: Deletion | None = None
    asked: CreatedBy | None = None
    """The newest ask for the name, which a creation follows at once or never."""


NO_PAST = TopicPast()


def fold_topic(past: TopicPast, record: Recorded) -> TopicPast:
    """The past of a name with one more of its events; events that change no row are taken too. Raises CannotFold."""
    fold = _FOLDS.get(type(record.event))
    return past if fold is None else fold(past, record)


def topic_row(topic: Topic, created: Recorded, requested: Recorded | None) -> TopicRow:
    """The row of a topic in the machine's state, with the event of its creation and, where it is known, of the ask."""
    event = created.event
    if isinstance(event, TopicDiscovered):
        facts = (topic.name, topic.topic_id, topic.partitions, topic.configs)
        return TopicRow(*facts, topic.created_at_ms, topic.created_offset, None, None, (), topic.ready_at_ms)
    if not isinstance(event, TopicCreated):
        raise CannotFold(created, f"topic {topic.name!r} was to be created there")
    ask = requested.event if requested is not None else None
    created_by = _created_by(ask) if isinstance(ask, CreateRequested) and ask.request_id == event.request_id else None
    return TopicRow(
        topic.name,
        topic.topic_id,
        topic.partitions,
        topic.configs,
        topic.created_at_ms,
        topic.created_offset,
        created_by,
        event.verdict,
        event.live_brokers,
        topic.ready_at_ms,
    )


# --- what depends on the brokers of the moment


def offline_replicas(partition: Partition, live: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    """The replicas that do not serve: on brokers that are not live, placeholders included."""
    return tuple(replica for replica in partition.replicas if replica not in live)


def is_under_replicated(partition: Partition) -> bool:
    """Whether a replica is not in sync."""
    return len(partition.isr) < len(partition.replicas)


def is_offline(partition: Partition, live: Collection[BrokerId]) -> bool:
    """Whether no live broker leads the partition."""
    return partition.leader not in live


def placeholders(row: TopicRow) -> int:
    """How many places wait for a broker to join (KIP-409)."""
    return sum(1 for partition in row.partitions for replica in partition.replicas if is_placeholder(replica))


def status(row: TopicRow, live: Collection[BrokerId]) -> Status:
    """The worst that can be said: `pending` until complete once, then `offline` if a partition has no live leader,
    `under-replicated` if a replica is out of sync, else `ready`."""
    if row.ready_at_ms is None:
        return "pending"
    if any(is_offline(partition, live) for partition in row.partitions):
        return "offline"
    return "under-replicated" if any(is_under_replicated(partition) for partition in row.partitions) else "ready"


# --- the folds


def _created_by(ask: CreateRequested) -> CreatedBy:
    return CreatedBy(ask.request_id, ask.principal, ask.client_id, ask.api, ask.api_version)


def _row(past: TopicPast, record: Recorded) -> TopicRow:
    if past.row is None:
        raise CannotFold(record, "the topic does not exist")
    return past.row


def _on_requested(past: TopicPast, record: Recorded) -> TopicPast:
    ask: Any = record.event
    return replace(past, asked=_created_by(ask))


def _on_created(past: TopicPast, record: Recorded) -> TopicPast:
    if past.row is not None:
        raise CannotFold(record, "the topic exists")
    event: Any = record.event
    asked = past.asked if past.asked is not None and past.asked.request_id == event.request_id else None
    row = TopicRow(
        event.topic,
        event.topic_id,
        event.partitions,
        event.configs,
        record.at_ms,
        record.offset,
        asked,
        event.verdict,
        event.live_brokers,
        None if event.deadline_ms else record.at_ms,
    )
    return replace(past, row=row)


def _on_deleted(past: TopicPast, record: Recorded) -> TopicPast:
    _row(past, record)
    event: Any = record.event
    end = Deletion(event.topic_id, record.offset, record.at_ms, event.request_id, event.principal, event.client_id)
    return replace(past, row=None, deletion=end)


def _on_discovered(past: TopicPast, record: Recorded) -> TopicPast:
    event: Any = record.event
    if past.row is None:
        at = (record.at_ms, record.offset, None, None, (), record.at_ms)
        return replace(past, row=TopicRow(event.topic, event.topic_id, event.partitions, event.configs, *at))
    facts = {"topic_id": event.topic_id, "partitions": event.partitions, "configs": event.configs}
    return replace(past, row=replace(past.row, **facts))


def _on_gone(past: TopicPast, record: Recorded) -> TopicPast:
    """Gone without an ask for it: deleted in the cluster that carries decisions out, or never made there."""
    _row(past, record)
    event: Any = record.event
    request_id = record.cause.request_id
    end = Deletion(event.topic_id, record.offset, record.at_ms, request_id, THE_CLUSTER, None)
    return replace(past, row=None, deletion=end)


THE_CLUSTER = "the cluster"
"""Who deleted a topic that nobody asked here to delete."""


def _on_partitions_added(past: TopicPast, record: Recorded) -> TopicPast:
    row, event = _row(past, record), record.event
    assert isinstance(event, PartitionsAdded)
    if event.first != len(row.partitions):
        raise CannotFold(record, f"the topic has {len(row.partitions)} partitions")
    return replace(past, row=replace(row, partitions=row.partitions + event.partitions))


def _on_configs(past: TopicPast, record: Recorded) -> TopicPast:
    event: Any = record.event
    return replace(past, row=replace(_row(past, record), configs=event.configs))


def _on_ready(past: TopicPast, record: Recorded) -> TopicPast:
    return replace(past, row=replace(_row(past, record), ready_at_ms=record.at_ms))


def _on_leadership(past: TopicPast, record: Recorded) -> TopicPast:
    event: Any = record.event

    def led(partition: Partition) -> Partition:
        return replace(
            partition,
            isr=event.isr,
            leader=event.leader,
            leader_epoch=event.leader_epoch,
            partition_epoch=event.partition_epoch,
        )

    return _with_partition(past, record, event.partition, led)


def _on_filled(past: TopicPast, record: Recorded) -> TopicPast:
    event: Any = record.event

    def filled(partition: Partition) -> Partition:
        if event.placeholder not in partition.replicas:
            raise CannotFold(record, f"partition {event.partition} has no placeholder {event.placeholder}")
        place = partition.replicas.index(event.placeholder)
        replicas = (*partition.replicas[:place], event.broker_id, *partition.replicas[place + 1 :])
        upkeep = partition.upkeep
        if upkeep is not None and event.directory is not None:
            around = upkeep.directories[:place], upkeep.directories[place + 1 :]
            upkeep = replace(upkeep, directories=(*around[0], event.directory, *around[1]))
        return replace(partition, replicas=replicas, partition_epoch=event.partition_epoch, upkeep=upkeep)

    return _with_partition(past, record, event.partition, filled)


def _on_changed(past: TopicPast, record: Recorded) -> TopicPast:
    event: Any = record.event
    names = ("replicas", "isr", "leader")
    told = {name: getattr(event, name) for name in names if getattr(event, name) is not None}
    of_upkeep = ("directories", "adding", "removing", "elr", "last_known_elr", "recovering")
    kept = {name: getattr(event, name) for name in of_upkeep if getattr(event, name) is not None}

    def changed(partition: Partition) -> Partition:
        epochs = {"leader_epoch": event.leader_epoch, "partition_epoch": event.partition_epoch}
        return replace(partition, upkeep=replace(partition.upkeep or Upkeep(), **kept), **told, **epochs)

    return _with_partition(past, record, event.partition, changed)


def _with_partition(
    past: TopicPast, record: Recorded, index: int, change: Callable[[Partition], Partition]
) -> TopicPast:
    row = _row(past, record)
    if not 0 <= index < len(row.partitions):
        raise CannotFold(record, f"the topic has {len(row.partitions)} partitions")
    changed = change(row.partitions[index])
    return replace(past, row=replace(row, partitions=(*row.partitions[:index], changed, *row.partitions[index + 1 :])))


_FOLDS: dict[type, Callable[[TopicPast, Recorded], TopicPast]] = {
    CreateRequested: _on_requested,
    TopicCreated: _on_created,
    TopicDeleted: _on_deleted,
    TopicDiscovered: _on_discovered,
    TopicVanished: _on_gone,
    CreationRefused: _on_gone,
    PartitionsAdded: _on_partitions_added,
    TopicConfigsChanged: _on_configs,
    LeaderElected: _on_leadership,
    IsrChanged: _on_leadership,
    PartitionChanged: _on_changed,
    PlaceholderFilled: _on_filled,
    TopicReady: _on_ready,
}
