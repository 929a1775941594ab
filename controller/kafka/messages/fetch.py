"""Fetch (1): here only of the metadata log, by the brokers that follow it (KIP-595)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class FetchPartition(Message, frozen=True, kw_only=True):
    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = 9223372036854775807


class FetchTopic(Message, frozen=True, kw_only=True):
    topic: str = ""
    partitions: tuple[FetchPartition, ...] = ()
    topic_id: bytes = ZERO_UUID


class ForgottenTopic(Message, frozen=True, kw_only=True):
    topic: str = ""
    partitions: tuple[int, ...] = ()
    topic_id: bytes = ZERO_UUID


class ReplicaState(Message, frozen=True, kw_only=True):
    replica_id: int = -1
    replica_epoch: int = -1


class FetchRequest(Message, frozen=True, kw_only=True):
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
    epoch: int = -1
    end_offset: int = -1


class LeaderIdAndEpoch(Message, frozen=True, kw_only=True):
    leader_id: int = -1
    leader_epoch: int = -1


class SnapshotId(Message, frozen=True, kw_only=True):
    end_offset: int = -1
    epoch: int = -1


class AbortedTransaction(Message, frozen=True, kw_only=True):
    producer_id: int = 0
    first_offset: int = 0


class PartitionData(Message, frozen=True, kw_only=True):
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
    topic: str = ""
    partitions: tuple[PartitionData, ...] = ()
    topic_id: bytes = ZERO_UUID


class NodeEndpoint(Message, frozen=True, kw_only=True):
    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None


class FetchResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: tuple[FetchableTopicResponse, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()
