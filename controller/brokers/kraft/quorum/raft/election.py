"""Standing for leader: sounding out the others without a vote (KIP-996), then collecting votes (KIP-595)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.brokers.kraft.log.batches import METADATA_TOPIC
from controller.brokers.kraft.quorum.raft.effects import VOTE, Role
from controller.brokers.kraft.quorum.raft.responses import learn_from
from controller.brokers.kraft.quorum.raft.voters import Voter
from controller.kafka.messages import quorum

if TYPE_CHECKING:
    from controller.brokers.kraft.quorum.raft.core import Quorum

AGAIN_S: Final = 0.05
"""Until a voter that could not be reached gets another request."""
REQUEST_S_MAX: Final = 1.0


class _Standing:
    """Counts who would, or does, vote for this node: the voters at its beginning, each with its own disk."""

    kind: Role
    is_pre_vote: bool

    def __init__(self, core: Quorum, now: float) -> None:
        self._core = core
        self._voters = core.voters
        self._granted = {core.me.id} & core.voters.by_id.keys()
        self._refused: set[int] = set()
        self._until = now + core.options.election_timeout_s * (1 + core.chance())
        self._again: dict[int, float] = {}

    def enter(self, now: float) -> None:
        """It begins."""
        if len(self._granted) >= self._voters.majority:
            self.won(now)
            return
        for voter in self._voters:
            if voter.id != self._core.me.id:
                self._request(now, voter)

    def leave(self, now: float) -> None:
        """It is over."""

    @property
    def wake(self) -> float:
        """When it wants `tick`."""
        return min((self._until, *self._again.values()))

    def tick(self, now: float) -> None:
        """Time passed."""
        if now >= self._until:
            self.lost(now)
            return
        for voter_id in [each for each, at in self._again.items() if now >= at]:
            del self._again[voter_id]
            self._request(now, self._voters.by_id[voter_id])

    def flushed(self, now: float) -> None:
        """More of the log is durable."""

    def replied(self, now: float, context: int, response: quorum.VoteResponse | None) -> None:
        """A voter's answer, or none."""
        if response is None:
            self._again[context] = now + AGAIN_S
            return
        epoch = self._core.epoch
        # Who still believes in a leader that this node has lost would have it wait for that again, in turn for ever.
        part = learn_from(self._core, now, response, above=epoch if self.is_pre_vote else epoch - 1)
        if self._core.role is not self.kind or self._core.epoch != epoch:
            return
        is_granted = part is not None and not part.error_code and part.vote_granted
        (self._granted if is_granted else self._refused).add(context)
        if len(self._granted) >= self._voters.majority:
            self.won(now)
        elif len(self._voters) - len(self._refused) < self._voters.majority:
            self.lost(now)

    def won(self, now: float) -> None:
        """A majority is for it."""
        raise NotImplementedError

    def lost(self, now: float) -> None:
        """No majority will be."""
        raise NotImplementedError

    def _request(self, now: float, voter: Voter) -> None:
        core = self._core
        part = quorum.VotePartition(
            replica_epoch=core.epoch,
            replica_id=core.me.id,
            replica_directory_id=core.me.directory,
            voter_directory_id=voter.directory,
            last_offset_epoch=core.log.last_epoch,
            last_offset=core.log.end,
            pre_vote=self.is_pre_vote,
        )
        request = quorum.VoteRequest(
            cluster_id=core.options.cluster_id,
            voter_id=voter.id,
            topics=(quorum.VoteTopic(topic_name=METADATA_TOPIC, partitions=(part,)),),
        )
        core.send(voter.id, voter.id, core.place_of(voter), VOTE, request, min(self._until - now, REQUEST_S_MAX))


class Prospective(_Standing):
    """Sounds out the others in the epoch that is, so that who cannot win disturbs no leader."""

    kind = Role.PROSPECTIVE
    is_pre_vote = True

    def won(self, now: float) -> None:
        """A majority is for it."""
        self._core.to_candidate(now)

    def lost(self, now: float) -> None:
        """No majority will be."""
        self._core.to_unattached(now, self._core.epoch, keep_vote=True)


class Candidate(_Standing):
    """Collects votes. After a defeat it waits as unattached: who refused has more of the log, and is to stand."""

    kind = Role.CANDIDATE
    is_pre_vote = False

    def __init__(self, core: Quorum, now: float, *, is_claim: bool = False) -> None:
        super().__init__(core, now)
        self._is_claim = is_claim

    def won(self, now: float) -> None:
        """A majority is for it."""
        self._core.to_leader(now, self._granted)

    def lost(self, now: float) -> None:
        """No majority will be."""
        if self._is_claim:
            self._core.claim_ended(now, None)
        self._core.to_unattached(now, self._core.epoch, keep_vote=True)
