"""Following a leader: fetching its log, going back where it diverges, taking its snapshot where the own log is too old.

A fetch from an offset says that all below is durable here, so the next one waits for the flush of what the last one
brought.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.brokers.kraft.log.batches import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    BrokenBatch,
    scan_batches,
    whole_batches,
)
from controller.brokers.kraft.quorum.raft.effects import (
    FETCH,
    UPDATE,
    CommittedLost,
    Role,
    SnapshotInstalled,
    Truncated,
    Warned,
)
from controller.brokers.kraft.quorum.raft.full_disk import no_room
from controller.brokers.kraft.quorum.raft.log import SnapshotId
from controller.brokers.kraft.quorum.raft.responses import learn_from
from controller.kafka.messages import Message, quorum
from controller.kafka.messages.message import Listener

if TYPE_CHECKING:
    from controller.brokers.kraft.quorum.raft.core import Quorum

AGAIN_S: Final = 0.05
"""Until the next try, after one that failed."""
FULL_S: Final = 1.0
"""Until the next try, where the disk had no room."""
LATE_TIMEOUTS: Final = 2
"""Election timeouts that a voter of priority 0 leaves to the others."""
TOGETHER: Final = 0.25
"""Of the election timeout: voters that miss their leader at the same moment would split the vote."""
FETCH_BYTES_MAX: Final = 1 << 20
"""Kafka's default (KIP-1219). What does not come within the fetch timeout begins anew: on a slow line larger pieces of
a snapshot would never come."""
FETCH_WAIT_MS: Final = 500
SNAPSHOT_END_MAX: Final = 1 << 62
"""Offsets have 63 bits: the log goes on behind its snapshot."""
HELD_S: Final = 0.05
"""What the leader has not answered within a round trip, it holds: there is nothing new."""


class Follower:
    """Fetches from the leader; stands when nothing came for the fetch timeout."""

    kind = Role.FOLLOWER

    def __init__(self, core: Quorum, now: float) -> None:
        self._core = core
        self.has_fetched = False
        options = core.options
        self._timeout_s = options.fetch_timeout_s + TOGETHER * core.chance() * options.election_timeout_s
        self._deadline = now + self._timeout_s
        self._next_at: float | None = None
        self._sent_at = now
        self._in_flight = False
        self._is_late = False
        self._is_resigned = False
        """Whether the leader has said that it leads no more."""
        self._succeeds = False
        """Whether this node is to stand as soon as all that it has is durable."""
        self._leader_watermark = -1
        self._claims = False
        self._snapshot: SnapshotId | None = None
        self._position = 0
        self._update_at = now

    def enter(self, now: float) -> None:
        """It begins."""
        self._go_on(now)

    def leave(self, now: float) -> None:
        """It is over."""

    @property
    def wake(self) -> float:
        """When it wants `tick`."""
        return self._deadline if self._next_at is None else min(self._deadline, self._next_at)

    def tick(self, now: float) -> None:
        """Time passed."""
        core = self._core
        if now >= self._deadline:
            if not core.may_stand:
                core.to_unattached(now, core.epoch, keep_vote=True)
            elif core.options.priority == 0 and not self._is_late:
                self._is_late = True
                self._deadline = now + LATE_TIMEOUTS * core.options.election_timeout_s
            else:
                self._deadline = now + AGAIN_S  # and then, if what came last is still being flushed
                if core.is_durable:
                    core.stand(now)
        elif self._next_at is not None and now >= self._next_at:
            self._claims = self._claims or self._may_claim_beside_a_fetch(now)
            self._go_on(now)

    def wished(self, now: float) -> None:
        """The lead is to be claimed: what was applied last was appended a moment ago, and Kafka's controllers append
        every 500 ms, so that there is time for it now."""
        if self._may_claim_beside_a_fetch(now):
            self._next_at = max(now, self._sent_at + HELD_S)

    def flushed(self, now: float) -> None:
        """What was fetched is durable: it may count, and be committed."""
        self._core.commit(self._leader_watermark)
        if self._succeeds and self._core.is_durable:
            self._core.to_candidate(now)
        elif self._next_at is None:
            self._go_on(now)

    def rest(self, now: float) -> None:
        """What came last had no room."""
        self._next_at = now + FULL_S

    def leader_resigned(self, now: float, position: int) -> None:
        """The leader resigned (EndQuorumEpoch). Who has most of its log stands at once, without a pre-vote: the others
        may not know yet. The next ones when that one had time to."""
        core = self._core
        self._is_resigned, self.has_fetched = True, False
        self._succeeds = position == 0 and core.may_stand and core.options.priority > 0
        if self._succeeds and core.is_durable:
            core.to_candidate(now)
            return
        wait_s = core.options.election_timeout_s * (0.5 + 0.5 * core.chance())
        self._deadline = min(self._deadline, now + wait_s)

    def _go_on(self, now: float) -> None:
        """The next request to the leader, if there is none under way and all is durable."""
        core = self._core
        self._next_at = None
        if self._claims and core.is_durable:
            core.to_candidate(now, is_claim=True)
            return
        if self._in_flight or not core.is_durable:
            return
        self._in_flight, self._sent_at = True, now
        if self._snapshot is None:
            self._send(now, FETCH, fetch_request(core, 0 if self._may_claim(now) else FETCH_WAIT_MS))
            return
        part = quorum.RequestPartitionSnapshot(
            current_leader_epoch=core.epoch,
            snapshot_id=quorum.FetchSnapshotId(end_offset=self._snapshot.end_offset, epoch=self._snapshot.epoch),
            position=self._position,
            replica_directory_id=core.me.directory,
        )
        request = quorum.FetchSnapshotRequest(
            cluster_id=core.options.cluster_id,
            replica_id=core.me.id,
            max_bytes=FETCH_BYTES_MAX,
            topics=(quorum.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=(part,)),),
        )
        self._send(now, FETCH, request)

    def _send(self, now: float, purpose: str, request: Message) -> None:
        core = self._core
        assert core.leader_place is not None, "a follower knows where its leader is"
        timeout_s = max(self._deadline - now, AGAIN_S)
        core.send(purpose, core.leader_id, core.leader_place, purpose, request, timeout_s)

    def replied(self, now: float, context: str, response: Any) -> None:
        """The leader's answer, or none."""
        if context == UPDATE:
            self._updated(now, response)
            return
        core, epoch = self._core, self._core.epoch
        self._in_flight = False
        part = None if response is None else learn_from(core, now, response)
        if core.following is not self or core.epoch != epoch:
            return
        if part is None and response is None and not core.is_voter:
            core.to_unattached(now, core.epoch, keep_vote=True)  # others may know another leader
            return
        try:
            is_taken = part is not None and self._take(now, part)
        except BrokenBatch as broken:
            core.note(Warned(f"leader {core.leader_id} sent what no leader can send: {broken}"))
            is_taken = False
        except OSError as error:
            no_room(core, error)
            self._snapshot = None
            self._heard(now)
            self._next_at = now + FULL_S
            return
        if not is_taken:
            self._next_at = now + AGAIN_S
            return
        self._heard(now)
        self.has_fetched = not self._is_resigned
        self._update(now)
        self._go_on(now)

    def _heard(self, now: float) -> None:
        """The leader is there. What it responded before it resigned may come after that, by another connection."""
        if not self._is_resigned:
            self._deadline, self._is_late = now + self._timeout_s, False

    def _take(self, now: float, part: Any) -> bool:
        """True if the leader answered as one. Raises BrokenBatch and OSError."""
        if isinstance(part, quorum.ResponsePartitionSnapshot):
            return self._take_piece(part)
        if part.error_code or part.current_leader.leader_epoch != self._core.epoch:
            return False
        if part.diverging_epoch.epoch >= 0:
            self._truncate(part.diverging_epoch)
        elif part.snapshot_id.end_offset >= 0:
            self._begin_snapshot(SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch))
        else:
            records = whole_batches(part.records or b"")
            for head in scan_batches(records, "a fetch response"):
                if head.epoch > self._core.epoch:
                    raise BrokenBatch(f"a batch of epoch {head.epoch} in epoch {self._core.epoch}")
            if records:
                self._core.take_in(records)
            self._leader_watermark = part.high_watermark
            self._core.commit(part.high_watermark)
            self._claims = not records and self._may_claim(now)
        return True

    def _may_claim(self, now: float) -> bool:
        """A claim is lost, and nobody leads for seconds, if the leader appends before the votes are in. So it is made
        right after a fetch that brought nothing: one that the leader does not hold for this, or has held in vain."""
        return self._leader_watermark >= 0 and self._core.may_claim(now)

    def _may_claim_beside_a_fetch(self, now: float) -> bool:
        return self._in_flight and self._snapshot is None and self._may_claim(now)

    def _truncate(self, leader: quorum.EpochEndOffset) -> None:
        """To where both logs may be alike: the end of the newest epoch that both have (`truncateToEndOffset`)."""
        core = self._core
        if leader.end_offset < 0:
            raise BrokenBatch(f"a log that ends at offset {leader.end_offset}")
        mine = core.log.end_of_epoch(leader.epoch)
        target = min(mine.offset, leader.end_offset) if mine.epoch == leader.epoch else mine.offset
        if target < core.high_watermark:
            raise CommittedLost(
                f"leader {core.leader_id} of epoch {core.epoch} has epoch {leader.epoch} up to {leader.end_offset}, "
                f"so that this log would end at {target}, but all below {core.high_watermark} is committed"
            )
        was, end = core.log.end, core.log.truncate(target)
        core.history.truncated(end)
        core.note(Truncated(was, end))

    def _begin_snapshot(self, snapshot: SnapshotId) -> None:
        core = self._core
        if not 0 <= snapshot.epoch <= core.epoch or snapshot.end_offset > SNAPSHOT_END_MAX:
            raise BrokenBatch(f"a snapshot of epoch {snapshot.epoch}, up to offset {snapshot.end_offset}")
        if snapshot.end_offset < core.high_watermark:
            raise CommittedLost(
                f"leader {core.leader_id} of epoch {core.epoch} gives a snapshot of all below {snapshot.end_offset}, "
                f"but all below {core.high_watermark} is committed here"
            )
        core.log.begin_snapshot(snapshot)
        self._snapshot, self._position = snapshot, 0

    def _take_piece(self, part: quorum.ResponsePartitionSnapshot) -> bool:
        core, snapshot = self._core, self._snapshot
        if snapshot is None or part.error_code:
            self._snapshot = None
            return False
        if part.position != self._position or part.size <= 0:
            return False
        core.log.append_snapshot(part.unaligned_records)
        self._position += len(part.unaligned_records)
        if self._position < part.size:
            return bool(part.unaligned_records)
        self._snapshot = None
        core.log.finish_snapshot()
        core.history.read_again()
        core.note(SnapshotInstalled(snapshot))
        core.commit(snapshot.end_offset)
        return True

    def _update(self, now: float) -> None:
        """Show the leader where this voter listens, its disk and versions, while the voters have it otherwise: with
        kraft.version 0 they have none of it, and no leader raises that before it knows (UpdateRaftVoter, KIP-853)."""
        core = self._core
        if now < self._update_at or not core.is_voter or core.voters.by_id[core.me.id] == core.me:
            return
        self._update_at = now + 1.5 * core.options.fetch_timeout_s
        request = quorum.UpdateRaftVoterRequest(
            cluster_id=core.options.cluster_id,
            current_leader_epoch=core.epoch,
            voter_id=core.me.id,
            voter_directory_id=core.me.directory,
            listeners=tuple(Listener(name=each.name, host=each.host, port=each.port) for each in core.me.listeners),
            k_raft_version_feature=quorum.KRaftVersionFeature(
                min_supported_version=core.me.versions[0], max_supported_version=core.me.versions[1]
            ),
        )
        self._send(now, UPDATE, request)

    def _updated(self, now: float, response: quorum.UpdateRaftVoterResponse | None) -> None:
        if response is not None and not response.error_code and self._core.kraft_version == 0:
            self._update_at = float("inf")  # this leader knows


def fetch_request(core: Quorum, max_wait_ms: int) -> quorum.FetchRequest:
    """A fetch from the end of the log, which is durable."""
    assert core.is_durable, "a fetch says that all before is durable"
    part = quorum.FetchPartition(
        current_leader_epoch=core.epoch,
        fetch_offset=core.log.end,
        last_fetched_epoch=core.log.last_epoch,
        replica_directory_id=core.me.directory,
        high_watermark=core.high_watermark,
    )
    return quorum.FetchRequest(
        cluster_id=core.options.cluster_id,
        replica_state=quorum.ReplicaState(replica_id=core.me.id),
        replica_id=core.me.id,
        max_wait_ms=max_wait_ms,
        max_bytes=FETCH_BYTES_MAX,
        topics=(quorum.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(part,)),),
    )
