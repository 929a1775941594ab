"""Where the replicas of new partitions go.

Goals, in this order:
1. no broker holds two replicas of a partition;
2. replicas of a partition lie in different racks, as far as there are racks (KIP-36);
3. leaders are spread evenly over the brokers, within a topic and over topics;
4. the followers of one leader are spread over the others;
5. the same name on the same live brokers gives the same replicas, so that a dry run shows what a create commits.

Constraints: only live brokers are chosen, and none whose log directories are all cordoned (KIP-1066). With fewer of
them than the factor (KIP-409, decided elsewhere) the missing replicas are placeholders -1, -2, …; they come last, so
the preferred leader is always a broker.

Method: brokers stand in a ring in which racks alternate. The topic's name seeds the place in the ring where partition 0
has its leader; each further partition moves one place on. Followers are the next brokers of the ring from a shift
that moves on with each round and whose rack is not used yet; when all racks are used, they are used again.

What it does not do: it does not look at load, disk space or the replicas of other topics.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from zlib import crc32

from events.names import BrokerId

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
