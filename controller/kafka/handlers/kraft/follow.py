"""Fetch, FetchSnapshot and DescribeQuorum: how brokers follow the metadata log, and who does."""

from __future__ import annotations

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


class FetchHandler:
    """Answers Fetch of the metadata log."""

    def __init__(self, fleet: KraftFleet) -> None:
        self._fleet = fleet

    async def __call__(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        """Batches, as soon as there are any."""
        answer = await self._fleet.raft.fetch(context.api_version, request)
        if answer.error_code:
            self._fleet.log.warning(
                "fetch refused", peer=context.peer, code=answer.error_code, cluster_id=request.cluster_id
            )
        return answer


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
