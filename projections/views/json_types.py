"""The views of the read side: msgspec structs whose encoding is the JSON of the HTTP API and the command line.

The OpenAPI document describes them, and the command line decodes them. Topic ids are Kafka's base64url text. A time
appears twice: ISO-8601 in UTC, and under `…_ms` in ms since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from projections.views.topics import CreatedBy, Status


class AsOfView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The point in time that a response describes: the offset and time of its newest event, -1 and null before any.

    A response about one `partition` of a partitioned log has an offset of that partition. A response about all
    partitions has their number of events less one as `offset`, and `ends`: for each the offset after its newest event.
    """

    offset: int
    at: str | None
    at_ms: int | None
    partition: int | None = None
    ends: tuple[int, ...] = ()


class ObservationView(msgspec.Struct, frozen=True):
    """A refusal that a policy reports without enforcing it."""

    rule: str
    message: str


class PolicyView(msgspec.Struct, frozen=True):
    """The verdict of the create-topic policies (KIP-108)."""

    outcome: str
    policy: str
    rule: str
    message: str
    observed: tuple[ObservationView, ...]


class PartitionView(msgspec.Struct, frozen=True):
    """A partition. `leader` is -1 if there is none. A negative replica is a placeholder (KIP-409). `offline` lists the
    replicas on brokers that are not live, and placeholders."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in a list."""

    name: str
    topic_id: str
    status: Status
    num_partitions: int
    replication_factor: int
    under_replicated_partitions: int
    offline_partitions: int
    placeholders: int
    configs: dict[str, str]
    created_at: str
    created_at_ms: int
    created_offset: int
    created_by: CreatedBy | None
    ready_at: str | None
    ready_at_ms: int | None


class TopicView(TopicSummary, frozen=True, kw_only=True):
    """A topic with its partitions. `policy` is null if no policy was configured at its creation; `placed_on` lists the
    brokers that were live then."""

    partitions: tuple[PartitionView, ...]
    policy: PolicyView | None
    placed_on: tuple[int, ...]
    as_of: AsOfView


class TopicsView(msgspec.Struct, frozen=True):
    """A page of topics. `next_cursor` is the `cursor` of the next page, null on the last. In lists ordered by name
    `next_after` is the same, for the parameter `after`, which accepts any name."""

    topics: tuple[TopicSummary, ...]
    next_after: str | None
    as_of: AsOfView
    next_cursor: str | None = None


class TopicAnswerView(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a request: the name and code of Kafka's error (`NONE`, 0), and its message."""

    request_id: str
    error: str
    code: int
    message: str


class CreatedView(TopicAnswerView, frozen=True, kw_only=True):
    """A created topic; with `validate_only` the topic that would have been created, without an id.

    `status` is `pending` if the request timed out before the topic was ready; `waited_ms` is the time it waited.
    """

    name: str
    topic_id: str | None
    validate_only: bool
    status: str
    num_partitions: int
    replication_factor: int
    configs: dict[str, str]
    partitions: tuple[PartitionView, ...]
    waited_ms: int


class AlteredView(TopicAnswerView, frozen=True, kw_only=True):
    """A changed topic, or with `validate_only` the topic as it would be; `configs` are the explicit ones."""

    name: str
    topic_id: str
    validate_only: bool
    num_partitions: int
    configs: dict[str, str]


class DeletedView(TopicAnswerView, frozen=True, kw_only=True):
    name: str
    topic_id: str


class RequestedView(msgspec.Struct, frozen=True):
    """The parameters of a create; -1 means the default, or that assignments give the count."""

    num_partitions: int
    replication_factor: int
    assignments: Mapping[str, tuple[int, ...]]
    configs: dict[str, str | None]


class RequestTopicView(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a request for one topic; `error` and `code` are null until it is answered."""

    topic: str
    topic_id: str | None
    status: str
    error: str | None
    code: int | None
    message: str
    rule: str
    policy: PolicyView | None
    waited_ms: int | None
    answered_at: str | None
    answered_at_ms: int | None
    wanted: str
    """The requested change as a sentence."""
    requested: RequestedView | None
    """The parameters of a create; null for a change."""


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its outcome for each topic."""

    request_id: str
    api: str
    api_version: int
    principal: str
    client_id: str | None
    host: str
    """The client's address; empty if the log does not hold it."""
    requested_at: str
    requested_at_ms: int
    requested_offset: int
    timeout_ms: int | None
    deadline_at: str | None
    deadline_at_ms: int | None
    topics: tuple[RequestTopicView, ...]


class EndpointView(msgspec.Struct, frozen=True):
    """A listener of a broker."""

    name: str
    host: str
    port: int


class BrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """A registered broker; it is fenced or live since `changed_at`, because of `reason`."""

    broker_id: int
    fenced: bool
    cordoned: bool
    """All log directories are cordoned: no new replicas are placed on it."""
    rack: str | None
    endpoints: tuple[EndpointView, ...]
    broker_epoch: int
    incarnation: str
    registered_at: str
    registered_at_ms: int
    changed_at: str
    changed_at_ms: int
    changed_offset: int
    reason: str


class BrokersView(msgspec.Struct, frozen=True):
    """The brokers by id, the ids of the live ones, and the settings that decisions depend on, by Kafka's names."""

    brokers: tuple[BrokerView, ...]
    live: tuple[int, ...]
    settings: dict[str, str]
    release: str
    as_of: AsOfView


class CauseView(msgspec.Struct, frozen=True):
    """The command that caused an event."""

    command: str
    request_id: str


class EventView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event; `fields` are those of its type in `events/catalog.py`. `partition` is present if the log is
    partitioned: each partition has offsets of its own."""

    offset: int
    at: str
    at_ms: int
    type: str
    text: str
    """The event as a sentence."""
    cause: CauseView
    fields: dict[str, Any]
    partition: int | None = None


class EventsView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of events; `next_cursor` is the `cursor` of the next page, absent on the last.

    In a list of one partition with the oldest first, `next` is the same as an offset for `from`; else it is null. The
    events of several partitions are ordered by time.
    """

    events: tuple[EventView, ...]
    next: int | None
    end: int
    """The offset of the next event to come; for several partitions the number of their events."""
    next_cursor: str | None = None


class StepView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of an explanation, `after_ms` after the first. `because` names the broker change that led to it, if
    any."""

    offset: int
    at: str
    at_ms: int
    after_ms: int
    event: str
    text: str
    because: str
    cause: CauseView
    partition: int | None = None


STEPS_FIRST = 100
"""The steps of a long explanation before the gap."""


class ExplanationView(msgspec.Struct, frozen=True, kw_only=True):
    """The chain of events behind a topic or a request. A long chain lacks `omitted` steps in its middle."""

    subject: str
    kind: Literal["topic", "request"]
    summary: str
    steps: tuple[StepView, ...]
    omitted: int


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """Liveness or readiness of the service. `reason` explains a failure, or names a problem that does not prevent
    deciding."""

    status: str
    reason: str = ""


class SimulatedBrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a simulated broker; `/brokers` has its state in the controller."""

    broker_id: int
    rack: str
    running: bool
    delay_ms: int


class ErrorView(msgspec.Struct, frozen=True, kw_only=True):
    """The name and code of Kafka's error, and a message. A refused topic also has the `rule` and the `request_id`."""

    error: str
    code: int
    message: str
    request_id: str = ""
    rule: str = ""


class ProblemView(ErrorView, frozen=True, kw_only=True):
    """An HTTP error response (RFC 9457): `type` and `title` name Kafka's error, `detail` is its message, and `instance`
    the path of the recorded request, empty if there is none."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
