"""The consensus of KRaft (KIP-595, KIP-853, KIP-996, KIP-1166) for one replica: a state machine without I/O.

Inputs are method calls with `now`, in seconds of a monotonic clock. The caller, `quorum.node`, carries out the effects
that `take_effects` returns, in order. Only the log is written directly, before any effect that depends on the write.

A role (`leaderless`, `follower`, `leader`) knows only its own state and the `replica`. Its methods return a transition,
one of TRANSITIONS, which `_run` applies, or None.

An epoch never decreases. It increases by one when a replica becomes candidate, and stays when it becomes prospective,
leader or resigned. A leader was elected by a majority, voted for itself, and leads an epoch once. So an epoch has at
most one leader.

The rules are those of Kafka's `KafkaRaftClient` and `QuorumState`, with these additions:
- a follower that wants to lead and has the leader's whole log becomes candidate without a pre-vote: Raft's leadership
  transfer, begun by its target;
- a restarted voter becomes candidate only in a later epoch, never in one in which it was candidate or leader;
- the high watermark never exceeds the durable end of this log;
- a full disk does not end a replica: see `replica`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from controller.kafka.messages import Message
from controller.quorum.log.batches import Pair
from controller.quorum.raft import effects as out
from controller.quorum.raft.effects import NotLeader, Role
from controller.quorum.raft.follower import Follower
from controller.quorum.raft.leader import Leader
from controller.quorum.raft.leaderless import Candidate, Prospective, Resigned, Unattached
from controller.quorum.raft.log import NOBODY, QuorumLog, QuorumState
from controller.quorum.raft.replica import NO_VOTE, LeaderAndEpoch, Replica
from controller.quorum.raft.role import (
    RoleState,
    ToCandidate,
    ToFollower,
    ToLeader,
    ToProspective,
    ToResigned,
    ToUnattached,
    Transition,
    discovered_by_request,
)

TRANSITIONS: Final[Mapping[Role, tuple[Role, ...]]] = {
    Role.UNATTACHED: (Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.CANDIDATE),
    Role.FOLLOWER: (Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.CANDIDATE),
    Role.PROSPECTIVE: (Role.UNATTACHED, Role.FOLLOWER, Role.CANDIDATE),
    Role.CANDIDATE: (Role.UNATTACHED, Role.FOLLOWER, Role.LEADER),
    Role.LEADER: (Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED),
    Role.RESIGNED: (Role.UNATTACHED, Role.FOLLOWER),
}


class Consensus(Replica):
    """The state machine of one replica: its log, voters and current role. Call `start` before anything else."""

    def __init__(self, log: QuorumLog, options: out.Options, chance: Callable[[], float]) -> None:
        super().__init__(log, options, chance)
        self._role: RoleState = Unattached(self, 0.0, None)  # `start` inherits its election timer, which has expired

    # --- inputs

    def start(self, now: float, wall_ms: int) -> None:
        """Enter the first role. `wall_ms` is the time of day, for control records. A single voter leads on return."""
        self._wall_shift_ms = wall_ms - now * 1000
        self._run(now, ToUnattached(self.epoch))
        if self.is_electable and self.is_alone:
            self._run(now, ToCandidate())

    def tick(self, now: float) -> None:
        """Handle expired timers, such as the election timeout. Must be called at `next_wake`."""
        self._run(now, self._role.tick(now))

    def request(self, now: float, token: Hashable, request: Message) -> None:
        """Handle a Raft request. Exactly one Reply effect with its token follows, now or later."""
        self._run(now, discovered_by_request(self, request))
        self._run(now, self._role.request(now, token, request))

    def reply(self, now: float, token: int, response: Message | None) -> None:
        """Handle the response to a Send; None if the request failed, timed out, or is unknown to the peer. Responses to
        requests of an earlier role are ignored."""
        if token in self._sent:
            self._run(now, self._role.replied(now, self._sent.pop(token), response))

    def flushed(self, now: float) -> None:
        self.flush_ended()
        self._run(now, self._role.flushed(now))

    def flush_failed(self, now: float, error: OSError) -> None:
        """A flush failed: if the disk is full, truncate the unflushed data. Raises any other error, or one of the
        truncation."""
        self.on_disk_full(error)
        self._run(now, self._role.flush_failed(now))
        self.truncate(self.log.durable_end)
        self.flush_ended()

    def append(self, now: float, timestamp_ms: int, records: Sequence[Pair], *, for_observers: bool = True) -> int:
        """Append a batch as the leader; returns the offset of its last record. The batch is committed if the high
        watermark passes that offset before the role changes. Raises NotLeader, and OSError if nothing was appended. If
        the disk is full and there are other voters, this leader resigns."""
        leader = self.leading
        if leader is None or leader.is_leaving:
            raise NotLeader
        try:
            return leader.append(now, records, timestamp_ms, for_observers=for_observers)
        except OSError as error:
            self.on_disk_full(error)
            if self.others:
                self._run(now, leader.resign(now + self.options.fetch_timeout_s))
            raise

    def set_can_lead(self, now: float, can_lead: bool) -> None:
        """Set whether this node can lead. Otherwise it only follows and votes."""
        self.can_lead = can_lead
        if not can_lead:
            self.hand_over(now, 0.0)

    def hand_over(self, now: float, at_most_s: float) -> None:
        """Accept no more records, wait at most that long until all are committed, and resign. Keep the node running
        until there is a new leader, which needs this node's vote."""
        if self.leading is not None:
            self._run(now, self.leading.resign(now + at_most_s))

    def raise_kraft_version(self, now: float) -> None:
        """Raise kraft.version from 0 to 1, as the leader. Raises Refused."""
        if self.leading is None:
            raise out.Refused("this controller does not lead")
        self._run(now, self.leading.raise_kraft_version(now))

    # --- views

    @property
    def next_wake(self) -> float:
        """The time, on the clock of `now`, at which `tick` is due."""
        return self._role.wake

    @property
    def role(self) -> Role:
        return self._role.kind

    @property
    def leading(self) -> Leader | None:
        """The leader's state, while this node leads."""
        return self._role if isinstance(self._role, Leader) else None

    # --- transitions

    def _run(self, now: float, transition: Transition | None) -> None:
        """Apply a transition, and any further transition that entering the new role returns."""
        while transition is not None:
            before, entered = self._role, self._role_after(now, transition)
            self._check(before.kind, entered.kind, transition)
            self._change_epoch(transition, entered.kind)
            before.exit(now)
            self._role = entered
            self.flush_soon()
            transition = entered.enter(now)

    def _role_after(self, now: float, transition: Transition) -> RoleState:
        match transition:
            case ToUnattached():
                return Unattached(self, now, self._role.election_at if isinstance(self._role, Unattached) else None)
            case ToFollower():
                return Follower(self, now)
            case ToProspective():
                return Prospective(self, now)
            case ToCandidate():
                return Candidate(self, now)
            case ToLeader(granted):
                return Leader(self, now, granted)
            case ToResigned(successors):
                return Resigned(self, now, successors)

    def _check(self, before: Role, after: Role, transition: Transition) -> None:
        assert after in TRANSITIONS[before], f"from {before.value} to {after.value} in epoch {self.epoch}"
        match transition:
            case ToUnattached(epoch):
                assert epoch >= self.epoch, f"epoch {epoch} after {self.epoch}"
            case ToFollower(leader):
                is_first = leader.epoch == self.epoch and self.leader_id == NOBODY and self.led_epoch != self.epoch
                assert leader.epoch > self.epoch or is_first, f"a second leader of epoch {leader.epoch}"
            case ToLeader(granted):
                assert self.leader_id == NOBODY, f"a second leader of epoch {self.epoch}"
                assert self.epoch > self.led_epoch, f"leads epoch {self.epoch} after {self.led_epoch}"
                assert self.voted == (self.me.id, self.me.directory), "a leader voted for itself"
                elected_by = len(granted & self.voters.by_id.keys())
                assert elected_by >= self.voters.majority, f"elected by {elected_by} of {len(self.voters)} voters"

    def _change_epoch(self, transition: Transition, role: Role) -> None:
        """Store the epoch, leader and vote of a transition durably. Raises OSError and CannotPersistVote, and then
        changes nothing."""
        leader, voted = LeaderAndEpoch(NOBODY, self.epoch), self.voted
        match transition:
            case ToUnattached(epoch):
                leader = LeaderAndEpoch(NOBODY, epoch)
            case ToFollower(known):
                leader = known
            case ToCandidate():
                leader, voted = LeaderAndEpoch(NOBODY, self.epoch + 1), (self.me.id, self.me.directory)
            case ToLeader():
                leader = LeaderAndEpoch(self.me.id, self.epoch, self.address_of(self.me))
        if leader.epoch > self.epoch and role is not Role.CANDIDATE:
            voted = NO_VOTE
        self.persist(QuorumState(leader.epoch, leader.leader_id, *voted))
        before = (self.role, self.leader_and_epoch)
        self.epoch, self.voted = leader.epoch, voted
        self.leader_id, self.leader_address = leader.leader_id, leader.address
        self.led_epoch = self.epoch if role is Role.LEADER else self.led_epoch
        self._sent = {}
        if (role, leader) != before:
            self._effects.append(out.RoleChanged(role, leader.epoch, leader.leader_id))
