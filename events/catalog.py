"""Every event that a log can hold, each field described.

An event is a fact in the past tense: it carries what was chosen (replicas, topic id, resolved counts, the policy's
verdict), never what should be worked out again. Rules may change tomorrow without changing yesterday.

Events are frozen structs that encode as tagged arrays (see `events.codec`): a field is only ever added at the end,
with a default; anything else is a new event version and an entry in `events.codec.UPCASTS`.

Times are milliseconds since the epoch. Topic ids are sixteen bytes. Who may come in and do what: see
`events.access`.
"""

from __future__ import annotations

from typing import get_args

from events import access
from events.catalog_cluster import (
    BrokerFenced,
    BrokerLeaving,
    BrokerRegistered,
    BrokerUnfenced,
    BrokerUnregistered,
    FeaturesChanged,
    HeadSigned,
    HistorySkipped,
    LogDirsChanged,
    MetadataAdopted,
    MetadataHandedBack,
    ProducerIdsAllocated,
    QuorumEpochBegun,
    ResourceConfigsChanged,
    SettingsChanged,
)
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName
from events.values import (
    Assignment,
    BrokerDetails,
    ChangeAsked,
    ConfigOp,
    Configs,
    ConfigsWanted,
    DeletionWanted,
    Endpoint,
    Fact,
    Observation,
    Outcome,
    Partition,
    PartitionsWanted,
    ReplicaMetadata,
    SupportedFeature,
    Verdict,
)

__all__ = [
    "ADOPTED_DEADLINE_MS", "EVENT_TYPES", "EVENT_VERSION", "Assignment",
    "BrokerDetails", "BrokerFenced", "BrokerLeaving",
    "BrokerRegistered", "BrokerUnfenced", "BrokerUnregistered", "Cause", "ChangeAsked", "ChangeCarriedOut",
    "ChangeRejected", "ConfigOp", "Configs", "ConfigsWanted", "CreateAnswered", "CreateRejected", "CreateRequested",
    "CreationRefused", "DeletionWanted", "Endpoint", "Event", "Fact", "FeaturesChanged", "HeadSigned", "HistorySkipped",
    "IsrChanged",
    "LeaderElected", "LogDirsChanged", "MetadataAdopted", "MetadataHandedBack", "MetadataPropagated", "Observation",
    "Outcome", "Partition",
    "PartitionChanged", "PartitionsAdded", "PartitionsWanted", "PlaceholderFilled", "ProducerIdsAllocated",
    "QuorumEpochBegun", "Recorded", "ReplicaMetadata", "ResourceConfigsChanged", "SettingsChanged",
    "SupportedFeature",
    "TopicConfigsChanged", "TopicCreated", "TopicDeleted", "TopicDiscovered", "TopicReady", "TopicVanished",
    "Verdict",
]  # fmt: skip


ADOPTED_DEADLINE_MS = 0
"""The deadline of a topic that was taken over with its cluster: no request waits for it to be complete."""


class CreateRequested(Fact, frozen=True, tag=True):
    """Somebody requested a topic; kept for requests that are rejected too.

    Together with the verdict in `TopicCreated` or `CreateRejected` it holds every input of the decision, so that
    the decision can be made again.
    """

    request_id: RequestId
    topic: TopicName
    topic_id: TopicId
    """The id that the topic has if it is created."""
    num_partitions: int
    """As requested: -1 for the cluster's default, or with a manual assignment."""
    replication_factor: int
    assignments: tuple[Assignment, ...]
    configs: tuple[tuple[str, str | None], ...]
    timeout_ms: int
    deadline_ms: int
    """When the wait ends; the time of asking itself where `timeout_ms` is 0 or less."""
    principal: str
    client_id: str | None
    api: str
    """`CreateTopics`, `Metadata` for an auto-creation (KIP-361), or `HTTP`."""
    api_version: int
    duplicate: bool = False
    """The topic stood more than once in its request."""
    denied: int = 0
    """The error code of the authorizer, 0 when it allowed the request."""
    host: str = ""
    """The client's address; empty in events of earlier releases."""


class CreateRejected(Fact, frozen=True, tag=True):
    """The request was refused: Kafka's error code, the message the client gets, and the rule that decided
    (`validation:…`, `policy:…`, `authorizer`, `quota`)."""

    request_id: RequestId
    topic: TopicName
    error_code: int
    message: str
    rule: str
    verdict: Verdict | None = None


class TopicCreated(Fact, frozen=True, tag=True):
    """A topic exists from here on."""

    request_id: RequestId
    topic: TopicName
    topic_id: TopicId
    partitions: tuple[Partition, ...]
    replication_factor: int
    """The resolved factor; placeholders count."""
    configs: Configs
    verdict: Verdict | None
    """None where no policy was set."""
    live_brokers: tuple[BrokerId, ...]
    """The brokers that placement chose from, but for `cordoned_brokers`."""
    deadline_ms: int
    """When the wait of the request for this topic to be complete ends; `ADOPTED_DEADLINE_MS` without a request."""
    cordoned_brokers: tuple[BrokerId, ...] = ()
    """Live brokers with all their log directories cordoned: they get no replicas (KIP-1066)."""

    @property
    def is_adopted(self) -> bool:
        """Whether the topic was there already, and was taken over with the cluster that has it."""
        return self.deadline_ms == ADOPTED_DEADLINE_MS


class PartitionsAdded(Fact, frozen=True, tag=True):
    """Partitions were appended; the first has the index `first`."""

    request_id: RequestId
    topic: TopicName
    first: int
    partitions: tuple[Partition, ...]
    principal: str
    client_id: str | None
    live_brokers: tuple[BrokerId, ...]
    """The brokers that placement chose from, but for `cordoned_brokers`."""
    asked: ChangeAsked
    cordoned_brokers: tuple[BrokerId, ...] = ()
    """Live brokers with all their log directories cordoned: they get no replicas (KIP-1066)."""


class TopicDeleted(Fact, frozen=True, tag=True):
    """The topic is gone; its name is free again."""

    request_id: RequestId
    topic: TopicName
    topic_id: TopicId
    principal: str
    client_id: str | None
    asked: ChangeAsked


class TopicConfigsChanged(Fact, frozen=True, tag=True):
    """The explicit configs of a topic are these from here on."""

    request_id: RequestId
    topic: TopicName
    configs: Configs
    principal: str
    client_id: str | None
    asked: ChangeAsked
    before: Configs | None = None
    """What they were; None in events of earlier releases."""


class ChangeRejected(Fact, frozen=True, tag=True):
    """A request to change or delete a topic was refused."""

    request_id: RequestId
    topic: TopicName
    error_code: int
    message: str
    rule: str
    principal: str
    client_id: str | None
    asked: ChangeAsked


class LeaderElected(Fact, frozen=True, tag=True):
    """A partition has another leader (or, with leader -1, none)."""

    topic: TopicName
    partition: int
    leader: BrokerId
    isr: tuple[BrokerId, ...]
    leader_epoch: int
    partition_epoch: int
    reason: str


class IsrChanged(Fact, frozen=True, tag=True):
    """A partition has another in-sync set under the same leader."""

    topic: TopicName
    partition: int
    leader: BrokerId
    isr: tuple[BrokerId, ...]
    leader_epoch: int
    partition_epoch: int
    reason: str


class PartitionChanged(Fact, frozen=True, tag=True):
    """A partition of real brokers stands otherwise. What is None is as it was; what is not, is all of it.

    An election shows in `leader`, which may be the leader that was (then only its epoch rises).
    """

    topic: TopicName
    partition: int
    leader: BrokerId | None
    isr: tuple[BrokerId, ...] | None
    leader_epoch: int
    """As it is now, like the partition's epoch."""
    partition_epoch: int
    reason: str
    replicas: tuple[BrokerId, ...] | None = None
    directories: tuple[bytes, ...] | None = None
    adding: tuple[BrokerId, ...] | None = None
    removing: tuple[BrokerId, ...] | None = None
    elr: tuple[BrokerId, ...] | None = None
    last_known_elr: tuple[BrokerId, ...] | None = None
    recovering: bool | None = None


class PlaceholderFilled(Fact, frozen=True, tag=True):
    """A broker took the place that a placeholder kept (KIP-409); it is not in sync yet."""

    topic: TopicName
    partition: int
    placeholder: BrokerId
    broker_id: BrokerId
    partition_epoch: int
    directory: bytes | None = None
    """The id of the log directory that the new replica goes to; None where the brokers are not real ones."""


class MetadataPropagated(Fact, frozen=True, tag=True):
    """The creation of the topic is applied by these brokers, beside those named before."""

    topic: TopicName
    brokers: tuple[BrokerId, ...]


class TopicReady(Fact, frozen=True, tag=True):
    """Every partition has a leader and every live broker has applied the topic's metadata."""

    topic: TopicName


class CreateAnswered(Fact, frozen=True, tag=True):
    """The one terminal answer of a request for a topic; `waited_ms` since it arrived."""

    request_id: RequestId
    topic: TopicName
    error_code: int
    message: str
    waited_ms: int


class TopicDiscovered(Fact, frozen=True, tag=True):
    """The cluster that carries decisions out has the topic so: these are its facts from here on.

    Written of a topic that was made behind our back, which counts as complete from then on; of one whose partitions or
    configs others changed; and of one that the cluster has just created for us, which gives it the cluster's own id.
    """

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[Partition, ...]
    configs: Configs
    reason: str


class TopicVanished(Fact, frozen=True, tag=True):
    """The topic is not in the cluster any more, though nobody requested its deletion here; its name is free again."""

    topic: TopicName
    topic_id: TopicId
    reason: str


class CreationRefused(Fact, frozen=True, tag=True):
    """The cluster did not create a topic that was decided on: its error code and message. There is no such topic."""

    topic: TopicName
    topic_id: TopicId
    """The id that the decision gave the topic."""
    error_code: int
    message: str


class ChangeCarriedOut(Fact, frozen=True, tag=True):
    """The cluster did what a request decided for a topic (`error_code` 0), or refused to.

    After a refusal a `TopicDiscovered` says how the topic stands.
    """

    request_id: RequestId
    topic: TopicName
    error_code: int
    message: str


Event = (
    CreateRequested
    | CreateRejected
    | TopicCreated
    | PartitionsAdded
    | TopicDeleted
    | TopicConfigsChanged
    | ChangeRejected
    | LeaderElected
    | IsrChanged
    | PartitionChanged
    | PlaceholderFilled
    | MetadataPropagated
    | TopicReady
    | CreateAnswered
    | TopicDiscovered
    | TopicVanished
    | CreationRefused
    | ChangeCarriedOut
    | BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | BrokerUnregistered
    | ResourceConfigsChanged
    | ProducerIdsAllocated
    | BrokerLeaving
    | LogDirsChanged
    | QuorumEpochBegun
    | MetadataAdopted
    | MetadataHandedBack
    | HistorySkipped
    | HeadSigned
    | FeaturesChanged
    | SettingsChanged
    | access.ScramCredentialSet
    | access.ScramCredentialRemoved
    | access.LoginSecretDrawn
    | access.AclsCreated
    | access.AclsDeleted
    | access.QuotasChanged
    | access.RequestsRefused
)

EVENT_TYPES: tuple[type[Fact], ...] = get_args(Event)
"""Every type of event."""


class Cause(Fact, frozen=True):
    """The command that led to an event: its type and its request id."""

    command: str
    request_id: RequestId


class Recorded(Fact, frozen=True):
    """An event with its envelope, as it stands at `offset` of a log."""

    offset: Offset
    at_ms: int
    cause: Cause
    event: Event


EVENT_VERSION = 1
"""The version in which events are written. A log with a newer one is refused."""
