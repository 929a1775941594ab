"""DescribeCluster (KIP-700) and ListPartitionReassignments (KIP-455)."""

from __future__ import annotations

from controller.kafka.handling import RequestContext
from controller.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from controller.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from controller.kafka.messages.message import OPERATIONS_OMITTED
from controller.machine.errors import ErrorCode
from controller.runtime.front import Front

BROKERS, CONTROLLERS = 1, 2
"""Endpoint types (KIP-919)."""


class DescribeClusterHandler:
    """Answers DescribeCluster on any listener."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def __call__(self, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
        """The brokers that clients are told of, fenced ones only if asked for (version 2)."""
        front = self._front
        if request.endpoint_type != BROKERS:
            return _refuse_endpoint_type(request.endpoint_type)
        wants_operations = request.include_cluster_authorized_operations
        return DescribeClusterResponse(
            cluster_id=front.cluster_id,
            controller_id=front.controller_id(),
            brokers=tuple(
                DescribeClusterBroker(
                    broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.fenced
                )
                for node in front.nodes(request.include_fenced_brokers)
            ),
            cluster_authorized_operations=front.cluster_operations(context) if wants_operations else OPERATIONS_OMITTED,
        )


def _refuse_endpoint_type(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=int(code), error_message=message, endpoint_type=BROKERS)


class ListPartitionReassignmentsHandler:
    """Answers ListPartitionReassignments: this controller never has one under way."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def __call__(
        self, context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """An empty list, or the error of one who may not describe the cluster."""
        if not self._front.grants(context, "Describe"):
            return ListPartitionReassignmentsResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return ListPartitionReassignmentsResponse()
