"""CreatePartitions (37): more partitions for a topic (KIP-195)."""

from controller.kafka.messages.message import Message


class CreatePartitionsAssignment(Message, frozen=True, kw_only=True):
    """Replicas of one new partition, the preferred leader first."""

    broker_ids: tuple[int, ...] = ()


class CreatePartitionsTopic(Message, frozen=True, kw_only=True):
    """A topic and its new total `count`; `assignments` of the new ones only, null to let the controller choose."""

    name: str = ""
    count: int = 0
    assignments: tuple[CreatePartitionsAssignment, ...] | None = None


class CreatePartitionsRequest(Message, frozen=True, kw_only=True):
    """Topics to enlarge, each for itself."""

    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: int = 0
    validate_only: bool = False


class CreatePartitionsTopicResult(Message, frozen=True, kw_only=True):
    """The outcome for one topic."""

    name: str = ""
    error_code: int = 0
    error_message: str | None = None


class CreatePartitionsResponse(Message, frozen=True, kw_only=True):
    """One outcome a topic."""

    throttle_time_ms: int = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()
