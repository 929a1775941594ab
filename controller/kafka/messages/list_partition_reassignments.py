"""ListPartitionReassignments (46): reassignments under way (KIP-455)."""

from controller.kafka.messages.message import Message


class ListPartitionReassignmentsTopics(Message, frozen=True, kw_only=True):
    """Partitions of one topic to list."""

    name: str = ""
    partition_indexes: tuple[int, ...] = ()


class ListPartitionReassignmentsRequest(Message, frozen=True, kw_only=True):
    """`topics` null for all."""

    timeout_ms: int = 60000
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = None


class OngoingPartitionReassignment(Message, frozen=True, kw_only=True):
    """A partition under reassignment."""

    partition_index: int = 0
    replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


class OngoingTopicReassignment(Message, frozen=True, kw_only=True):
    """The partitions of one topic under reassignment."""

    name: str = ""
    partitions: tuple[OngoingPartitionReassignment, ...] = ()


class ListPartitionReassignmentsResponse(Message, frozen=True, kw_only=True):
    """What is under reassignment."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    topics: tuple[OngoingTopicReassignment, ...] = ()
