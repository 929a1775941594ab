"""Leading an epoch: its first record, the followers' fetches, the high watermark, the voters' ears, the end."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from controller.brokers.kraft.log.batches import METADATA_TOPIC, Pair, below
from controller.brokers.kraft.quorum.raft.effects import BEGIN, Fetched, Role
from controller.brokers.kraft.quorum.raft.following import FETCH_BYTES_MAX
from controller.brokers.kraft.quorum.raft.full_disk import no_room
from controller.brokers.kraft.quorum.raft.log import Diverging, NeedsSnapshot, SnapshotId
from controller.brokers.kraft.quorum.raft.progress import Progress, Replica
from controller.brokers.kraft.quorum.raft.responses import fetch_response, learn_from, snapshot_response
from controller.brokers.kraft.quorum.raft.turns import SHARE, Turns
from controller.brokers.kraft.quorum.raft.voter_changes import VoterChanges
from controller.brokers.kraft.quorum.raft.voters import (
    Voter,
    kraft_version_record,
    leader_change_record,
    voters_record,
)
from controller.kafka.messages import quorum
from controller.kafka.messages.message import Listener
from controller.machine.errors import ErrorCode

if TYPE_CHECKING:
    from controller.brokers.kraft.quorum.raft.core import Quorum

CHECK_QUORUM: Final = 1.5
"""Fetch timeouts without a majority's fetches after which a leader resigns (KIP-595)."""
PUT_OFF_S: Final = 0.3
"""Brokers are busy with what was created: what only says that they were is for later."""
SNAPSHOT_BYTES_MAX: Final = 1 << 20
"""Of a snapshot in a response, whatever is requested."""


class ParkedFetch(msgspec.Struct, frozen=True):
    """A fetch that waits since then for something new, at most until then."""

    token: Hashable
    replica: int
    part: quorum.FetchPartition
    max_bytes: int
    since: float
    until: float


class Leader:
    """Leads the epoch."""

    kind = Role.LEADER

    def __init__(self, core: Quorum, now: float, granted: set[int]) -> None:
        self._core = core
        self._granted = granted
        self._began = now
        self._begin_at = now
        self._beginning: set[int] = set()  # who has not yet answered BeginQuorumEpoch
        self._parked: dict[Hashable, ParkedFetch] = {}
        self._leave_at: float | None = None
        self.epoch_start = core.log.end
        self.progress = Progress(lambda: core.voters)
        self._turns = Turns(core, self.progress)
        self.changes = VoterChanges(core, self)
        self._put_off: tuple[int, float] | None = None
        """From where on the log has nothing for those that do not vote, and when they get it all the same."""

    def enter(self, now: float) -> None:
        """The first batch of an epoch says who leads it: nothing is appended before. Where there is no room for it, the
        epoch is another's, or nobody's."""
        core = self._core
        records = [leader_change_record(core.me.id, core.voters, self._granted)]
        mine = core.voters.by_id.get(core.me.id)
        if core.kraft_version > 0 and mine is not None and (mine != core.me or core.history.changed_at < 0):
            records += [kraft_version_record(core.kraft_version), voters_record(core.voters.with_voter(core.me))]
        try:
            self._append(now, records, core.wall_ms(now), is_control=True)
        except OSError as error:
            no_room(core, error)
            core.to_unattached(now, core.epoch, keep_vote=True)
            return
        self.tick(now)

    def leave(self, now: float) -> None:
        """Who waits is shown where to go on; what was appended may yet be committed, or never."""
        core = self._core
        for each in self._parked.values():
            code = int(ErrorCode.FENCED_LEADER_EPOCH if core.epoch > each.part.current_leader_epoch else _NOT_LEADER)
            core.respond(
                each.token, fetch_response(core.said, quorum.FetchPartitionData(error_code=code, high_watermark=-1))
            )
        self._parked = {}
        self.changes.leave()
        core.claim_ended(now, now - self._began)

    # --- time

    @property
    def wake(self) -> float:
        """When it wants `tick`."""
        times = [
            self._begin_at,
            self._heard_until(),
            self.changes.wake,
            *(self._due(each) for each in self._parked.values()),
        ]
        times += [] if self._put_off is None else [self._put_off[1]]
        return min(times if self._leave_at is None else [*times, self._leave_at])

    def _heard_until(self) -> float:
        core = self._core
        heard_at = self.progress.majority_fetched_at(core.voters, core.me.id)
        return max(self._began, heard_at) + CHECK_QUORUM * core.options.fetch_timeout_s

    def tick(self, now: float) -> None:
        """Time passed."""
        if now >= self._heard_until() or (self._leave_at is not None and now >= self._leave_at):
            self.resign(now)
            return
        if now >= self._begin_at:
            self._begin_at = now + self._core.options.fetch_timeout_s / 4
            self._begin_epoch(now)
        self.changes.tick(now)
        if self._put_off is not None and now >= self._put_off[1]:
            self._put_off = None
            self._wake_parked(now)
        for each in [each for each in self._parked.values() if now >= self._due(each)]:
            self._complete(now, each)

    def resign(self, now: float) -> None:
        """Lead no longer: who has most of the log is to come next."""
        order = sorted(self._core.others, key=lambda voter: -self.progress.of(voter).end)
        self._core.to_resigned(now, order)

    def hand_over(self, now: float, until: float) -> None:
        """Resign when all that was appended is committed, or then."""
        self._leave_at = until
        self._settle(now)

    @property
    def is_leaving(self) -> bool:
        """Whether nothing more is taken."""
        return self._leave_at is not None

    # --- the log

    def append(self, now: float, records: Sequence[Pair], timestamp_ms: int, *, for_observers: bool) -> int:
        """A batch of the machine's. Those that do not vote get one that is not for them with the next that is."""
        end = self._core.log.end
        last = self._append(now, records, timestamp_ms, is_control=False)
        if for_observers:
            self._put_off = None
        elif self._put_off is None:
            self._put_off = end, now + PUT_OFF_S
        return last

    def append_control(self, now: float, records: Sequence[Pair]) -> int:
        """A batch of the quorum's own."""
        last = self._append(now, records, self._core.wall_ms(now), is_control=True)
        self._put_off = None
        self._count(now)  # by another set of voters
        return last

    def _append(self, now: float, records: Sequence[Pair], timestamp_ms: int, *, is_control: bool) -> int:
        for each in [each for each in self._parked.values() if self._has_news(each)]:
            if self._turns.is_over(now, each.replica, each.since):
                self._complete(now, each)  # without this batch, so that the others have more
        last = self._core.append_batch(records, timestamp_ms, is_control=is_control)
        self._turns.counted(now)
        self._wake_parked(now)
        return last

    def flushed(self, now: float) -> None:
        """More of the own log is durable: it counts as a voter's."""
        self._count(now)

    @property
    def watermark(self) -> int:
        """What followers see. -1 until a record of this epoch is committed: what this node knew as a follower may be
        behind what they know, and a watermark that goes back ends a process of Kafka."""
        known = self._core.high_watermark
        return known if known > self.epoch_start else -1

    def _count(self, now: float) -> None:
        core, before = self._core, self.watermark
        durable_end = core.log.durable_end
        end = min(durable_end, self.progress.majority_end(core.voters, core.me.id, durable_end))
        if end > self.epoch_start:
            core.commit(end)
        if self.watermark != before:
            self._turns.committed()
            self._wake_parked(now)
            self.changes.committed(now)
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Resign where that waited for what is committed now."""
        core = self._core
        if core.leading is not self:
            return
        is_out = not core.is_voter and core.history.changed_at < core.high_watermark
        is_done = self._leave_at is not None and core.high_watermark >= core.log.end
        if is_out or is_done:
            self.resign(now)

    # --- those who follow

    def fetch(self, now: float, token: Hashable, request: quorum.FetchRequest, part: quorum.FetchPartition) -> None:
        """A fetch in this epoch: it counts from where it is valid, and waits if there is nothing new."""
        core = self._core
        replica = max(request.replica_state.replica_id, request.replica_id)
        # A follower's fetch timeout runs while its fetch is parked, and Kafka's followers wait 500 ms whatever that is.
        wait_s = min(request.max_wait_ms / 1000, SHARE * core.options.fetch_timeout_s)
        parked = ParkedFetch(token, replica, part, min(request.max_bytes, FETCH_BYTES_MAX), now, now + wait_s)
        if self._answer(part) is not None:
            self._complete(now, parked)
            return
        self._parked[token] = parked
        if replica >= 0:
            self.progress.fetched(now, replica, part.replica_directory_id, part.fetch_offset, core.log.end)
            core.note(Fetched(replica, part.fetch_offset))
            self._turns.counted(now)
            self._count(now)  # which may answer it, or end the leader's time
        if token in self._parked and (wait_s <= 0 or self._is_wanted(now, parked)):
            self._complete(now, parked)

    def _is_wanted(self, now: float, parked: ParkedFetch) -> bool:
        return self._has_news(parked) and not self._turns.is_spare(now, parked.replica)

    def _due(self, parked: ParkedFetch) -> float:
        due = self._turns.due(parked.replica, parked.since, parked.until)
        return min(due, self._turns.all_at) if self._has_news(parked) else due

    def _has_news(self, parked: ParkedFetch) -> bool:
        end = self._end_for(parked)
        return end > parked.part.fetch_offset or min(end, self.watermark) > parked.part.high_watermark

    def _end_for(self, parked: ParkedFetch) -> int:
        """Voters get all of the log, others what is committed and for them, with the high watermark that says so:
        before Fetch 18 a broker learns of that with the next records only, and would apply a topic half a second
        late."""
        core = self._core
        is_voter = core.voters.has(parked.replica, parked.part.replica_directory_id)
        if is_voter:
            return core.log.end
        return self.watermark if self._put_off is None else min(self.watermark, self._put_off[0])

    def _wake_parked(self, now: float) -> None:
        for each in [each for each in self._parked.values() if self._is_wanted(now, each)]:
            self._complete(now, each)

    def _answer(self, part: quorum.FetchPartition) -> quorum.FetchPartitionData | None:
        """To a fetch from where this log was never, or is no longer."""
        match self._core.log.validate(part.fetch_offset, part.last_fetched_epoch):
            case Diverging(epoch, offset):
                return quorum.FetchPartitionData(diverging_epoch=quorum.EpochEndOffset(epoch=epoch, end_offset=offset))
            case NeedsSnapshot(snapshot):
                wanted = quorum.FetchSnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
                return quorum.FetchPartitionData(snapshot_id=wanted)
            case _:
                return None

    def _complete(self, now: float, parked: ParkedFetch) -> None:
        core = self._core
        self._turns.responded(now, parked.replica)
        self._parked.pop(parked.token, None)
        answer = self._answer(parked.part)
        if answer is None:
            records = core.log.read(parked.part.fetch_offset, parked.max_bytes)
            answer = quorum.FetchPartitionData(records=below(records, self._end_for(parked)))
        answer = msgspec.structs.replace(answer, high_watermark=self.watermark, log_start_offset=core.log.start)
        core.respond(parked.token, fetch_response(core.said, answer))

    def fetch_snapshot(
        self, now: float, request: quorum.FetchSnapshotRequest, part: quorum.RequestPartitionSnapshot
    ) -> quorum.FetchSnapshotResponse:
        """A piece of a snapshot."""
        core, wanted = self._core, SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
        if request.replica_id >= 0:
            self.progress.listened(now, request.replica_id, part.replica_directory_id)
        found = core.log.read_snapshot(wanted, part.position, min(request.max_bytes, SNAPSHOT_BYTES_MAX))
        answer = quorum.ResponsePartitionSnapshot(error_code=int(ErrorCode.SNAPSHOT_NOT_FOUND))
        if found is not None:
            size, data = found
            answer = quorum.ResponsePartitionSnapshot(
                snapshot_id=part.snapshot_id, size=size, position=part.position, unaligned_records=data
            )
            if not 0 <= part.position < size:
                answer = quorum.ResponsePartitionSnapshot(error_code=int(ErrorCode.POSITION_OUT_OF_RANGE))
        return snapshot_response(core.said, answer)

    def _begin_epoch(self, now: float) -> None:
        """Voters that do not fetch may not know who leads."""
        core = self._core
        for voter in core.others:
            silent_s = now - self.progress.of(voter).fetched_at
            if voter.id in self._beginning or silent_s < core.options.fetch_timeout_s / 2:
                continue
            part = quorum.BeginEpochPartition(
                voter_directory_id=voter.directory, leader_id=core.me.id, leader_epoch=core.epoch
            )
            request = quorum.BeginQuorumEpochRequest(
                cluster_id=core.options.cluster_id,
                voter_id=voter.id,
                topics=(quorum.BeginEpochTopic(topic_name=METADATA_TOPIC, partitions=(part,)),),
                leader_endpoints=tuple(
                    Listener(name=each.name, host=each.host, port=each.port) for each in core.me.listeners
                ),
            )
            self._beginning.add(voter.id)
            core.send(voter.id, voter.id, core.place_of(voter), BEGIN, request, core.options.fetch_timeout_s / 2)

    def replied(self, now: float, context: Any, response: Any) -> None:
        """To BeginQuorumEpoch, or of a voter to be."""
        if not isinstance(context, int):
            self.changes.replied(now, context, response)
            return
        self._beginning.discard(context)
        if response is not None:
            learn_from(self._core, now, response)

    def describe(self, now: float) -> quorum.DescribeQuorumResponse:
        """Who votes, who observes, and how far they are (KIP-836)."""
        core = self._core

        def shown(node_id: int, directory: bytes, seen: Replica) -> quorum.QuorumReplica:
            fetched, caught_up = (
                core.wall_ms(at) if at > -math.inf else -1 for at in (seen.fetched_at, seen.caught_up_at)
            )
            return quorum.QuorumReplica(
                replica_id=node_id,
                replica_directory_id=directory,
                log_end_offset=seen.end,
                last_fetch_timestamp=fetched,
                last_caught_up_timestamp=caught_up,
            )

        def of(voter: Voter) -> Replica:
            return Replica(core.log.end, now, now) if voter.id == core.me.id else self.progress.of(voter)

        part = quorum.DescribeQuorumPartitionResult(
            leader_id=core.me.id,
            leader_epoch=core.epoch,
            high_watermark=self.watermark,
            current_voters=tuple(shown(each.id, each.directory, of(each)) for each in core.voters),
            observers=tuple(
                shown(*each) for each in sorted(self.progress.observers(now, core.voters), key=lambda each: each[:2])
            ),
        )
        nodes = tuple(
            quorum.QuorumNode(
                node_id=voter.id,
                listeners=tuple(Listener(name=each.name, host=each.host, port=each.port) for each in voter.listeners),
            )
            for voter in core.voters
        )
        topic = quorum.DescribeQuorumTopicResult(topic_name=METADATA_TOPIC, partitions=(part,))
        return quorum.DescribeQuorumResponse(topics=(topic,), nodes=nodes)


_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
