"""How brokers follow the metadata log: Fetch and FetchSnapshot of a quorum with one voter (KIP-595, KIP-630).

The checks and their answers are those of `KafkaRaftClient`. The high watermark is the end of what is durable: with one
voter nothing more is needed, so a broker applies what it fetches at once. A fetch that finds nothing new waits until
there is something, or for as long as it allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from controller.brokers.kraft.metadata_log import MetadataLog
from controller.kafka.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from controller.kafka.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RequestPartitionSnapshot,
    ResponsePartitionSnapshot,
    ResponseTopicSnapshot,
)
from controller.kafka.messages.fetch_snapshot import LeaderIdAndEpoch as SnapshotLeader
from controller.kafka.messages.fetch_snapshot import NodeEndpoint as SnapshotNode
from controller.machine.errors import ErrorCode
from controller.machine.state import Quorum
from events.log import LogClosed

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = (1).to_bytes(16, "big")
WAIT_MS_MAX: Final = 500
"""The longest wait: brokers give up a silent leader after `controller.quorum.fetch.timeout.ms`, 2 s by default."""
SNAPSHOT_BYTES_MAX: Final = 1 << 20
_TOPIC_ID_SINCE: Final = 13
_ENDPOINTS_SINCE: Final = 16
_LATEST_WATERMARK: Final = (1 << 63) - 1


class Observer(msgspec.Struct):
    """How far a broker has fetched the metadata log, and when; times in ms since the epoch."""

    replica_id: int
    directory_id: bytes
    fetched: int = 0
    fetched_at_ms: int = -1
    caught_up_at_ms: int = -1


class Leader(Protocol):
    """What a fetch is answered with, beside the log."""

    @property
    def quorum(self) -> Quorum | None:
        """The epoch that brokers are led in, None before it is durable."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        ...


class RaftLog:
    """The leader's side of following the metadata log."""

    def __init__(self, log: MetadataLog, leader: Leader, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._leader = leader
        self._now_ms = now_ms
        self._grown = asyncio.Event()
        self.observers: dict[int, Observer] = {}
        self.on_fetched: Callable[[int, int], None] = lambda broker_id, offset: None
        """Told how far a broker has fetched, when it got further."""
        self.on_diverged: Callable[[int, int, int], None] = lambda broker_id, offset, epoch: None
        """Told of a broker whose log is not a part of this one, with the offset and epoch of its end."""

    def grew(self) -> None:
        """There is more to fetch: wake who waits."""
        self._grown.set()
        self._grown = asyncio.Event()

    # --- Fetch

    async def fetch(self, version: int, request: FetchRequest) -> FetchResponse:
        """Batches from an offset on, or why not."""
        if request.cluster_id not in (None, self._leader.cluster_id):
            return FetchResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
        asked = _the_partition(version, request)
        if asked is None:
            return FetchResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        quorum = self._leader.quorum
        if quorum is None:
            return FetchResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        refusal = self._refusal(asked, quorum.leader_epoch)
        replica = request.replica_state.replica_id if version >= 15 else request.replica_id
        if refusal is not None:
            if refusal.diverging_epoch.epoch >= 0:
                self.on_diverged(replica, asked.fetch_offset, asked.last_fetched_epoch)
            return self._response(version, quorum, refusal)
        self._note(replica, asked)
        if self._has_nothing_for(asked):
            await self._more(min(request.max_wait_ms, WAIT_MS_MAX))
            quorum = self._leader.quorum or quorum
        try:
            # Brokers leave `partition_max_bytes` at 0 here: the limit is that of the whole request.
            records = self._log.read(asked.fetch_offset, request.max_bytes)
        except LogClosed:  # it is being recovered; brokers ask again
            return FetchResponse(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
        return self._response(version, quorum, PartitionData(records=records))

    def _refusal(self, asked: FetchPartition, epoch: int) -> PartitionData | None:
        """The answer to a fetch that does not get batches: a wrong epoch, a log that diverges, or one too far back."""
        if asked.current_leader_epoch < epoch:
            return PartitionData(error_code=int(ErrorCode.FENCED_LEADER_EPOCH))
        if asked.current_leader_epoch > epoch:
            return PartitionData(error_code=int(ErrorCode.UNKNOWN_LEADER_EPOCH))
        if asked.fetch_offset < 0 or asked.last_fetched_epoch < 0:
            return PartitionData(error_code=int(ErrorCode.INVALID_REQUEST))
        mark = self._log.mark
        offset, last_epoch = asked.fetch_offset, asked.last_fetched_epoch
        if offset == 0 and mark.start == 0:
            return None
        newest = mark.snapshots[-1] if mark.snapshots else None
        if newest is not None and (
            offset < mark.start
            or (offset == mark.start and last_epoch != newest.epoch)
            or last_epoch < mark.snapshots[0].epoch
        ):
            return PartitionData(snapshot_id=SnapshotId(end_offset=newest.end_offset, epoch=newest.epoch))
        end = self._log.end_of_epoch(last_epoch)
        if end.epoch != last_epoch or end.offset < offset:
            return PartitionData(diverging_epoch=EpochEndOffset(epoch=end.epoch, end_offset=end.offset))
        return None

    def _has_nothing_for(self, asked: FetchPartition) -> bool:
        end = self._log.mark.end
        return asked.fetch_offset >= end and asked.high_watermark >= end

    def _note(self, replica: int, asked: FetchPartition) -> None:
        if replica < 0:
            return
        now_ms = self._now_ms()
        seen = self.observers.get(replica)
        if seen is None or seen.directory_id != asked.replica_directory_id:
            seen = self.observers[replica] = Observer(replica, asked.replica_directory_id)
        further = asked.fetch_offset > seen.fetched
        seen.fetched, seen.fetched_at_ms = asked.fetch_offset, now_ms
        if asked.fetch_offset >= self._log.mark.end:
            seen.caught_up_at_ms = now_ms
        if further:
            self.on_fetched(replica, asked.fetch_offset)

    async def _more(self, wait_ms: int) -> None:
        if wait_ms > 0:
            try:
                await asyncio.wait_for(self._grown.wait(), wait_ms / 1000)
            except TimeoutError:
                return

    def _response(self, version: int, quorum: Quorum, answer: PartitionData) -> FetchResponse:
        mark = self._log.mark
        partition = msgspec.structs.replace(
            answer,
            partition_index=0,
            records=answer.records or b"",
            high_watermark=mark.end,
            last_stable_offset=-1,
            log_start_offset=mark.start,
            current_leader=LeaderIdAndEpoch(leader_id=quorum.node_id, leader_epoch=quorum.leader_epoch),
        )
        topic = FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(partition,))
        nodes: tuple[NodeEndpoint, ...] = ()
        if version >= _ENDPOINTS_SINCE:
            nodes = (NodeEndpoint(node_id=quorum.node_id, host=quorum.host, port=quorum.port),)
        return FetchResponse(responses=(topic,), node_endpoints=nodes)

    # --- FetchSnapshot

    def fetch_snapshot(self, version: int, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """A piece of a snapshot, or why not."""
        if request.cluster_id not in (None, self._leader.cluster_id):
            return FetchSnapshotResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
        topics = request.topics
        if len(topics) != 1 or topics[0].name != METADATA_TOPIC or len(topics[0].partitions) != 1:
            return FetchSnapshotResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        quorum = self._leader.quorum
        if quorum is None:
            return FetchSnapshotResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        answer = self._piece(topics[0].partitions[0], request.max_bytes, quorum)
        leader = SnapshotLeader(leader_id=quorum.node_id, leader_epoch=quorum.leader_epoch)
        partition = msgspec.structs.replace(answer, current_leader=leader)
        nodes: tuple[SnapshotNode, ...] = ()
        if version >= 1:
            nodes = (SnapshotNode(node_id=quorum.node_id, host=quorum.host, port=quorum.port),)
        topic = ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=(partition,))
        return FetchSnapshotResponse(topics=(topic,), node_endpoints=nodes)

    def _piece(self, asked: RequestPartitionSnapshot, max_bytes: int, quorum: Quorum) -> ResponsePartitionSnapshot:
        if asked.current_leader_epoch < quorum.leader_epoch:
            return ResponsePartitionSnapshot(error_code=int(ErrorCode.FENCED_LEADER_EPOCH))
        if asked.current_leader_epoch > quorum.leader_epoch:
            return ResponsePartitionSnapshot(error_code=int(ErrorCode.UNKNOWN_LEADER_EPOCH))
        wanted = asked.snapshot_id
        mark = self._log.snapshot(wanted.end_offset, wanted.epoch)
        if mark is None or asked.partition != 0:
            return ResponsePartitionSnapshot(error_code=int(ErrorCode.SNAPSHOT_NOT_FOUND))
        if not 0 <= asked.position < mark.size:
            return ResponsePartitionSnapshot(error_code=int(ErrorCode.POSITION_OUT_OF_RANGE))
        data = self._log.read_snapshot(mark, asked.position, min(max_bytes, SNAPSHOT_BYTES_MAX))
        return ResponsePartitionSnapshot(
            snapshot_id=wanted, size=mark.size, position=asked.position, unaligned_records=data
        )


def _the_partition(version: int, request: FetchRequest) -> FetchPartition | None:
    """The one partition of the metadata topic that a fetch must be for."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    is_metadata = topic.topic_id == METADATA_TOPIC_ID if version >= _TOPIC_ID_SINCE else topic.topic == METADATA_TOPIC
    return topic.partitions[0] if is_metadata and topic.partitions[0].partition == 0 else None
