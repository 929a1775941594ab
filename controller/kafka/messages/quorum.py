"""Messages between the voters of the KRaft quorum, and to change and describe it."""

from typing import Generic, TypeVar

from controller.kafka.messages.message import (
    ZERO_UUID,
    LeaderIdAndEpoch,
    Listener,
    Message,
    NodeEndpoint,
    Outcome,
    TopicByName,
)

_Partition = TypeVar("_Partition")


class QuorumTopic(Message, Generic[_Partition], frozen=True, kw_only=True):
    """Entries for the partitions of a topic, which is the metadata log."""

    topic_name: str = ""
    partitions: tuple[_Partition, ...] = ()


class VotePartition(Message, frozen=True, kw_only=True):
    """`replica_*` is the candidate and `last_*` the end of its log; `voter_directory_id` (v1+) is the receiver."""

    partition_index: int = 0
    replica_epoch: int = 0
    replica_id: int = 0
    replica_directory_id: bytes = ZERO_UUID  # v1+
    voter_directory_id: bytes = ZERO_UUID
    last_offset_epoch: int = 0
    last_offset: int = 0
    pre_vote: bool = False  # v2+


class VoteRequest(Message, frozen=True, kw_only=True):
    """Vote (52): a candidate requests votes (KIP-595), or pre-votes (KIP-996)."""

    cluster_id: str | None = None
    voter_id: int = -1  # v1+
    topics: tuple[QuorumTopic[VotePartition], ...] = ()


class QuorumPartitionResult(Message, frozen=True, kw_only=True):
    """The response of a voter to Vote, BeginQuorumEpoch and EndQuorumEpoch."""

    partition_index: int = 0
    error_code: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    vote_granted: bool = False  # Vote only


class VoteResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    topics: tuple[QuorumTopic[QuorumPartitionResult], ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()  # v1+


class BeginEpochPartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    voter_directory_id: bytes = ZERO_UUID  # v1+
    leader_id: int = 0
    leader_epoch: int = 0


class BeginQuorumEpochRequest(Message, frozen=True, kw_only=True):
    """BeginQuorumEpoch (53): a new leader announces itself to the voters (KIP-595)."""

    cluster_id: str | None = None
    voter_id: int = -1  # v1+
    topics: tuple[QuorumTopic[BeginEpochPartition], ...] = ()
    leader_endpoints: tuple[Listener, ...] = ()  # v1+


class ReplicaInfo(Message, frozen=True, kw_only=True):
    candidate_id: int = 0
    candidate_directory_id: bytes = ZERO_UUID


class EndEpochPartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    preferred_successors: tuple[int, ...] = ()  # v0
    preferred_candidates: tuple[ReplicaInfo, ...] = ()  # v1+


class EndQuorumEpochRequest(Message, frozen=True, kw_only=True):
    """EndQuorumEpoch (54): a leader resigns and names its preferred successors (KIP-595)."""

    cluster_id: str | None = None
    topics: tuple[QuorumTopic[EndEpochPartition], ...] = ()
    leader_endpoints: tuple[Listener, ...] = ()  # v1+


class FetchPartition(Message, frozen=True, kw_only=True):
    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    replica_directory_id: bytes = ZERO_UUID
    high_watermark: int = 9223372036854775807


class FetchTopic(Message, frozen=True, kw_only=True):
    topic: str = ""
    partitions: tuple[FetchPartition, ...] = ()
    topic_id: bytes = ZERO_UUID


class ReplicaState(Message, frozen=True, kw_only=True):
    replica_id: int = -1


class FetchRequest(Message, frozen=True, kw_only=True):
    """Fetch (1): here only of the metadata log, by voters and brokers (KIP-595)."""

    cluster_id: str | None = None
    replica_id: int = -1
    max_wait_ms: int = 0
    max_bytes: int = 2147483647
    topics: tuple[FetchTopic, ...] = ()
    replica_state: ReplicaState = ReplicaState()


class EpochEndOffset(Message, frozen=True, kw_only=True):
    """The end of an epoch in a log, or the id of a snapshot."""

    epoch: int = -1
    end_offset: int = -1


class FetchPartitionData(Message, frozen=True, kw_only=True):
    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset = EpochEndOffset()
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch()
    snapshot_id: EpochEndOffset = EpochEndOffset()
    records: bytes | None = None


class FetchableTopicResponse(Message, frozen=True, kw_only=True):
    topic: str = ""
    partitions: tuple[FetchPartitionData, ...] = ()
    topic_id: bytes = ZERO_UUID


class FetchResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    responses: tuple[FetchableTopicResponse, ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()


class RequestPartitionSnapshot(Message, frozen=True, kw_only=True):
    partition: int = 0
    current_leader_epoch: int = 0
    snapshot_id: EpochEndOffset = EpochEndOffset(end_offset=0, epoch=0)
    position: int = 0
    replica_directory_id: bytes = ZERO_UUID


class FetchSnapshotRequest(Message, frozen=True, kw_only=True):
    """FetchSnapshot (59): a snapshot of the metadata log, in chunks (KIP-630)."""

    cluster_id: str | None = None
    replica_id: int = -1
    max_bytes: int = 2147483647
    topics: tuple[TopicByName[RequestPartitionSnapshot], ...] = ()


class ResponsePartitionSnapshot(Message, frozen=True, kw_only=True):
    index: int = 0
    error_code: int = 0
    snapshot_id: EpochEndOffset = EpochEndOffset(end_offset=0, epoch=0)
    current_leader: LeaderIdAndEpoch = LeaderIdAndEpoch(leader_id=0, leader_epoch=0)
    size: int = 0
    position: int = 0
    unaligned_records: bytes = b""


class FetchSnapshotResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    topics: tuple[TopicByName[ResponsePartitionSnapshot], ...] = ()
    node_endpoints: tuple[NodeEndpoint, ...] = ()


class DescribeQuorumPartition(Message, frozen=True, kw_only=True):
    partition_index: int = 0


class DescribeQuorumRequest(Message, frozen=True, kw_only=True):
    """DescribeQuorum (55): voters and observers, and their log end offsets (KIP-836)."""

    topics: tuple[QuorumTopic[DescribeQuorumPartition], ...] = ()


class QuorumReplica(Message, frozen=True, kw_only=True):
    replica_id: int = 0
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1
    replica_directory_id: bytes = ZERO_UUID


class DescribeQuorumPartitionResult(Outcome, frozen=True, kw_only=True):
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: tuple[QuorumReplica, ...] = ()
    observers: tuple[QuorumReplica, ...] = ()


class QuorumNode(Message, frozen=True, kw_only=True):
    node_id: int = 0
    listeners: tuple[Listener, ...] = ()


class DescribeQuorumResponse(Outcome, frozen=True, kw_only=True):
    topics: tuple[QuorumTopic[DescribeQuorumPartitionResult], ...] = ()
    nodes: tuple[QuorumNode, ...] = ()


class AddRaftVoterRequest(Message, frozen=True, kw_only=True):
    """AddRaftVoter (80): adds a voter to the quorum (KIP-853)."""

    cluster_id: str | None = None
    timeout_ms: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID
    listeners: tuple[Listener, ...] = ()
    ack_when_committed: bool = True  # v1+


class AddRaftVoterResponse(Outcome, frozen=True, kw_only=True):
    pass


class RemoveRaftVoterRequest(Message, frozen=True, kw_only=True):
    """RemoveRaftVoter (81): removes a voter from the quorum (KIP-853)."""

    cluster_id: str | None = None
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID


class RemoveRaftVoterResponse(Outcome, frozen=True, kw_only=True):
    pass


class KRaftVersionFeature(Message, frozen=True, kw_only=True):
    min_supported_version: int = 0
    max_supported_version: int = 0


class UpdateRaftVoterRequest(Message, frozen=True, kw_only=True):
    """UpdateRaftVoter (82): updates the endpoints of a voter and its supported kraft.version (KIP-853)."""

    cluster_id: str | None = None
    current_leader_epoch: int = 0
    voter_id: int = 0
    voter_directory_id: bytes = ZERO_UUID
    listeners: tuple[Listener, ...] = ()
    k_raft_version_feature: KRaftVersionFeature = KRaftVersionFeature()


class CurrentLeader(LeaderIdAndEpoch, frozen=True, kw_only=True):
    host: str = ""
    port: int = 0


class UpdateRaftVoterResponse(Message, frozen=True, kw_only=True):
    error_code: int = 0
    current_leader: CurrentLeader = CurrentLeader()


VoteTopic = QuorumTopic[VotePartition]
QuorumTopicResult = QuorumTopic[QuorumPartitionResult]
BeginEpochTopic = QuorumTopic[BeginEpochPartition]
EndEpochTopic = QuorumTopic[EndEpochPartition]
RequestTopicSnapshot = TopicByName[RequestPartitionSnapshot]
ResponseTopicSnapshot = TopicByName[ResponsePartitionSnapshot]
DescribeQuorumTopic = QuorumTopic[DescribeQuorumPartition]
DescribeQuorumTopicResult = QuorumTopic[DescribeQuorumPartitionResult]
BeginQuorumEpochResponse = VoteResponse
EndQuorumEpochResponse = VoteResponse
FetchSnapshotId = EpochEndOffset
