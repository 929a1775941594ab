"""DescribeCluster (KIP-700) and ListPartitionReassignments (KIP-455)."""

from __future__ import annotations

from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages.cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from controller.kafka.messages.message import OPERATIONS_OMITTED
from controller.kafka.messages.topics import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from controller.machine.errors import ErrorCode

BROKERS, CONTROLLERS = 1, 2
"""Endpoint types (KIP-919)."""


def describe_cluster(
    api: ControllerApi, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """The brokers that clients may see, fenced ones only on request (version 2)."""
    if request.endpoint_type != BROKERS:
        return _refuse_endpoint_type(request.endpoint_type)
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


def _refuse_endpoint_type(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=int(code), error_message=message, endpoint_type=BROKERS)


def list_partition_reassignments(
    api: ControllerApi, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """An empty list, for this controller never has one under way; or the error of one who may not describe the
    cluster."""
    if not api.grants(context, "Describe"):
        return ListPartitionReassignmentsResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    return ListPartitionReassignmentsResponse()
