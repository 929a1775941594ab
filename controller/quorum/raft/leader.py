"""The leader role: appends batches, answers Fetch, FetchSnapshot and DescribeQuorum, advances the high watermark, and
sends BeginQuorumEpoch."""

import math
from collections.abc import Hashable, Sequence
from typing import Any, Final

import msgspec

from controller.kafka.messages import Message, quorum
from controller.machine.errors import ErrorCode
from controller.quorum.log.batches import Pair, encode_batch, whole_batches
from controller.quorum.raft import role
from controller.quorum.raft.effects import Fetched, Role
from controller.quorum.raft.follower import FETCH_BYTES_MAX
from controller.quorum.raft.log import EpochEnd, SnapshotId
from controller.quorum.raft.progress import Fetches, Progress
from controller.quorum.raft.replica import Replica
from controller.quorum.raft.voter_changes import VoterChanges
from controller.quorum.raft.voters import Voter, kraft_version_record, leader_change_record, voters_record

CHECK_QUORUM: Final = 1.5
"""Fetch timeouts without fetches from a majority, after which a leader resigns (KIP-595)."""
DELAY_MAX: Final = 0.25
"""A fetch is delayed for at most this fraction of the fetch timeout, because that timeout runs meanwhile."""
LATE: Final = 0.1
"""The fraction of the fetch timeout by which Kafka voters that no commit needs get new records later. Kafka's timeouts
have no jitter: voters that were answered at the same time become candidates at the same time, and split the vote."""
OBSERVER_DELAY_S: Final = 0.3
"""Delay of batches without metadata for observers, so that brokers apply topic creations first."""
SNAPSHOT_BYTES_MAX: Final = 1 << 20
"""Limit on the bytes of a snapshot in one response, also if the request allows more."""


class DelayedFetch(msgspec.Struct, frozen=True):
    """A fetch that waits for records or a new high watermark; it times out at `until`."""

    token: Hashable
    replica: int
    part: quorum.FetchPartition
    max_bytes: int
    until: float


class Leader(role.RoleState):
    kind = Role.LEADER
    grants_pre_votes = False

    def __init__(self, replica: Replica, now: float, granted: frozenset[int]) -> None:
        super().__init__(replica)
        self._granted = granted
        self._leader_since = now
        self._next_begin_at = now
        self._begin_in_flight: set[int] = set()  # voters that have not answered BeginQuorumEpoch yet
        self._delayed: dict[Hashable, DelayedFetch] = {}
        self._late_at = math.inf  # the time to answer the voters that are late
        self._resign_at: float | None = None
        self.epoch_start = replica.log.end
        self.progress = Progress(replica)
        self.changes = VoterChanges(replica, self.progress, lambda: self.watermark, self.append_control)
        self._observers_wait: tuple[int, float] | None = None
        """Offset and time: observers do not get records from that offset on before that time."""

    def enter(self, now: float) -> role.Transition | None:
        """Append the first batch of the epoch, which names its leader. If the disk has no room for it, give up the
        leadership."""
        replica = self._replica
        records = [leader_change_record(replica.me.id, replica.voters, self._granted)]
        mine = replica.voters.by_id.get(replica.me.id)
        if replica.kraft_version > 0 and mine is not None and (mine != replica.me or replica.history.changed_at < 0):
            records += [
                kraft_version_record(replica.kraft_version),
                voters_record(replica.voters.with_voter(replica.me)),
            ]
        try:
            self._append(now, records, replica.wall_ms(now), is_control=True)
        except OSError as error:
            replica.on_disk_full(error)
            return role.ToUnattached(replica.epoch)
        return self.tick(now)

    def exit(self, now: float) -> None:
        """Answer delayed fetches with an error and the known leader. A new leader may commit uncommitted records."""
        replica = self._replica
        for each in self._delayed.values():
            is_fenced = replica.epoch > each.part.current_leader_epoch
            code = int(ErrorCode.FENCED_LEADER_EPOCH) if is_fenced else role.NOT_LEADER
            replica.respond(each.token, role.error_response(replica, quorum.FetchRequest, code))
        self._delayed = {}
        self.changes.cancel()
        replica.delay_transfers(now, now - self._leader_since)

    # --- time

    @property
    def wake(self) -> float:
        times = [self._next_begin_at, self._check_quorum_at(), self.changes.wake, self._late_at]
        times += [each.until for each in self._delayed.values()]
        times += [] if self._observers_wait is None else [self._observers_wait[1]]
        return min(times if self._resign_at is None else [*times, self._resign_at])

    def _check_quorum_at(self) -> float:
        since = max(self._leader_since, self.progress.majority_fetched_at())
        return since + CHECK_QUORUM * self._replica.options.fetch_timeout_s

    def tick(self, now: float) -> role.Transition | None:
        if now >= self._check_quorum_at() or (self._resign_at is not None and now >= self._resign_at):
            return self._resigned()
        if now >= self._next_begin_at:
            self._next_begin_at = now + self._replica.options.fetch_timeout_s / 4
            self._begin_epoch(now)
        self.changes.tick(now)
        if self._observers_wait is not None and now >= self._observers_wait[1]:
            self._observers_wait = None
            self._answer_delayed(now)
        is_late_over = now >= self._late_at
        for each in [*self._delayed.values()]:
            if now >= each.until or (is_late_over and self._has_news(each)):
                self._answer(each)
        self._late_at = math.inf if is_late_over else self._late_at
        return None

    def _resigned(self) -> role.ToResigned:
        """Resign, and prefer the voter with the longest log as the successor."""
        return role.ToResigned(tuple(sorted(self._replica.others, key=lambda voter: -self.progress.of(voter).end)))

    def flush_failed(self, now: float) -> role.Transition | None:
        """Unflushed records were acknowledged to nobody, but followers may have some, so this epoch must end."""
        return self._resigned()

    def resign(self, until: float) -> role.Transition | None:
        """Accept no more records. Resign when all appended records are committed, at the latest at `until`."""
        self._resign_at = until
        return self._resign_if_done()

    @property
    def is_leaving(self) -> bool:
        """True if this leader accepts no more records, because it is about to resign."""
        return self._resign_at is not None

    # --- the log

    def append(self, now: float, records: Sequence[Pair], timestamp_ms: int, *, for_observers: bool) -> int:
        """Append a metadata batch. With for_observers=False, observers get it only with a later batch that is for
        observers, or after OBSERVER_DELAY_S."""
        end = self._replica.log.end
        last = self._append(now, records, timestamp_ms, is_control=False)
        if for_observers:
            self._observers_wait = None
        elif self._observers_wait is None:
            self._observers_wait = end, now + OBSERVER_DELAY_S
        return last

    def append_control(self, now: float, records: Sequence[Pair]) -> None:
        """Append a control batch. Raises OSError. If it changes the voter set, call `_advance_high_watermark` next: the
        majority may be another."""
        self._append(now, records, self._replica.wall_ms(now), is_control=True)
        self._observers_wait = None

    def _append(self, now: float, records: Sequence[Pair], timestamp_ms: int, *, is_control: bool) -> int:
        log, epoch = self._replica.log, self._replica.epoch
        self._replica.append_batches(encode_batch(log.end, epoch, timestamp_ms, records, is_control=is_control))
        self._answer_delayed(now)
        return log.end - 1

    def flushed(self, now: float) -> role.Transition | None:
        return self._advance_high_watermark(now)

    @property
    def watermark(self) -> int:
        """The high watermark in responses. -1 until a record of this epoch is committed: until then this node's may be
        lower than its followers', and a Kafka process exits if the high watermark decreases."""
        known = self._replica.high_watermark
        return known if known > self.epoch_start else -1

    def _advance_high_watermark(self, now: float) -> role.Transition | None:
        """Advance the high watermark to the offset below which a majority has all records."""
        replica, before = self._replica, self.watermark
        durable_end = replica.log.durable_end
        end = min(durable_end, self.progress.majority_end(durable_end))
        if end > self.epoch_start:
            replica.commit(end)
        if self.watermark != before:
            self._answer_delayed(now)
            self.changes.committed()
        return self._resign_if_done()

    def _resign_if_done(self) -> role.Transition | None:
        replica = self._replica
        is_removed = not replica.is_voter and replica.history.changed_at < replica.high_watermark
        is_done = self._resign_at is not None and replica.high_watermark >= replica.log.end
        return self._resigned() if is_removed or is_done else None

    # --- requests

    def serve(self, now: float, token: Hashable, request: Any, part: Any) -> role.Transition | None:
        match request:
            case quorum.FetchRequest():
                return self._fetch(now, token, request, part)
            case quorum.FetchSnapshotRequest():
                answer = self._snapshot_part(now, request, part)
                self._respond(token, quorum.FetchSnapshotResponse, answer)
                return None
            case quorum.DescribeQuorumRequest():
                self._replica.respond(token, self.describe(now))
                return None
            case _:
                self.changes.request(now, token, request)
                return self._advance_high_watermark(now)

    def raise_kraft_version(self, now: float) -> role.Transition | None:
        """Raise kraft.version from 0 to 1. Raises Refused."""
        self.changes.raise_kraft_version(now)
        return self._advance_high_watermark(now)

    def _fetch(
        self, now: float, token: Hashable, request: quorum.FetchRequest, part: quorum.FetchPartition
    ) -> role.Transition | None:
        """Record a fetch, and delay it if there is nothing new."""
        replica = self._replica
        node_id = max(request.replica_state.replica_id, request.replica_id)
        # A follower's fetch timeout runs while its fetch is delayed, and Kafka's followers wait 500 ms whatever it is.
        wait_s = min(request.max_wait_ms / 1000, DELAY_MAX * replica.options.fetch_timeout_s)
        delayed = DelayedFetch(token, node_id, part, min(request.max_bytes, FETCH_BYTES_MAX), now + wait_s)
        if self._mismatch(part) is not None:
            self._answer(delayed)
            return None
        self._delayed[token] = delayed
        if node_id >= 0:
            self.progress.fetched(now, node_id, part.replica_directory_id, part.fetch_offset)
            replica.emit(Fetched(node_id))
            transition = self._advance_high_watermark(now)
            if transition is not None:
                return transition
        if token in self._delayed and (wait_s <= 0 or self._has_news(delayed)):
            self._answer_now_or_late(now, delayed)
        return None

    def _answer_now_or_late(self, now: float, delayed: DelayedFetch) -> None:
        """Answer a fetch now, or later if it is of a Kafka voter that no commit needs, while those before it fetch."""
        replica, timeout_s = self._replica, self._replica.options.fetch_timeout_s
        if delayed.replica not in replica.voters.by_id:  # most fetches are of brokers
            self._answer(delayed)
            return
        peers = ((each, replica.peers.get(replica.address_of(each))) for each in replica.others)
        of_kafka = [voter for voter, peer in peers if peer is not None and peer.priority is None]
        needed = replica.voters.majority - replica.is_voter
        is_beyond = any(each.id == delayed.replica for each in of_kafka[needed:])
        idle_s = max((now - self.progress.of(each).fetched_at for each in of_kafka[:needed]), default=0.0)
        if is_beyond and idle_s < timeout_s / 2 and not replica.peers_lack_pre_vote:
            self._late_at = min(self._late_at, now + LATE * timeout_s)
        else:
            self._answer(delayed)

    def _has_news(self, delayed: DelayedFetch) -> bool:
        end = self._end_for(delayed)
        return end > delayed.part.fetch_offset or min(end, self.watermark) > delayed.part.high_watermark

    def _end_for(self, delayed: DelayedFetch) -> int:
        """The end of a response: the log end for voters; the high watermark, or less (`append`), for observers.
        A broker that got uncommitted records with a Fetch version below 18 would see the commit half a second late."""
        replica = self._replica
        if replica.voters.has(delayed.replica, delayed.part.replica_directory_id):
            return replica.log.end
        return self.watermark if self._observers_wait is None else min(self.watermark, self._observers_wait[0])

    def _answer_delayed(self, now: float) -> None:
        for each in [each for each in self._delayed.values() if self._has_news(each)]:
            self._answer_now_or_late(now, each)

    def _mismatch(self, part: quorum.FetchPartition) -> quorum.FetchPartitionData | None:
        """The answer to a fetch from an offset that this log never had, or no longer has."""
        match self._replica.log.mismatch(part.fetch_offset, part.last_fetched_epoch):
            case EpochEnd(epoch, offset):
                end = quorum.EpochEndOffset(epoch=epoch, end_offset=offset)
                return quorum.FetchPartitionData(diverging_epoch=end, records=b"")
            case SnapshotId(end_offset, epoch):
                needed = quorum.FetchSnapshotId(end_offset=end_offset, epoch=epoch)
                return quorum.FetchPartitionData(snapshot_id=needed, records=b"")
            case _:
                return None

    def _answer(self, delayed: DelayedFetch) -> None:
        replica = self._replica
        self._delayed.pop(delayed.token, None)
        answer = self._mismatch(delayed.part)
        if answer is None:
            records = replica.log.read(delayed.part.fetch_offset, delayed.max_bytes)
            answer = quorum.FetchPartitionData(records=whole_batches(records, self._end_for(delayed)))
        answer = msgspec.structs.replace(answer, high_watermark=self.watermark, log_start_offset=replica.log.start)
        self._respond(delayed.token, quorum.FetchResponse, answer)

    def _respond(self, token: Hashable, kind: type[Message], part: Message) -> None:
        self._replica.respond(token, role.leader_response(kind, self._replica.leader_and_epoch, part))

    def _snapshot_part(
        self, now: float, request: quorum.FetchSnapshotRequest, part: quorum.RequestPartitionSnapshot
    ) -> quorum.ResponsePartitionSnapshot:
        snapshot = SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
        if request.replica_id >= 0:
            self.progress.fetched_snapshot(now, request.replica_id, part.replica_directory_id)
        found = self._replica.log.read_snapshot(snapshot, part.position, min(request.max_bytes, SNAPSHOT_BYTES_MAX))
        if found is None:
            return quorum.ResponsePartitionSnapshot(error_code=int(ErrorCode.SNAPSHOT_NOT_FOUND))
        size, data = found
        if not 0 <= part.position < size:
            return quorum.ResponsePartitionSnapshot(error_code=int(ErrorCode.POSITION_OUT_OF_RANGE))
        return quorum.ResponsePartitionSnapshot(
            snapshot_id=part.snapshot_id, size=size, position=part.position, unaligned_records=data
        )

    # --- BeginQuorumEpoch, DescribeQuorum

    def _begin_epoch(self, now: float) -> None:
        """Send BeginQuorumEpoch to voters that do not fetch, because these may not know the leader."""
        replica = self._replica
        for voter in replica.others:
            idle_s = now - self.progress.of(voter).fetched_at
            if voter.id in self._begin_in_flight or idle_s < replica.options.fetch_timeout_s / 2:
                continue
            part = quorum.BeginEpochPartition(
                voter_directory_id=voter.directory, leader_id=replica.me.id, leader_epoch=replica.epoch
            )
            request = quorum.BeginQuorumEpochRequest(
                cluster_id=replica.options.cluster_id,
                voter_id=voter.id,
                topics=role.topics_of(part),
                leader_endpoints=replica.me.listeners,
            )
            self._begin_in_flight.add(voter.id)
            timeout_s = replica.options.fetch_timeout_s / 2
            replica.send(voter.id, replica.address_of(voter), request, timeout_s)

    def replied(self, now: float, context: Any, response: Any) -> role.Transition | None:
        """A voter answered BeginQuorumEpoch, or a new voter ApiVersions."""
        if not isinstance(context, int):
            self.changes.replied(now, context, response)
            return self._advance_high_watermark(now)
        self._begin_in_flight.discard(context)
        return role.discovered_by_response(self._replica, response)[1]

    def describe(self, now: float) -> quorum.DescribeQuorumResponse:
        """Voters and observers with their log ends (KIP-836)."""
        replica = self._replica

        def state_of(node_id: int, directory: bytes, found: Fetches) -> quorum.QuorumReplica:
            fetched, caught_up = (
                replica.wall_ms(at) if at > -math.inf else -1 for at in (found.fetched_at, found.caught_up_at)
            )
            return quorum.QuorumReplica(
                replica_id=node_id,
                replica_directory_id=directory,
                log_end_offset=found.end,
                last_fetch_timestamp=fetched,
                last_caught_up_timestamp=caught_up,
            )

        def fetches_of(voter: Voter) -> Fetches:
            return Fetches(replica.log.end, now, now) if voter.id == replica.me.id else self.progress.of(voter)

        observers = sorted(self.progress.observers(now), key=lambda each: each[:2])
        part = quorum.DescribeQuorumPartitionResult(
            leader_id=replica.me.id,
            leader_epoch=replica.epoch,
            high_watermark=self.watermark,
            current_voters=tuple(state_of(each.id, each.directory, fetches_of(each)) for each in replica.voters),
            observers=tuple(state_of(*each) for each in observers),
        )
        nodes = tuple(quorum.QuorumNode(node_id=each.id, listeners=each.listeners) for each in replica.voters)
        return quorum.DescribeQuorumResponse(topics=role.topics_of(part), nodes=nodes)
