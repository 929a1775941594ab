"""DescribeCluster (60): cluster id, controller and brokers (KIP-700), fenced ones from v2."""

from controller.kafka.messages.message import OPERATIONS_OMITTED, Message

BROKERS, CONTROLLERS = 1, 2
"""Endpoint types (KIP-919)."""


class DescribeClusterRequest(Message, frozen=True, kw_only=True):
    """`endpoint_type`: BROKERS or CONTROLLERS."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1  # v1+
    include_fenced_brokers: bool = False  # v2+


class DescribeClusterBroker(Message, frozen=True, kw_only=True):
    """Where one broker listens."""

    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False  # v2+


class DescribeClusterResponse(Message, frozen=True, kw_only=True):
    """The cluster; `cluster_authorized_operations` is a bit field (KIP-430)."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1  # v1+
    cluster_id: str = ""
    controller_id: int = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: int = OPERATIONS_OMITTED
