"""The consensus of KRaft (KIP-595, KIP-853, KIP-996, KIP-1166) as one voter holds it: a state machine without I/O.

What happens enters as a call with `now`, in seconds of a clock that never goes back; what is to be done comes out of
`take_effects`, in order. The log alone is written directly: what an effect says is durable before the effect is made.

    unattached ──► prospective ──► candidate ──► leader ──► resigned ──► unattached
        ▲  │            │             │ ▲
        │  └──────► follower ◄────────┘ │     a higher epoch: unattached, or follower where its leader is known
        └───────────────┴───────────────┘     a follower's claim: candidate at once

Each role is an object (`unattached`, `election`, `following`, `leading`) that holds what only that role knows. The
rules are Kafka's (`KafkaRaftClient`, `QuorumState`). Ours alone:
- a follower that wants to lead, and has all of the leader's log, claims the next epoch without a pre-vote. That is
  Raft's leadership transfer, begun by its target;
- a voter that restarts stands anew in a further epoch, never in one that it stood or led in;
- the high watermark never passes what is durable here;
- a disk without room ends nothing: see `full_disk`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Protocol

import msgspec

from controller.brokers.kraft.log.batches import Pair, encode_batch
from controller.brokers.kraft.quorum.raft import effects as out
from controller.brokers.kraft.quorum.raft import requests
from controller.brokers.kraft.quorum.raft.effects import PRE_VOTE_SINCE, NotLeader, Options, Role
from controller.brokers.kraft.quorum.raft.election import Candidate, Prospective
from controller.brokers.kraft.quorum.raft.following import Follower
from controller.brokers.kraft.quorum.raft.full_disk import CannotRemember, no_room, room_again
from controller.brokers.kraft.quorum.raft.leading import Leader
from controller.brokers.kraft.quorum.raft.log import EPOCH_MAX, NOBODY, QuorumLog, QuorumState, is_plausible
from controller.brokers.kraft.quorum.raft.responses import Said
from controller.brokers.kraft.quorum.raft.unattached import Resigned, Unattached
from controller.brokers.kraft.quorum.raft.voters import Place, Voter, VoterHistory, VoterSet
from controller.kafka.messages import ZERO_UUID, Message

CLAIM_PAUSE_S: Final = 1.0
CLAIM_PAUSE_S_MAX: Final = 60.0
LED_WELL_S: Final = 60.0
"""Who lost the lead sooner than this waits twice as long before the next claim."""
_NO_VOTE: Final = (NOBODY, ZERO_UUID)


class RoleState(Protocol):
    """What a role does when something happens."""

    kind: Role

    @property
    def wake(self) -> float:
        """When it wants `tick`."""

    def enter(self, now: float) -> None:
        """It begins."""

    def leave(self, now: float) -> None:
        """It is over; the core has its next role already."""

    def tick(self, now: float) -> None:
        """Time passed."""

    def replied(self, now: float, context: Any, response: Any) -> None:
        """A response to what it sent, None if there will be none."""

    def flushed(self, now: float) -> None:
        """More of the log is durable."""


class Quorum:
    """One replica of the quorum. `start` first."""

    def __init__(self, log: QuorumLog, options: Options, chance: Callable[[], float]) -> None:
        """`chance` gives numbers from 0 to below 1."""
        self.log, self.options, self.chance = log, options, chance
        self.me = options.me
        self.history = VoterHistory(log, options.static)
        state = log.state
        if log.last_epoch > state.epoch:
            state = QuorumState(epoch=log.last_epoch)
        self.epoch = state.epoch
        self.voted = (state.voted_id, state.voted_directory)
        self.leader_id = NOBODY
        self.leader_place: Place | None = None
        self.high_watermark = log.snapshot.end_offset if log.snapshot is not None else -1
        self.claims_lost = 0
        self.wanted = options.priority > 0
        self.can_lead = True
        self.distrusted: frozenset[int] = frozenset()
        """Who gets no vote of this node: they are known to have another history."""
        self.full: str | None = None
        """Why the disk took nothing the last time; None where it did."""
        self._claim_pause_s, self._claim_after = CLAIM_PAUSE_S, 0.0
        self._wall_shift_ms = 0.0
        self.peers: dict[Place, out.Peer] = {}
        """What the others have shown."""
        self._effects: list[out.Effect] = []
        self._sent: dict[int, Any] = {}  # by this role: whoever takes another does not wait for responses
        self._tokens = 0
        self._flushing = False
        self._state: RoleState = Unattached(self, 0.0)

    # --- what happens

    def start(self, now: float, wall_ms: int) -> None:
        """Begin. `wall_ms` is the time of day, for the records of the quorum itself. One voter leads at once."""
        self._wall_shift_ms = wall_ms - now * 1000
        self.to_unattached(now, self.epoch, keep_vote=True)
        if self.may_stand and self.is_alone:
            self.to_candidate(now)

    def tick(self, now: float) -> None:
        """Time passed; due at `next_wake`."""
        self._state.tick(now)

    def request(self, now: float, token: Hashable, request: Message) -> None:
        """A request came in. There is one Reply with its token, now or later."""
        requests.take(self, now, token, request)

    def reply(self, now: float, token: int, response: Message | None) -> None:
        """The response to a Send; None where it failed, was not in time, or the peer does not speak it."""
        if token in self._sent:
            self._state.replied(now, self._sent.pop(token), response)

    def flushed(self, now: float) -> None:
        """A flush of the log has ended."""
        self.flush_ended()
        self._state.flushed(now)

    def append(self, now: float, timestamp_ms: int, records: Sequence[Pair], *, for_observers: bool = True) -> int:
        """Append a batch as the leader; the offset of its last record. It is committed when the high watermark is past
        that before another role is taken. Raises NotLeader; OSError, and then nothing is appended. Where that is for
        want of room, and others could lead, they shall."""
        leader = self.leading
        if leader is None or leader.is_leaving:
            raise NotLeader
        try:
            return leader.append(now, records, timestamp_ms, for_observers=for_observers)
        except OSError as error:
            no_room(self, error)
            if self.others:
                leader.hand_over(now, now + self.options.fetch_timeout_s)
            raise

    def wish(self, now: float, wanted: bool) -> None:
        """Whether to claim the lead from a leader that lives. With priority 0 never."""
        self.wanted = wanted and self.options.priority > 0
        if self.following is not None:
            self.following.wished(now)

    def veto(self, now: float, can_lead: bool) -> None:
        """Whether this node understands all that it would have to decide on. If not: follow, vote, never stand."""
        self.can_lead = can_lead
        if not can_lead and self.leading is not None:
            self.leading.hand_over(now, now)

    def hand_over(self, now: float, at_most_s: float) -> None:
        """Take no more, wait for what was taken to be committed, `at_most_s`, and resign. Go on until somebody leads:
        who comes next needs this vote."""
        if self.leading is not None:
            self.leading.hand_over(now, now + at_most_s)

    def peer_speaks(self, now: float, place: Place, peer: out.Peer) -> None:
        """What is in `peers`. With a version of Vote below 2 there is no pre-vote, and none is held."""
        self.peers[place] = peer
        if self.role == Role.PROSPECTIVE and self._some_know_no_pre_vote:
            self.stand(now)

    def raise_kraft_version(self, now: float) -> None:
        """From kraft.version 0 to 1, as the leader. Raises Refused."""
        if self.leading is None:
            raise out.Refused("this controller does not lead")
        self.leading.changes.raise_kraft_version(now)

    def take_effects(self) -> list[out.Effect]:
        """What is to be done, in order, since the last time."""
        taken, self._effects = self._effects, []
        return taken

    # --- what is to be seen

    @property
    def next_wake(self) -> float:
        """When `tick` is due."""
        return self._state.wake

    @property
    def role(self) -> Role:
        """What this node is in its epoch."""
        return self._state.kind

    @property
    def leading(self) -> Leader | None:
        """The leader's part, while it leads."""
        return self._state if isinstance(self._state, Leader) else None

    @property
    def following(self) -> Follower | None:
        """The follower's part, while it follows."""
        return self._state if isinstance(self._state, Follower) else None

    @property
    def voters(self) -> VoterSet:
        """Who votes, by the newest record, committed or not."""
        return self.history.now

    def voters_at(self, end: int) -> tuple[int, VoterSet]:
        """kraft.version and voters as of all records below `end`, for a snapshot of them."""
        return self.history.at(end)

    @property
    def kraft_version(self) -> int:
        """0: the settings say who votes; 1: the log does."""
        return self.history.kraft_version

    @property
    def others(self) -> list[Voter]:
        """The other voters."""
        return [each for each in self.voters if each.id != self.me.id]

    @property
    def is_voter(self) -> bool:
        """Whether this node votes, with this disk."""
        return self.voters.has(self.me.id, self.me.directory)

    @property
    def may_stand(self) -> bool:
        """Whether it may become the leader: a voter, or one that the newest set leaves out while that may not be
        committed. None but the latter may have it, so that the others can elect nobody else (Ongaro, 4.2.2)."""
        is_new = self.history.changed_at >= self.high_watermark
        was_voter = is_new and self.history.before.has(self.me.id, self.me.directory)
        return self.can_lead and self.epoch < EPOCH_MAX and (self.is_voter or was_voter)

    @property
    def is_alone(self) -> bool:
        """True if this node, with this disk, is all of the newest voter set."""
        return len(self.voters) == 1 and self.is_voter

    @property
    def is_durable(self) -> bool:
        """Whether all of the log is. A fetch and a vote say where it ends, and are not made before."""
        return not self._flushing and self.log.durable_end >= self.log.end

    @property
    def said(self) -> Said:
        """Who leads, for a response."""
        return Said(self.leader_id, self.epoch, self.leader_place)

    def place_of(self, voter: Voter) -> Place:
        """Where a voter is reached."""
        return voter.place_on(self.me.listeners[0].name)

    def may_claim(self, now: float) -> bool:
        """Whether it wants to take the lead, and waited long enough since it lost it."""
        return self.wanted and self.may_stand and now >= self._claim_after

    @property
    def _some_know_no_pre_vote(self) -> bool:
        shown = (self.peers.get(self.place_of(each)) for each in self.others)
        return any(each is not None and each.vote_version < PRE_VOTE_SINCE for each in shown)

    # --- what the roles do

    def send(self, context: Any, node_id: int, place: Place, purpose: str, request: Message, timeout_s: float) -> None:
        """Send a request; its response comes to the role with this context, if that is still the same."""
        self._tokens += 1
        self._sent[self._tokens] = context
        self._effects.append(out.Send(self._tokens, node_id, place, purpose, request, timeout_s))

    def respond(self, token: Hashable, response: Message) -> None:
        """Respond to a request."""
        self._effects.append(out.Reply(token, response))

    def note(self, effect: out.Truncated | out.SnapshotInstalled | out.Warned | out.Fetched) -> None:
        """The log became another, or could not; or somebody has more of it."""
        self._effects.append(effect)

    def flush_ended(self) -> None:
        """Well or not: the next may begin."""
        self._flushing = False
        self.flush_soon()

    def flush_soon(self) -> None:
        """What was appended is to become durable."""
        if not self._flushing and self.log.durable_end < self.log.end:
            self._flushing = True
            self._effects.append(out.StartFlush())

    def append_batch(self, records: Sequence[Pair], timestamp_ms: int, *, is_control: bool) -> int:
        """Append as the leader; the offset of the last record."""
        self.take_in(encode_batch(self.log.end, self.epoch, timestamp_ms, records, is_control=is_control))
        return self.log.end - 1

    def wall_ms(self, now: float) -> int:
        """The time of day."""
        return int(now * 1000 + self._wall_shift_ms)

    def take_in(self, data: bytes) -> None:
        """Batches to the end of the log. Raises BrokenBatch, OSError."""
        for batch in self.log.append(data):
            self.history.take(batch)
        room_again(self)
        self.flush_soon()

    def commit(self, offset: int) -> None:
        """A majority has all below `offset`: the high watermark, as far as it is durable here."""
        offset = min(offset, self.log.durable_end)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._effects.append(out.HighWatermark(offset))

    def cast(self, now: float, candidate: tuple[int, bytes]) -> None:
        """Vote, durably. The election timeout begins anew. Raises OSError, and then there is no vote."""
        self._remember(QuorumState(self.epoch, self.leader_id, *candidate))
        self.voted = candidate
        if isinstance(self._state, Unattached):
            self._state.wait_anew(now)

    def claim_ended(self, now: float, led_s: float | None) -> None:
        """A claim was lost (None), or the lead after so long."""
        self.claims_lost += led_s is None
        if led_s is not None and led_s >= LED_WELL_S:
            self._claim_pause_s = CLAIM_PAUSE_S
        self._claim_after = now + self._claim_pause_s
        self._claim_pause_s = min(2 * self._claim_pause_s, CLAIM_PAUSE_S_MAX)

    # --- from role to role

    def learn(self, now: float, said: Said) -> None:
        """Somebody says who leads. The higher epoch counts; in the own epoch a leader that was not known."""
        is_news = said.epoch > self.epoch or (said.epoch == self.epoch and self.leader_id == NOBODY)
        if not is_news or self.is_alone or not is_plausible(said.epoch, self.epoch):
            return
        if said.leader_id >= 0 and said.leader_id != self.me.id and said.place is not None:
            self.to_follower(now, said)
        elif said.epoch > self.epoch:
            self.to_unattached(now, said.epoch)

    def stand(self, now: float) -> None:
        """Stand for leader: sound out the others first, if all of them know what that is."""
        if not self.may_stand:
            self.to_unattached(now, self.epoch, keep_vote=True)
        elif self._some_know_no_pre_vote or self.is_alone:
            self.to_candidate(now)
        else:
            self._become(now, Prospective(self, now), self.epoch, Said(NOBODY, self.epoch, None), self.voted)

    def to_unattached(self, now: float, epoch: int, *, keep_vote: bool = False) -> None:
        """No leader is known. Who waits already waits no longer because others stand: they may all lack what it has."""
        stand_at = self._state.stand_at if isinstance(self._state, Unattached) else None
        voted = self.voted if keep_vote else _NO_VOTE
        self._become(now, Unattached(self, now, stand_at), epoch, Said(NOBODY, epoch, None), voted)

    def to_follower(self, now: float, said: Said) -> None:
        """A leader is known."""
        self._become(now, Follower(self, now), said.epoch, said, self.voted if said.epoch == self.epoch else _NO_VOTE)

    def to_candidate(self, now: float, *, is_claim: bool = False) -> None:
        """Request the votes of the next epoch, the own one first."""
        epoch = self.epoch + 1
        state = Candidate(self, now, is_claim=is_claim)
        self._become(now, state, epoch, Said(NOBODY, epoch, None), (self.me.id, self.me.directory))

    def to_leader(self, now: float, granted: set[int]) -> None:
        """Elected."""
        said = Said(self.me.id, self.epoch, self.place_of(self.me))
        self._become(now, Leader(self, now, granted), self.epoch, said, self.voted)

    def to_resigned(self, now: float, successors: Sequence[Voter]) -> None:
        """Lead no longer, and say so to who may come next, best first."""
        self._become(now, Resigned(self, now, successors), self.epoch, Said(NOBODY, self.epoch, None), self.voted)

    def _become(self, now: float, state: RoleState, epoch: int, said: Said, voted: tuple[int, bytes]) -> None:
        assert epoch >= self.epoch, f"epoch {epoch} after {self.epoch}"
        self._remember(QuorumState(epoch, said.leader_id, *voted))
        left, before = self._state, (self.role, self.said)
        self.epoch, self.voted = epoch, voted
        self.leader_id, self.leader_place = said.leader_id, said.place
        self._state = state
        self._sent = {}
        if (self.role, self.said) != before:
            self._effects.append(out.RoleChanged(self.role, epoch, said.leader_id, said.place))
        left.leave(now)
        self.flush_soon()
        state.enter(now)

    def _remember(self, state: QuorumState) -> None:
        """Raises OSError, or CannotRemember where there are others; but not where epoch and vote are durable: who leads
        is found out again."""
        known = self.log.state
        if state != known:
            try:
                self.log.remember(state)
            except OSError as error:
                no_room(self, error)
                if msgspec.structs.replace(state, leader_id=known.leader_id) != known:
                    raise CannotRemember(str(error)) if self.others else error from None
