"""How far the others have fetched, as their leader knows it: what is committed, and whether a majority listens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from controller.brokers.kraft.quorum.raft.voters import Voter, VoterSet
from controller.kafka.messages import ZERO_UUID

FORGOTTEN_S: Final = 300.0
"""Who has not fetched for so long is no observer any more (`LeaderState.OBSERVER_SESSION_TIMEOUT_MS`)."""

REPLICAS_MAX: Final = 1000
"""Who may fetch can give any id: beyond so many the one goes that was silent the longest, of those that do not vote."""


class Replica(msgspec.Struct):
    """One replica with one disk: the offset it fetched from last, when that was, and when it had all; in seconds."""

    end: int = -1
    fetched_at: float = -math.inf
    caught_up_at: float = -math.inf
    leader_end: int = -1  # when it fetched last


class Progress:
    """The replicas of an epoch, by id and directory id. `voters` gives who votes."""

    def __init__(self, voters: Callable[[], VoterSet]) -> None:
        self._voters = voters
        self._seen: dict[tuple[int, bytes], Replica] = {}

    def fetched(self, now: float, node_id: int, directory: bytes, offset: int, leader_end: int) -> None:
        """A replica fetched from an offset: all below is durable on that disk."""
        replica = self._of(now, node_id, directory)
        if offset >= leader_end:
            replica.caught_up_at = now
        elif 0 <= replica.leader_end <= offset:  # it has all of then: a leader that is never still has followers too
            replica.caught_up_at = max(replica.caught_up_at, replica.fetched_at)
        replica.end, replica.fetched_at, replica.leader_end = offset, now, leader_end

    def listened(self, now: float, node_id: int, directory: bytes) -> None:
        """A replica fetched a piece of a snapshot."""
        self._of(now, node_id, directory).fetched_at = now

    def _of(self, now: float, node_id: int, directory: bytes) -> Replica:
        replica = self._seen.get((node_id, directory))
        if replica is None:
            self._seen = {key: each for key, each in self._seen.items() if now - each.fetched_at <= FORGOTTEN_S}
            if len(self._seen) >= REPLICAS_MAX:
                voters = self._voters()
                del self._seen[min(self._seen, key=lambda key: (voters.has(*key), self._seen[key].fetched_at))]
            replica = self._seen[node_id, directory] = Replica()
        return replica

    def of(self, voter: Voter) -> Replica:
        """A voter's; only with its own disk, where the voters name it. Else with the disk that fetched last."""
        if voter.directory != ZERO_UUID:
            return self._seen.get((voter.id, voter.directory)) or Replica()
        mine = [each for (node_id, _), each in self._seen.items() if node_id == voter.id]
        return max(mine, key=lambda replica: replica.fetched_at, default=Replica())

    def end_of(self, node_id: int) -> int:
        """Up to where a node has fetched, with whichever disk; 0 where it has not."""
        return max((each.end for (known, _), each in self._seen.items() if known == node_id), default=0)

    def observers(self, now: float, voters: VoterSet) -> Iterator[tuple[int, bytes, Replica]]:
        """Those that do not vote and have fetched of late."""
        for (node_id, directory), replica in self._seen.items():
            if not voters.has(node_id, directory) and now - replica.fetched_at <= FORGOTTEN_S:
                yield node_id, directory, replica

    def majority_end(self, voters: VoterSet, leader_id: int, leader_end: int) -> int:
        """The offset below which a majority of the voters has all; the leader counts if it votes."""
        ends = sorted((leader_end if each.id == leader_id else self.of(each).end for each in voters), reverse=True)
        return ends[voters.majority - 1]

    def majority_fetched_at(self, voters: VoterSet, leader_id: int) -> float:
        """Since when a majority, with the leader if it votes, has fetched; infinite where the leader is enough."""
        times = sorted((self.of(each).fetched_at for each in voters if each.id != leader_id), reverse=True)
        needed = voters.majority - (leader_id in voters.by_id)
        return times[needed - 1] if needed else math.inf
