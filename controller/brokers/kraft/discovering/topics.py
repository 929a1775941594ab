"""Topics and partitions: from their records, before and after, to the events that say the difference.

One change record is one `PartitionChanged`, since both raise the epochs alike. What no such step leads to, because
records between the two were not seen, is a `TopicDiscovered`, which says all of the topic.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Final

from controller.brokers.kraft.discovering.source import Source
from controller.brokers.kraft.log.metadata_records import PartitionRecord
from controller.brokers.kraft.log.projection import ELR_SINCE, partition_record
from events import catalog
from events.catalog import ConfigOp, Configs, Partition
from events.external_decision import FOLLOW
from events.names import BrokerId, TopicId, TopicName

_SET, _DELETE = 0, 1
STEPS: Final = ((1, 0), (1, 1))
"""By how much a change raises the epochs of a partition and of its leader."""


def partition_of(record: PartitionRecord) -> Partition:
    """A partition as its record says it stands."""
    return Partition(
        _ids(record.replicas),
        _ids(record.isr),
        BrokerId(record.leader),
        record.leader_epoch,
        record.partition_epoch,
        catalog.Upkeep(
            record.directories,
            _ids(record.adding_replicas),
            _ids(record.removing_replicas),
            _ids(record.eligible_leader_replicas),
            _ids(record.last_known_elr),
            bool(record.leader_recovery_state),
        ),
    )


def record_of(topic_id: bytes, index: int, partition: Partition) -> PartitionRecord:
    """The record that says how a partition stands, in the version that has all fields."""
    return partition_record(TopicId(topic_id), index, partition, ELR_SINCE)


def step(
    topic: TopicName, before: PartitionRecord, after: PartitionRecord, reason: str
) -> catalog.PartitionChanged | None:
    """The event that leads from one record of a partition to the other; None if it takes more than one."""
    raised = after.partition_epoch - before.partition_epoch, after.leader_epoch - before.leader_epoch
    if raised not in STEPS or (not raised[1] and before.leader != after.leader):
        return None
    recovering = bool(after.leader_recovery_state)
    return catalog.PartitionChanged(
        topic,
        after.partition_id,
        BrokerId(after.leader) if raised[1] else None,
        _changed(before.isr, after.isr),
        after.leader_epoch,
        after.partition_epoch,
        reason,
        _changed(before.replicas, after.replicas),
        None if before.directories == after.directories else after.directories,
        _changed(before.adding_replicas, after.adding_replicas),
        _changed(before.removing_replicas, after.removing_replicas),
        _changed(before.eligible_leader_replicas, after.eligible_leader_replicas),
        _changed(before.last_known_elr, after.last_known_elr),
        None if recovering == bool(before.leader_recovery_state) else recovering,
    )


def found(
    topic: TopicName, topic_id: bytes, partitions: Sequence[Partition], configs: Configs, source: Source
) -> catalog.TopicDiscovered:
    """All of a topic."""
    return catalog.TopicDiscovered(topic, TopicId(topic_id), tuple(partitions), configs, source.reason)


def added(topic: TopicName, first: int, partitions: Sequence[Partition], source: Source) -> catalog.PartitionsAdded:
    """Partitions were appended. Which brokers were to choose from is not known."""
    wanted = catalog.PartitionsWanted(first + len(partitions), tuple(each.replicas for each in partitions))
    asked = catalog.ChangeAsked(FOLLOW, 0, wanted)
    return catalog.PartitionsAdded(
        source.request_id, topic, first, tuple(partitions), source.principal, None, (), asked
    )


def configured(topic: TopicName, before: Configs, after: Configs, source: Source) -> catalog.TopicConfigsChanged:
    """The explicit configs of a topic are others."""
    old, new = dict(before), dict(after)
    removed = [ConfigOp(name, _DELETE, None) for name in old if name not in new]
    ops = [*removed, *(ConfigOp(name, _SET, value) for name, value in after if old.get(name) != value)]
    asked = catalog.ChangeAsked(FOLLOW, 0, catalog.ConfigsWanted(tuple(ops), incremental=True))
    return catalog.TopicConfigsChanged(source.request_id, topic, after, source.principal, None, asked)


def in_a_row(
    partitions: Mapping[int, PartitionRecord], first: int = 0
) -> Generator[None, None, tuple[Partition, ...] | None]:
    """The partitions from one index on, None if their indexes have a gap; in a step for each."""
    indexes = sorted(index for index in partitions if index >= first)
    if indexes != list(range(first, first + len(indexes))):
        return None
    found: list[Partition] = []
    for index in indexes:
        found.append(partition_of(partitions[index]))
        yield
    return tuple(found)


def _ids(ids: tuple[int, ...] | None) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids or ()))


def _changed(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> tuple[BrokerId, ...] | None:
    return None if (before or ()) == (after or ()) else _ids(after)
