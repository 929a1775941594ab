"""Rules that depend on the brokers: replica placement, placeholders, and which partitions need a change.

Goals of placement, in this order:
1. no broker has two replicas of a partition;
2. replicas of a partition are in different racks, as far as possible (KIP-36);
3. leaders are spread evenly over the brokers, within a topic and over topics;
4. the followers of one leader are spread over the other brokers;
5. the same name on the same live brokers gives the same replicas, so that a dry run shows what a create commits.

Only live brokers with a log directory that is not cordoned are chosen (KIP-1066). With fewer of them than the factor
(KIP-409), the missing replicas are placeholders -1, -2, …; they come last, so that the preferred leader is a broker.

Method: brokers form a ring in which racks alternate. The hash of the topic name selects the leader of partition 0; each
further partition moves one place on. Followers are the next brokers of the ring in unused racks, from a shift that
changes with each round; when all racks are used, they are used again.

Placement does not look at load, disk space or the replicas of other topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from zlib import crc32

from controller.machine.apply import after_fill
from controller.machine.configs.topic_configs import allows_unclean_election, min_insync_replicas
from controller.machine.partitions.changes import UNASSIGNED, Election, Ids, Rules
from controller.machine.state import ELIGIBLE_REPLICAS, Broker, Cluster, Topic
from events.catalog import Partition, PlaceholderFilled, ReplicaMetadata
from events.names import NO_LEADER, BrokerId, TopicName, is_placeholder

LOST = (1).to_bytes(16, "big")
"""The directory of a replica in a failed log directory (KIP-858)."""
MIGRATING = (2).to_bytes(16, "big")
"""The directory of a replica on a broker that does not report its directories."""


def has_kraft_brokers(cluster: Cluster) -> bool:
    """True with KRaft brokers, whose partitions have replica metadata."""
    return bool(cluster.features)


def rules_for(topic: Topic, cluster: Cluster) -> Rules:
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


def serves(cluster: Cluster, broker_id: BrokerId, directory: bytes) -> bool:
    """True if the broker is live and this directory is online."""
    return cluster.is_live(broker_id) and is_online(cluster.brokers[broker_id], directory)


def is_online(broker: Broker, directory: bytes) -> bool:
    """True if the directory is online, or has no id that the broker would know."""
    if directory in (UNASSIGNED, MIGRATING):
        return True
    return directory != LOST and (not broker.log_dirs or directory in broker.log_dirs)


def default_directory(cluster: Cluster, broker_id: BrokerId) -> bytes:
    """The directory of a new replica: the broker's only one, else the broker chooses and reports it."""
    broker = cluster.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED
    if not broker.log_dirs:
        return MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED


def new_replica_metadata(replicas: tuple[BrokerId, ...], cluster: Cluster) -> ReplicaMetadata | None:
    """None without KRaft brokers."""
    if not has_kraft_brokers(cluster):
        return None
    return ReplicaMetadata(tuple(default_directory(cluster, replica) for replica in replicas))


def directory_of(partition: Partition, broker_id: BrokerId) -> bytes:
    """Returns the directory of a broker's replica, or UNASSIGNED."""
    directories = zip(partition.replicas, (partition.replica_metadata or ReplicaMetadata()).directories, strict=False)
    return dict(directories).get(broker_id, UNASSIGNED)


def unavailable_members(partition: Partition, cluster: Cluster) -> tuple[BrokerId, ...]:
    """The ISR members that cannot serve."""
    directories = dict(
        zip(partition.replicas, (partition.replica_metadata or ReplicaMetadata()).directories, strict=False)
    )
    return tuple(member for member in partition.isr if not serves(cluster, member, directories.get(member, UNASSIGNED)))


def unclean_members(partition: Partition, cluster: Cluster) -> tuple[BrokerId, ...]:
    """The in-sync or eligible replicas on brokers that started after an unclean shutdown, so records may be missing."""
    members = (*partition.isr, *(partition.replica_metadata or ReplicaMetadata()).elr)
    return tuple(member for member in members if member in cluster.brokers and cluster.brokers[member].unclean)


def is_steady(partition: Partition, cluster: Cluster) -> bool:
    """True if the partition has a leader, its ISR is available, and nothing is in progress. Fast, because that is the
    case for most partitions when a broker comes or goes."""
    replica_metadata = partition.replica_metadata
    if (
        replica_metadata is None
        or replica_metadata.elr
        or replica_metadata.last_known_elr
        or replica_metadata.adding
        or replica_metadata.removing
    ):
        return False
    return partition.leader >= 0 and is_up_to_date(partition, cluster)


def elr_must_be_cleared(partition: Partition, enough: int) -> bool:
    """True if there are eligible replicas although the ISR is large enough, as after lowering min.insync.replicas: they
    miss what is acknowledged from now on."""
    return (
        partition.replica_metadata is not None and bool(partition.replica_metadata.elr) and len(partition.isr) >= enough
    )


def is_up_to_date(partition: Partition, cluster: Cluster) -> bool:
    """True if the live brokers require no change. May return False although nothing would change."""
    if partition.replica_metadata is None:
        return False
    if unclean_members(partition, cluster):
        return False
    if partition.leader == NO_LEADER:
        return not any(replica in cluster.live for replica in partition.replicas)
    if unavailable_members(partition, cluster):
        return False
    return is_filled(partition, cluster)


def is_filled(partition: Partition, cluster: Cluster) -> bool:
    """True if no placeholder can be filled."""
    return partition.replicas[-1] >= 0 or all(broker in partition.replicas for broker in cluster.usable)


def fill(
    topic: TopicName, index: int, partition: Partition, cluster: Cluster
) -> tuple[Partition, list[PlaceholderFilled]]:
    """Replaces placeholders by usable brokers (KIP-409)."""
    fills: list[PlaceholderFilled] = []
    for placeholder in [replica for replica in partition.replicas if is_placeholder(replica)]:
        broker_id = _candidate(topic, index, partition.replicas, cluster)
        if broker_id is None:
            break
        directory = default_directory(cluster, broker_id) if has_kraft_brokers(cluster) else None
        one = PlaceholderFilled(topic, index, placeholder, broker_id, partition.partition_epoch + 1, directory)
        partition = after_fill(partition, one)
        fills.append(one)
    return partition, fills


def _candidate(topic: TopicName, index: int, replicas: Ids, cluster: Cluster) -> BrokerId | None:
    candidates = [
        (broker_id, rack)
        for broker_id, rack in zip(cluster.usable, cluster.usable_racks, strict=True)
        if broker_id not in replicas
    ]
    used_racks = {cluster.brokers[replica].rack for replica in replicas if replica in cluster.brokers}
    return pick_for_placeholder(topic, index, candidates, used_racks)


Member = tuple[BrokerId, str | None]
"""A broker with its rack."""


class Ring:
    """Brokers in an order in which racks alternate."""

    __slots__ = ("members",)

    def __init__(self, members: tuple[Member, ...]) -> None:
        self.members = members


@lru_cache(maxsize=8)
def rack_ring(usable: tuple[BrokerId, ...], racks: tuple[str | None, ...]) -> Ring:
    """Returns the ring of the usable brokers. Those without a rack count as one rack."""
    by_rack: dict[str | None, list[BrokerId]] = {}
    for broker_id, rack in sorted(zip(usable, racks, strict=True), key=lambda pair: (pair[1] or "", pair[0])):
        by_rack.setdefault(rack, []).append(broker_id)
    members: list[Member] = []
    for turn in range(max(map(len, by_rack.values()), default=0)):
        members.extend((brokers[turn], rack) for rack, brokers in by_rack.items() if turn < len(brokers))
    return Ring(tuple(members))


def place(topic: str, ring: Ring, first: int, count: int, factor: int) -> tuple[tuple[BrokerId, ...], ...]:
    """Returns the replicas of the partitions `first` to `first + count - 1`. Needs a usable broker."""
    seed = crc32(topic.encode())
    size = len(ring.members)
    missing = tuple(BrokerId(-n) for n in range(1, factor - size + 1))
    if factor == 1 or size == 1:
        return tuple((ring.members[(seed + index) % size][0], *missing) for index in range(first, first + count))
    turns, reachable = size - 1, factor - len(missing)
    lists = (
        _replicas(ring, (seed + index) % size, (seed // size + index // size) % turns, reachable)
        for index in range(first, first + count)
    )
    return tuple(replicas + missing for replicas in lists) if missing else tuple(lists)


@lru_cache(maxsize=16_384)
def _replicas(ring: Ring, at: int, shift: int, factor: int) -> tuple[BrokerId, ...]:
    """The leader at one place of the ring, and its followers, unused racks first."""
    members, turns = ring.members, len(ring.members) - 1
    leader, leader_rack = members[at]
    chosen = [leader]
    used = {leader_rack}
    while len(chosen) < factor:
        for step in range(turns):
            broker_id, rack = members[(at + 1 + (shift + step) % turns) % len(members)]
            if rack not in used and broker_id not in chosen:
                chosen.append(broker_id)
                used.add(rack)
                if len(chosen) == factor:
                    break
        used.clear()
    return tuple(chosen)


def pick_for_placeholder(
    topic: str, partition: int, candidates: Sequence[Member], used_racks: AbstractSet[str | None]
) -> BrokerId | None:
    """Returns the broker that replaces a placeholder, or None without candidates.

    Prefers unused racks. Otherwise the name and partition decide, so that several new brokers share the load.
    """
    if not candidates:
        return None
    best = [member for member in candidates if member[1] not in used_racks] or candidates
    return best[(crc32(topic.encode()) + partition) % len(best)][0]
