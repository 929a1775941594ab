"""Changes partitions, for requests of clients and brokers and when brokers fail: leaders, in-sync replicas, epochs.

A change is computed from the current partition, a target, and the rules of its topic. These are the rules of Kafka
4.3's `PartitionChangeBuilder`, in its order, because brokers rely on each rule and because Kafka's controller may take
over the log. Tests compare this module with that class. Partitions on simulated brokers or in a target cluster follow
the same rules, without `ReplicaMetadata` (directories, adding and removing replicas, ELR, recovery state).

1. A reassignment is complete when all added replicas are in sync; if it removes more replicas than it adds, when all
remaining ones are (KIP-455).
2. A replica that leaves an ISR smaller than min.insync.replicas becomes an eligible leader replica (KIP-966). The ISR
may only become empty with that feature, so that no acknowledged record is lost.
3. The leader is elected from the ISR, else from the eligible replicas, else it is the last known leader. An unclean
election accepts any replica and may lose records; the leader must then recover (KIP-704).
4. The leader epoch rises when the leader changes or a replica is removed, the partition epoch with every change.

Brokers fail and return: only a live member of the ISR leads, a fenced broker leaves the ISR, and usable brokers replace
placeholders (KIP-409). `Reconciliation` brings topics in line with the live brokers. The result depends on the state
only and repeating it changes nothing, so the engine may reconcile at any time and in any slices. Reconciliation neither
moves leadership back to the preferred replica nor reassigns replicas.

This module does not check the sender of a request.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum

import msgspec
from msgspec.structs import replace

from controller.machine.configs.topic_configs import allows_unclean_election, min_insync_replicas
from controller.machine.partitions.blocks import changed, numbered
from controller.machine.partitions.placement import (
    UNASSIGNED,
    Ids,
    default_directory,
    directories_of,
    filled,
    is_filled,
    replica_metadata_of,
    serves,
)
from controller.machine.state import ELIGIBLE_REPLICAS, Cluster, Topic
from events.catalog import Event, Partition, PartitionChanged, ReplicaMetadata
from events.names import NO_LEADER, BrokerId


class Election(Enum):
    """The replicas that may be elected: only the preferred one, any in-sync one, or even one that lost records."""

    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a partition change. None for a field means that the partition keeps its value."""

    isr: Ids | None = None
    replicas: Ids | None = None
    adding: Ids | None = None
    removing: Ids | None = None
    directories: Mapping[BrokerId, bytes] = {}
    """Directories of replicas by broker; other replicas keep theirs."""
    recovering: bool | None = None
    unclean: Ids = ()
    """Replicas that may have lost records, so they are no longer eligible."""
    election: Election | None = Election.ONLINE
    """None if the target cluster elects its leaders itself."""


def effective_min_isr(topic: Topic, cluster: Cluster) -> int:
    """The effective min.insync.replicas, but at most the replication factor; 1 without KRaft brokers."""
    if not cluster.has_kraft_brokers:
        return 1
    return min(min_insync_replicas(topic.configs, cluster.settings), topic.replication_factor)


class TopicChanges:
    """Changes partitions of one topic, one after another; `events` has the changes so far."""

    def __init__(self, topic: Topic, cluster: Cluster) -> None:
        self._topic, self.cluster = topic, cluster
        self.min_isr = effective_min_isr(topic, cluster)
        self._elr = cluster.feature(ELIGIBLE_REPLICAS) > 0
        """True if eligible leader replicas are enabled (`eligible.leader.replicas.version` 1)."""
        self._changed: dict[int, Partition] = {}
        is_unclean = allows_unclean_election(topic.configs, cluster.settings)
        self.election = Election.UNCLEAN if is_unclean else Election.ONLINE
        """The kind of election that the topic's configs allow when a leader fails."""
        self.events: list[Event] = []

    @property
    def topic(self) -> Topic:
        """The topic after the changes so far."""
        if not self._changed:
            return self._topic
        return replace(self._topic, partitions=changed(self._topic.partitions, self._changed))

    def partition(self, index: int) -> Partition | None:
        """The partition with this index after the changes so far; None if the topic has no such partition."""
        if not 0 <= index < len(self._topic.partitions):
            return None
        return self._changed.get(index) or self._topic.partitions[index]

    def change(self, index: int, target: Target, reason: str) -> Partition | None:
        """Brings a partition to a target. Returns the changed partition; None if it already matches."""
        partition = self._changed.get(index) or self._topic.partitions[index]
        after, is_unclean = self._at_target(partition, target)
        if after is None:
            return None
        reason = f"unclean election: {reason}" if is_unclean else reason
        self.events.append(PartitionChanged(self._topic.name, index, partition, after, reason))
        self._changed[index] = after
        return after

    def _at_target(self, partition: Partition, target: Target) -> tuple[Partition | None, bool]:
        """Returns the partition at the target, None if it already matches; and True if it elects a leader uncleanly."""
        before = replica_metadata_of(partition)
        isr = partition.isr if target.isr is None else target.isr
        replicas = partition.replicas if target.replicas is None else target.replicas
        adding = before.adding if target.adding is None else target.adding
        removing = before.removing if target.removing is None else target.removing
        if (adding or removing) and _is_complete(isr, replicas, adding, removing):
            isr, replicas, adding, removing = without(isr, removing), without(replicas, removing), (), ()
        elr = self._eligible(partition, isr, replicas, target.unclean) if self._elr or before.elr else ()
        leader, unclean = partition.leader, False
        if target.election is not None:
            leader, unclean = self._elected(partition, replicas, isr, elr, target.election)
        if leader != partition.leader and leader in elr:
            isr = (leader,)
            # If an ISR of one is enough, the leader acknowledges records from now on that other replicas do not have.
            elr = without(elr, (leader,)) if self.min_isr > 1 else ()
        if unclean:
            isr, elr = (leader,), ()
        elif not self._elr:
            elr = elr if not (isr or partition.isr) else ()
            isr = isr or partition.isr
        had = partition.replicas
        is_removed = replicas != had and any(one >= 0 and one not in replicas for one in had)
        is_new_epoch = leader != partition.leader or is_removed
        metadata = partition.replica_metadata
        if self.cluster.has_kraft_brokers:
            directories = self._directories(partition, replicas, target.directories)
            last = before.last_known_elr
            if self._elr and is_new_epoch and (leader == NO_LEADER) is not bool(last):
                last = (partition.leader,) if leader == NO_LEADER else ()
            recovering = before.recovering or unclean
            if target.recovering not in (None, before.recovering):
                recovering = bool(target.recovering)
            metadata = ReplicaMetadata(directories, adding, removing, elr, last, recovering)
        is_same = replicas == partition.replicas and isr == partition.isr and metadata == partition.replica_metadata
        if is_same and not is_new_epoch:
            return None, False
        leader_epoch, partition_epoch = partition.leader_epoch + is_new_epoch, partition.partition_epoch + 1
        return Partition(replicas, isr, leader, leader_epoch, partition_epoch, metadata), unclean

    def _eligible(self, partition: Partition, isr: Ids, replicas: Ids, unclean: Ids) -> Ids:
        """The eligible leader replicas after the change, before an election."""
        # If min.insync.replicas was lowered, the leader has acknowledged records since that eligible replicas lack.
        had = replica_metadata_of(partition).elr if len(partition.isr) < self.min_isr else ()
        if not self._elr:  # ELR was disabled: keep existing members only while the ISR is empty
            return tuple(one for one in without(had, unclean) if one in replicas)
        if len(isr) >= self.min_isr:
            return ()
        return tuple(sorted({*had, *partition.isr} & set(replicas) - set(isr) - set(unclean)))

    def _elected(
        self, partition: Partition, replicas: Ids, isr: Ids, elr: Ids, election: Election
    ) -> tuple[BrokerId, bool]:
        """Returns the leader to elect, and True if the election is unclean."""
        favoured = replicas[:1] if election is Election.PREFERRED else ()
        have_all_records, directories = isr or elr, directories_of(partition)
        for replica in (*favoured, partition.leader, *replicas):
            if replica in have_all_records and serves(self.cluster, replica, directories.get(replica, UNASSIGNED)):
                return replica, False
        last = replica_metadata_of(partition).last_known_elr if self._elr and not have_all_records else ()
        # The last leader, if no replica is in sync or eligible. A cancelled reassignment may have removed it.
        anyone = last if len(last) == 1 and last[0] in replicas else ()
        for replica in (*anyone, *(replicas if election is Election.UNCLEAN else ())):
            if serves(self.cluster, replica, directories.get(replica, UNASSIGNED)):
                return replica, replica != partition.leader
        return NO_LEADER, False

    def _directories(
        self, partition: Partition, replicas: Ids, reported: Mapping[BrokerId, bytes]
    ) -> tuple[bytes, ...]:
        before = replica_metadata_of(partition).directories
        if not reported and replicas == partition.replicas and len(before) == len(replicas):
            return before
        known = {**directories_of(partition), **reported}
        return tuple(
            known[replica] if replica in known else default_directory(self.cluster, replica) for replica in replicas
        )


def _is_complete(isr: Ids, replicas: Ids, adding: Ids, removing: Ids) -> bool:
    members, remaining = without(isr, removing), without(replicas, removing)
    awaited = remaining if len(adding) < len(removing) else adding
    return bool(members and remaining) and set(awaited) <= set(members)


def is_reassigned(partition: Partition) -> bool:
    metadata = replica_metadata_of(partition)
    return bool(metadata.adding or metadata.removing)


def without(ids: Ids, gone: Collection[BrokerId]) -> Ids:
    return tuple([one for one in ids if one not in gone]) if gone else ids  # a list is faster than a generator


# Brokers fail and return.


class Reconciliation:
    """Brings topics in line with the brokers of a cluster. Optimized for partitions that need no change, because most
    partitions need none when a broker fails or returns."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._is_decided_here = not cluster.settings.has_target_cluster
        self._live = frozenset(cluster.live)
        self._unclean = frozenset(each for each, broker in cluster.brokers.items() if broker.unclean)
        """Brokers that started after an unclean shutdown, so their replicas may lack records."""
        self._elr = cluster.feature(ELIGIBLE_REPLICAS) > 0

    def reconcile(self, topic: Topic, reason: str, indexes: Iterable[int] | None = None) -> tuple[Topic, list[Event]]:
        """Returns the topic after reconciliation, and the events that change it: all partitions, or those with these
        indexes."""
        changes = TopicChanges(topic, self._cluster)
        for index, partition in numbered(topic.partitions, indexes):
            if partition.leader != NO_LEADER and self._is_reconciled(partition, changes.min_isr):
                continue
            replicas = filled(topic.name, index, partition.replicas, self._cluster)
            if self._is_decided_here:
                unclean = self._unclean_members(partition) if self._unclean else ()
                isr = without(self._available(partition), unclean)
                target = Target(replicas=replicas, isr=isr, unclean=unclean, election=changes.election)
            else:
                target = Target(replicas=replicas, election=None)
            changes.change(index, target, reason)
        return changes.topic, changes.events

    def is_reconciled(self, topic: Topic, indexes: Iterable[int] | None = None) -> bool:
        """True if `reconcile` would change nothing. May return False although nothing would change."""
        min_isr = effective_min_isr(topic, self._cluster)
        return all(self._is_reconciled(partition, min_isr) for _, partition in numbered(topic.partitions, indexes))

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
                return False  # min.insync.replicas was lowered: eligible replicas miss records acknowledged from now on
        elif self._cluster.has_kraft_brokers:
            return False
        if partition.leader == NO_LEADER:
            return self._live.isdisjoint(partition.replicas)
        if metadata is None:
            return self._live.issuperset(partition.isr)
        return self._available(partition) == partition.isr

    def _available(self, partition: Partition) -> Ids:
        known, cluster = directories_of(partition), self._cluster
        return tuple([member for member in partition.isr if serves(cluster, member, known.get(member, UNASSIGNED))])

    def _unclean_members(self, partition: Partition) -> Ids:
        """The in-sync or eligible replicas on brokers that reported an unclean shutdown; only KRaft brokers do."""
        members = (*partition.isr, *replica_metadata_of(partition).elr)
        return tuple(one for one in members if one in self._unclean)
