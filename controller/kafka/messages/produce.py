"""Produce (0): advertised, because old clients hang without it, and refused (see `handlers.produce`)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class PartitionProduceData(Message, frozen=True, kw_only=True):
    """Record batches for one partition."""

    index: int = 0
    records: bytes | None = None


class TopicProduceData(Message, frozen=True, kw_only=True):
    """What one topic is to hold; by id from v13 on."""

    topic_id: bytes = ZERO_UUID  # v13+
    partition_data: tuple[PartitionProduceData, ...] = ()
    name: str = ""  # v3 to v12


class ProduceRequest(Message, frozen=True, kw_only=True):
    """`acks`: 0 for no answer, 1 for the leader, -1 for all in sync."""

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: tuple[TopicProduceData, ...] = ()


class BatchIndexAndErrorMessage(Message, frozen=True, kw_only=True):
    """A record that caused its batch to be refused (KIP-467)."""

    batch_index: int = 0  # v8+
    batch_index_error_message: str | None = None  # v8+


class LeaderIdAndEpoch(Message, frozen=True, kw_only=True):
    """The leader to turn to (KIP-951)."""

    leader_id: int = -1  # v10+
    leader_epoch: int = -1  # v10+


class PartitionProduceResponse(Message, frozen=True, kw_only=True):
    """The outcome for one partition. `log_append_time_ms` is -1 unless the topic stamps records on append."""

    index: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1  # v5+
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()  # v8+
    error_message: str | None = None  # v8+
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()  # v10+, tag 0


class TopicProduceResponse(Message, frozen=True, kw_only=True):
    """The outcomes for one topic."""

    topic_id: bytes = ZERO_UUID  # v13+
    partition_responses: tuple[PartitionProduceResponse, ...] = ()
    name: str = ""  # v3 to v12


class NodeEndpoint(Message, frozen=True, kw_only=True):
    """Where a leader named in this answer listens (KIP-951)."""

    node_id: int = 0  # v10+
    host: str = ""  # v10+
    port: int = 0  # v10+
    rack: str | None = None  # v10+


class ProduceResponse(Message, frozen=True, kw_only=True):
    """The outcomes of a produce."""

    responses: tuple[TopicProduceResponse, ...] = ()
    throttle_time_ms: int = 0
    node_endpoints: tuple[NodeEndpoint, ...] = ()  # v10+, tag 0
