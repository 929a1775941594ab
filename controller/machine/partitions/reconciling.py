"""Brings partitions in line with the live brokers, as brokers come and go.

Only a live member of the ISR leads, unless the topic allows unclean election. A fenced broker leaves the ISR, and
usable brokers replace placeholders (KIP-409).

Method: `reconcile` compares a topic with the live brokers. The result depends on the state only and repeating it
changes nothing, so the shell may call it at any time and in any slices.

It does not move leadership back to the preferred replica, which `balance` does, and does not reassign replicas.
"""

from __future__ import annotations

from controller.machine.partitions.blocks import Span, numbered
from controller.machine.partitions.changes import Election, Target, TopicChanges, effective_min_isr, without
from controller.machine.partitions.placement import (
    UNASSIGNED,
    Ids,
    directories_of,
    filled,
    is_filled,
    serves,
)
from controller.machine.state import ELIGIBLE_REPLICAS, Cluster, Topic
from events.catalog import Event, Partition
from events.names import NO_LEADER


def reconcile(topic: Topic, cluster: Cluster, reason: str, span: Span | None = None) -> tuple[Topic, list[Event]]:
    """Returns the topic in line with the live brokers, and the events for that. `span` limits it to some partitions."""
    changes, min_isr = TopicChanges(topic, cluster), effective_min_isr(topic, cluster)
    for index, partition in numbered(topic.partitions, span):
        unavailable = _unavailable_members(partition, cluster)
        if partition.leader != NO_LEADER and _is_reconciled(partition, unavailable, min_isr, cluster):
            continue
        replicas = filled(topic.name, index, partition.replicas, cluster)
        if cluster.settings.has_target_cluster:
            target = Target(replicas=replicas, election=None)
        else:
            unclean = _unclean_members(partition, cluster)
            isr = without(partition.isr, unavailable + unclean)
            target = Target(replicas=replicas, isr=isr, unclean=unclean, election=changes.election)
        changes.change(index, target, reason)
    return changes.topic, changes.events


def is_reconciled(topic: Topic, cluster: Cluster, span: Span | None = None) -> bool:
    """True if `reconcile` would change nothing. May return False although nothing would change."""
    min_isr = effective_min_isr(topic, cluster)
    return all(
        _is_reconciled(partition, _unavailable_members(partition, cluster), min_isr, cluster)
        for _, partition in numbered(topic.partitions, span)
    )


def _is_reconciled(partition: Partition, unavailable: Ids, min_isr: int, cluster: Cluster) -> bool:
    """Fast, because that is the case for most partitions when a broker comes or goes."""
    if not is_filled(partition, cluster):
        return False
    if cluster.settings.has_target_cluster:
        return True
    if cluster.has_kraft_brokers:
        metadata = partition.replica_metadata
        if metadata is None or _unclean_members(partition, cluster):
            return False
        if metadata.elr and (len(partition.isr) >= min_isr or not cluster.feature(ELIGIBLE_REPLICAS)):
            return False  # min.insync.replicas was lowered: they miss records acknowledged from now on
    if partition.leader == NO_LEADER:
        return not any(replica in cluster.live for replica in partition.replicas)
    return not unavailable


def _unavailable_members(partition: Partition, cluster: Cluster) -> Ids:
    """The ISR members that cannot serve; none in front of a target cluster, which decides that itself."""
    if cluster.settings.has_target_cluster:
        return ()
    if partition.replica_metadata is None:
        return without(partition.isr, cluster.live)
    directories = directories_of(partition)
    return tuple(member for member in partition.isr if not serves(cluster, member, directories.get(member, UNASSIGNED)))


def _unclean_members(partition: Partition, cluster: Cluster) -> Ids:
    """The in-sync or eligible replicas on brokers that started after an unclean shutdown, so records may be missing."""
    if partition.replica_metadata is None:
        return ()  # only KRaft brokers report it
    members = (*partition.isr, *partition.replica_metadata.elr)
    return tuple(member for member in members if member in cluster.brokers and cluster.brokers[member].unclean)


def balance(topic: Topic, cluster: Cluster, span: Span | None = None) -> list[Event]:
    """Elects preferred leaders that are in sync."""
    changes = TopicChanges(topic, cluster)
    for index, partition in numbered(topic.partitions, span):
        if partition.leader not in (partition.replicas[0], NO_LEADER):
            changes.change(index, Target(election=Election.PREFERRED), "leaders balanced")
    return changes.events
