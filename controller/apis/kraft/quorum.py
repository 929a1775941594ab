"""The listener of a voter that only follows: the quorum's own APIs, and who leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from controller.access.authorizer import Authorizer, Operation
from controller.apis.api_versions import with_api_versions
from controller.apis.for_each import SENT_AWAY
from controller.apis.kraft.describe_cluster import wrong_endpoint
from controller.apis.kraft.features import supported_features
from controller.apis.sasl import not_expected
from controller.apis.tables import HandlerTable, rows
from controller.brokers.kraft.features import KRAFT_VERSION
from controller.brokers.kraft.quorum.node import QuorumNode
from controller.kafka.handling import Handler, RequestContext
from controller.kafka.messages import APIS, ApiKey, Message
from controller.kafka.messages.api_versions import FinalizedFeatureKey
from controller.kafka.messages.describe_cluster import (
    CONTROLLERS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from controller.machine.access.permissions import CLUSTER_NAME
from controller.machine.errors import ErrorCode

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


def voter_listener(
    node: QuorumNode, cluster_id: str, authorizer: Authorizer, versions_max: Mapping[str, int]
) -> HandlerTable:
    """The table of a voter's listener. What only the leader decides is refused with NOT_CONTROLLER, so that whoever
    sent it looks for the leader."""

    def of_quorum(key: ApiKey) -> Handler:
        async def answer(context: RequestContext, request: Any) -> Message:
            if not authorizer.allows(context, _NEEDS[key], "Cluster", CLUSTER_NAME):
                return APIS[key].response(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
            return await node.request(request)

        return answer

    def describe_cluster(_: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        if request.endpoint_type != CONTROLLERS:
            return wrong_endpoint(request.endpoint_type)
        places = [(each.id, *node.quorum.place_of(each)) for each in node.quorum.voters]
        return DescribeClusterResponse(
            endpoint_type=CONTROLLERS,
            cluster_id=cluster_id,
            controller_id=node.quorum.leader_id,
            brokers=tuple(DescribeClusterBroker(broker_id=id_, host=host, port=port) for id_, host, port in places),
        )

    def finalized() -> tuple[int, tuple[FinalizedFeatureKey, ...]]:
        level = node.quorum.kraft_version
        shown = FinalizedFeatureKey(name=KRAFT_VERSION, min_version_level=level, max_version_level=level)
        return max(0, node.quorum.high_watermark - 1), (shown,) if level else ()

    handlers: dict[int, Handler] = {
        **{key: of_quorum(key) for key in _NEEDS},
        ApiKey.DESCRIBE_CLUSTER: describe_cluster,
        **SENT_AWAY,
        **not_expected,
    }
    return with_api_versions(rows(handlers, versions_max), supported_features=supported_features(), finalized=finalized)
