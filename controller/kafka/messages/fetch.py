"""Fetch (1): here only of the metadata log, by the brokers that follow it (KIP-595)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class FetchPartition(Message, frozen=True, kw_only=True):
    """Fetch partition."""

    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = 9223372036854775807


class FetchTopic(Message, frozen=True, kw_only=True):
    """Fetch topic."""

    topic: str = ""
    partitions: tuple[FetchPartition, ...] = ()
    topic_id: bytes = ZERO_UUID


class ForgottenTopic(Message, frozen=True, kw_only=True):
    """Forgotten topic."""

    topic: str = ""
    partitions: tuple[int, ...] = ()
    topic_id: bytes = ZERO_UUID


class ReplicaState(Message, frozen=True, kw_only=True):
    """Replica state."""

    replica_id: int = -1
    replica_epoch: int = -1


class FetchRequest(Message, frozen=True, kw_only=True):
    """The request."""

    cluster_id: str | None = None
    replica_id: int = -1
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: tuple[FetchTopic, ...] = ()
    forgotten_topics_data: tuple[ForgottenTopic, ...] = ()
    rack_id: str = ""
    replica_state: ReplicaState = ReplicaState()


class EpochEndOffset(Message, frozen=True, kw_only=True):
    """Epoch end offset."""

    epoch: int = -1
    end_offset: int = -1


class LeaderIdAndEpoch(Message, frozen=True, kw_only=True):
    """Leader id and epoch."""

    leader_id: int = -1
    leader_epoch: int = -1


class SnapshotId(Message, frozen=True, kw_only=True):
    """Snapshot id."""

    end_offset: int = -1
    epoch: int = -1


class AbortedTransaction(Message, frozen=True, kw_only=True):
    """Aborted transaction."""

    producer_id: int = 0
    first_offset: int = 0


class PartitionData(Message, frozen=True, kw_only=True):
    """Partition data."""

    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset = EpochEndOffset()
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    snapshot_id: SnapshotId = SnapshotId()
    aborted_transactions: tuple[AbortedTransaction, ...] | None = ()
    preferred_read_replica: int = -1
    records: bytes | None = None


class FetchableTopicResponse(Message, frozen=True, kw_only=True):
    """Fetchable topic response."""

    topic: str = ""
    partitions: tuple[PartitionData, ...] = ()
    topic_id: bytes = ZERO_UUID


class NodeEndpoint(Message, frozen=True, kw_only=True):
    """Node endpoint."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class FetchResponse(Message, frozen=True, kw_only=True):
    """The answer."""

    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: tuple[FetchableTopicResponse, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()
