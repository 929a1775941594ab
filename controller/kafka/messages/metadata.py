"""Metadata (3): the brokers, the controller and the topics, and auto-creation (KIP-361)."""

from controller.kafka.messages.message import OPERATIONS_OMITTED, ZERO_UUID, Message


class MetadataRequestTopic(Message, frozen=True, kw_only=True):
    """A topic requested by name, or from v10 by id with a null name."""

    topic_id: bytes = ZERO_UUID  # v10+
    name: str | None = None


class MetadataRequest(Message, frozen=True, kw_only=True):
    """`topics`: null for all, from v1; an empty array means all in v0 and none later. Before v4 auto-creation is always
    allowed.
    """

    topics: tuple[MetadataRequestTopic, ...] | None = ()
    allow_auto_topic_creation: bool = True  # v4+
    include_topic_authorized_operations: bool = False  # v8+
    include_cluster_authorized_operations: bool = False  # v8 to v10


class MetadataResponseBroker(Message, frozen=True, kw_only=True):
    """Where one broker listens."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None  # v1+


class MetadataResponsePartition(Message, frozen=True, kw_only=True):
    """One partition; `leader_id` -1 when there is none."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1  # v7+
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()  # v5+


class MetadataResponseTopic(Message, frozen=True, kw_only=True):
    """One topic or an error; from v12 a null name where an id is unknown."""

    error_code: int = 0
    name: str | None = None
    topic_id: bytes = ZERO_UUID  # v10+
    is_internal: bool = False  # v1+
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: int = OPERATIONS_OMITTED  # v8+


class MetadataResponse(Message, frozen=True, kw_only=True):
    """The cluster as this listener shows it."""

    throttle_time_ms: int = 0  # v3+
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: str | None = None  # v2+
    controller_id: int = -1  # v1+
    topics: tuple[MetadataResponseTopic, ...] = ()
    error_code: int = 0  # v13+
    cluster_authorized_operations: int = OPERATIONS_OMITTED  # v8 to v10
