"""Every event that a log can hold, each field described.

An event is a fact in the past tense: it carries what was chosen (replicas, topic id, resolved counts, the policy's
verdict), never what should be worked out again. Rules may change tomorrow without changing yesterday.

Events are frozen structs that encode as tagged arrays (see `events.codec`): a field is only ever added at the end,
with a default; anything else is a new event version and an entry in `events.upcasts`.

Times are milliseconds since the epoch. Topic ids are sixteen bytes. Who may come in and do what is told by
the events of `events.access`.
"""

from __future__ import annotations

from typing import Literal, get_args

from events.access import (
    AclsCreated,
    AclsDeleted,
    AsksRefused,
    QuotasChanged,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from events.fact import Fact
from events.names import BrokerId, Offset, RequestId, TopicId, TopicName

Configs = tuple[tuple[str, str], ...]
"""Explicit topic configs, sorted by name."""


class Partition(Fact, frozen=True):
    """One partition as it stands.

    `replicas` begins with the preferred leader; a negative id is a placeholder (KIP-409). `leader` is -1 when there
    is none. `partition_epoch` rises with every change, `leader_epoch` with every change of leader (KIP-101, KIP-497).
    """

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int = 0
    partition_epoch: int = 0


class Assignment(Fact, frozen=True):
    """A manual assignment of one partition, as asked for."""

    partition: int
    replicas: tuple[BrokerId, ...]


class ConfigOp(Fact, frozen=True):
    """One change of a topic config; `op` is SET 0, DELETE 1, APPEND 2 or SUBTRACT 3 (KIP-339)."""

    name: str
    op: int
    value: str | None


class Endpoint(Fact, frozen=True):
    """Where a broker listens: listener name, host, port."""

    name: str
    host: str
    port: int


Outcome = Literal["allowed", "refused", "failed"]


class Observation(Fact, frozen=True):
    """A rule that a topic breaks and that was recorded instead of enforced.

    `rule` names the rule (`policy:rules/naming`), `message` says what is broken and what is allowed.
    """

    rule: str
    message: str


class Verdict(Fact, frozen=True):
    """The answer of the whole chain of create-topic policies for one topic (KIP-108).

    `outcome`: `allowed` when no policy objects or there is none; `refused` when one raised PolicyViolation, which the
    client sees as POLICY_VIOLATION (44) with `message`; `failed` when one raised anything else, which costs that topic
    UNKNOWN_SERVER_ERROR (-1). `policy` is the class that decided and `rule` its rule, both empty when allowed.
    `observed` holds what was recorded and not enforced, whatever the outcome.
    """

    outcome: Outcome
    policy: str = ""
    rule: str = ""
    message: str = ""
    observed: tuple[Observation, ...] = ()


class CreateRequested(Fact, frozen=True, tag=True):
    """Somebody asked for a topic; kept for asks that are rejected too.

    Together with the verdict in `TopicCreated` or `CreateRejected` it holds every input of the decision, so that
    the decision can be made again.
    """

    request_id: RequestId
    topic: TopicName
    topic_id: TopicId
    """The id that the topic has if it is created."""
    num_partitions: int
    """As asked: -1 for the cluster's default, or with a manual assignment."""
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
    """The error code of the authorizer, 0 when it allowed the ask."""


class CreateRejected(Fact, frozen=True, tag=True):
    """The ask was refused: Kafka's error code, the message the client gets, and the rule that decided
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
    """The brokers that placement chose from."""
    deadline_ms: int
    """When the wait of the request for this topic to be complete ends."""


class PartitionsWanted(Fact, frozen=True, tag="partitions"):
    """`count` partitions altogether (KIP-195); `assignments` holds the replicas of each new one, None to have them
    placed."""

    count: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None


class DeletionWanted(Fact, frozen=True, tag="deletion"):
    """The topic gone; with `topic_id` only if it still is the topic of that id (KIP-516)."""

    topic_id: TopicId | None


class ConfigsWanted(Fact, frozen=True, tag="configs"):
    """Explicit configs changed by these steps (`incremental`, KIP-339), or replaced by what the steps set."""

    ops: tuple[ConfigOp, ...]
    incremental: bool


class ChangeAsked(Fact, frozen=True):
    """How a change of a topic was asked for: with the event that holds it, every input of the decision."""

    api: str
    """`CreatePartitions`, `DeleteTopics`, `AlterConfigs`, `IncrementalAlterConfigs` or `HTTP`."""
    api_version: int
    wanted: PartitionsWanted | DeletionWanted | ConfigsWanted
    duplicate: bool = False
    """The topic stood more than once in its request."""
    denied: int = 0
    """The error code of the authorizer, 0 when it allowed the ask."""


class PartitionsAdded(Fact, frozen=True, tag=True):
    """Partitions were appended; the first has the index `first`."""

    request_id: RequestId
    topic: TopicName
    first: int
    partitions: tuple[Partition, ...]
    principal: str
    client_id: str | None
    live_brokers: tuple[BrokerId, ...]
    """The brokers that placement chose from."""
    asked: ChangeAsked


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


class ChangeRejected(Fact, frozen=True, tag=True):
    """An ask to change or delete a topic was refused."""

    request_id: RequestId
    topic: TopicName
    error_code: int
    message: str
    rule: str
    principal: str
    client_id: str | None
    asked: ChangeAsked

    @property
    def ask(self) -> str:
        """The API that the change was asked through."""
        return self.asked.api


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


class PlaceholderFilled(Fact, frozen=True, tag=True):
    """A broker took the place that a placeholder kept (KIP-409); it is not in sync yet."""

    topic: TopicName
    partition: int
    placeholder: BrokerId
    broker_id: BrokerId
    partition_epoch: int


class MetadataPropagated(Fact, frozen=True, tag=True):
    """The creation of the topic is applied by these brokers, beside those named before."""

    topic: TopicName
    brokers: tuple[BrokerId, ...]


class TopicReady(Fact, frozen=True, tag=True):
    """Every partition has a leader and every live broker has applied the topic's metadata."""

    topic: TopicName


class CreateAnswered(Fact, frozen=True, tag=True):
    """The one terminal answer of a request for a topic; `waited_ms` since it was asked."""

    request_id: RequestId
    topic: TopicName
    error_code: int
    message: str
    waited_ms: int


class BrokerRegistered(Fact, frozen=True, tag=True):
    """A broker (or a new incarnation of it) is known; it is fenced until it has caught up (KIP-631)."""

    broker_id: BrokerId
    broker_epoch: int
    incarnation: str
    rack: str | None
    endpoints: tuple[Endpoint, ...]


class BrokerFenced(Fact, frozen=True, tag=True):
    """A broker is not to lead or to be placed on."""

    broker_id: BrokerId
    broker_epoch: int
    reason: str


class BrokerUnfenced(Fact, frozen=True, tag=True):
    """A broker is live."""

    broker_id: BrokerId
    broker_epoch: int
    reason: str


class BrokerUnregistered(Fact, frozen=True, tag=True):
    """A broker is forgotten."""

    broker_id: BrokerId
    broker_epoch: int
    reason: str


class SettingsChanged(Fact, frozen=True, tag=True):
    """Every setting that decisions depend on, by Kafka's names; the first event of every log."""

    settings: tuple[tuple[str, str], ...]
    release: str
    """The release of Topicwright whose rules decide from here on."""


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
    | PlaceholderFilled
    | MetadataPropagated
    | TopicReady
    | CreateAnswered
    | BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | BrokerUnregistered
    | SettingsChanged
    | ScramCredentialSet
    | ScramCredentialRemoved
    | AclsCreated
    | AclsDeleted
    | QuotasChanged
    | AsksRefused
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
