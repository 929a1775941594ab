"""DescribeTopicPartitions (75): topics page by page (KIP-966)."""

from controller.kafka.messages.message import OPERATIONS_OMITTED, ZERO_UUID, Message


class TopicRequest(Message, frozen=True, kw_only=True):
    """A topic to describe."""

    name: str = ""


class Cursor(Message, frozen=True, kw_only=True):
    """Where a page begins: this partition of this topic."""

    topic_name: str = ""
    partition_index: int = 0


class DescribeTopicPartitionsRequest(Message, frozen=True, kw_only=True):
    """Topics to describe (none for all), from `cursor` on, at most so many partitions."""

    topics: tuple[TopicRequest, ...] = ()
    response_partition_limit: int = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Message, frozen=True, kw_only=True):
    """One partition; `leader_id` -1 when there is none."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    offline_replicas: tuple[int, ...] = ()


class DescribeTopicPartitionsResponseTopic(Message, frozen=True, kw_only=True):
    """One topic, perhaps with a part of its partitions."""

    error_code: int = 0
    name: str | None = None
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = ()
    topic_authorized_operations: int = OPERATIONS_OMITTED


class DescribeTopicPartitionsResponse(Message, frozen=True, kw_only=True):
    """A page; `next_cursor` where the next begins, null after the last."""

    throttle_time_ms: int = 0
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = ()
    next_cursor: Cursor | None = None
