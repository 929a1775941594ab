"""Fetch, FetchSnapshot and DescribeQuorum: how brokers follow the metadata log, and who does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from controller.brokers.kraft.fleet import KraftFleet
from controller.brokers.kraft.log.batches import CONTROLLER_LISTENER
from controller.brokers.kraft.log.raft_fetch import METADATA_TOPIC, RaftLog
from controller.front.front import Front
from controller.kafka.handling import RequestContext
from controller.kafka.messages import describe_quorum
from controller.kafka.messages.fetch import FetchRequest, FetchResponse
from controller.kafka.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from controller.machine.errors import ErrorCode
from controller.machine.state import Quorum

LOGGED_EVERY_S: Final = 30.0
"""How often the same refusal is logged: a broker that is refused tries again every few milliseconds."""
_LOGGED_MAX: Final = 1000
"""How many refusals are remembered; then all are forgotten."""

logger = structlog.get_logger("topicwright.kraft")


class FetchHandler:
    """Answers Fetch of the metadata log. `clock` gives seconds and only goes forward."""

    def __init__(self, front: Front, raft: RaftLog, clock: Callable[[], float]) -> None:
        self._front = front
        self._raft = raft
        self._clock = clock
        self._logged: dict[tuple[str, int, int], float] = {}
        """When a refusal was logged last, by the peer's host, the broker and the error code."""

    async def __call__(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        """Batches, as soon as there are any."""
        answer = await self._raft.fetch(context.api_version, request)
        if answer.error_code:
            self._log(context, request, answer.error_code)
        return answer

    def _log(self, context: RequestContext, request: FetchRequest, code: int) -> None:
        broker_id = request.replica_state.replica_id if context.api_version >= 15 else request.replica_id
        key = (context.peer.rpartition(":")[0], broker_id, code)
        now = self._clock()
        if now - self._logged.get(key, float("-inf")) < LOGGED_EVERY_S:
            return
        if len(self._logged) >= _LOGGED_MAX:
            self._logged.clear()
        self._logged[key] = now
        logger.warning("fetch refused", broker=broker_id, peer=context.peer, code=code, why=self._why(request, code))

    def _why(self, request: FetchRequest, code: int) -> str:
        match code:
            case ErrorCode.INCONSISTENT_CLUSTER_ID:
                return (
                    f"the broker is of cluster {request.cluster_id}, and this is {self._front.cluster_id}: "
                    "its log directories were formatted for the other one"
                )
            case ErrorCode.INVALID_REQUEST:
                return f"only partition 0 of {METADATA_TOPIC} is followed here"
            case ErrorCode.NOT_CONTROLLER:
                return "the epoch of this controller is not durable yet: the broker tries again"
            case _:
                return "the log cannot be read: the broker tries again"


class FetchSnapshotHandler:
    """Answers FetchSnapshot."""

    def __init__(self, raft: RaftLog) -> None:
        self._raft = raft

    def __call__(self, context: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """A piece of a snapshot."""
        return self._raft.fetch_snapshot(context.api_version, request)


class DescribeQuorumHandler:
    """Answers DescribeQuorum (KIP-836)."""

    def __init__(self, front: Front, fleet: KraftFleet) -> None:
        self._front = front
        self._fleet = fleet

    def __call__(
        self, context: RequestContext, request: describe_quorum.DescribeQuorumRequest
    ) -> describe_quorum.DescribeQuorumResponse:
        """The one voter, which is this controller, and the brokers that follow."""
        quorum = self._fleet.epoch.quorum
        if quorum is None:
            return describe_quorum.DescribeQuorumResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        if [(topic.topic_name, len(topic.partitions)) for topic in request.topics] != [(METADATA_TOPIC, 1)]:
            return describe_quorum.DescribeQuorumResponse(error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        end = self._fleet.metadata.mark.end
        partition = describe_quorum.ResponsePartitionData(
            leader_id=quorum.node_id,
            leader_epoch=quorum.leader_epoch,
            high_watermark=end,
            current_voters=(self._voter(quorum, end),),
            observers=self._observers(),
        )
        topic = describe_quorum.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        listener = describe_quorum.Listener(name=CONTROLLER_LISTENER, host=quorum.host, port=quorum.port)
        nodes = (
            (describe_quorum.Node(node_id=quorum.node_id, listeners=(listener,)),) if context.api_version >= 2 else ()
        )
        return describe_quorum.DescribeQuorumResponse(topics=(topic,), nodes=nodes)

    def _voter(self, quorum: Quorum, end: int) -> describe_quorum.ReplicaState:
        now_ms = self._front.controller.now_ms()
        directory = quorum.directory_id if quorum.kraft_version else bytes(16)
        return describe_quorum.ReplicaState(
            replica_id=quorum.node_id,
            replica_directory_id=directory,
            log_end_offset=end,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )

    def _observers(self) -> tuple[describe_quorum.ReplicaState, ...]:
        return tuple(
            describe_quorum.ReplicaState(
                replica_id=each.replica_id,
                replica_directory_id=each.directory_id,
                log_end_offset=each.fetched,
                last_fetch_timestamp=each.fetched_at_ms,
                last_caught_up_timestamp=each.caught_up_at_ms,
            )
            for _, each in sorted(self._fleet.raft.observers.items())
        )
