"""How brokers follow the metadata log: Fetch and FetchSnapshot of a quorum with one voter (KIP-595, KIP-630).

The checks and their answers are those of `KafkaRaftClient`. The high watermark is the end of what is durable: with one
voter nothing more is needed, so a broker applies what it fetches at once. A fetch that finds nothing new waits until
there is something, or for as long as it allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from controller.brokers.kraft.log.metadata_log import MetadataLog
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
from events.logs.log import LogClosed
from events.names import BrokerId

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = (1).to_bytes(16, "big")
WAIT_MS_MAX: Final = 500
"""The longest wait: brokers give up a silent leader after `controller.quorum.fetch.timeout.ms`, 2 s by default."""
OBSERVERS_MAX: Final = 1000
"""Replicas that are remembered: who may fetch can give any id. Beyond it those that were silent the longest go."""
OBSERVER_SILENT_MS_MAX: Final = 300_000
"""Then an observer is forgotten, as in Kafka (LeaderState.OBSERVER_SESSION_TIMEOUT_MS)."""
SNAPSHOT_BYTES_MAX: Final = 1 << 20  # of a snapshot in a response, whatever is asked for
_TOPIC_ID_SINCE: Final = 13
_ENDPOINTS_SINCE: Final = 16
_LATEST_WATERMARK: Final = (1 << 63) - 1

logger = structlog.get_logger("topicwright.kraft")


class Observer(msgspec.Struct):
    """How far a broker has fetched the metadata log, and when; times in ms since the epoch."""

    replica_id: int
    directory_id: bytes
    fetched: int = 0
    fetched_at_ms: int = -1
    caught_up_at_ms: int = -1


class RaftLog:
    """The leader's side of following the metadata log. `quorum` gives the epoch that brokers are led in, None before it
    is durable."""

    def __init__(
        self, log: MetadataLog, cluster_id: str, quorum: Callable[[], Quorum | None], now_ms: Callable[[], int]
    ) -> None:
        self._log = log
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._now_ms = now_ms
        self._grown = asyncio.Event()
        self.observers: dict[int, Observer] = {}
        """In the order in which they fetched last."""
        self.on_fetched: Callable[[int, int], None] = lambda broker_id, offset: None
        """Called with how far a broker has fetched, when it got further."""

    def grew(self) -> None:
        """There is more to fetch: wake who waits."""
        self._grown.set()
        self._grown = asyncio.Event()

    def fetched(self, broker_id: BrokerId) -> int:
        """Up to where a broker has fetched the metadata log."""
        observer = self.observers.get(broker_id)
        return observer.fetched if observer is not None else 0

    # --- Fetch

    async def fetch(self, version: int, request: FetchRequest) -> FetchResponse:
        """Batches from an offset on, or why not."""
        if request.cluster_id not in (None, self._cluster_id):
            return FetchResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
        requested = _the_partition(version, request)
        if requested is None:
            return FetchResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        quorum = self._quorum()
        if quorum is None:
            return FetchResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        refusal = self._refusal(requested, quorum.leader_epoch)
        replica = request.replica_state.replica_id if version >= 15 else request.replica_id
        if refusal is not None:
            if refusal.diverging_epoch.epoch >= 0:
                logger.warning(
                    "metadata log of a broker diverges: it is cut where both are alike",
                    broker=replica,
                    offset=requested.fetch_offset,
                    epoch=requested.last_fetched_epoch,
                )
            return self._response(version, quorum, refusal)
        self._note(replica, requested)
        if self._has_nothing_for(requested):
            await self._more(min(request.max_wait_ms, WAIT_MS_MAX))
            quorum = self._quorum() or quorum
        try:
            # Brokers leave `partition_max_bytes` at 0 here: the limit is that of the whole request.
            records = self._log.read(requested.fetch_offset, request.max_bytes)
        except LogClosed:  # it is being recovered; brokers try again
            return FetchResponse(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
        return self._response(version, quorum, PartitionData(records=records))

    def _refusal(self, requested: FetchPartition, epoch: int) -> PartitionData | None:
        """The answer to a fetch that does not get batches: a wrong epoch, a log that diverges, or one too far back."""
        if requested.current_leader_epoch < epoch:
            return PartitionData(error_code=int(ErrorCode.FENCED_LEADER_EPOCH))
        if requested.current_leader_epoch > epoch:
            return PartitionData(error_code=int(ErrorCode.UNKNOWN_LEADER_EPOCH))
        if requested.fetch_offset < 0 or requested.last_fetched_epoch < 0:
            return PartitionData(error_code=int(ErrorCode.INVALID_REQUEST))
        mark = self._log.mark
        offset, last_epoch = requested.fetch_offset, requested.last_fetched_epoch
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

    def _has_nothing_for(self, requested: FetchPartition) -> bool:
        end = self._log.mark.end
        return requested.fetch_offset >= end and requested.high_watermark >= end

    def _note(self, replica: int, requested: FetchPartition) -> None:
        if replica < 0:
            return
        now_ms = self._now_ms()
        seen = self.observers.pop(replica, None)
        if seen is None or seen.directory_id != requested.replica_directory_id:
            seen = Observer(replica, requested.replica_directory_id)
            self._forget_silent(now_ms)
        self.observers[replica] = seen
        further = requested.fetch_offset > seen.fetched
        seen.fetched, seen.fetched_at_ms = requested.fetch_offset, now_ms
        if requested.fetch_offset >= self._log.mark.end:
            seen.caught_up_at_ms = now_ms
        if further:
            self.on_fetched(replica, requested.fetch_offset)

    def _forget_silent(self, now_ms: int) -> None:
        for replica, seen in tuple(self.observers.items()):
            is_silent = now_ms - seen.fetched_at_ms > OBSERVER_SILENT_MS_MAX
            if not is_silent and len(self.observers) < OBSERVERS_MAX:
                return
            del self.observers[replica]

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
        if request.cluster_id not in (None, self._cluster_id):
            return FetchSnapshotResponse(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
        topics = request.topics
        if len(topics) != 1 or topics[0].name != METADATA_TOPIC or len(topics[0].partitions) != 1:
            return FetchSnapshotResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        quorum = self._quorum()
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

    def _piece(self, requested: RequestPartitionSnapshot, max_bytes: int, quorum: Quorum) -> ResponsePartitionSnapshot:
        if requested.current_leader_epoch < quorum.leader_epoch:
            return ResponsePartitionSnapshot(error_code=int(ErrorCode.FENCED_LEADER_EPOCH))
        if requested.current_leader_epoch > quorum.leader_epoch:
            return ResponsePartitionSnapshot(error_code=int(ErrorCode.UNKNOWN_LEADER_EPOCH))
        wanted = requested.snapshot_id
        mark = self._log.snapshot(wanted.end_offset, wanted.epoch)
        if mark is None or requested.partition != 0:
            return ResponsePartitionSnapshot(error_code=int(ErrorCode.SNAPSHOT_NOT_FOUND))
        if not 0 <= requested.position < mark.size:
            return ResponsePartitionSnapshot(error_code=int(ErrorCode.POSITION_OUT_OF_RANGE))
        data = self._log.read_snapshot(mark, requested.position, min(max_bytes, SNAPSHOT_BYTES_MAX))
        return ResponsePartitionSnapshot(
            snapshot_id=wanted, size=mark.size, position=requested.position, unaligned_records=data
        )


def _the_partition(version: int, request: FetchRequest) -> FetchPartition | None:
    """The one partition of the metadata topic that a fetch must be for."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic = request.topics[0]
    is_metadata = topic.topic_id == METADATA_TOPIC_ID if version >= _TOPIC_ID_SINCE else topic.topic == METADATA_TOPIC
    return topic.partitions[0] if is_metadata and topic.partitions[0].partition == 0 else None
