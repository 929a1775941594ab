"""Progress of the other replicas, recorded by the leader role from their fetches, and when to respond to each Fetch.

Staggered responses. A Kafka voter starts an election when the fetch timeout has passed since the leader's last response
to it. If the leader answers two voters at the same time and then fails, both become candidates at the same time. Each
votes for itself, and there is no leader for another 1.5 seconds. So the leader spreads its responses to voters over a
quarter of the fetch timeout.

Delayed voters. The leader also delays new records for the Kafka voters that a commit does not need: one of three
voters, two of five. If the leader fails, a delayed voter times out first. It loses its election, because its log is
shorter. From then on it follows no leader, so it grants its vote to the voter that has all records.

The voter that had the records of the last commit first is answered first. If a commit takes too long, no voter is
delayed.
"""

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from controller.kafka.messages import ZERO_UUID
from controller.quorum.raft.effects import PRE_VOTE_SINCE, Peer
from controller.quorum.raft.replica import Replica
from controller.quorum.raft.voters import Voter, VoterSet

FORGOTTEN_S: Final = 300.0
"""A replica that has not fetched for this long is no observer any more (`LeaderState.OBSERVER_SESSION_TIMEOUT_MS`)."""
REPLICAS_MAX: Final = 1000
"""A fetch can have any replica id. Beyond this number, the observer whose last fetch is oldest is dropped."""
APART_S: Final = 0.03
"""Time between the responses to two voters if no voter is delayed: short, so that few records are appended in it."""
COMMIT_DELAY_S_MAX: Final = 0.05
"""If a majority has not fetched new records within this time, delayed voters also get these records."""
DELAY_MAX: Final = 0.25
"""A fetch is delayed for at most this fraction of the fetch timeout, because that timeout runs meanwhile."""
_UNKNOWN: Final = Peer(0, 0)


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
        times = sorted((self.of(each).fetched_at for each in voters if each.id != me), reverse=True)
        needed = needed_others(voters, me)
        return times[needed - 1] if needed else math.inf


def needed_others(voters: VoterSet, leader_id: int) -> int:
    """The number of other voters that make a majority with the leader."""
    return voters.majority - (leader_id in voters.by_id)


class ResponseSchedule:
    """Decides when one leader, in one epoch, answers the Fetch requests of its voters."""

    def __init__(self, replica: Replica, progress: Progress) -> None:
        self._leader, self._progress = replica, progress
        self._order: tuple[int, ...] = ()
        self._delayed: frozenset[int] = frozenset()
        self._first_at = -math.inf
        self._majority_end = -1
        self._behind_since = math.inf

    def committed(self) -> None:
        """Order the voters by their log ends, Kafka voters first. Only Kafka voters beyond the majority are delayed.

        Topicwright voters add jitter to their timeouts, so with a shorter log they would lose the leader too late; and
        one that wants to take over reads a delayed fetch as "nothing new". No voter is delayed if some voter has no
        pre-vote, because a failed election then begins an epoch."""
        leader = self._leader
        peers = {each.id: leader.peers.get(leader.address_of(each), _UNKNOWN) for each in leader.others}
        ends = {each.id: self._progress.of(each).end for each in leader.others}
        order = sorted(peers, key=lambda each: (peers[each].priority is not None, -ends[each], each))
        beyond = order[needed_others(leader.voters, leader.me.id) :]
        have_pre_vote = all(each.vote_version >= PRE_VOTE_SINCE for each in peers.values())
        self._order = tuple(order)
        self._delayed = frozenset(each for each in beyond if have_pre_vote and peers[each].priority is None)

    def log_changed(self, now: float) -> None:
        """The leader appended, or a voter fetched."""
        end = self._progress.majority_end(self._leader.log.end)
        if end >= self._leader.log.end:
            self._behind_since = math.inf
        elif end > self._majority_end or self._behind_since == math.inf:
            self._behind_since = now
        self._majority_end = end

    def responded(self, now: float, node_id: int) -> None:
        """Record a response. Staggered times count from the last response to the first voter in the order."""
        if self._order[:1] == (node_id,):
            self._first_at = now

    @property
    def delay_ends_at(self) -> float:
        """The time from which no voter is delayed any more."""
        return self._behind_since + COMMIT_DELAY_S_MAX

    def is_delayed(self, now: float, node_id: int) -> bool:
        """True if a replica gets new records only at its staggered time (`due`). A voter that has to catch up is not
        delayed."""
        if node_id not in self._delayed or now >= self.delay_ends_at or node_id not in self._leader.voters.by_id:
            return False
        found = self._progress.of(self._leader.voters.by_id[node_id])
        return now - found.caught_up_at < self._leader.options.fetch_timeout_s

    def due(self, node_id: int, since: float, until: float) -> float:
        """The time to respond to a fetch that arrived at `since` and may wait until `until`: the voter's staggered time
        after the last response to the first voter, if that is in between; otherwise `until`."""
        own_time = self._first_at + self._stagger_s(node_id)
        return min(own_time, until) if own_time > max(since, self._first_at) else until

    def has_waited(self, now: float, node_id: int, since: float) -> bool:
        """True if a fetch that arrived at `since` has waited as long as the schedule requires."""
        return now >= since + self._stagger_s(node_id)

    def _stagger_s(self, node_id: int) -> float:
        position = self._order.index(node_id) if node_id in self._order else 0
        spread_s = DELAY_MAX * self._leader.options.fetch_timeout_s
        return position * (spread_s / len(self._order) if self._delayed else APART_S)
