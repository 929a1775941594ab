"""Changes partitions: the rules of leaders, in-sync replicas and epochs.

A change is computed from the current partition, a target, and the rules of its topic. These are the rules of Kafka
4.3's `PartitionChangeBuilder`, in its order, because brokers rely on each of them and because Kafka's controller may
take over the log. Tests compare this module with that class. Simulated brokers, and those of a target cluster, follow
the same rules, but their partitions have no replica metadata.

1. A reassignment is complete when all added replicas are in sync; if it removes more replicas than it adds, when all
remaining ones are (KIP-455).
2. A replica that leaves an ISR smaller than min.insync.replicas becomes an eligible leader replica (KIP-966). The ISR
may only become empty with that feature, so that no acknowledged record is lost.
3. The leader is elected from the ISR, else from the eligible replicas, else it is the last known leader. An unclean
election accepts any replica and may lose records; the leader must then recover (KIP-704).
4. The leader epoch rises when the leader changes or a replica is removed, the partition epoch with every change.

It does not check the sender of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from enum import Enum

import msgspec
from msgspec.structs import replace

from controller.machine.configs.topic_configs import allows_unclean_election, min_insync_replicas
from controller.machine.partitions import blocks
from controller.machine.partitions.placement import (
    UNASSIGNED,
    Ids,
    default_directory,
    directories_of,
    replica_metadata_of,
    serves,
)
from controller.machine.state import ELIGIBLE_REPLICAS, Cluster, Topic
from events.catalog import Event, Partition, PartitionChanged, ReplicaMetadata
from events.names import NO_LEADER, BrokerId, TopicName


class Election(Enum):
    """The allowed leaders: only the preferred replica, any in-sync replica, or even one that lost records."""

    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a change. A field that is not set stays as it is."""

    isr: Ids | None = None
    replicas: Ids | None = None
    adding: Ids | None = None
    removing: Ids | None = None
    directories: Mapping[BrokerId, bytes] = {}
    """The directories of some replicas."""
    recovering: bool | None = None
    unclean: Ids = ()
    """Replicas that may have lost records, so they are no longer eligible."""
    election: Election | None = Election.ONLINE
    """None if the target cluster elects its leaders itself."""


class Rules(msgspec.Struct, frozen=True):
    """The rules of a topic on its brokers."""

    may_lead: Callable[[BrokerId, bytes], bool]
    """True if the broker is live and the replica's directory is online."""
    min_isr: int = 1
    elr: bool = False
    """Eligible leader replicas are enabled (`eligible.leader.replicas.version` 1)."""
    directory: Callable[[BrokerId], bytes] | None = None
    """Returns the directory of a new replica on a broker. None without KRaft brokers: then there is no metadata."""


def rules_for(topic: Topic, cluster: Cluster) -> Rules:
    if not cluster.has_kraft_brokers:
        return Rules(lambda broker_id, _: broker_id in cluster.live)
    return Rules(
        may_lead=lambda broker_id, directory: serves(cluster, broker_id, directory),
        min_isr=effective_min_isr(topic, cluster),
        elr=cluster.feature(ELIGIBLE_REPLICAS) > 0,
        directory=lambda broker_id: default_directory(cluster, broker_id),
    )


def effective_min_isr(topic: Topic, cluster: Cluster) -> int:
    """min.insync.replicas, but not more than the replication factor."""
    return min(min_insync_replicas(topic.configs, cluster.settings), topic.replication_factor)


def election_for(topic: Topic, cluster: Cluster) -> Election:
    """The kind of automatic elections of a topic."""
    unclean = allows_unclean_election(topic.configs, cluster.settings)
    return Election.UNCLEAN if unclean else Election.ONLINE


class TopicChanges:
    """Changes partitions of one topic, one after another. `events` has the changes so far."""

    def __init__(self, topic: Topic, cluster: Cluster) -> None:
        self._topic, self.cluster = topic, cluster
        self._rules = rules_for(topic, cluster)
        self._changed: dict[int, Partition] = {}
        self.election = election_for(topic, cluster)
        """The kind of automatic elections."""
        self.events: list[Event] = []

    @property
    def topic(self) -> Topic:
        """The topic after the changes so far."""
        if not self._changed:
            return self._topic
        return replace(self._topic, partitions=blocks.changed(self._topic.partitions, self._changed))

    def partition(self, index: int) -> Partition | None:
        """The partition after the changes so far; None without one of this index."""
        if not 0 <= index < len(self._topic.partitions):
            return None
        return self._changed.get(index) or self._topic.partitions[index]

    def change(self, index: int, target: Target, reason: str) -> Partition | None:
        """Brings a partition to a target. Returns it changed; None if it already matches."""
        before = self._changed.get(index) or self._topic.partitions[index]
        event = change(self._topic.name, index, before, target, self._rules, reason)
        if event is None:
            return None
        self.events.append(event)
        self._changed[index] = event.after
        return event.after


def change(
    topic: TopicName, index: int, partition: Partition, target: Target, rules: Rules, reason: str
) -> PartitionChanged | None:
    """Returns the change that brings the partition to the target; None if it already matches."""
    builder = _ChangeBuilder(partition, target, rules)
    after = builder.build()
    if after is None:
        return None
    return PartitionChanged(topic, index, partition, after, ("unclean election: " if builder.unclean else "") + reason)


class _ChangeBuilder:
    """Builds one change, from the fields of the target and those that follow from them."""

    def __init__(self, partition: Partition, target: Target, rules: Rules) -> None:
        self.partition, self.target, self.rules = partition, target, rules
        self.before = before = replica_metadata_of(partition)
        self.leader = partition.leader
        self.isr = partition.isr if target.isr is None else target.isr
        self.replicas = partition.replicas if target.replicas is None else target.replicas
        self.adding = before.adding if target.adding is None else target.adding
        self.removing = before.removing if target.removing is None else target.removing
        self.elr = before.elr
        self.unclean = False
        self._directories = directories_of(partition)

    def build(self) -> Partition | None:
        """Returns the partition after the change; None if nothing changes."""
        partition = self.partition
        self._complete_reassignment()
        self._find_eligible()
        self._elect()
        if self.unclean or not (self.rules.elr or not (self.isr or partition.isr)):
            self.elr = ()
        if self.unclean:
            self.isr = (self.leader,)
        elif not self.isr and not self.rules.elr:
            self.isr = partition.isr
        is_removed = self.replicas != partition.replicas and any(
            replica >= 0 and replica not in self.replicas for replica in partition.replicas
        )
        is_new_epoch = self.leader != partition.leader or is_removed
        after = Partition(
            self.replicas,
            self.isr,
            self.leader,
            partition.leader_epoch + is_new_epoch,
            partition.partition_epoch + 1,
            self._metadata(is_new_epoch),
        )
        if not is_new_epoch and (after.replicas, after.isr, after.replica_metadata) == (
            partition.replicas,
            partition.isr,
            partition.replica_metadata,
        ):
            return None
        return after

    def _complete_reassignment(self) -> None:
        if not (self.adding or self.removing):
            return
        isr, replicas = without(self.isr, self.removing), without(self.replicas, self.removing)
        fewer = len(self.adding) < len(self.removing)
        if isr and replicas and set(replicas if fewer else self.adding) <= set(isr):
            self.isr, self.replicas, self.adding, self.removing = isr, replicas, (), ()

    def _find_eligible(self) -> None:
        if not (self.rules.elr or self.elr):
            return
        if len(self.partition.isr) >= self.rules.min_isr:
            self.elr = ()  # min.insync.replicas was lowered: they miss records acknowledged since
        if not self.rules.elr:  # ELR was disabled: keep existing members only while the ISR is empty
            self.elr = tuple(one for one in without(self.elr, self.target.unclean) if one in self.replicas)
            return
        if len(self.isr) >= self.rules.min_isr:
            self.elr = ()
            return
        before = {*self.elr, *self.partition.isr} & set(self.replicas)
        self.elr = tuple(sorted(before - set(self.isr) - set(self.target.unclean)))

    # Elections.

    def _elect(self) -> None:
        if self.target.election is None:
            return
        leader, self.unclean = self._elected(self.target.election)
        if leader != self.leader and leader in self.elr:
            self.isr = (leader,)
            # If an ISR of one is enough, the other replicas miss what it acknowledges from now on.
            self.elr = without(self.elr, (leader,)) if self.rules.min_isr > 1 else ()
        self.unclean = self.unclean and leader != self.leader
        self.leader = leader

    def _elected(self, election: Election) -> tuple[BrokerId, bool]:
        """Returns the leader to elect, and whether the election is unclean."""
        favoured = self.replicas[:1] if election is Election.PREFERRED else ()
        have_all_records = self.isr or self.elr
        for replica in (*favoured, self.leader, *self.replicas):
            if replica in have_all_records and self._may_lead(replica):
                return replica, False
        last = self._last_known_leader()
        if last != NO_LEADER:
            return last, True
        if election is Election.UNCLEAN:
            anyone = next((replica for replica in self.replicas if self._may_lead(replica)), NO_LEADER)
            return anyone, anyone != NO_LEADER
        return NO_LEADER, False

    def _may_lead(self, replica: BrokerId) -> bool:
        return self.rules.may_lead(replica, self._directories.get(replica, UNASSIGNED))

    def _last_known_leader(self) -> BrokerId:
        """The last leader, if nobody is in sync or eligible. A cancelled reassignment may have removed it."""
        last = self.before.last_known_elr
        if not self.rules.elr or self.elr or self.isr or len(last) != 1:
            return NO_LEADER
        return last[0] if last[0] in self.replicas and self._may_lead(last[0]) else NO_LEADER

    # Replica metadata.

    def _metadata(self, is_new_epoch: bool) -> ReplicaMetadata | None:
        directory = self.rules.directory
        if directory is None:
            return self.partition.replica_metadata
        known = {**self._directories, **self.target.directories}
        directories = tuple(known[replica] if replica in known else directory(replica) for replica in self.replicas)
        last, recovering = self.before.last_known_elr, self.before.recovering or self.unclean
        if self.rules.elr and is_new_epoch and (self.leader == NO_LEADER) is not bool(last):
            last = (self.partition.leader,) if self.leader == NO_LEADER else ()
        if self.target.recovering not in (None, self.before.recovering):
            recovering = bool(self.target.recovering)
        return ReplicaMetadata(directories, self.adding, self.removing, self.elr, last, recovering)


def is_reassigned(partition: Partition) -> bool:
    metadata = replica_metadata_of(partition)
    return bool(metadata.adding or metadata.removing)


def without(ids: Ids, gone: Container[BrokerId]) -> Ids:
    return tuple([one for one in ids if one not in gone])  # a list is faster than a generator
