"""Every event that a log can hold, with its fields.

An event is a fact in the past tense. It has the chosen values (replicas, topic id, resolved counts, the policy's
verdict), and readers never compute them again: rules may change without changing the past.

Events are frozen structs that encode as tagged arrays (see `events.codec`). New fields go to the end, with a default;
any other change needs a new event version.

Times are milliseconds since the epoch. Topic ids are sixteen bytes. `host` is a client's address, empty without a
client. `denied` is the authorizer's error code, 0 if it allowed the request. `duplicate`: the request named the topic
more than once. `cordoned_brokers` are live brokers whose log directories are all cordoned: they get no replicas
(KIP-1066). `elsewhere` has the counts in other partitions that the gateway knew, for the limits of rules.
`events.access` has the events about access.
This module also exports the values and events that it imports.
"""

from typing import get_args

from events import access
from events.catalog_cluster import *
from events.errors import shortened
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName
from events.values import *

MESSAGE_CHARS_MAX = 4096
"""Limit for the messages of policies and rules: before CreateTopics v5 a string has at most 32,767 bytes, and a
character takes up to four bytes."""


class CreateRequested(Fact, frozen=True, tag=True):
    """A client requested a topic; recorded for rejected requests too.

    Together with the verdict in `TopicCreated` or `CreateRejected` it holds every input of the decision, so that the
    decision can be repeated.
    """

    request_id: RequestId
    topic: TopicName
    topic_id: TopicId
    """The id that the topic gets if the decision creates it."""
    num_partitions: int
    """As requested: -1 for the cluster's default, or with a manual assignment."""
    replication_factor: int
    assignments: tuple[Assignment, ...]
    configs: tuple[tuple[str, str | None], ...]
    timeout_ms: int
    deadline_ms: int
    """The end of the wait; the time of the request if `timeout_ms` is 0 or less."""
    principal: str
    client_id: str | None
    api: str
    """`CreateTopics`, `Metadata` for an auto-creation (KIP-361), or `HTTP`."""
    api_version: int
    duplicate: bool = False
    denied: int = 0
    host: str = ""
    elsewhere: GroupCounts = ()


class CreateRejected(Fact, frozen=True, tag=True):
    """A create request was rejected by this controller, before anything was done.

    The event has Kafka's error code, the client's message and the deciding rule (`validation:…`, `policy:…`,
    `authorizer`, `quota`).
    """

    request_id: RequestId
    topic: TopicName
    error_code: int
    message: str
    rule: str
    verdict: Verdict | None = None


class TopicCreated(Fact, frozen=True, tag=True):
    """A topic was created."""

    request_id: RequestId
    topic: TopicName
    topic_id: TopicId
    partitions: tuple[Partition, ...]
    replication_factor: int
    """The resolved number, with placeholders (negative ids for replicas that have no broker yet, KIP-409)."""
    configs: Configs
    verdict: Verdict | None
    """None without a policy."""
    live_brokers: tuple[BrokerId, ...]
    """The brokers that placement chose from, except `cordoned_brokers`."""
    deadline_ms: int
    """The end of the request's wait for the complete topic."""
    cordoned_brokers: tuple[BrokerId, ...] = ()
    principal: str = ""
    """The principal that created the topic."""


class PartitionsAdded(Fact, frozen=True, tag=True):
    """Partitions were added to a topic; `first` is the index of the first new partition."""

    request_id: RequestId
    topic: TopicName
    first: int
    partitions: tuple[Partition, ...]
    principal: str
    client_id: str | None
    live_brokers: tuple[BrokerId, ...]
    """The brokers that placement chose from, except `cordoned_brokers`."""
    request: RequestedChange
    cordoned_brokers: tuple[BrokerId, ...] = ()


class TopicDeleted(Fact, frozen=True, tag=True):
    """A topic was deleted; its name is free again."""

    request_id: RequestId
    topic: TopicName
    topic_id: TopicId
    principal: str
    client_id: str | None
    request: RequestedChange


class TopicConfigsChanged(Fact, frozen=True, tag=True):
    """The explicit configs of a topic changed to `configs`."""

    request_id: RequestId
    topic: TopicName
    configs: Configs
    principal: str
    client_id: str | None
    request: RequestedChange
    before: Configs | None = None
    """The previous configs, None if unknown."""


class ChangeRejected(Fact, frozen=True, tag=True):
    """A request to change or delete a topic was rejected."""

    request_id: RequestId
    topic: TopicName
    error_code: int
    message: str
    rule: str
    principal: str
    client_id: str | None
    request: RequestedChange


class RulesObserved(Fact, frozen=True, tag=True):
    """Violations of topic rules that do not refuse a change, and filled defaults: see docs/policies.md."""

    request_id: RequestId
    topic: TopicName
    """For a change of cluster defaults: `4:`, followed by the broker id if the defaults are of one broker."""
    change: str
    """`create`, `grow`, `alter`, `delete`, `reassign`, `elect`, `defaults` or `discovered`."""
    warned: tuple[Observation, ...]
    """Violated rules in the mode `warn`: the answer warns the requester about them."""
    observed: tuple[Observation, ...]
    """Violated rules in the mode `observe`."""
    defaults: tuple[FilledDefault, ...]
    """The values that a create request left out, with the defaults that filled them."""
    principal: str

    @property
    def warning(self) -> str:
        """All warnings in one text for the requester, truncated; empty without any."""
        text = "warning: " + "; ".join(one.message for one in self.warned) if self.warned else ""
        return shortened(text, MESSAGE_CHARS_MAX)


class PartitionChanged(Fact, frozen=True, tag=True):
    """A partition changed from `before` to `after`: another leader, ISR, replica list, or replica metadata.

    All kinds of brokers lead to this event. Only partitions of KRaft brokers have replica metadata.
    """

    topic: TopicName
    partition: int
    before: Partition
    after: Partition
    reason: str

    @property
    def has_new_leader(self) -> bool:
        """True if the leader changed, also to none."""
        return self.after.leader != self.before.leader

    @property
    def filled(self) -> tuple[BrokerId, ...]:
        """The brokers that replaced placeholders (KIP-409); they are not in sync yet."""
        if min(self.before.replicas) >= 0:
            return ()
        return tuple(broker for broker in self.after.replicas if broker >= 0 and broker not in self.before.replicas)


class MetadataPropagated(Fact, frozen=True, tag=True):
    """These brokers, in addition to brokers of earlier such events, have applied the topic's creation."""

    topic: TopicName
    brokers: tuple[BrokerId, ...]


class TopicReady(Fact, frozen=True, tag=True):
    """Every partition has a leader and every live broker has applied the topic's metadata."""

    topic: TopicName


class CreateAnswered(Fact, frozen=True, tag=True):
    """The final answer to a CreateTopics request for one topic, `waited_ms` after the request arrived; exactly one."""

    request_id: RequestId
    topic: TopicName
    error_code: int
    message: str
    waited_ms: int


class TopicDiscovered(Fact, frozen=True, tag=True):
    """The state of a topic as found in the target cluster; it replaces the recorded state.

    Written for a topic that another client created in the cluster (it counts as complete from then on) or changed
    there (partitions or configs), and for each topic of an adopted cluster. Also written for a topic that the cluster
    just created on our request: the event has the cluster's topic id.
    """

    topic: TopicName
    topic_id: TopicId
    partitions: tuple[Partition, ...]
    configs: Configs
    reason: str


class TopicVanished(Fact, frozen=True, tag=True):
    """The topic vanished from the target cluster without a request to this controller; its name is free again."""

    topic: TopicName
    topic_id: TopicId
    reason: str


class CreationRefused(Fact, frozen=True, tag=True):
    """The target cluster refused to create a topic, with this error code and message, after the decision here. The
    topic does not exist."""

    topic: TopicName
    topic_id: TopicId
    """The id that the decision assigned."""
    error_code: int
    message: str


class ChangeCarriedOut(Fact, frozen=True, tag=True):
    """The target cluster applied a decided change of a topic (`error_code` 0), or refused to.

    After a refusal a `TopicDiscovered` records the topic's actual state.
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
    | RulesObserved
    | PartitionChanged
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
    | RulesApplied
    | ApprovalRequested
    | ApprovalDecided
    | access.ScramCredentialSet
    | access.ScramCredentialRemoved
    | access.LoginSecretDrawn
    | access.AclsCreated
    | access.AclsDeleted
    | access.QuotasChanged
    | access.RequestsRefused
)

EVENT_TYPES: tuple[type[Fact], ...] = get_args(Event)


class Cause(Fact, frozen=True):
    """The command that led to an event: its type and request id."""

    command: str
    request_id: RequestId


class Recorded(Fact, frozen=True):
    """An event with its offset, time and cause."""

    offset: Offset
    at_ms: int
    cause: Cause
    event: Event


EVENT_VERSION = 1
"""The version in which events are written. Logs with a newer one are rejected."""
