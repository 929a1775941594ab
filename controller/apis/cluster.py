"""DescribeCluster of brokers (KIP-700) and controllers (KIP-919), and ListPartitionReassignments without KRaft."""

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
from controller.kafka.messages.topics import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from controller.machine.errors import ErrorCode

_ENDPOINT_TYPES = {BROKER_ENDPOINTS: "BROKER", CONTROLLER_ENDPOINTS: "CONTROLLER"}


def describe_cluster(
    api: ControllerApi, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """The brokers; fenced ones only if requested (version 2)."""
    if request.endpoint_type != BROKER_ENDPOINTS:
        return _wrong_endpoint_type(request.endpoint_type, BROKER_ENDPOINTS)
    wants_operations = request.include_cluster_authorized_operations
    nodes = api.nodes if api.broker_ports is None else api.admin_nodes
    return DescribeClusterResponse(
        cluster_id=api.cluster_id,
        controller_id=api.admin_controller_id(),
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.fenced
            )
            for node in nodes(request.include_fenced_brokers)
        ),
        cluster_authorized_operations=api.cluster_operations(context) if wants_operations else OPERATIONS_OMITTED,
    )


def list_partition_reassignments(
    api: ControllerApi, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """An empty list: simulated brokers never have ongoing reassignments."""
    if not api.grants(context, "Describe"):
        return ListPartitionReassignmentsResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return ListPartitionReassignmentsResponse()


class DescribeControllersHandler:
    """Answers DescribeCluster to clients with `bootstrap.controllers` (KIP-919)."""

    def __init__(self, api: ControllerApi, quorum: Quorum) -> None:
        self._api = api
        self._quorum = quorum

    def __call__(self, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        """The voters with their endpoints, and the leader."""
        api, quorum = self._api, self._quorum
        if request.endpoint_type != CONTROLLER_ENDPOINTS:
            return _wrong_endpoint_type(request.endpoint_type, CONTROLLER_ENDPOINTS)
        places = ((each.id, *quorum.place_of(each)) for each in quorum.voters)
        wants_operations = request.include_cluster_authorized_operations
        return DescribeClusterResponse(
            endpoint_type=CONTROLLER_ENDPOINTS,
            cluster_id=api.cluster_id,
            controller_id=quorum.leader_id,
            brokers=tuple(DescribeClusterBroker(broker_id=id_, host=host, port=port) for id_, host, port in places),
            cluster_authorized_operations=api.cluster_operations(context) if wants_operations else OPERATIONS_OMITTED,
        )


def _wrong_endpoint_type(requested: int, own: int) -> DescribeClusterResponse:
    """The error for a request about another endpoint type than this listener's."""
    if requested in _ENDPOINT_TYPES and requested != own:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = (
            f"The request was sent to an endpoint of type {_ENDPOINT_TYPES[own]}, but we wanted an endpoint of type "
            f"{_ENDPOINT_TYPES[requested]}"
        )
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {requested}"
    return DescribeClusterResponse(error_code=int(code), error_message=message, endpoint_type=own)
