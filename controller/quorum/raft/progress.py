"""Progress of the other replicas, recorded by the leader role from their fetches."""

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from controller.kafka.messages import ZERO_UUID
from controller.quorum.raft.replica import Replica
from controller.quorum.raft.voters import Voter

FORGOTTEN_S: Final = 300.0
"""A replica that has not fetched for this long is no observer any more (`LeaderState.OBSERVER_SESSION_TIMEOUT_MS`)."""
REPLICAS_MAX: Final = 1000
"""A fetch can have any replica id. Beyond this number, the observer whose last fetch is oldest is dropped."""


class Fetches(msgspec.Struct):
    """One replica with one disk: the offset and time of its last fetch, and the last time when it was caught up. Times
    are in seconds."""

    end: int = -1
    fetched_at: float = -math.inf
    caught_up_at: float = -math.inf
    leader_end: int = -1  # at its last fetch


class Progress:
    """The replicas that fetch in an epoch, by id and directory id."""

    def __init__(self, replica: Replica) -> None:
        self._leader = replica
        self._seen: dict[tuple[int, bytes], Fetches] = {}

    def fetched(self, now: float, node_id: int, directory: bytes, offset: int) -> None:
        """A replica fetched from `offset`: all records below are durable on that disk."""
        leader_end = self._leader.log.end
        found = self._of(now, node_id, directory)
        if offset >= leader_end:
            found.caught_up_at = now
        elif 0 <= found.leader_end <= offset:  # caught up as of its last fetch, also while the leader keeps appending
            found.caught_up_at = max(found.caught_up_at, found.fetched_at)
        found.end, found.fetched_at, found.leader_end = offset, now, leader_end

    def fetched_snapshot(self, now: float, node_id: int, directory: bytes) -> None:
        self._of(now, node_id, directory).fetched_at = now

    def _of(self, now: float, node_id: int, directory: bytes) -> Fetches:
        found = self._seen.get((node_id, directory))
        if found is None:
            self._seen = {key: each for key, each in self._seen.items() if now - each.fetched_at <= FORGOTTEN_S}
            if len(self._seen) >= REPLICAS_MAX:
                voters = self._leader.voters
                del self._seen[min(self._seen, key=lambda key: (voters.has(*key), self._seen[key].fetched_at))]
            found = self._seen[node_id, directory] = Fetches()
        return found

    def of(self, voter: Voter) -> Fetches:
        """A voter's fetches; if the voter set has no directory id for it, the fetches of the disk that fetched last."""
        if voter.directory != ZERO_UUID:
            return self._seen.get((voter.id, voter.directory)) or Fetches()
        found = [each for (node_id, _), each in self._seen.items() if node_id == voter.id]
        return max(found, key=lambda each: each.fetched_at, default=Fetches())

    def end_of(self, node_id: int) -> int:
        """The highest fetch offset of a node, with any disk; 0 if it has not fetched."""
        return max((each.end for (known, _), each in self._seen.items() if known == node_id), default=0)

    def observers(self, now: float) -> Iterator[tuple[int, bytes, Fetches]]:
        """The replicas outside the voter set that fetched recently."""
        for (node_id, directory), found in self._seen.items():
            if not self._leader.voters.has(node_id, directory) and now - found.fetched_at <= FORGOTTEN_S:
                yield node_id, directory, found

    def majority_end(self, leader_end: int) -> int:
        """The offset below which a majority of the voters has all records; the leader counts if it votes."""
        voters, me = self._leader.voters, self._leader.me.id
        ends = sorted((leader_end if each.id == me else self.of(each).end for each in voters), reverse=True)
        return ends[voters.majority - 1]

    def majority_fetched_at(self) -> float:
        """The time since which a majority of the voters has fetched; infinite if the leader is the only voter."""
        voters, me = self._leader.voters, self._leader.me.id
        times = sorted((math.inf if each.id == me else self.of(each).fetched_at for each in voters), reverse=True)
        return times[voters.majority - 1]
