"""FetchSnapshot (59): a snapshot of the metadata log, in pieces (KIP-630)."""

from controller.kafka.messages.message import ZERO_UUID, Message


class SnapshotId(Message, frozen=True, kw_only=True):
    end_offset: int = 0
    epoch: int = 0


class RequestPartitionSnapshot(Message, frozen=True, kw_only=True):
    partition: int = 0
    current_leader_epoch: int = 0
    snapshot_id: SnapshotId = SnapshotId()
    position: int = 0
    replica_directory_id: bytes = ZERO_UUID


class RequestTopicSnapshot(Message, frozen=True, kw_only=True):
    name: str = ""
    partitions: tuple[RequestPartitionSnapshot, ...] = ()


class FetchSnapshotRequest(Message, frozen=True, kw_only=True):
    cluster_id: str | None = None
    replica_id: int = -1
    max_bytes: int = 2147483647
    topics: tuple[RequestTopicSnapshot, ...] = ()


class LeaderIdAndEpoch(Message, frozen=True, kw_only=True):
    leader_id: int = 0
    leader_epoch: int = 0


class ResponsePartitionSnapshot(Message, frozen=True, kw_only=True):
    index: int = 0
    error_code: int = 0
    snapshot_id: SnapshotId = SnapshotId()
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    size: int = 0
    position: int = 0
    unaligned_records: bytes = b""


class ResponseTopicSnapshot(Message, frozen=True, kw_only=True):
    name: str = ""
    partitions: tuple[ResponsePartitionSnapshot, ...] = ()


class NodeEndpoint(Message, frozen=True, kw_only=True):
    node_id: int = 0
    host: str = ""
    port: int = 0


class FetchSnapshotResponse(Message, frozen=True, kw_only=True):
    throttle_time_ms: int = 0
    error_code: int = 0
    topics: tuple[ResponseTopicSnapshot, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()
