"""What the machine knows: topics, brokers and settings, each an immutable value.

Topics are reached through a small mapping by shard key, so that a dict, RocksDB and a stream processor's table all
serve. At most one topic lives under a shard key, because Kafka refuses names that collide; one look-up therefore tells
both whether a topic exists and whether another stands in its way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Protocol

import msgspec
from msgspec.structs import force_setattr, replace

from controller.machine.access.pieces import changed
from controller.machine.acls import Acls
from controller.machine.partitions.blocks import BLOCK, Blocks, in_blocks
from events.access import QuotaEntity
from events.catalog import Configs, Endpoint, Partition, SupportedFeature
from events.names import BrokerId, Offset, RequestId, ShardKey, TopicId, TopicName
from events.values import are_cordoned

ELIGIBLE_REPLICAS = "eligible.leader.replicas.version"
"""The feature with which eligible leader replicas are kept (KIP-966)."""
BROKERS = 4
"""Kafka's number of brokers among what has configs."""
ResourceConfigs = tuple[tuple[tuple[int, str], Configs], ...]
"""Configs by the kind and name of what has them."""


class Waiter(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The create request that waits for a topic to be complete."""

    request_id: RequestId
    requested_at_ms: int
    deadline_ms: int


class Topic(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A topic as it stands. `ready_at_ms` is None until it was complete once; `propagated` are the brokers that have
    applied its creation, kept only until then; `waiter` the create that is not answered yet. Partitions may be given
    in any sequence, and are kept as `partitions.blocks.in_blocks` has them."""

    name: TopicName
    topic_id: TopicId
    partitions: Sequence[Partition]
    configs: Configs
    created_at_ms: int
    created_offset: Offset
    ready_at_ms: int | None = None
    propagated: tuple[BrokerId, ...] = ()
    waiter: Waiter | None = None

    def __post_init__(self) -> None:
        partitions = self.partitions
        kind = type(partitions)  # isinstance looks at a Sequence's registry, for each topic that is read
        if kind is not Blocks and (kind is not tuple or len(partitions) > BLOCK):
            force_setattr(self, "partitions", in_blocks(partitions))

    @property
    def replication_factor(self) -> int:
        """The factor of the first partition, as Kafka's tools show it; placeholders count."""
        return len(self.partitions[0].replicas)


class Broker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A registered broker. A fenced one neither leads nor is placed on.

    Of real brokers also: `log_dirs`, the ids of the log directories that are online (KIP-858); `leaving`, it is in
    controlled shutdown; `unclean`, it came back without its clean shutdown, so it may have lost records (KIP-966);
    `cordoned`, the ids of the log directories that get no new replicas (KIP-1066).
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

    @property
    def is_usable(self) -> bool:
        """True if new replicas may be placed on the broker: it is live, with a log directory that is not cordoned."""
        return self.is_live and not are_cordoned(self.log_dirs, self.cordoned)

    def supports(self, feature: str, level: int) -> bool:
        """Whether the broker can work with this level of a feature; 0 is the level of one that is off."""
        ranges = {each.name: each for each in self.features}
        known = ranges.get(feature)
        return level == 0 if known is None else known.lowest <= level <= known.highest or level == 0


class Quorum(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The controller as real brokers know it: see `QuorumEpochBegun`."""

    leader_epoch: int
    node_id: int
    kraft_version: int
    host: str
    port: int
    directory_id: bytes
    handed_back_to: str = ""
    """Where Kafka's own controller leads on from; empty as long as this one leads."""
    priority: int = 0


class Settings(msgspec.Struct, frozen=True):
    """Every setting that decisions depend on, under Kafka's names; durations in ms.

    `cluster_carries_out`: a cluster with its own controller creates the topics and elects the leaders; what happens
    there is observed. `topic_defaults` holds the broker-level keys that give topics their defaults
    (`log.retention.ms`, …); `dynamic_defaults` what all brokers have as dynamic configs, which goes before (KIP-226).
    """

    num_partitions: int = 1
    default_replication_factor: int = 1
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    create_topic_policy_class_name: str = ""
    enable_under_replicated_topic_creation: bool = False
    cluster_carries_out: bool = False
    topic_defaults: Configs = ()
    dynamic_defaults: Configs = ()

    @property
    def defaults_in_force(self) -> Configs:
        """The broker-level keys by which topics go that set nothing themselves, sorted."""
        return in_force(self.topic_defaults, self.dynamic_defaults) if self.dynamic_defaults else self.topic_defaults


@lru_cache(maxsize=16)
def in_force(defaults: Configs, dynamic: Configs) -> Configs:
    """Broker-level keys that were given, under those that are dynamic, sorted."""
    return tuple(sorted({**dict(defaults), **dict(dynamic)}.items()))


_FIELD_BY_KEY = {
    field.replace("_", "."): field for field in Settings.__struct_fields__ if not field.endswith("_defaults")
}


@lru_cache(maxsize=64)
def settings_from_pairs(pairs: tuple[tuple[str, str], ...]) -> Settings:
    """Settings from the key and value strings of a `SettingsChanged`; keys that are no field are topic defaults.

    Raises msgspec.ValidationError for a value that is not of its field's type.
    """
    own = {_FIELD_BY_KEY[key]: value for key, value in pairs if key in _FIELD_BY_KEY}
    defaults = tuple((key, value) for key, value in pairs if key not in _FIELD_BY_KEY)
    return msgspec.convert({**own, "topic_defaults": defaults}, Settings, strict=False)


class ScramCredential(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What it takes to check a SCRAM login (RFC 5802). Secrets: never shown."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential({self.iterations}, secrets hidden)"


class Cluster(msgspec.Struct, frozen=True):
    """What concerns every topic: the settings, the brokers, who may do what, and quotas.

    `live` are the ids of the brokers that are neither fenced nor in controlled shutdown, sorted; `usable` are those
    of them on which new replicas may be placed.
    """

    settings: Settings = Settings()
    settings_pairs: tuple[tuple[str, str], ...] = ()
    """The settings as their event had them, by Kafka's names."""
    release: str = ""
    brokers: Mapping[BrokerId, Broker] = msgspec.field(default_factory=dict)
    live: tuple[BrokerId, ...] = ()
    usable: tuple[BrokerId, ...] = ()
    usable_racks: tuple[str | None, ...] = ()
    """The rack of each usable broker, in the same order."""
    last_broker_epoch: int = 0
    scram: Mapping[tuple[str, str], ScramCredential] = msgspec.field(default_factory=dict)
    """SCRAM credentials by user and mechanism."""
    acls: Acls = Acls()
    quotas: Mapping[QuotaEntity, tuple[tuple[str, float], ...]] = msgspec.field(default_factory=dict)
    """By entity, the keys and values of its quotas; an entity without any is not there."""
    features: tuple[tuple[str, int], ...] = ()
    """The finalized features of real brokers with their levels, by name (KIP-584); empty with others."""
    resource_configs: ResourceConfigs = ()
    """The dynamic configs of what is not a topic, by Kafka's number of its kind and by name, sorted, without
    empty ones: see `ResourceConfigsChanged`."""
    next_producer_id: int = 0
    quorum: Quorum | None = None
    """The controller's own epoch and place, None where the brokers are not real ones."""
    login_secret: bytes = b""
    """See `LoginSecretDrawn`; empty before it is drawn."""

    def is_live(self, broker_id: int) -> bool:
        """Whether the broker is registered, unfenced and not about to leave."""
        broker = self.brokers.get(BrokerId(broker_id))
        return broker is not None and broker.is_live

    def feature(self, name: str) -> int:
        """The finalized level of a feature, 0 where it is off."""
        return dict(self.features).get(name, 0)

    def with_settings(self, pairs: tuple[tuple[str, str], ...]) -> Cluster:
        """This cluster with other settings, as `SettingsChanged` has them. Raises msgspec.ValidationError."""
        settings = replace(settings_from_pairs(pairs), dynamic_defaults=self.configs_of(BROKERS, ""))
        return replace(self, settings=settings, settings_pairs=pairs)

    def with_configs(self, kind: int, name: str, configs: Configs) -> Cluster:
        """This cluster with other dynamic configs of what is not a topic."""
        held, key = self.resource_configs, (kind, name)
        place = _place(held, key)
        ours = ((key, configs),) if configs else ()
        return self.with_all_configs((*held[:place], *ours, *held[place + _holds(held, place, key) :]))

    def with_all_configs(self, resource_configs: ResourceConfigs) -> Cluster:
        """This cluster with these dynamic configs of all that is not a topic, and no others."""
        after = replace(self, resource_configs=resource_configs)
        settings = replace(self.settings, dynamic_defaults=after.configs_of(BROKERS, ""))
        return replace(after, settings=settings)

    def configs_of(self, kind: int, name: str) -> Configs:
        """The dynamic configs of what is not a topic; (4, "") has the defaults of all brokers."""
        held, key = self.resource_configs, (kind, name)
        place = _place(held, key)
        return held[place][1] if _holds(held, place, key) else ()

    def configs_of_brokers(self) -> tuple[tuple[str, Configs], ...]:
        """The dynamic configs of brokers by their names, sorted; the empty name has the defaults of all."""
        return tuple((name, configs) for (kind, name), configs in self.resource_configs if kind == BROKERS)

    def with_quotas(self, entity: QuotaEntity, values: tuple[tuple[str, float], ...]) -> Cluster:
        """This cluster with these quotas for an entity; none forget it."""
        return replace(self, quotas=changed(self.quotas, entity, values or None))

    def with_broker(self, broker: Broker) -> Cluster:
        """This cluster with one broker added or replaced."""
        epoch = max(self.last_broker_epoch, broker.broker_epoch)
        return replace(self.with_brokers({**self.brokers, broker.broker_id: broker}), last_broker_epoch=epoch)

    def without_broker(self, broker_id: BrokerId) -> Cluster:
        """This cluster with one broker forgotten."""
        return self.with_brokers({key: value for key, value in self.brokers.items() if key != broker_id})

    def with_brokers(self, brokers: Mapping[BrokerId, Broker]) -> Cluster:
        """This cluster with other brokers."""
        live = tuple(sorted(key for key, broker in brokers.items() if broker.is_live))
        usable = tuple(broker_id for broker_id in live if brokers[broker_id].is_usable)
        racks = tuple(brokers[broker_id].rack for broker_id in usable)
        return replace(self, brokers=brokers, live=live, usable=usable, usable_racks=racks)

    @property
    def cordoned(self) -> tuple[BrokerId, ...]:
        """The live brokers that get no new replicas, as all their log directories are cordoned."""
        return tuple(broker_id for broker_id in self.live if broker_id not in self.usable)


def _place(held: ResourceConfigs, key: tuple[int, str]) -> int:
    """Where a resource has its configs, or would have them: they are sorted."""
    return bisect_left(held, key, key=itemgetter(0))


def _holds(held: ResourceConfigs, place: int, key: tuple[int, str]) -> bool:
    return place < len(held) and held[place][0] == key


class Topics(Protocol):
    """The mapping through which topics are reached, by shard key."""

    def get(self, key: ShardKey) -> Topic | None:
        """The topic under a shard key, or None."""
        ...

    def put(self, key: ShardKey, topic: Topic | None) -> None:
        """Keep a topic under its shard key; None removes it."""
        ...


class DictTopics:
    """Topics in memory: for tests and replay."""

    def __init__(self) -> None:
        self.by_key: dict[ShardKey, Topic] = {}

    def get(self, key: ShardKey) -> Topic | None:
        """The topic under a shard key, or None."""
        return self.by_key.get(key)

    def put(self, key: ShardKey, topic: Topic | None) -> None:
        """Keep a topic under its shard key; None removes it."""
        if topic is None:
            self.by_key.pop(key, None)
        else:
            self.by_key[key] = topic

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_key.values())


class State:
    """The state that a runtime keeps: the cluster, the topics, and which topics are not ready yet.

    `decide` only reads it. `apply` is its only writer; every value that it puts in is immutable.
    """

    def __init__(
        self, topics: Topics, cluster: Cluster | None = None, waiting: Mapping[ShardKey, Offset] | None = None
    ):
        self.topics = topics
        self.cluster = cluster if cluster is not None else Cluster()
        self.waiting: dict[ShardKey, Offset] = dict(waiting or {})
        """Shard keys of topics that were never complete, in order of creation, with the offset of their creation."""
