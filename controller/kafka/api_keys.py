"""The supported Kafka APIs, and the message classes whose names differ from Kafka's.

The codec, `controller.kafka.generate` and the listeners read this table. A family of APIs (`access`, `topics`, …) is a
group whose message classes are in one module of `controller/kafka/messages`. The family `records` has the records of
the metadata log.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

Family = Literal["access", "clients", "cluster", "configs", "quorum", "topics", "records"]
FAMILIES: Final[tuple[Family, ...]] = typing.get_args(Family)
GENERATED: Final = [Path(__file__).with_name("messages") / f"{family}.py" for family in FAMILIES]
"""The modules of message classes, one for each family; `controller.kafka.generate` writes them."""


class ApiKey(enum.IntEnum):
    """Kafka's number of each supported API, the first and the last version that the codec supports, and the family."""

    min_version: int
    max_version: int
    family: Family

    def __new__(cls, number: int, min_version: int, max_version: int, family: Family) -> ApiKey:
        key = int.__new__(cls, number)
        key._value_, key.min_version, key.max_version, key.family = number, min_version, max_version, family
        return key

    PRODUCE = 0, 3, 13, "clients"
    FETCH = 1, 12, 18, "quorum"
    LIST_OFFSETS = 2, 1, 11, "clients"
    METADATA = 3, 0, 13, "topics"
    OFFSET_FETCH = 9, 1, 7, "clients"
    FIND_COORDINATOR = 10, 0, 6, "clients"
    DESCRIBE_GROUPS = 15, 0, 6, "clients"
    LIST_GROUPS = 16, 0, 5, "clients"
    SASL_HANDSHAKE = 17, 0, 1, "access"
    API_VERSIONS = 18, 0, 5, "cluster"
    CREATE_TOPICS = 19, 0, 7, "topics"
    DELETE_TOPICS = 20, 0, 6, "topics"
    DESCRIBE_ACLS = 29, 1, 3, "access"
    CREATE_ACLS = 30, 1, 3, "access"
    DELETE_ACLS = 31, 1, 3, "access"
    DESCRIBE_CONFIGS = 32, 0, 4, "configs"
    ALTER_CONFIGS = 33, 0, 2, "configs"
    DESCRIBE_LOG_DIRS = 35, 1, 5, "clients"
    SASL_AUTHENTICATE = 36, 0, 2, "access"
    CREATE_PARTITIONS = 37, 0, 3, "topics"
    DESCRIBE_DELEGATION_TOKEN = 41, 1, 3, "access"
    ELECT_LEADERS = 43, 0, 2, "topics"
    INCREMENTAL_ALTER_CONFIGS = 44, 0, 1, "configs"
    ALTER_PARTITION_REASSIGNMENTS = 45, 0, 1, "topics"
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0, "topics"
    DESCRIBE_CLIENT_QUOTAS = 48, 0, 1, "access"
    ALTER_CLIENT_QUOTAS = 49, 0, 1, "access"
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0, "access"
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0, "access"
    VOTE = 52, 0, 2, "quorum"
    BEGIN_QUORUM_EPOCH = 53, 0, 1, "quorum"
    END_QUORUM_EPOCH = 54, 0, 1, "quorum"
    DESCRIBE_QUORUM = 55, 0, 2, "quorum"
    ALTER_PARTITION = 56, 2, 3, "cluster"
    UPDATE_FEATURES = 57, 0, 2, "cluster"
    ENVELOPE = 58, 0, 0, "cluster"
    FETCH_SNAPSHOT = 59, 0, 1, "quorum"
    DESCRIBE_CLUSTER = 60, 0, 2, "cluster"
    DESCRIBE_PRODUCERS = 61, 0, 0, "clients"
    BROKER_REGISTRATION = 62, 0, 4, "cluster"
    BROKER_HEARTBEAT = 63, 0, 2, "cluster"
    UNREGISTER_BROKER = 64, 0, 0, "cluster"
    DESCRIBE_TRANSACTIONS = 65, 0, 0, "clients"
    LIST_TRANSACTIONS = 66, 0, 2, "clients"
    ALLOCATE_PRODUCER_IDS = 67, 0, 0, "cluster"
    CONSUMER_GROUP_DESCRIBE = 69, 0, 1, "clients"
    CONTROLLER_REGISTRATION = 70, 0, 0, "cluster"
    ASSIGN_REPLICAS_TO_DIRS = 73, 0, 0, "cluster"
    LIST_CONFIG_RESOURCES = 74, 0, 1, "configs"
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0, "topics"
    SHARE_GROUP_DESCRIBE = 77, 1, 1, "clients"
    ADD_RAFT_VOTER = 80, 0, 1, "quorum"
    REMOVE_RAFT_VOTER = 81, 0, 0, "quorum"
    UPDATE_RAFT_VOTER = 82, 0, 0, "quorum"
    STREAMS_GROUP_DESCRIBE = 89, 0, 0, "clients"
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, 0, 1, "clients"
    UNREGISTER_CONTROLLER = 94, 0, 0, "cluster"

    @property
    def api_name(self) -> str:
        """Kafka's name of the API, as in `CreateTopics`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_ASSIGN_REPLICAS: Final = {
    "DirectoryData": "AssignReplicasDirectory",
    "TopicData": "AssignReplicasTopic",
    "PartitionData": "AssignReplicasPartition",
}
_GROUP_ENTITIES: Final = ("Assignment", "DescribedGroup", "Endpoint", "Member", "TopicPartitions")
_QUORUM_RESULTS: Final = {"TopicData": "QuorumTopicResult", "PartitionData": "QuorumPartitionResult"}
RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "FetchResponse": {"PartitionData": "FetchPartitionData", "SnapshotId": "FetchSnapshotId"},
    "MetadataResponse": {"MetadataResponseBroker": "NodeEndpoint"},
    "CreateTopicsResponse": {"CreatableTopicConfigs": "DescribeConfigsResourceResult"},
    "ElectLeadersResponse": {"PartitionResult": "ElectionPartitionResult"},
    "IncrementalAlterConfigsResponse": {"IncrementalAlterConfigsResponse": "AlterConfigsResponse"},
    "DescribeClientQuotasResponse": {"EntryData": "DescribedEntryData"},
    "AlterClientQuotasResponse": {"EntryData": "AlteredEntryData"},
    "VoteRequest": {"TopicData": "VoteTopic", "PartitionData": "VotePartition"},
    "VoteResponse": _QUORUM_RESULTS,
    "BeginQuorumEpochRequest": {
        "TopicData": "BeginEpochTopic",
        "PartitionData": "BeginEpochPartition",
        "LeaderEndpoint": "Listener",
    },
    "BeginQuorumEpochResponse": {"BeginQuorumEpochResponse": "VoteResponse", **_QUORUM_RESULTS},
    "EndQuorumEpochRequest": {
        "TopicData": "EndEpochTopic",
        "PartitionData": "EndEpochPartition",
        "LeaderEndpoint": "Listener",
    },
    "EndQuorumEpochResponse": {"EndQuorumEpochResponse": "VoteResponse", **_QUORUM_RESULTS},
    "DescribeQuorumRequest": {"TopicData": "DescribeQuorumTopic", "PartitionData": "DescribeQuorumPartition"},
    "DescribeQuorumResponse": {
        "TopicData": "DescribeQuorumTopicResult",
        "PartitionData": "DescribeQuorumPartitionResult",
        "ReplicaState": "QuorumReplica",
        "Node": "QuorumNode",
    },
    "AlterPartitionRequest": {"TopicData": "AlterPartitionTopic", "PartitionData": "AlterPartitionData"},
    "AlterPartitionResponse": {"TopicData": "AlterPartitionTopicResult", "PartitionData": "AlterPartitionResult"},
    "FetchSnapshotRequest": {
        "TopicSnapshot": "RequestTopicSnapshot",
        "PartitionSnapshot": "RequestPartitionSnapshot",
        "SnapshotId": "FetchSnapshotId",
    },
    "FetchSnapshotResponse": {
        "TopicSnapshot": "ResponseTopicSnapshot",
        "PartitionSnapshot": "ResponsePartitionSnapshot",
        "SnapshotId": "FetchSnapshotId",
    },
    "AssignReplicasToDirsRequest": _ASSIGN_REPLICAS,
    "AssignReplicasToDirsResponse": _ASSIGN_REPLICAS,
    "DescribeProducersRequest": {"TopicRequest": "DescribeProducersTopic"},
    "DescribeProducersResponse": {
        "PartitionResponse": "DescribeProducersPartitionResult",
        "TopicResponse": "DescribeProducersTopicResult",
    },
    "DescribeTransactionsResponse": {"TopicData": "TransactionTopic", "TransactionState": "DescribedTransaction"},
    **{
        f"{kind}GroupDescribeResponse": {name: f"{kind}{name}" for name in _GROUP_ENTITIES}
        for kind in ("Consumer", "Share", "Streams")
    },
    "DescribeTopicPartitionsResponse": {
        "DescribeTopicPartitionsResponseTopic": "MetadataResponseTopic",
        "DescribeTopicPartitionsResponsePartition": "MetadataResponsePartition",
    },
    "RegisterBrokerRecord": {"BrokerEndpoint": "Listener", "BrokerFeature": "Feature"},
    "RegisterControllerRecord": {"ControllerEndpoint": "Listener", "ControllerFeature": "Feature"},
    "LeaderChangeMessage": {"Voter": "GrantingVoter"},
    "VotersRecord": {"Endpoint": "VoterEndpoint"},
}
"""For each message, its entities that need another name: the name in Kafka's schema, and the name of the class here.
Needed where several entities have one name there, or share one class here."""
