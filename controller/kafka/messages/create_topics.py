"""CreateTopics (19): KIP-4; `validate_only` from v1, defaults for -1 from v1 (KIP-464 says v4), counts and configs in
answers from v5 (KIP-525).
"""

from controller.kafka.messages.message import ZERO_UUID, Message


class CreatableReplicaAssignment(Message, frozen=True, kw_only=True):
    """Replicas of one partition, the preferred leader first."""

    partition_index: int = 0
    broker_ids: tuple[int, ...] = ()


class CreatableTopicConfig(Message, frozen=True, kw_only=True):
    """One explicit config; a null value is refused by the controller."""

    name: str = ""
    value: str | None = None


class CreatableTopic(Message, frozen=True, kw_only=True):
    """One topic to create. Counts are -1 with manual `assignments`, and from v1 to use the defaults."""

    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(Message, frozen=True, kw_only=True):
    """Topics to create, each for itself. `timeout_ms` is how long the client waits until all are complete."""

    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: int = 60000
    validate_only: bool = False  # v1+


class CreatableTopicConfigs(Message, frozen=True, kw_only=True):
    """One config of a created topic. `config_source`: 1 topic, 4 broker file, 5 default."""

    name: str = ""  # v5+
    value: str | None = None  # v5+
    read_only: bool = False  # v5+
    config_source: int = -1  # v5+
    is_sensitive: bool = False  # v5+


class CreatableTopicResult(Message, frozen=True, kw_only=True):
    """The outcome for one topic; counts and configs as created, -1 and none where they may not be shown."""

    name: str = ""
    topic_id: bytes = ZERO_UUID  # v7+
    error_code: int = 0
    error_message: str | None = None  # v1+
    topic_config_error_code: int = 0  # v5+, tag 0
    num_partitions: int = -1  # v5+
    replication_factor: int = -1  # v5+
    configs: tuple[CreatableTopicConfigs, ...] | None = ()  # v5+


class CreateTopicsResponse(Message, frozen=True, kw_only=True):
    """One outcome a topic."""

    throttle_time_ms: int = 0  # v2+
    topics: tuple[CreatableTopicResult, ...] = ()
