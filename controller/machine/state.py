"""The state that `decide` reads and `apply` writes: topics, brokers and settings, all immutable values.

Topics are found by shard key through the small interface `Topics`, which a dict, RocksDB or a stream processor's table
can implement. A shard key has at most one topic, because Kafka refuses colliding names. So one look-up finds whether a
topic exists and whether another topic collides with its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec
from msgspec.structs import force_setattr, replace

from controller.machine.access.acls import Acls
from controller.machine.partitions.blocks import BLOCK, Blocks, in_blocks
from events.access import QuotaEntity
from events.catalog import ApprovalRequested, Configs, Endpoint, Partition, QuorumEpochBegun, SupportedFeature
from events.names import BrokerId, Offset, RequestId, ShardKey, TopicId, TopicName
from events.values import are_cordoned

ELIGIBLE_REPLICAS = "eligible.leader.replicas.version"
"""The feature that enables eligible leader replicas (KIP-966)."""
TOPICS, BROKERS, BROKER_LOGGERS, CLIENT_METRICS, GROUPS = 2, 4, 8, 16, 32
"""Kafka's config resource types."""
ResourceConfigs = Mapping[tuple[int, str], Configs]
"""Dynamic configs by resource type and resource name."""


class PendingCreate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A create request that is not answered yet, because its topic is not complete."""

    request_id: RequestId
    requested_at_ms: int
    deadline_ms: int
    warning: str = ""
    """The message of violated rules that only warn; the answer to the request will contain it."""


class Topic(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A topic. `ready_at_ms` is None until the topic is complete for the first time. Until then, `propagated` lists the
    brokers that have applied the creation of the topic. `partitions` may be given as any sequence and is stored as
    `partitions.blocks.in_blocks` returns it."""

    name: TopicName
    topic_id: TopicId
    partitions: Sequence[Partition]
    configs: Configs
    created_at_ms: int
    created_offset: Offset
    ready_at_ms: int | None = None
    propagated: tuple[BrokerId, ...] = ()
    pending_create: PendingCreate | None = None
    principal: str = ""
    """The principal that created the topic, for limits of rules; empty if it is unknown."""

    def __post_init__(self) -> None:
        partitions = self.partitions
        kind = type(partitions)  # isinstance of a Sequence is slow, and this runs for each topic read
        if kind is not Blocks and (kind is not tuple or len(partitions) > BLOCK):
            force_setattr(self, "partitions", in_blocks(partitions))

    @property
    def replication_factor(self) -> int:
        """The replication factor of the first partition, as in Kafka's tools; placeholders count."""
        return len(self.partitions[0].replicas)


class Broker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A registered broker.

    KRaft brokers also have `log_dirs`, the ids of their online log directories (KIP-858); `leaving`, true in controlled
    shutdown; `unclean`, true after an unclean shutdown, when records may be lost (KIP-966); `cordoned`, the ids of log
    directories that get no new replicas (KIP-1066).
    """

    broker_id: BrokerId
    broker_epoch: int
    incarnation: str
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    fenced: bool
    log_dirs: tuple[bytes, ...] = ()
    leaving: bool = False
    unclean: bool = False
    security_protocols: tuple[int, ...] = ()
    features: tuple[SupportedFeature, ...] = ()
    cordoned: tuple[bytes, ...] = ()

    @property
    def is_live(self) -> bool:
        """True if the broker is unfenced and not in controlled shutdown."""
        return not self.fenced and not self.leaving

    def supports(self, feature: str, level: int) -> bool:
        """True if the broker supports this level of a feature. Level 0 means disabled."""
        return level == 0 or any(one.name == feature and one.lowest <= level <= one.highest for one in self.features)


class QuorumLeader(QuorumEpochBegun, frozen=True):
    """The Topicwright controller that leads the metadata quorum of KRaft brokers."""

    handed_back_to: str = ""
    """The folder whose log was handed back to Kafka's controller; empty while this controller leads."""


class RulesVersion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The rules for changes of topics; see `RulesApplied`. `file_sha256` is the hash of the last rules file from the
    settings. The controller applies that file again only if its content has changed."""

    number: int
    text: str
    sha256: str
    principal: str
    file_sha256: str = ""


class Settings(msgspec.Struct, frozen=True):
    """All settings that decisions depend on. Durations are in ms.

    `has_target_cluster`: the controller of another cluster creates topics and elects leaders. `topic_defaults` are the
    broker-level settings with defaults for topics (`log.retention.ms`, …). `dynamic_defaults` are the dynamic configs
    of all brokers, which take precedence (KIP-226).
    """

    num_partitions: int = 1
    default_replication_factor: int = 1
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    create_topic_policy_class_name: str = ""
    alter_config_policy_class_name: str = ""
    enable_under_replicated_topic_creation: bool = False
    has_target_cluster: bool = False
    topic_defaults: Configs = ()
    dynamic_defaults: Configs = ()

    @property
    def effective_defaults(self) -> Configs:
        """The effective broker-level defaults of topics, sorted."""
        dynamic = self.dynamic_defaults
        return merged_defaults(self.topic_defaults, dynamic) if dynamic else self.topic_defaults


@lru_cache(maxsize=16)
def merged_defaults(defaults: Configs, dynamic: Configs) -> Configs:
    """Merges static defaults with dynamic ones, which take precedence. Sorted."""
    return tuple(sorted({**dict(defaults), **dict(dynamic)}.items()))


_FIELD_BY_KEY = {
    field.replace("_", "."): field for field in Settings.__struct_fields__ if not field.endswith("_defaults")
}


POLICY_PREFIX = "policy."
"""The prefix of settings that only policies read, whatever their values."""
POLICY_HASH_PREFIX = f"{POLICY_PREFIX}sha256."
"""Before the name of a policy class: the recorded SHA-256 of the source of its module; empty without source."""


@lru_cache(maxsize=64)
def settings_from_pairs(pairs: tuple[tuple[str, str], ...]) -> Settings:
    """Settings from the pairs of a `SettingsChanged`. Other keys are topic defaults, or concern policies.

    Raises msgspec.ValidationError for a value of the wrong type.
    """
    own = {_FIELD_BY_KEY[key]: value for key, value in pairs if key in _FIELD_BY_KEY}
    others = (pair for pair in pairs if not pair[0].startswith(POLICY_PREFIX))
    defaults = tuple((key, value) for key, value in others if key not in _FIELD_BY_KEY)
    return msgspec.convert({**own, "topic_defaults": defaults}, Settings, strict=False)


class ScramCredential(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A SCRAM credential (RFC 5802). Contains secrets, so `repr` hides them."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential({self.iterations}, secrets hidden)"


class Cluster(msgspec.Struct, frozen=True):
    """Everything that concerns all topics: settings, brokers, ACLs and quotas.

    `live` are the sorted ids of brokers that are neither fenced nor in controlled shutdown; `usable` are the live
    brokers that may get new replicas, because they have a log directory that is not cordoned.
    """

    settings: Settings = Settings()
    settings_pairs: tuple[tuple[str, str], ...] = ()
    """The pairs of the last SettingsChanged event."""
    release: str = ""
    brokers: Mapping[BrokerId, Broker] = msgspec.field(default_factory=dict)
    live: tuple[BrokerId, ...] = ()
    usable: tuple[BrokerId, ...] = ()
    usable_racks: tuple[str | None, ...] = ()
    """The racks of the usable brokers, in the same order."""
    last_broker_epoch: int = 0
    scram: Mapping[tuple[str, str], ScramCredential] = msgspec.field(default_factory=dict)
    """SCRAM credentials by user and mechanism."""
    acls: Acls = Acls()
    quotas: Mapping[QuotaEntity, tuple[tuple[str, float], ...]] = msgspec.field(default_factory=dict)
    """Quota keys and values by entity; an entity without quotas has no entry."""
    features: tuple[tuple[str, int], ...] = ()
    """Finalized feature levels of KRaft brokers, by name (KIP-584); empty for other brokers."""
    resource_configs: ResourceConfigs = msgspec.field(default_factory=dict)
    """Dynamic configs of resources other than topics, without empty ones. See `ResourceConfigsChanged`."""
    next_producer_id: int = 0
    quorum: QuorumLeader | None = None
    """The current leader of the metadata quorum; None without KRaft brokers."""
    rules: RulesVersion | None = None
    """The effective rules for changes of topics; None until some were applied."""
    held: Mapping[tuple[RequestId, TopicName], ApprovalRequested] = msgspec.field(default_factory=dict)
    """The requests that wait for approval, by request id and topic."""
    login_secret: bytes = b""
    """The secret for fake credentials, from `LoginSecretDrawn`; empty until it is drawn."""

    @property
    def has_kraft_brokers(self) -> bool:
        """True with KRaft brokers, whose partitions have replica metadata."""
        return bool(self.features)

    def is_live(self, broker_id: int) -> bool:
        broker = self.brokers.get(BrokerId(broker_id))
        return broker is not None and broker.is_live

    def feature(self, name: str) -> int:
        """Returns the finalized level of a feature; 0 means disabled."""
        return dict(self.features).get(name, 0)

    def with_settings(self, pairs: tuple[tuple[str, str], ...]) -> Cluster:
        """Returns the cluster with the settings in the pairs. Raises msgspec.ValidationError."""
        settings = replace(settings_from_pairs(pairs), dynamic_defaults=self.configs_of(BROKERS, ""))
        return replace(self, settings=settings, settings_pairs=pairs)

    def with_configs(self, resource_configs: ResourceConfigs) -> Cluster:
        settings = replace(self.settings, dynamic_defaults=resource_configs.get((BROKERS, ""), ()))
        return replace(self, resource_configs=resource_configs, settings=settings)

    def configs_of(self, kind: int, name: str) -> Configs:
        """Returns the dynamic configs of a resource; (4, "") are the defaults of all brokers."""
        return self.resource_configs.get((kind, name), ())

    def configs_of_brokers(self) -> tuple[tuple[str, Configs], ...]:
        """Returns the dynamic configs of brokers by name, sorted; the empty name holds the defaults of all."""
        return tuple(
            sorted((name, configs) for (kind, name), configs in self.resource_configs.items() if kind == BROKERS)
        )

    def with_broker(self, broker: Broker) -> Cluster:
        epoch = max(self.last_broker_epoch, broker.broker_epoch)
        return replace(self.with_brokers({**self.brokers, broker.broker_id: broker}), last_broker_epoch=epoch)

    def with_brokers(self, brokers: Mapping[BrokerId, Broker]) -> Cluster:
        live = tuple(sorted(key for key, broker in brokers.items() if broker.is_live))
        usable = tuple(one for one in live if not are_cordoned(brokers[one].log_dirs, brokers[one].cordoned))
        racks = tuple(brokers[broker_id].rack for broker_id in usable)
        return replace(self, brokers=brokers, live=live, usable=usable, usable_racks=racks)

    @property
    def cordoned(self) -> tuple[BrokerId, ...]:
        """The live brokers that get no new replicas, because all their log directories are cordoned."""
        if self.live == self.usable:
            return ()
        return tuple(broker_id for broker_id in self.live if broker_id not in self.usable)


class Counts(msgspec.Struct, frozen=True, array_like=True):
    topics: int = 0
    partitions: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.topics + other.topics, self.partitions + other.partitions)

    def __sub__(self, other: Counts) -> Counts:
        return Counts(self.topics - other.topics, self.partitions - other.partitions)


ALL_TOPICS = ""
"""The group of all topics."""
PREFIXES_MAX = 3
"""A topic is counted under at most this many prefixes of its name, so that long names are not expensive."""
_PREFIXES = re.compile(r"([^._-]*[._-])?" * PREFIXES_MAX)


def principal_group(principal: str) -> str:
    """The group of the topics that a principal has created. No prefix is equal: topic names have no '@'."""
    return f"@{principal}"


def groups_of(name: str, principal: str) -> list[str]:
    """The groups in which a topic is counted: all topics, those of its creator, and those whose names have the same
    prefix. A prefix ends with one of the first PREFIXES_MAX separators of the name."""
    found = _PREFIXES.match(name)
    assert found is not None, "each prefix is optional"
    prefixes = [name[:end] for end in map(found.end, range(1, PREFIXES_MAX + 1)) if end > 0]
    return [ALL_TOPICS, *([principal_group(principal)] if principal else ()), *prefixes]


def count_changes(before: Topic | None, after: Topic | None) -> list[tuple[str, Counts]]:
    """How a change of a topic changes the counts of its groups."""
    if before is not None and after is not None and _counted(before) == _counted(after):
        return []
    changes = []
    for sign, topic in ((-1, before), (1, after)):
        if topic is not None:
            counts = Counts(sign, sign * len(topic.partitions))
            changes += [(group, counts) for group in groups_of(topic.name, topic.principal)]
    return changes


def _counted(topic: Topic) -> tuple[int, str, str]:
    return len(topic.partitions), topic.name, topic.principal


class Topics(Protocol):
    def get(self, key: ShardKey) -> Topic | None: ...

    def put(self, key: ShardKey, topic: Topic | None) -> None:
        """Stores a topic; None removes it."""

    def counts(self, group: str) -> Counts:
        """The counts of a group of topics, see `groups_of`."""


class DictTopics(dict[ShardKey, Topic]):
    """Topics in memory, for tests and replay."""

    def __init__(self) -> None:
        self.counted: dict[str, Counts] = {}

    def put(self, key: ShardKey, topic: Topic | None) -> None:
        for group, change in count_changes(self.get(key), topic):
            self.counted[group] = self.counts(group) + change
        if topic is None:
            self.pop(key, None)
        else:
            self[key] = topic

    def counts(self, group: str) -> Counts:
        return self.counted.get(group, Counts())


class State:
    """The mutable state of one process or partition: the cluster, the topics, and the shard keys of incomplete topics.

    `decide` only reads the state, and only `apply` writes it. All values in it are immutable.
    """

    def __init__(
        self, topics: Topics, cluster: Cluster | None = None, waiting: Mapping[ShardKey, Offset] | None = None
    ):
        self.topics = topics
        self.cluster = cluster if cluster is not None else Cluster()
        self.waiting: dict[ShardKey, Offset] = dict(waiting or {})
        """Shard keys of incomplete topics, in order of creation, with the offset of their creation."""
