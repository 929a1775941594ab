"""The quorum's own APIs: who votes and leads, the metadata log, who is to vote (KIP-595, KIP-630, KIP-836, KIP-853)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from controller.access.authorizer import Operation
from controller.apis.kraft.permissions import needing
from controller.brokers.kraft.catch_up import EventPages
from controller.brokers.kraft.log.batches import METADATA_TOPIC
from controller.brokers.kraft.quorum.node import QuorumNode
from controller.brokers.kraft.replication import QuorumReplication
from controller.controller_api import ControllerApi
from controller.kafka.handling import Handler, RequestContext
from controller.kafka.messages import APIS, ApiKey, Message
from controller.kafka.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from controller.kafka.messages.fetch import FetchRequest, FetchResponse
from controller.machine.errors import ErrorCode

LOGGED_EVERY_S: Final = 30.0
"""How often the same refusal is logged: who is refused tries again every few milliseconds."""
_DIVERGES: Final = 0
_LOGGED_MAX: Final = 1000
"""How many refusals are remembered; then all are forgotten."""

_NEEDS: Final[Mapping[ApiKey, Operation]] = {
    ApiKey.VOTE: "ClusterAction",
    ApiKey.BEGIN_QUORUM_EPOCH: "ClusterAction",
    ApiKey.END_QUORUM_EPOCH: "ClusterAction",
    ApiKey.FETCH: "ClusterAction",
    ApiKey.FETCH_SNAPSHOT: "ClusterAction",
    ApiKey.UPDATE_RAFT_VOTER: "ClusterAction",
    ApiKey.DESCRIBE_QUORUM: "Describe",
    ApiKey.ADD_RAFT_VOTER: "Alter",
    ApiKey.REMOVE_RAFT_VOTER: "Alter",
}
"""What whoever sends these must hold on the cluster, as in Kafka (ControllerApis)."""

logger = structlog.get_logger("topicwright.kraft")


def quorum_handlers(
    api: ControllerApi, node: QuorumNode, replication: QuorumReplication, clock: Callable[[], float]
) -> dict[int, Handler]:
    """The handlers of one voter. `clock` gives seconds and only goes forward."""
    refused = RefusedFetches(api.cluster_id, clock)

    async def answer(context: RequestContext, request: Any) -> Message:
        if EventPages.takes(request):
            return await replication.pages.respond(request, replication.applied)
        if replication.leads and _names_a_broker(api, request):
            return AddRaftVoterResponse(
                error_code=int(ErrorCode.INVALID_REQUEST),
                error_message=f"node {request.voter_id} is a registered broker, which cannot vote",
            )
        response = await node.request(request)
        if isinstance(response, FetchResponse):
            refused.note(context, request, response)
        return response

    return {key: needing(api, operation, answer, APIS[key].response) for key, operation in _NEEDS.items()}


def _names_a_broker(api: ControllerApi, request: Message) -> bool:
    """True if a broker is to become a voter. It would end its process, and the quorum would count it (KAFKA-18775)."""
    return (
        isinstance(request, AddRaftVoterRequest)
        and request.cluster_id in (None, api.cluster_id)
        and request.voter_id in api.cluster.brokers
    )


class RefusedFetches:
    """Log lines about fetches that are refused, each once in a while."""

    def __init__(self, cluster_id: str, clock: Callable[[], float]) -> None:
        self._cluster_id = cluster_id
        self._clock = clock
        self._logged: dict[tuple[str, int, int], float] = {}
        """When a refusal was logged last, by the peer's host, the broker and the error code."""

    def note(self, context: RequestContext, request: FetchRequest, response: FetchResponse) -> None:
        """A fetch was answered."""
        if response.error_code:
            self._log("fetch refused", context, request, response.error_code, self._why(request, response.error_code))
        elif _replica_id(context, request) >= 0 and response.responses[0].partitions[0].diverging_epoch.epoch >= 0:
            why = "it is cut where both are alike"
            self._log("metadata log of a node diverges", context, request, _DIVERGES, why)

    def _why(self, request: FetchRequest, code: int) -> str:
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            return (
                f"the node is of cluster {request.cluster_id}, and this is {self._cluster_id}: "
                "its log directories were formatted for the other one"
            )
        return f"only partition 0 of {METADATA_TOPIC} is followed here"

    def _log(self, event: str, context: RequestContext, request: FetchRequest, code: int, why: str) -> None:
        replica_id = _replica_id(context, request)
        key = (context.peer.rpartition(":")[0], replica_id, code)
        now = self._clock()
        if now - self._logged.get(key, float("-inf")) < LOGGED_EVERY_S:
            return
        if len(self._logged) >= _LOGGED_MAX:
            self._logged.clear()
        self._logged[key] = now
        logger.warning(event, node=replica_id, peer=context.peer, code=code, why=why)


def _replica_id(context: RequestContext, request: FetchRequest) -> int:
    """-1 of who only reads."""
    return request.replica_state.replica_id if context.api_version >= 15 else request.replica_id
