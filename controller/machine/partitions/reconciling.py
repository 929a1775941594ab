"""Brings partitions in line with the live brokers, as brokers come and go.

Only a live member of the ISR leads, unless the topic allows unclean election. A fenced broker leaves the ISR, and
usable brokers replace placeholders (KIP-409).

Method: `Reconciliation` compares a topic with the live brokers. The result depends on the state only and repeating it
changes nothing, so the shell may call it at any time and in any slices.

It does not move leadership back to the preferred replica, which `balance` does, and does not reassign replicas.
"""

from __future__ import annotations

from functools import cache, partial

from controller.machine.partitions.blocks import Span, numbered
from controller.machine.partitions.changes import Election, Target, TopicChanges, effective_min_isr, without
from controller.machine.partitions.placement import (
    MIGRATING,
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


class Reconciliation:
    """Compares topics with the brokers of a cluster. Fast where nothing is to be done, because that is the case for
    most partitions when a broker comes or goes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_decided_here = not cluster.settings.has_target_cluster
        self._live = frozenset(cluster.live)
        self._serves = cache(partial(serves, cluster))
        self._unclean = frozenset(each for each, broker in cluster.brokers.items() if broker.unclean)
        """Brokers that started after an unclean shutdown, so records may be missing."""
        self._elr = cluster.feature(ELIGIBLE_REPLICAS) > 0
        self._online = frozenset(
            (broker_id, directory)
            for broker_id in cluster.live
            for directory in (*cluster.brokers[broker_id].log_dirs, UNASSIGNED, MIGRATING)
        )
        """Log directories that surely are online; a broker without known directories has others."""

    def reconcile(self, topic: Topic, reason: str, span: Span | None = None) -> tuple[Topic, list[Event]]:
        """Returns the topic in line with the live brokers, and the events for that. `span` limits it to some
        partitions."""
        changes, min_isr = TopicChanges(topic, self._cluster, self._serves), self._min_isr(topic)
        for index, partition in numbered(topic.partitions, span):
            if partition.leader != NO_LEADER and self._is_reconciled(partition, min_isr):
                continue
            replicas = filled(topic.name, index, partition.replicas, self._cluster)
            if self._is_decided_here:
                isr, unclean = self._available(partition), self._unclean_members(partition)
                isr = without(isr, unclean) if unclean else isr
                target = Target(replicas=replicas, isr=isr, unclean=unclean, election=changes.election)
            else:
                target = Target(replicas=replicas, election=None)
            changes.change(index, target, reason)
        return changes.topic, changes.events

    def is_reconciled(self, topic: Topic, span: Span | None = None) -> bool:
        """True if `reconcile` would change nothing. May return False although nothing would change."""
        min_isr = self._min_isr(topic)
        return all(self._is_reconciled(partition, min_isr) for _, partition in numbered(topic.partitions, span))

    def _min_isr(self, topic: Topic) -> int:
        return effective_min_isr(topic, self._cluster) if self._cluster.has_kraft_brokers else 1

    def _is_reconciled(self, partition: Partition, min_isr: int) -> bool:
        if not is_filled(partition, self._cluster):
            return False
        if not self._is_decided_here:
            return True
        metadata = partition.replica_metadata
        if metadata is not None:
            if self._unclean and self._unclean_members(partition):
                return False
            if metadata.elr and (len(partition.isr) >= min_isr or not self._elr):
                return False  # min.insync.replicas was lowered: they miss records acknowledged from now on
        elif self._cluster.has_kraft_brokers:
            return False
        if partition.leader == NO_LEADER:
            return self._live.isdisjoint(partition.replicas)
        if metadata is None:
            return self._live.issuperset(partition.isr)
        if self._online.issuperset(zip(partition.replicas, metadata.directories, strict=False)):
            return True
        return self._available(partition) == partition.isr

    def _available(self, partition: Partition) -> Ids:
        """The ISR members that can serve."""
        if partition.replica_metadata is None:
            live = self._live
            return tuple([member for member in partition.isr if member in live])
        known = directories_of(partition)
        return tuple([member for member in partition.isr if self._serves(member, known.get(member, UNASSIGNED))])

    def _unclean_members(self, partition: Partition) -> Ids:
        """The in-sync or eligible replicas on brokers that may have lost records; only KRaft brokers report it."""
        if partition.replica_metadata is None or not self._unclean:
            return ()
        return tuple(one for one in (*partition.isr, *partition.replica_metadata.elr) if one in self._unclean)


def balance(topic: Topic, cluster: Cluster, span: Span | None = None) -> list[Event]:
    """Elects preferred leaders that are in sync."""
    changes = TopicChanges(topic, cluster)
    for index, partition in numbered(topic.partitions, span):
        if partition.leader not in (partition.replicas[0], NO_LEADER):
            changes.change(index, Target(election=Election.PREFERRED), "leaders balanced")
    return changes.events
