"""The follower role (Fetch, FetchSnapshot): copies the leader's log, and truncates its own where the logs diverge.

A fetch from an offset acknowledges that all records below are durable here. So the next fetch waits for the flush of
the records that the last one returned.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

from controller.kafka.messages import Message, quorum
from controller.quorum.log.batches import BrokenBatch, scan_batches, whole_batches
from controller.quorum.raft import role
from controller.quorum.raft.effects import CommittedLost, Role, Warned
from controller.quorum.raft.log import SnapshotId
from controller.quorum.raft.replica import Replica

FULL_RETRY_S: Final = 1.0
"""Seconds until the next attempt after the disk was full."""
JITTER: Final = 0.25
"""The fetch timeout is extended by a random time, up to this fraction of the election timeout. Otherwise voters that
lose their leader at the same time would split the vote. With priority 0 the fraction is added in full, so that other
voters request votes first."""
FETCH_BYTES_MAX: Final = 1 << 20
"""Kafka's default (KIP-1219). A response that takes longer than the fetch timeout is lost: over a slow connection
larger parts of a snapshot would never arrive."""
FETCH_WAIT_MS: Final = 500
SNAPSHOT_END_MAX: Final = 1 << 62
"""Offsets have 63 bits, and the log continues after its snapshot."""
_FETCH, _UPDATE = "fetch", "update"
"""The contexts of requests to the leader."""


class Follower(role.RoleState):
    """Fetches from the leader; starts an election when no response came within the fetch timeout."""

    kind = Role.FOLLOWER

    def __init__(self, replica: Replica, now: float) -> None:
        super().__init__(replica)
        options = replica.options
        jitter = JITTER * (replica.chance() + (options.priority == 0))
        self._timeout_s = options.fetch_timeout_s + jitter * options.election_timeout_s
        self._deadline = now + self._timeout_s
        self._next_at: float | None = None
        self._in_flight = False
        self._leader_resigned = False
        self._succeeds = False
        """True if this node is the preferred successor, and waits only until its log is durable."""
        self._leader_watermark = -1
        self._takes_over = False
        self._snapshot: SnapshotId | None = None
        self._position = 0
        self._update_at = now

    def enter(self, now: float) -> None:
        self._continue(now)

    @property
    def wake(self) -> float:
        return self._deadline if self._next_at is None else min(self._deadline, self._next_at)

    def tick(self, now: float) -> role.Transition | None:
        replica = self._replica
        if now >= self._deadline:
            if not replica.is_electable:
                return role.ToUnattached(replica.epoch)
            if replica.is_durable:
                return role.start_election(replica)
            self._deadline = now + role.RETRY_S
        elif self._next_at is not None and now >= self._next_at:
            self._continue(now)
        return None

    def flushed(self, now: float) -> role.Transition | None:
        replica = self._replica
        replica.commit(self._leader_watermark)
        if self._succeeds and replica.is_durable:
            return role.ToCandidate()
        if self._next_at is None:
            self._continue(now)
        return None

    def flush_failed(self, now: float) -> None:
        self._next_at = now + FULL_RETRY_S

    def resigned(self, now: float, leader_id: int, order: Sequence[int]) -> role.Transition | None:
        """The preferred successor becomes candidate immediately, without a pre-vote, because the other voters may not
        know of the resignation yet. The others wait, so that this candidate can win."""
        replica = self._replica
        if leader_id != replica.leader_id:
            return None
        self._leader_resigned = self.grants_pre_votes = True
        is_first = order[0] == replica.me.id if order else True
        self._succeeds = is_first and replica.is_electable and replica.options.priority > 0
        if self._succeeds and replica.is_durable:
            return role.ToCandidate()
        wait_s = replica.options.election_timeout_s * (0.5 + 0.5 * replica.chance())
        self._deadline = min(self._deadline, now + wait_s)
        return None

    # --- requests to the leader

    def _continue(self, now: float) -> None:
        """Send the next request, unless one is in flight or the log is not durable."""
        replica = self._replica
        self._next_at = None
        if self._in_flight or not replica.is_durable:
            return
        self._in_flight = True
        if self._snapshot is None:
            self._send(now, _FETCH, fetch_request(replica, 0 if self._may_take_over(now) else FETCH_WAIT_MS))
            return
        part = quorum.RequestPartitionSnapshot(
            current_leader_epoch=replica.epoch,
            snapshot_id=quorum.FetchSnapshotId(end_offset=self._snapshot.end_offset, epoch=self._snapshot.epoch),
            position=self._position,
            replica_directory_id=replica.me.directory,
        )
        request = quorum.FetchSnapshotRequest(
            cluster_id=replica.options.cluster_id,
            replica_id=replica.me.id,
            max_bytes=FETCH_BYTES_MAX,
            topics=role.topics_of(part),
        )
        self._send(now, _FETCH, request)

    def _send(self, now: float, context: str, request: Message) -> None:
        replica = self._replica
        assert replica.leader_address is not None, "a follower knows its leader's address"
        timeout_s = max(self._deadline - now, role.RETRY_S)
        replica.send(context, replica.leader_address, request, timeout_s)

    def _may_take_over(self, now: float) -> bool:
        """True if a leadership transfer may begin: after a fetch that returned nothing. If the leader appends before
        the votes arrive, the election fails, and nobody leads for seconds."""
        return self._leader_watermark >= 0 and self._replica.may_transfer(now)

    # --- responses

    def replied(self, now: float, context: str, response: Any) -> role.Transition | None:
        replica = self._replica
        if context == _UPDATE:
            if response is not None and not response.error_code and replica.kraft_version == 0:
                self._update_at = math.inf  # this leader has recorded the update
            return None
        self._in_flight = False
        part, transition = role.discovered_by_response(replica, response)
        if transition is not None:
            return transition
        if response is None and not replica.is_voter:
            return role.ToUnattached(replica.epoch)  # other nodes may know another leader
        try:
            is_success = part is not None and self._take(now, part)
        except BrokenBatch as broken:
            replica.emit(Warned(f"leader {replica.leader_id} sent invalid data: {broken}"))
            is_success = False
        except OSError as error:
            replica.on_disk_full(error)
            self._snapshot = None
            self._extend_deadline(now)
            self._next_at = now + FULL_RETRY_S
            return None
        if not is_success:
            self._next_at = now + role.RETRY_S
            return None
        self._extend_deadline(now)
        self.grants_pre_votes = self._leader_resigned
        self._update(now)
        if self._takes_over:
            replica.delay_transfers(now)
            return role.ToCandidate()
        self._continue(now)
        return None

    def _extend_deadline(self, now: float) -> None:
        """The leader responded. A response from before it resigned may arrive later, over another connection."""
        if not self._leader_resigned:
            self._deadline = now + self._timeout_s

    def _take(self, now: float, part: Any) -> bool:
        """Process a response; False if the sender is not the leader. Raises BrokenBatch, CommittedLost and OSError."""
        replica = self._replica
        if isinstance(part, quorum.ResponsePartitionSnapshot):
            return self._take_snapshot_part(part)
        if part.error_code or part.current_leader.leader_epoch != replica.epoch:
            return False
        if part.diverging_epoch.epoch >= 0:
            self._truncate(part.diverging_epoch)
        elif part.snapshot_id.end_offset >= 0:
            self._begin_snapshot(SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch))
        else:
            records = whole_batches(part.records or b"")
            for head in scan_batches(records, "a fetch response"):
                if head.epoch > replica.epoch:
                    raise BrokenBatch(f"a batch of epoch {head.epoch}, newer than its own epoch {replica.epoch}")
            if records:
                replica.append_batches(records)
            self._leader_watermark = part.high_watermark
            replica.commit(part.high_watermark)
            self._takes_over = not records and self._may_take_over(now)
        return True

    def _truncate(self, leader: quorum.EpochEndOffset) -> None:
        """Truncate to the end of the newest epoch that both logs have (`truncateToEndOffset`)."""
        replica = self._replica
        if leader.end_offset < 0:
            raise BrokenBatch(f"a log that ends at offset {leader.end_offset}")
        mine = replica.log.end_of_epoch(leader.epoch)
        target = min(mine.offset, leader.end_offset) if mine.epoch == leader.epoch else mine.offset
        if target < replica.high_watermark:
            raise CommittedLost(
                f"leader {replica.leader_id} of epoch {replica.epoch} has epoch {leader.epoch} up to "
                f"{leader.end_offset}. This log would be truncated to {target}, but all records below "
                f"{replica.high_watermark} are committed"
            )
        replica.truncate(target)

    def _begin_snapshot(self, snapshot: SnapshotId) -> None:
        replica = self._replica
        if not 0 <= snapshot.epoch <= replica.epoch or snapshot.end_offset > SNAPSHOT_END_MAX:
            raise BrokenBatch(f"a snapshot id with invalid epoch {snapshot.epoch} or end offset {snapshot.end_offset}")
        if snapshot.end_offset < replica.high_watermark:
            raise CommittedLost(
                f"leader {replica.leader_id} of epoch {replica.epoch} sends a snapshot of all records below "
                f"{snapshot.end_offset}, but all records below {replica.high_watermark} are committed here"
            )
        replica.log.begin_snapshot(snapshot)
        self._snapshot, self._position = snapshot, 0

    def _take_snapshot_part(self, part: quorum.ResponsePartitionSnapshot) -> bool:
        replica, snapshot = self._replica, self._snapshot
        if snapshot is None or part.error_code:
            self._snapshot = None
            return False
        if part.position != self._position or part.size <= 0:
            return False
        replica.log.append_snapshot(part.unaligned_records)
        self._position += len(part.unaligned_records)
        if self._position < part.size:
            return bool(part.unaligned_records)
        self._snapshot = None
        replica.log.finish_snapshot()
        replica.history.read_again()
        replica.commit(snapshot.end_offset)
        return True

    # --- UpdateRaftVoter

    def _update(self, now: float) -> None:
        """Send the leader this voter's listeners, directory id and versions, while the voter set differs. With
        kraft.version 0 the set has none of these, but the leader needs them to raise kraft.version (KIP-853)."""
        replica = self._replica
        me = replica.me
        if now < self._update_at or not replica.is_voter or replica.voters.by_id[me.id] == me:
            return
        self._update_at = now + 1.5 * replica.options.fetch_timeout_s
        request = quorum.UpdateRaftVoterRequest(
            cluster_id=replica.options.cluster_id,
            current_leader_epoch=replica.epoch,
            voter_id=me.id,
            voter_directory_id=me.directory,
            listeners=me.listeners,
            k_raft_version_feature=me.versions,
        )
        self._send(now, _UPDATE, request)


def fetch_request(replica: Replica, max_wait_ms: int) -> quorum.FetchRequest:
    """The Fetch request of a follower: from the end of its log, which is durable."""
    assert replica.is_durable, "a fetch acknowledges all records before it"
    part = quorum.FetchPartition(
        current_leader_epoch=replica.epoch,
        fetch_offset=replica.log.end,
        last_fetched_epoch=replica.log.last_epoch,
        replica_directory_id=replica.me.directory,
        high_watermark=replica.high_watermark,
    )
    return quorum.FetchRequest(
        cluster_id=replica.options.cluster_id,
        replica_state=quorum.ReplicaState(replica_id=replica.me.id),
        replica_id=replica.me.id,
        max_wait_ms=max_wait_ms,
        max_bytes=FETCH_BYTES_MAX,
        topics=role.topics_of(part),
    )
