"""Computes the next state of a KRaft partition from its current state and a target.

Follows `PartitionChangeBuilder` of Kafka 4.3 rule by rule and in its order, because brokers rely on each rule and
because Kafka's controller may take over the log. Tests compare it with that class.

1. A reassignment is complete when all added replicas are in sync; if it removes more replicas than it adds, when all
remaining ones are (KIP-455).
2. A replica that leaves an ISR smaller than min.insync.replicas becomes an eligible leader replica (KIP-966). The ISR
may only become empty with that feature.
3. The leader is elected from the ISR, else from the eligible replicas, else it is the last known leader. An unclean
election accepts any replica and may lose records; the leader must then recover (KIP-704).
4. The leader epoch rises when the leader changes or a replica is removed, the partition epoch with every change.

It does not check the sender of a request. It knows brokers and topics only by `Rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

import msgspec

from events.catalog import Partition, PartitionChanged, ReplicaMetadata
from events.names import NO_LEADER, BrokerId, TopicName

Ids = tuple[BrokerId, ...]
UNASSIGNED = bytes(16)
"""The directory of a replica before its broker has reported it (KIP-858)."""
_NO_METADATA = ReplicaMetadata()


class Election(Enum):
    """The allowed leaders: only the preferred replica, any in-sync replica, or even one that lost records."""

    PREFERRED = "preferred"
    ONLINE = "online"
    UNCLEAN = "unclean"


class Rules(msgspec.Struct, frozen=True):
    """The cluster's part of a change. `elr` enables eligible leader replicas (`eligible.leader.replicas.version` 1)."""

    may_lead: Callable[[BrokerId, bytes], bool]
    """True if the broker is live and the replica's directory is online."""
    min_isr: int
    elr: bool
    directory: Callable[[BrokerId], bytes]
    """Returns the directory of a new replica on a broker."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a change. None leaves a field unchanged."""

    isr: Ids | None = None
    replicas: Ids | None = None
    adding: Ids | None = None
    removing: Ids | None = None
    directories: Mapping[BrokerId, bytes] = {}
    """The directories of some replicas."""
    recovering: bool | None = None
    unclean: Ids = ()
    """Replicas that may have lost records, so they are no longer eligible."""
    election: Election = Election.ONLINE


def replica_metadata_of(partition: Partition) -> ReplicaMetadata:
    """Returns the replica metadata of a partition, or empty metadata."""
    return partition.replica_metadata or _NO_METADATA


def is_reassigned(partition: Partition) -> bool:
    """True if a reassignment is in progress."""
    replica_metadata = partition.replica_metadata
    return replica_metadata is not None and bool(replica_metadata.adding or replica_metadata.removing)


def change(
    topic: TopicName, index: int, partition: Partition, wanted: Target, rules: Rules, reason: str
) -> PartitionChanged | None:
    """Returns the change that brings the partition to the target; None if it already matches."""
    step = _ChangeBuilder(partition, wanted, rules)
    step.take()
    if not step.changes_anything():
        return None
    return PartitionChanged(
        topic,
        index,
        step.leader,
        step.isr,
        partition.leader_epoch + (step.leader is not None),
        partition.partition_epoch + 1,
        ("unclean election: " if step.unclean else "") + reason,
        step.replicas,
        step.directories,
        step.adding,
        step.removing,
        step.elr,
        step.last_known_elr,
        step.recovering,
    )


class _ChangeBuilder:
    """Builds one change. `want_…` are the target values, the other fields the changes; None means unchanged."""

    def __init__(self, partition: Partition, wanted: Target, rules: Rules) -> None:
        self.partition, self.wanted, self.rules = partition, wanted, rules
        self.before = before = replica_metadata_of(partition)
        self.want_isr = partition.isr if wanted.isr is None else wanted.isr
        self.want_replicas = partition.replicas if wanted.replicas is None else wanted.replicas
        self.want_adding = before.adding if wanted.adding is None else wanted.adding
        self.want_removing = before.removing if wanted.removing is None else wanted.removing
        self.want_elr = before.elr
        self.leader: BrokerId | None = None
        self.isr: Ids | None = None
        self.replicas: Ids | None = None
        self.adding: Ids | None = None
        self.removing: Ids | None = None
        self.directories: tuple[bytes, ...] | None = None
        self.elr: Ids | None = None
        self.last_known_elr: Ids | None = None
        self.recovering: bool | None = None
        self.unclean = False
        self._directory_of = {**_directories(partition), **wanted.directories}

    def take(self) -> None:
        self._complete_reassignment()
        self._find_eligible()
        self._elect()
        if self.leader is None and not set(self.partition.replicas) <= set(self.want_replicas):
            self.leader = self.partition.leader  # a replica is removed: brokers must see a new leader epoch
        self._change_eligible()
        if self.isr is None and (self.want_isr or self.rules.elr) and self.want_isr != self.partition.isr:
            self.isr = self.want_isr
        self._change_last_known()
        self._change_assignment()
        if self.wanted.recovering is not None and self.wanted.recovering != self.before.recovering:
            self.recovering = self.wanted.recovering

    def changes_anything(self) -> bool:
        changed = (self.leader, self.isr, self.replicas, self.adding, self.removing, self.directories)
        return any(one is not None for one in (*changed, self.elr, self.last_known_elr, self.recovering))

    def _complete_reassignment(self) -> None:
        if not (self.want_adding or self.want_removing):
            return
        isr = _without(self.want_isr, self.want_removing)
        replicas = _without(self.want_replicas, self.want_removing)
        fewer = len(self.want_adding) < len(self.want_removing)
        if isr and replicas and set(replicas if fewer else self.want_adding) <= set(isr):
            self.want_isr, self.want_replicas, self.want_adding, self.want_removing = isr, replicas, (), ()

    def _find_eligible(self) -> None:
        if len(self.partition.isr) >= self.rules.min_isr:
            self.want_elr = ()  # min.insync.replicas was lowered: they miss records acknowledged since
        if not self.rules.elr:  # ELR was disabled: keep existing members only while the ISR is empty
            self.want_elr = tuple(
                one for one in _without(self.want_elr, self.wanted.unclean) if one in self.want_replicas
            )
            return
        if len(self.want_isr) >= self.rules.min_isr:
            self.want_elr = ()
            return
        before = {*self.want_elr, *self.partition.isr} & set(self.want_replicas)
        self.want_elr = tuple(sorted(before - set(self.want_isr) - set(self.wanted.unclean)))

    # Elections.

    def _elect(self) -> None:
        leader, unclean = self._elected()
        if leader == self.partition.leader:
            return
        if leader in self.want_elr:
            self.want_isr = (leader,)
            # If an ISR of one is enough, the other replicas miss what it acknowledges from now on.
            self.want_elr = _without(self.want_elr, (leader,)) if self.rules.min_isr > 1 else ()
        self.leader, self.unclean = leader, unclean
        if unclean:
            self.isr = (leader,)
            if not self.before.recovering:
                self.recovering = True

    def _elected(self) -> tuple[BrokerId, bool]:
        """Returns the leader to elect, and whether the election is unclean."""
        first = self.want_replicas[0]
        favoured = (first,) if self.wanted.election is Election.PREFERRED else ()
        for replica in (*favoured, self.partition.leader, *self.want_replicas):
            if self._has_all_records(replica) and self._may_lead(replica):
                return replica, False
        last = self._last_known_leader()
        if last != NO_LEADER:
            return last, True
        if self.wanted.election is Election.UNCLEAN:
            anyone = next((replica for replica in self.want_replicas if self._may_lead(replica)), NO_LEADER)
            return anyone, anyone != NO_LEADER
        return NO_LEADER, False

    def _has_all_records(self, replica: BrokerId) -> bool:
        return replica in self.want_isr or (not self.want_isr and replica in self.want_elr)

    def _may_lead(self, replica: BrokerId) -> bool:
        return self.rules.may_lead(replica, _directories(self.partition).get(replica, UNASSIGNED))

    def _last_known_leader(self) -> BrokerId:
        """The last leader, if nobody is in sync or eligible. A cancelled reassignment may have removed it."""
        last = self.before.last_known_elr
        if not self.rules.elr or self.want_elr or self.want_isr or len(last) != 1:
            return NO_LEADER
        return last[0] if last[0] in self.want_replicas and self._may_lead(last[0]) else NO_LEADER

    # Other changes.

    def _change_eligible(self) -> None:
        if self.isr is not None or not (self.rules.elr or self._is_nobody_in_sync()):
            self.want_elr = ()
        if self.want_elr != self.before.elr:
            self.elr = self.want_elr

    def _is_nobody_in_sync(self) -> bool:
        return not (self.want_isr or self.partition.isr)

    def _change_last_known(self) -> None:
        if not self.rules.elr:
            return
        last = self.before.last_known_elr
        if self.leader == NO_LEADER and not last:
            self.last_known_elr = (self.partition.leader,)
        elif self.leader is not None and self.leader >= 0 and last:
            self.last_known_elr = ()

    def _change_assignment(self) -> None:
        directories = tuple(
            self._directory_of[replica] if replica in self._directory_of else self.rules.directory(replica)
            for replica in self.want_replicas
        )
        if directories != self.before.directories:
            self.directories = directories
        if self.want_replicas != self.partition.replicas:
            self.replicas = self.want_replicas
        if self.want_adding != self.before.adding:
            self.adding = self.want_adding
        if self.want_removing != self.before.removing:
            self.removing = self.want_removing


def _directories(partition: Partition) -> dict[BrokerId, bytes]:
    return dict(zip(partition.replicas, replica_metadata_of(partition).directories, strict=False))


def _without(ids: Ids, gone: Iterable[BrokerId]) -> Ids:
    return tuple(one for one in ids if one not in gone)
