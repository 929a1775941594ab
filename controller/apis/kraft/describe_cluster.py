"""DescribeCluster on a controller's listener (KIP-919): to clients that want controllers, and no brokers."""

from __future__ import annotations

from controller.brokers.kraft.quorum.raft.core import Quorum
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages.cluster import (
    BROKER_ENDPOINTS,
    CONTROLLER_ENDPOINTS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from controller.kafka.messages.message import OPERATIONS_OMITTED
from controller.machine.errors import ErrorCode


class DescribeControllersHandler:
    """Answers DescribeCluster of clients with `bootstrap.controllers`."""

    def __init__(self, api: ControllerApi, quorum: Quorum) -> None:
        self._api = api
        self._quorum = quorum

    def __call__(self, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        """Who votes, and where, and who leads."""
        api, quorum = self._api, self._quorum
        if request.endpoint_type != CONTROLLER_ENDPOINTS:
            return wrong_endpoint(request.endpoint_type)
        places = ((each.id, *quorum.place_of(each)) for each in quorum.voters)
        wants_operations = request.include_cluster_authorized_operations
        return DescribeClusterResponse(
            endpoint_type=CONTROLLER_ENDPOINTS,
            cluster_id=api.cluster_id,
            controller_id=quorum.leader_id,
            brokers=tuple(DescribeClusterBroker(broker_id=id_, host=host, port=port) for id_, host, port in places),
            cluster_authorized_operations=api.cluster_operations(context) if wants_operations else OPERATIONS_OMITTED,
        )


def wrong_endpoint(endpoint_type: int) -> DescribeClusterResponse:
    """The refusal of a client that did not mean to come to a controller."""
    if endpoint_type == BROKER_ENDPOINTS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=int(code), error_message=message, endpoint_type=CONTROLLER_ENDPOINTS)
