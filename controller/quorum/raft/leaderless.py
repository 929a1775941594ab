"""The roles of a replica without a leader, which hold elections (Vote, KIP-595 and KIP-996): unattached, prospective,
candidate and resigned."""

import math
from typing import Any, ClassVar, Final

from controller.kafka.messages import quorum
from controller.quorum.raft import role
from controller.quorum.raft.effects import LATE_TIMEOUTS, Role
from controller.quorum.raft.follower import fetch_request
from controller.quorum.raft.replica import Replica
from controller.quorum.raft.voters import Voter

SEEK_TIMEOUT_S: Final = 1.0
VOTE_TIMEOUT_S_MAX: Final = 1.0


class Unattached(role.RoleState):
    """Looks for the leader by Fetch, one node after the other, and starts an election after the election timeout."""

    kind = Role.UNATTACHED
    may_vote = True

    def __init__(self, replica: Replica, now: float, election_at: float | None) -> None:
        """`election_at` is the running election timer, if there is one. It is not extended when another candidate
        appears, because that candidate's log may be shorter."""
        super().__init__(replica)
        self._seek_at = now
        self.voted(now)
        if election_at is not None:
            self.election_at = election_at
        self._sought = 0

    def enter(self, now: float) -> None:
        self._seek(now)

    def voted(self, now: float) -> None:
        """Restart the election timer: up to twice the election timeout, and longer with priority 0."""
        options = self._replica.options
        late = 0 if options.priority else LATE_TIMEOUTS
        self.election_at = now + options.election_timeout_s * (1 + late + self._replica.chance())

    @property
    def wake(self) -> float:
        return min(self.election_at, self._seek_at)

    def tick(self, now: float) -> role.Transition | None:
        replica = self._replica
        if now >= self.election_at:
            if replica.is_electable and replica.is_durable:
                return role.start_election(replica)
            self.election_at = now + (role.RETRY_S if replica.is_electable else replica.options.election_timeout_s)
        if now >= self._seek_at:
            self._seek(now)
        return None

    def replied(self, now: float, context: Any, response: quorum.FetchResponse | None) -> role.Transition | None:
        self._seek_at = now + role.RETRY_S
        return super().replied(now, context, response)

    def _seek(self, now: float) -> None:
        replica = self._replica
        nodes = [replica.address_of(each) for each in replica.others]
        known = {replica.address_of(replica.me), *nodes}
        nodes += [each for each in replica.options.bootstrap if each not in known]
        if not nodes or not replica.is_durable:
            self._seek_at = now + role.RETRY_S if nodes else math.inf
            return
        self._seek_at = math.inf
        address = nodes[self._sought % len(nodes)]
        self._sought += 1
        replica.send(None, address, fetch_request(replica, max_wait_ms=0), SEEK_TIMEOUT_S)


class _Election(role.RoleState):
    """Counts the votes of the voters that were in the voter set when the election began. A voter is a node with its
    directory id."""

    is_pre_vote: ClassVar[bool]

    def __init__(self, replica: Replica, now: float) -> None:
        super().__init__(replica)
        self._voters = replica.voters
        self._granted = {replica.me.id} & replica.voters.by_id.keys()
        self._refused: set[int] = set()
        self._until = now + replica.options.election_timeout_s * (1 + replica.chance())
        self._retry_at: dict[int, float] = {}

    def enter(self, now: float) -> role.Transition | None:
        if len(self._granted) >= self._voters.majority:
            return self.won()
        for voter in self._voters:
            if voter.id != self._replica.me.id:
                self._request(now, voter)
        return None

    @property
    def wake(self) -> float:
        return min((self._until, *self._retry_at.values()))

    def tick(self, now: float) -> role.Transition | None:
        if now >= self._until:
            return self.lost()
        for voter_id in [each for each, at in self._retry_at.items() if now >= at]:
            del self._retry_at[voter_id]
            self._request(now, self._voters.by_id[voter_id])
        return None

    def replied(self, now: float, context: int, response: quorum.VoteResponse | None) -> role.Transition | None:
        if response is None:
            self._retry_at[context] = now + role.RETRY_S
            return None
        # In a pre-vote, ignore a leader of the current epoch: a voter that has not timed out yet would send this
        # replica back to following that leader, repeatedly.
        above = self._replica.epoch if self.is_pre_vote else self._replica.epoch - 1
        part, transition = role.discovered_by_response(self._replica, response, above)
        if transition is not None:
            return transition
        is_granted = part is not None and not part.error_code and part.vote_granted
        (self._granted if is_granted else self._refused).add(context)
        if len(self._granted) >= self._voters.majority:
            return self.won()
        return self.lost() if len(self._voters) - len(self._refused) < self._voters.majority else None

    def won(self) -> role.Transition:
        """Called when a majority granted its vote; returns the next role."""
        raise NotImplementedError

    def lost(self) -> role.Transition:
        """Called when the time is over or a majority is impossible; returns the next role."""
        return role.ToUnattached(self._replica.epoch)

    def _request(self, now: float, voter: Voter) -> None:
        replica = self._replica
        part = quorum.VotePartition(
            replica_epoch=replica.epoch,
            replica_id=replica.me.id,
            replica_directory_id=replica.me.directory,
            voter_directory_id=voter.directory,
            last_offset_epoch=replica.log.last_epoch,
            last_offset=replica.log.end,
            pre_vote=self.is_pre_vote,
        )
        request = quorum.VoteRequest(
            cluster_id=replica.options.cluster_id, voter_id=voter.id, topics=role.topics_of(part)
        )
        timeout_s = min(self._until - now, VOTE_TIMEOUT_S_MAX)
        replica.send(voter.id, replica.address_of(voter), request, timeout_s)


class Prospective(_Election):
    """Holds a pre-vote in the current epoch, so that a node that cannot win does not disturb a leader."""

    kind = Role.PROSPECTIVE
    may_vote = True
    is_pre_vote = True

    def replied(self, now: float, context: int, response: quorum.VoteResponse | None) -> role.Transition | None:
        if response is None and self._replica.peers_lack_pre_vote:
            return role.start_election(self._replica)
        return super().replied(now, context, response)

    def won(self) -> role.Transition:
        return role.ToCandidate()


class Candidate(_Election):
    """Collects votes. A candidate that lost waits as unattached: a voter that refused has a longer log, and should
    become the candidate."""

    kind = Role.CANDIDATE
    is_pre_vote = False

    def won(self) -> role.Transition:
        return role.ToLeader(frozenset(self._granted))


class Resigned(role.RoleState):
    """The former leader of this epoch: sends EndQuorumEpoch, votes, and is unattached after the election timeout."""

    kind = Role.RESIGNED

    def __init__(self, replica: Replica, now: float, successors: tuple[Voter, ...]) -> None:
        super().__init__(replica)
        self._successors = successors
        self._until = now + replica.options.election_timeout_s

    @property
    def wake(self) -> float:
        return self._until

    def enter(self, now: float) -> None:
        replica = self._replica
        part = quorum.EndEpochPartition(
            leader_id=replica.me.id,
            leader_epoch=replica.epoch,
            preferred_successors=tuple(each.id for each in self._successors),
            preferred_candidates=tuple(
                quorum.ReplicaInfo(candidate_id=each.id, candidate_directory_id=each.directory)
                for each in self._successors
            ),
        )
        request = quorum.EndQuorumEpochRequest(
            cluster_id=replica.options.cluster_id, topics=role.topics_of(part), leader_endpoints=replica.me.listeners
        )
        for voter in self._successors:
            replica.send(None, replica.address_of(voter), request, replica.options.election_timeout_s)

    def tick(self, now: float) -> role.Transition | None:
        return role.ToUnattached(self._replica.epoch) if now >= self._until else None
