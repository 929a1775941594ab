"""One replica of the metadata log: its log, epoch, vote, high watermark, peers and effects, which all roles share.

A full disk does not end a replica. Data that does not fit is not appended. Unflushed data was acknowledged to nobody,
and is truncated. A leader then resigns if there are other voters; a follower fetches the same data again. If not
even an epoch or a vote fits on the disk, a single voter waits. A voter among others must end (CannotPersistVote): it
can neither vote nor follow, and brokers would continue to contact it. Every other disk failure also ends the process,
because the content of the disk is then unknown.
"""

import errno
from collections.abc import Callable, Hashable
from typing import Any, Final

import msgspec

from controller.kafka.messages import ZERO_UUID, Message
from controller.quorum.raft import effects as out
from controller.quorum.raft.log import EPOCH_MAX, NOBODY, QuorumLog, QuorumState
from controller.quorum.raft.voters import Address, Voter, VoterHistory, VoterSet

TRANSFER_BACKOFF_S: Final = 2.0
TRANSFER_BACKOFF_S_MAX: Final = 60.0
STABLE_LEADERSHIP_S: Final = 60.0
"""If leadership was held for less than this, the back-off before the next transfer doubles."""
NO_VOTE: Final = (NOBODY, ZERO_UUID)
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CannotPersistVote(Exception):
    """The disk has no room for an epoch or a vote, so this voter can neither vote nor follow. The process ends."""


def is_full(error: Exception) -> bool:
    """True if a write failed only for lack of space; the data on the disk is then intact."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


class LeaderAndEpoch(msgspec.Struct, frozen=True):
    """The leader id, epoch and address that every response contains; -1 and None if no leader is known."""

    leader_id: int
    epoch: int
    address: Address | None = None


class Replica:
    """The state that all roles share."""

    def __init__(self, log: QuorumLog, options: out.Options, chance: Callable[[], float]) -> None:
        """`chance` returns random numbers from 0 to below 1."""
        self.log, self.options, self.chance = log, options, chance
        self.me = options.me
        self.history = VoterHistory(log, options.static)
        state = log.state
        if log.last_epoch > state.epoch:
            state = QuorumState(epoch=log.last_epoch)
        self.epoch = state.epoch
        self.voted = (state.voted_id, state.voted_directory)
        self.leader_id = NOBODY
        self.leader_address: Address | None = None
        self.led_epoch = NOBODY
        """The last epoch that this process led."""
        self.high_watermark = log.snapshot.end_offset if log.snapshot is not None else -1
        self.wants_leadership = True
        """True to take over from a live leader. With priority 0 this node never does."""
        self.can_lead = True
        self.distrusted: frozenset[int] = frozenset()
        """Voters that get no vote from this node, because their history is known to differ."""
        self.full: str | None = None
        """Error of the last write that failed for lack of space; None after a successful write."""
        self._transfer_backoff_s, self._transfer_after = TRANSFER_BACKOFF_S, 0.0
        self._wall_shift_ms = 0.0
        self.peers: dict[Address, out.Peer] = {}
        """The versions and priorities that the other voters reported."""
        self._effects: list[out.Effect] = []
        self._sent: dict[int, Any] = {}  # contexts of the current role's requests
        self._tokens = 0
        self._flushing = False

    # --- views

    @property
    def voters(self) -> VoterSet:
        """The newest voter set in the log, committed or not."""
        return self.history.newest

    @property
    def kraft_version(self) -> int:
        """0: the settings name the voters; 1: the log does."""
        return self.history.kraft_version

    @property
    def others(self) -> list[Voter]:
        return [each for each in self.voters if each.id != self.me.id]

    @property
    def is_voter(self) -> bool:
        """True if this node, with this disk, is in the newest voter set."""
        return self.voters.has(self.me.id, self.me.directory)

    @property
    def is_electable(self) -> bool:
        """True if this node may become the leader: as a voter, or as a voter that an uncommitted voter set removes. In
        that case it may be the only replica with that voter set, so that no other node could win (Ongaro, 4.2.2)."""
        is_uncommitted = self.history.changed_at >= self.high_watermark
        was_voter = is_uncommitted and self.history.previous.has(self.me.id, self.me.directory)
        return self.can_lead and self.epoch < EPOCH_MAX and (self.is_voter or was_voter)

    @property
    def is_alone(self) -> bool:
        """True if this node, with this disk, is the whole newest voter set."""
        return len(self.voters) == 1 and self.is_voter

    @property
    def is_durable(self) -> bool:
        """True if the whole log is flushed. A fetch and a vote contain the log's end, and wait for that."""
        return not self._flushing and self.log.durable_end >= self.log.end

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.leader_id, self.epoch, self.leader_address)

    def address_of(self, voter: Voter) -> Address:
        """The address of a voter on the controllers' listener, or on its first one if none has that name."""
        name = self.me.listeners[0].name
        found = next((each for each in voter.listeners if each.name == name), voter.listeners[0])
        return found.host, found.port

    @property
    def peers_lack_pre_vote(self) -> bool:
        """True if some voter is known to support no pre-vote."""
        known = (self.peers.get(self.address_of(each)) for each in self.others)
        return any(each is not None and each.vote_version < out.PRE_VOTE_SINCE for each in known)

    def may_transfer(self, now: float) -> bool:
        """True if this node wants the leadership, is electable, and the back-off since its last attempt is over."""
        wants = self.wants_leadership and self.options.priority > 0
        return wants and self.is_electable and now >= self._transfer_after

    def wall_ms(self, now: float) -> int:
        """The time of day, in milliseconds."""
        return int(now * 1000 + self._wall_shift_ms)

    # --- effects

    def take_effects(self) -> list[out.Effect]:
        """Return, once, the effects since the last call; the caller carries them out in order."""
        taken, self._effects = self._effects, []
        return taken

    def send(self, context: Any, address: Address, request: Message, timeout_s: float) -> None:
        """Send a request. The role gets the response with this context, unless the role changes first."""
        self._tokens += 1
        self._sent[self._tokens] = context
        self._effects.append(out.Send(self._tokens, address, request, timeout_s))

    def respond(self, token: Hashable, response: Message) -> None:
        self._effects.append(out.Reply(token, response))

    def emit(self, effect: out.Warned | out.Fetched) -> None:
        self._effects.append(effect)

    # --- the log

    def append_batches(self, data: bytes) -> None:
        """Append batches. Raises BrokenBatch and OSError."""
        for batch in self.log.append(data):
            self.history.add(batch)
        if self.full is not None:
            self.full = None
            self.emit(out.Warned("there is room for the metadata log again"))
        self.flush_soon()

    def truncate(self, end: int) -> None:
        """Truncate the log. Raises OSError."""
        self.history.truncated(self.log.truncate(end))

    def flush_soon(self) -> None:
        """Start a flush, unless one runs or everything is durable."""
        if not self._flushing and self.log.durable_end < self.log.end:
            self._flushing = True
            self._effects.append(out.StartFlush())

    def flush_ended(self) -> None:
        """A flush finished, successfully or not; the next may start."""
        self._flushing = False
        self.flush_soon()

    def commit(self, offset: int) -> None:
        """Advance the high watermark to `offset`, but not beyond the durable end: a majority has all records below."""
        offset = min(offset, self.log.durable_end)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self._effects.append(out.HighWatermark(offset))

    def on_disk_full(self, error: OSError) -> None:
        """Record that a write failed for lack of space, and warn once. Raises any other error again."""
        if not is_full(error):
            raise error
        if self.full is None:
            self.emit(out.Warned(f"no room for the metadata log; this voter continues when there is room: {error}"))
        self.full = str(error)

    # --- election state

    def vote(self, candidate: tuple[int, bytes]) -> None:
        """Vote, durably. Raises OSError, and then there is no vote."""
        self.persist(QuorumState(self.epoch, self.leader_id, *candidate))
        self.voted = candidate

    def persist(self, state: QuorumState) -> None:
        """Store the election state. Raises OSError, or CannotPersistVote if there are other voters. On a full disk, it
        raises nothing if only the leader id is new, because a restarted voter finds the leader again."""
        known = self.log.state
        if state != known:
            try:
                self.log.persist(state)
            except OSError as error:
                self.on_disk_full(error)
                if msgspec.structs.replace(state, leader_id=known.leader_id) != known:
                    raise CannotPersistVote(str(error)) if self.others else error from None

    def delay_transfers(self, now: float, led_s: float = 0.0) -> None:
        """A leadership transfer to this node begins, or its leadership ended after `led_s` seconds: the next transfer
        waits for the back-off."""
        if led_s >= STABLE_LEADERSHIP_S:
            self._transfer_backoff_s = TRANSFER_BACKOFF_S
        self._transfer_after = now + self._transfer_backoff_s
        self._transfer_backoff_s = min(2 * self._transfer_backoff_s, TRANSFER_BACKOFF_S_MAX)
