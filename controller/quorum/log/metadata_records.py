"""Classes of the records in Kafka's metadata log, as `common/metadata/*.json` in Kafka's jars: one field a line.

The package kio has schemas of Kafka's requests and responses, but not of these records. As with requests, one class
serves all versions of a record and has the union of their fields. A field that a version lacks is not written, and has
its default when read. The annotations give the encoding of a field; `metadata_codec` uses them.

A test compares every version of every record with the schemas of the newest Kafka.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from controller.kafka.messages import ZERO_UUID
from controller.kafka.messages.message import Feature, Listener, Message

Bool = Annotated[bool, "bool"]
Bytes = Annotated[bytes, "bytes"]
Float64 = Annotated[float, "float64"]
Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
String = Annotated[str, "string"]
UInt16 = Annotated[int, "uint16"]
Uuid = Annotated[bytes, "uuid"]


class OnWire(msgspec.Struct, frozen=True):
    """The first version that has a field, and its tag if it is written only when it differs from its default."""

    since: int = 0
    tag: int | None = None


class MetadataRecord(Message, frozen=True, kw_only=True):
    """Base of the records. A class's `tag` is Kafka's key of the record."""

    version: int = 0
    """The version of the record to write, or of the record that was read."""


class UnknownRecord(MetadataRecord, frozen=True):
    """A record unknown to this release, stored unchanged."""

    value: bytes


class RegisterBrokerRecord(MetadataRecord, frozen=True, tag=0):
    """A broker registered, as a new incarnation. Its epoch is the offset of this record."""

    broker_id: Int32 = 0
    is_migrating_zk_broker: Annotated[Bool, OnWire(since=2)] = False
    incarnation_id: Uuid = ZERO_UUID
    broker_epoch: Int64 = 0
    end_points: tuple[Listener, ...] = ()
    features: tuple[Feature, ...] = ()
    rack: String | None = ""
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, OnWire(since=1)] = False
    log_dirs: Annotated[tuple[Uuid, ...], OnWire(since=3, tag=0)] = ()
    cordoned_log_dirs: Annotated[tuple[Uuid, ...] | None, OnWire(since=4, tag=1)] = None


class UnregisterBrokerRecord(MetadataRecord, frozen=True, tag=1):
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


class TopicRecord(MetadataRecord, frozen=True, tag=2):
    name: String = ""
    topic_id: Uuid = ZERO_UUID


class PartitionRecord(MetadataRecord, frozen=True, tag=3):
    """A partition was created; in a snapshot, its state."""

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    replicas: tuple[Int32, ...] = ()
    isr: tuple[Int32, ...] = ()
    removing_replicas: tuple[Int32, ...] = ()
    adding_replicas: tuple[Int32, ...] = ()
    leader: Int32 = -1
    leader_recovery_state: Annotated[Int8, OnWire(tag=0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[tuple[Uuid, ...], OnWire(since=1)] = ()
    eligible_leader_replicas: Annotated[tuple[Int32, ...] | None, OnWire(since=2, tag=1)] = None
    last_known_elr: Annotated[tuple[Int32, ...] | None, OnWire(since=2, tag=2)] = None


class ConfigRecord(MetadataRecord, frozen=True, tag=4):
    """A config value of a topic or broker; None removes it."""

    resource_type: Int8 = 0
    resource_name: String = ""
    name: String = ""
    value: String | None = ""


class PartitionChangeRecord(MetadataRecord, frozen=True, tag=5):
    """The changed fields of a partition. Defaults mean unchanged; a leader of -1 means none."""

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    isr: Annotated[tuple[Int32, ...] | None, OnWire(tag=0)] = None
    leader: Annotated[Int32, OnWire(tag=1)] = -2
    replicas: Annotated[tuple[Int32, ...] | None, OnWire(tag=2)] = None
    removing_replicas: Annotated[tuple[Int32, ...] | None, OnWire(tag=3)] = None
    adding_replicas: Annotated[tuple[Int32, ...] | None, OnWire(tag=4)] = None
    leader_recovery_state: Annotated[Int8, OnWire(tag=5)] = -1
    directories: Annotated[tuple[Uuid, ...] | None, OnWire(since=1, tag=8)] = None
    eligible_leader_replicas: Annotated[tuple[Int32, ...] | None, OnWire(since=2, tag=6)] = None
    last_known_elr: Annotated[tuple[Int32, ...] | None, OnWire(since=2, tag=7)] = None


class FenceBrokerRecord(MetadataRecord, frozen=True, tag=7):
    """A broker is fenced. Kafka from 3.3 on writes BrokerRegistrationChangeRecords, not these two."""

    id: Int32 = 0
    epoch: Int64 = 0


class UnfenceBrokerRecord(MetadataRecord, frozen=True, tag=8):
    id: Int32 = 0
    epoch: Int64 = 0


class RemoveTopicRecord(MetadataRecord, frozen=True, tag=9):
    """A topic was deleted, and with it its partitions and configs."""

    topic_id: Uuid = ZERO_UUID


class DelegationTokenRecord(MetadataRecord, frozen=True, tag=10):
    """A delegation token (KIP-48)."""

    owner: String = ""
    requester: String = ""
    renewers: tuple[String, ...] = ()
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: String = ""


class UserScramCredentialRecord(MetadataRecord, frozen=True, tag=11):
    """A user can log in by this mechanism (KIP-554)."""

    name: String = ""
    mechanism: Int8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0


class FeatureLevelRecord(MetadataRecord, frozen=True, tag=12):
    """The level of a feature (KIP-584); 0 for none."""

    name: String = ""
    feature_level: Int16 = 0


class EntityData(Message, frozen=True):
    """A part of a quota's entity. A name of None is the default."""

    entity_type: String = ""
    entity_name: String | None = ""


class ClientQuotaRecord(MetadataRecord, frozen=True, tag=14):
    """A quota is set, or removed (KIP-546)."""

    entity: tuple[EntityData, ...] = ()
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class ProducerIdsRecord(MetadataRecord, frozen=True, tag=15):
    """A broker got the block of producer ids below `next_producer_id` (KIP-730)."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class BrokerRegistrationChangeRecord(MetadataRecord, frozen=True, tag=17):
    """The changed fields of a broker: fenced 1, unfenced -1, in controlled shutdown 1; defaults mean unchanged."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Annotated[Int8, OnWire(tag=0)] = 0
    in_controlled_shutdown: Annotated[Int8, OnWire(since=1, tag=1)] = 0
    log_dirs: Annotated[tuple[Uuid, ...], OnWire(since=2, tag=2)] = ()
    cordoned_log_dirs: Annotated[tuple[Uuid, ...] | None, OnWire(since=3, tag=3)] = None


class AccessControlEntryRecord(MetadataRecord, frozen=True, tag=18):
    id: Uuid = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 0
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class RemoveAccessControlEntryRecord(MetadataRecord, frozen=True, tag=19):
    id: Uuid = ZERO_UUID


class NoOpRecord(MetadataRecord, frozen=True, tag=20):
    """Written periodically by Kafka's controller, so that the log advances while it is healthy (KIP-835)."""


class ZkMigrationStateRecord(MetadataRecord, frozen=True, tag=21):
    """The state of the migration from ZooKeeper (KIP-866)."""

    zk_migration_state: Int8 = 0


class RemoveUserScramCredentialRecord(MetadataRecord, frozen=True, tag=22):
    name: String = ""
    mechanism: Int8 = 0


class BeginTransactionRecord(MetadataRecord, frozen=True, tag=23):
    """Begins a transaction: the following records apply together or not at all (KIP-868)."""

    name: Annotated[String | None, OnWire(tag=0)] = None


class EndTransactionRecord(MetadataRecord, frozen=True, tag=24):
    """Commits the open transaction (KIP-868)."""


class AbortTransactionRecord(MetadataRecord, frozen=True, tag=25):
    """Aborts the open transaction (KIP-868)."""

    reason: Annotated[String | None, OnWire(tag=0)] = None


class RemoveDelegationTokenRecord(MetadataRecord, frozen=True, tag=26):
    token_id: String = ""


class RegisterControllerRecord(MetadataRecord, frozen=True, tag=27):
    """A controller registered (KIP-919)."""

    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: Bool = False
    end_points: tuple[Listener, ...] = ()
    features: tuple[Feature, ...] = ()


class UnregisterControllerRecord(MetadataRecord, frozen=True, tag=29):
    """A controller was unregistered (KIP-1312)."""

    controller_id: Int32 = 0


class ClearElrRecord(MetadataRecord, frozen=True, tag=28):
    """The eligible leader replicas of a topic, or of all topics if the name is empty, were cleared (KIP-966)."""

    topic_name: String = ""


RECORDS: Final[dict[int, type[MetadataRecord]]] = {
    key: kind for kind in MetadataRecord.__subclasses__() if isinstance(key := kind.__struct_config__.tag, int)
}
"""Record types by key."""


class ControlMessage(Message, frozen=True):
    """Base of the control records, which belong to the quorum (KIP-595, KIP-630, KIP-853)."""

    version: Int16 = 0


class GrantingVoter(Message, frozen=True):
    voter_id: Int32 = 0


class LeaderChangeMessage(ControlMessage, frozen=True):
    leader_id: Int32 = 0
    voters: tuple[GrantingVoter, ...] = ()
    granting_voters: tuple[GrantingVoter, ...] = ()


class SnapshotHeader(ControlMessage, frozen=True):
    last_contained_log_timestamp: Int64 = 0


class SnapshotFooter(ControlMessage, frozen=True):
    """A snapshot ends."""


class KRaftVersion(ControlMessage, frozen=True):
    k_raft_version: Int16 = 0


class VoterEndpoint(Message, frozen=True):
    name: String = ""
    host: String = ""
    port: UInt16 = 0


class VersionRange(Message, frozen=True):
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class Voter(Message, frozen=True):
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    endpoints: tuple[VoterEndpoint, ...] = ()
    k_raft_version_feature: VersionRange = VersionRange()


class Voters(ControlMessage, frozen=True):
    """The voters of the metadata quorum (KIP-853)."""

    voters: tuple[Voter, ...] = ()
