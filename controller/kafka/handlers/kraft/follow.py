"""Fetch, FetchSnapshot and DescribeQuorum: how brokers follow the metadata log, and who does."""

from __future__ import annotations

from typing import Final

from controller.brokers.kraft.batches import CONTROLLER_LISTENER
from controller.brokers.kraft.fleet import KraftFleet
from controller.brokers.kraft.raft_fetch import METADATA_TOPIC
from controller.kafka.handling import RequestContext
from controller.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from controller.kafka.messages.fetch import FetchRequest, FetchResponse
from controller.kafka.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from controller.machine.errors import ErrorCode
from controller.machine.state import Quorum

TOLD_EVERY_S: Final = 30.0
"""How often the same refusal is told: a broker that is refused asks again every few milliseconds."""
_TOLD_MAX: Final = 1000


class FetchHandler:
    """Answers Fetch of the metadata log."""

    def __init__(self, fleet: KraftFleet) -> None:
        self._fleet = fleet
        self._told: dict[tuple[str, int, int], float] = {}
        """When a refusal was told last, by the peer's host, the broker and the error code."""

    async def __call__(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        """Batches, as soon as there are any."""
        answer = await self._fleet.raft.fetch(context.api_version, request)
        if answer.error_code:
            self._tell(context, request, answer.error_code)
        return answer

    def _tell(self, context: RequestContext, request: FetchRequest, code: int) -> None:
        broker_id = request.replica_state.replica_id if context.api_version >= 15 else request.replica_id
        key = (context.peer.rpartition(":")[0], broker_id, code)
        now = self._fleet.clock()
        if now - self._told.get(key, float("-inf")) < TOLD_EVERY_S:
            return
        if len(self._told) >= _TOLD_MAX:
            self._told.clear()
        self._told[key] = now
        self._fleet.log.warning(
            "fetch refused", broker=broker_id, peer=context.peer, code=code, why=self._why(request, code)
        )

    def _why(self, request: FetchRequest, code: int) -> str:
        match code:
            case ErrorCode.INCONSISTENT_CLUSTER_ID:
                return (
                    f"the broker is of cluster {request.cluster_id}, and this is {self._fleet.cluster_id}: "
                    "its log directories were formatted for the other one"
                )
            case ErrorCode.INVALID_REQUEST:
                return f"only partition 0 of {METADATA_TOPIC} is followed here"
            case ErrorCode.NOT_CONTROLLER:
                return "the epoch of this controller is not durable yet: the broker asks again"
            case _:
                return "the log cannot be read: the broker asks again"


class FetchSnapshotHandler:
    """Answers FetchSnapshot."""

    def __init__(self, fleet: KraftFleet) -> None:
        self._fleet = fleet

    def __call__(self, context: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """A piece of a snapshot."""
        return self._fleet.raft.fetch_snapshot(context.api_version, request)


class DescribeQuorumHandler:
    """Answers DescribeQuorum (KIP-836)."""

    def __init__(self, fleet: KraftFleet) -> None:
        self._fleet = fleet

    def __call__(self, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        """The one voter, which is this controller, and the brokers that follow."""
        quorum = self._fleet.quorum
        if quorum is None:
            return DescribeQuorumResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        if [(topic.topic_name, len(topic.partitions)) for topic in request.topics] != [(METADATA_TOPIC, 1)]:
            return DescribeQuorumResponse(error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        end = self._fleet.metadata.mark.end
        partition = ResponsePartitionData(
            leader_id=quorum.node_id,
            leader_epoch=quorum.leader_epoch,
            high_watermark=end,
            current_voters=(self._voter(quorum, end),),
            observers=self._observers(),
        )
        topic = ResponseTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        listener = Listener(name=CONTROLLER_LISTENER, host=quorum.host, port=quorum.port)
        nodes = (Node(node_id=quorum.node_id, listeners=(listener,)),) if context.api_version >= 2 else ()
        return DescribeQuorumResponse(topics=(topic,), nodes=nodes)

    def _voter(self, quorum: Quorum, end: int) -> ReplicaState:
        now_ms = self._fleet.controller.now_ms()
        directory = quorum.directory_id if quorum.kraft_version else bytes(16)
        return ReplicaState(
            replica_id=quorum.node_id,
            replica_directory_id=directory,
            log_end_offset=end,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )

    def _observers(self) -> tuple[ReplicaState, ...]:
        return tuple(
            ReplicaState(
                replica_id=each.replica_id,
                replica_directory_id=each.directory_id,
                log_end_offset=each.fetched,
                last_fetch_timestamp=each.fetched_at_ms,
                last_caught_up_timestamp=each.caught_up_at_ms,
            )
            for _, each in sorted(self._fleet.raft.observers.items())
        )
