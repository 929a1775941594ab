"""Places the replicas of new partitions on brokers and in their log directories, for creates and added partitions.

Goals of placement, in this order:
1. no broker has two replicas of a partition;
2. replicas of a partition are in different racks, as far as possible (KIP-36);
3. leaders are spread evenly over the brokers, within a topic and over topics;
4. the followers of one leader are spread over the other brokers;
5. the same name on the same live brokers gives the same replicas, so that a dry run shows what a create commits.

Only live brokers with a log directory that is not cordoned are chosen (KIP-1066). With fewer of them than the factor
(KIP-409), the missing replicas are placeholders -1, -2, …; they come last, so that the preferred leader is a broker.

Method: brokers form a ring in which racks alternate. The hash of the topic name selects the leader of partition 0. The
leader of each further partition is the next broker of the ring. The followers are the brokers after the leader, with
unused racks first. Each time the leaders have gone once around the ring, the search starts one broker later.

Placement does not consider load, disk space or the replicas of other topics.
"""

from functools import lru_cache
from zlib import crc32

import msgspec

from controller.machine.state import Broker, Cluster
from events.catalog import Partition, ReplicaMetadata
from events.names import NO_LEADER, BrokerId, is_placeholder

Ids = tuple[BrokerId, ...]


def new_partitions(cluster: Cluster, topic: str, first: int, count: int, factor: int) -> tuple[Partition, ...]:
    """Returns the partitions `first` to `first + count - 1` of a topic, with automatic placement."""
    replica_lists = place(topic, rack_ring(cluster.usable, cluster.usable_racks), first, count, factor)
    if factor <= len(cluster.usable) and not cluster.has_kraft_brokers:
        return tuple([Partition(replicas, replicas, replicas[0]) for replicas in replica_lists])
    return tuple(new_partition(replicas, cluster) for replicas in replica_lists)


def new_partition(replicas: Ids, cluster: Cluster) -> Partition:
    """Returns a new partition: all live replicas are in sync, and the first of them is the leader."""
    isr = tuple(replica for replica in replicas if replica in cluster.live)
    metadata = None
    if cluster.has_kraft_brokers:
        metadata = ReplicaMetadata(tuple(default_directory(cluster, replica) for replica in replicas))
    return Partition(replicas, isr, isr[0] if isr else NO_LEADER, replica_metadata=metadata)


def is_filled(partition: Partition, cluster: Cluster) -> bool:
    """True if there are no placeholders, or no usable broker is left that could replace one."""
    return partition.replicas[-1] >= 0 or all(broker in partition.replicas for broker in cluster.usable)


def filled(topic: str, index: int, replicas: Ids, cluster: Cluster) -> Ids:
    """Returns the replicas with placeholders replaced by usable brokers, as far as there are enough (KIP-409). Prefers
    unused racks."""
    if replicas[-1] >= 0:
        return replicas
    for placeholder in filter(is_placeholder, replicas):
        candidates = [
            (broker_id, rack)
            for broker_id, rack in zip(cluster.usable, cluster.usable_racks, strict=True)
            if broker_id not in replicas
        ]
        if not candidates:
            break
        used_racks = {cluster.brokers[replica].rack for replica in replicas if replica in cluster.brokers}
        best = [member for member in candidates if member[1] not in used_racks] or candidates
        chosen = best[(crc32(topic.encode()) + index) % len(best)][0]  # new brokers share the load
        replicas = tuple(chosen if replica == placeholder else replica for replica in replicas)
    return replicas


# Placement.

Member = tuple[BrokerId, str | None]


class Ring(msgspec.Struct, frozen=True, eq=False):
    """Brokers in an order in which racks alternate. Compared by identity, which makes it a fast cache key."""

    members: tuple[Member, ...]


@lru_cache(maxsize=8)
def rack_ring(usable: tuple[BrokerId, ...], racks: tuple[str | None, ...]) -> Ring:
    """Returns the ring of the usable brokers. Brokers without a rack count as one rack."""
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
    missing = tuple(BrokerId(-n) for n in range(1, factor - size + 1)) if factor > size else ()
    if factor == 1 or size == 1:
        return tuple([(ring.members[(seed + index) % size][0], *missing) for index in range(first, first + count)])
    follower_positions, reachable = size - 1, factor - len(missing)
    lists = (
        _replicas(ring, (seed + index) % size, (seed // size + index // size) % follower_positions, reachable)
        for index in range(first, first + count)
    )
    return tuple(replicas + missing for replicas in lists) if missing else tuple(lists)


@lru_cache(maxsize=16_384)
def _replicas(ring: Ring, at: int, shift: int, factor: int) -> tuple[BrokerId, ...]:
    """The leader, which is the broker at index `at` of the ring, and its followers, unused racks first."""
    members, follower_positions = ring.members, len(ring.members) - 1
    leader, leader_rack = members[at]
    chosen = [leader]
    used = {leader_rack}
    while len(chosen) < factor:
        for step in range(follower_positions):
            broker_id, rack = members[(at + 1 + (shift + step) % follower_positions) % len(members)]
            if rack not in used and broker_id not in chosen:
                chosen.append(broker_id)
                used.add(rack)
                if len(chosen) == factor:
                    break
        used.clear()
    return tuple(chosen)


# Log directories (KIP-858).

UNASSIGNED = bytes(16)
"""The directory of a replica before its broker has reported it."""
LOST = (1).to_bytes(16, "big")
"""The directory of a replica in a failed log directory."""
MIGRATING = (2).to_bytes(16, "big")
"""The directory of a replica on a broker that does not report its directories."""
_NO_METADATA = ReplicaMetadata()


def replica_metadata_of(partition: Partition) -> ReplicaMetadata:
    """Returns the replica metadata of a partition, or empty metadata."""
    return partition.replica_metadata or _NO_METADATA


def directories_of(partition: Partition) -> dict[BrokerId, bytes]:
    metadata = partition.replica_metadata
    return {} if metadata is None else dict(zip(partition.replicas, metadata.directories, strict=False))


def default_directory(cluster: Cluster, broker_id: BrokerId) -> bytes:
    """The directory of a new replica: the broker's only one; UNASSIGNED if the broker has several and must choose;
    MIGRATING if it reports none."""
    broker = cluster.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED
    if not broker.log_dirs:
        return MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED


def serves(cluster: Cluster, broker_id: BrokerId, directory: bytes) -> bool:
    """True if the broker is live and this directory is online."""
    broker = cluster.brokers.get(broker_id)
    return broker is not None and broker.is_live and is_online(broker, directory)


def is_online(broker: Broker, directory: bytes) -> bool:
    """True if the directory is online. UNASSIGNED and MIGRATING count as online, because they name no directory."""
    if directory in (UNASSIGNED, MIGRATING):
        return True
    return directory != LOST and (not broker.log_dirs or directory in broker.log_dirs)
