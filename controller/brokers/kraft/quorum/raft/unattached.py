"""Without a leader: looking for one, and after having been one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from controller.brokers.kraft.log.batches import METADATA_TOPIC
from controller.brokers.kraft.quorum.raft.effects import BEGIN, FETCH, Role
from controller.brokers.kraft.quorum.raft.following import LATE_TIMEOUTS, fetch_request
from controller.brokers.kraft.quorum.raft.responses import learn_from
from controller.brokers.kraft.quorum.raft.voters import Place, Voter
from controller.kafka.messages import quorum
from controller.kafka.messages.message import Listener

if TYPE_CHECKING:
    from controller.brokers.kraft.quorum.raft.core import Quorum

AGAIN_S: Final = 0.05
"""Until the next try, after one that failed."""
SEEK_TIMEOUT_S: Final = 1.0


class Unattached:
    """No leader is known: look for it, place after place; stand when the election timeout has passed."""

    kind = Role.UNATTACHED

    def __init__(self, core: Quorum, now: float, stand_at: float | None = None) -> None:
        self._core = core
        self._seek_at = now
        self.wait_anew(now)
        if stand_at is not None:
            self.stand_at = stand_at
        self._sought = 0

    def enter(self, now: float) -> None:
        """It begins."""
        self._seek(now)

    def wait_anew(self, now: float) -> None:
        """The election timeout, up to twice as long; more for a voter of priority 0, so that others stand first."""
        options = self._core.options
        late = 0 if options.priority else LATE_TIMEOUTS
        self.stand_at = now + options.election_timeout_s * (1 + late + self._core.chance())

    def leave(self, now: float) -> None:
        """It is over."""

    @property
    def wake(self) -> float:
        """When it wants `tick`."""
        return min(self.stand_at, self._seek_at)

    def tick(self, now: float) -> None:
        """Time passed."""
        if now >= self.stand_at:
            if self._core.may_stand and self._core.is_durable:
                self._core.stand(now)
                return
            self.stand_at = now + (AGAIN_S if self._core.may_stand else self._core.options.election_timeout_s)
        if now >= self._seek_at:
            self._seek(now)

    def flushed(self, now: float) -> None:
        """More of the log is durable."""

    def replied(self, now: float, context: Any, response: quorum.FetchResponse | None) -> None:
        """Somebody may have said who leads."""
        self._seek_at = now + AGAIN_S
        if response is not None:
            learn_from(self._core, now, response)

    def _seek(self, now: float) -> None:
        core = self._core
        places: list[tuple[int, Place]] = [(each.id, core.place_of(each)) for each in core.others]
        mine = core.place_of(core.me)
        places += [(-1, each) for each in core.options.bootstrap if each not in {mine, *(p for _, p in places)}]
        if not places or not core.is_durable:
            self._seek_at = now + AGAIN_S if places else math.inf
            return
        self._seek_at = math.inf
        node_id, place = places[self._sought % len(places)]
        self._sought += 1
        core.send(None, node_id, place, FETCH, fetch_request(core, max_wait_ms=0), SEEK_TIMEOUT_S)


class Resigned:
    """It has led this epoch, and does no more: it says so, votes, and looks for the next leader after a while."""

    kind = Role.RESIGNED

    def __init__(self, core: Quorum, now: float, successors: Sequence[Voter]) -> None:
        self._core = core
        self._successors = successors
        self.wake = now + core.options.election_timeout_s

    def enter(self, now: float) -> None:
        """It begins."""
        core = self._core
        part = quorum.EndEpochPartition(
            leader_id=core.me.id,
            leader_epoch=core.epoch,
            preferred_successors=tuple(each.id for each in self._successors),
            preferred_candidates=tuple(
                quorum.ReplicaInfo(candidate_id=each.id, candidate_directory_id=each.directory)
                for each in self._successors
            ),
        )
        request = quorum.EndQuorumEpochRequest(
            cluster_id=core.options.cluster_id,
            topics=(quorum.EndEpochTopic(topic_name=METADATA_TOPIC, partitions=(part,)),),
            leader_endpoints=tuple(
                Listener(name=each.name, host=each.host, port=each.port) for each in core.me.listeners
            ),
        )
        for voter in self._successors:
            core.send(None, voter.id, core.place_of(voter), BEGIN, request, core.options.election_timeout_s)

    def leave(self, now: float) -> None:
        """It is over."""

    def tick(self, now: float) -> None:
        """Time passed."""
        if now >= self.wake:
            self._core.to_unattached(now, self._core.epoch, keep_vote=True)

    def flushed(self, now: float) -> None:
        """More of the log is durable."""

    def replied(self, now: float, context: Any, response: quorum.EndQuorumEpochResponse | None) -> None:
        """Somebody may be in a higher epoch already."""
        if response is not None:
            learn_from(self._core, now, response)
