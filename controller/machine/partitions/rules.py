"""What the brokers and the topic of the moment mean for a change of a partition (see `changes`)."""

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
"""The directory of a replica that lies in one that failed (KIP-858)."""
MIGRATING = (2).to_bytes(16, "big")
"""The directory of a replica on a broker that does not report its directories."""


def has_real_brokers(cluster: Cluster) -> bool:
    """Whether the brokers are real ones, so that partitions have replica_metadata."""
    return bool(cluster.features)


def rules_for(topic: Topic, cluster: Cluster) -> Rules:
    """What a change of the topic's partitions depends on."""
    return Rules(
        may_lead=lambda broker_id, directory: serves(cluster, broker_id, directory),
        min_isr=effective_min_isr(topic, cluster),
        elr=cluster.feature(ELIGIBLE_REPLICAS) > 0,
        directory=lambda broker_id: default_directory(cluster, broker_id),
    )


def effective_min_isr(topic: Topic, cluster: Cluster) -> int:
    """How many in sync are enough to acknowledge records of the topic."""
    return min(min_insync_replicas(topic.configs, cluster.settings), topic.replication_factor)


def election_for(topic: Topic, cluster: Cluster) -> Election:
    """How leaders of the topic are elected when nobody asks for an election."""
    unclean = allows_unclean_election(topic.configs, cluster.settings)
    return Election.UNCLEAN if unclean else Election.ONLINE


def serves(cluster: Cluster, broker_id: BrokerId, directory: bytes) -> bool:
    """Whether a broker is live, with this directory online."""
    return cluster.is_live(broker_id) and is_online(cluster.brokers[broker_id], directory)


def is_online(broker: Broker, directory: bytes) -> bool:
    """Whether a directory of a broker is online, or is none that the broker would know by id."""
    if directory in (UNASSIGNED, MIGRATING):
        return True
    return directory != LOST and (not broker.log_dirs or directory in broker.log_dirs)


def default_directory(cluster: Cluster, broker_id: BrokerId) -> bytes:
    """The directory of a new replica: the broker's only one, else one that the broker chooses and reports."""
    broker = cluster.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED
    if not broker.log_dirs:
        return MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED


def new_replica_metadata(replicas: tuple[BrokerId, ...], cluster: Cluster) -> ReplicaMetadata | None:
    """The replica_metadata of a new partition; None where the brokers are not real ones."""
    if not has_real_brokers(cluster):
        return None
    return ReplicaMetadata(tuple(default_directory(cluster, replica) for replica in replicas))


def directory_of(partition: Partition, broker_id: BrokerId) -> bytes:
    """The directory that a broker's replica lies in, as far as it is known."""
    directories = zip(partition.replicas, (partition.replica_metadata or ReplicaMetadata()).directories, strict=False)
    return dict(directories).get(broker_id, UNASSIGNED)


def unavailable_members(partition: Partition, cluster: Cluster) -> tuple[BrokerId, ...]:
    """The members of the in-sync set that do not serve, or may have lost records since they did."""
    directories = dict(
        zip(partition.replicas, (partition.replica_metadata or ReplicaMetadata()).directories, strict=False)
    )
    return tuple(member for member in partition.isr if not serves(cluster, member, directories.get(member, UNASSIGNED)))


def unclean_members(partition: Partition, cluster: Cluster) -> tuple[BrokerId, ...]:
    """The replicas in sync or eligible on brokers that came back without a clean shutdown, so may lack records."""
    members = (*partition.isr, *(partition.replica_metadata or ReplicaMetadata()).elr)
    return tuple(member for member in members if member in cluster.brokers and cluster.brokers[member].unclean)


def is_steady(partition: Partition, cluster: Cluster) -> bool:
    """Whether nothing about a partition can change by itself: it is led, all that are in sync serve, and nothing is
    under way. Quick, because most partitions are so when a broker comes or goes."""
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
    """Whether replicas are eligible though enough are in sync, as where min.insync.replicas was lowered: they miss what
    is acknowledged from then on."""
    return (
        partition.replica_metadata is not None and bool(partition.replica_metadata.elr) and len(partition.isr) >= enough
    )


def is_up_to_date(partition: Partition, cluster: Cluster) -> bool:
    """Whether brokers being as they are changes nothing about a partition. It may err by saying no."""
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
    """True if no placeholder waits for a broker that is there."""
    return partition.replicas[-1] >= 0 or all(broker in partition.replicas for broker in cluster.usable)


def fill(
    topic: TopicName, index: int, partition: Partition, cluster: Cluster
) -> tuple[Partition, list[PlaceholderFilled]]:
    """Usable brokers in the places of placeholders, one a place, as long as there are any (KIP-409)."""
    fills: list[PlaceholderFilled] = []
    for placeholder in [replica for replica in partition.replicas if is_placeholder(replica)]:
        broker_id = _candidate(topic, index, partition.replicas, cluster)
        if broker_id is None:
            break
        directory = default_directory(cluster, broker_id) if has_real_brokers(cluster) else None
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
    """Brokers in a ring in which racks alternate; one object for one set of brokers."""

    __slots__ = ("members",)

    def __init__(self, members: tuple[Member, ...]) -> None:
        self.members = members


@lru_cache(maxsize=8)
def rack_ring(usable: tuple[BrokerId, ...], racks: tuple[str | None, ...]) -> Ring:
    """The ring of the usable brokers; those without a rack count as one rack of their own."""
    by_rack: dict[str | None, list[BrokerId]] = {}
    for broker_id, rack in sorted(zip(usable, racks, strict=True), key=lambda pair: (pair[1] or "", pair[0])):
        by_rack.setdefault(rack, []).append(broker_id)
    members: list[Member] = []
    for turn in range(max(map(len, by_rack.values()), default=0)):
        members.extend((brokers[turn], rack) for rack, brokers in by_rack.items() if turn < len(brokers))
    return Ring(tuple(members))


def place(topic: str, ring: Ring, first: int, count: int, factor: int) -> tuple[tuple[BrokerId, ...], ...]:
    """Replicas for the partitions `first` to `first + count - 1` of a topic; at least one broker must be usable."""
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
    """The leader at one place of the ring, and its followers from a shift on; the racks first that are not used yet."""
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
    """The broker that takes the place of a placeholder, or None without candidates (usable, and no replicas yet).

    One of an unused rack if there is one; among equals the name and partition decide, so that several that join at
    once share the load.
    """
    if not candidates:
        return None
    best = [member for member in candidates if member[1] not in used_racks] or candidates
    return best[(crc32(topic.encode()) + partition) % len(best)][0]
