"""The JSON that people and programs get: structs that msgspec writes, the OpenAPI document describes, and the command
line reads back.

Topic ids are Kafka's base64url text. A time is there twice: ISO-8601 in UTC, and in ms since the epoch under `…_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from projections.views.topics import Status


class AsOfView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The moment that an answer shows: the newest event that it counts. `offset` is -1 before the first one.

    Of a log in partitions an answer shows either one `partition`, whose offset it is, or all: then `offset` counts the
    events of all of them together, and `ends` has the offset after the newest event of each.
    """

    offset: int
    at: str | None
    at_ms: int | None
    partition: int | None = None
    ends: tuple[int, ...] = ()


class CreatedByShape(msgspec.Struct, frozen=True):
    """Who requested a topic, and how."""

    request_id: str
    principal: str
    client_id: str | None
    api: str
    api_version: int


class ObservationShape(msgspec.Struct, frozen=True):
    """A refusal that a policy noted without enforcing it."""

    rule: str
    message: str


class PolicyShape(msgspec.Struct, frozen=True):
    """What the create-topic policies said (KIP-108)."""

    outcome: str
    policy: str
    rule: str
    message: str
    observed: tuple[ObservationShape, ...]


class PartitionView(msgspec.Struct, frozen=True):
    """A partition. `leader` is -1 without one; a negative replica is a placeholder; `offline` are the replicas that do
    not serve, placeholders included."""

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
    created_by: CreatedByShape | None
    ready_at: str | None
    ready_at_ms: int | None


class TopicView(TopicSummary, frozen=True, kw_only=True):
    """A topic in full. `policy` is null where no policy was set when it was created; `placed_on` are the brokers that
    were live then."""

    partitions: tuple[PartitionView, ...]
    policy: PolicyShape | None
    placed_on: tuple[int, ...]
    as_of: AsOfView


class TopicsView(msgspec.Struct, frozen=True):
    """A page of topics; `next_cursor` is what to give as `cursor` for the next one, null at the end. Where names are in
    order `next_after` is the same, and may be given as `after`, as may any name."""

    topics: tuple[TopicSummary, ...]
    next_after: str | None
    as_of: AsOfView
    next_cursor: str | None = None


class TopicAnswerView(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a request: Kafka's error, by name and number (`NONE`, 0), and its message."""

    request_id: str
    error: str
    code: int
    message: str


class CreatedView(TopicAnswerView, frozen=True, kw_only=True):
    """A created topic, or with `validate_only` the one that would have been created, and then without an id.

    `status` is `pending` where the wait ended before the topic was complete; `waited_ms` is how long that was.
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
    """A changed topic, or with `validate_only` as it would be: how many partitions it has, and its explicit configs."""

    name: str
    topic_id: str
    validate_only: bool
    num_partitions: int
    configs: dict[str, str]


class DeletedView(TopicAnswerView, frozen=True, kw_only=True):
    """A deleted topic."""

    name: str
    topic_id: str


class RequestedShape(msgspec.Struct, frozen=True):
    """What a create wanted; counts of -1 are for defaults, or stand beside assignments."""

    num_partitions: int
    replication_factor: int
    assignments: Mapping[str, tuple[int, ...]]
    configs: dict[str, str | None]


class RequestTopicView(msgspec.Struct, frozen=True, kw_only=True):
    """How one topic of a request fared; `error` and `code` are null while the answer is due."""

    topic: str
    topic_id: str | None
    status: str
    error: str | None
    code: int | None
    message: str
    rule: str
    policy: PolicyShape | None
    waited_ms: int | None
    answered_at: str | None
    answered_at_ms: int | None
    wanted: str
    """What the request wanted, in words."""
    asked: RequestedShape | None
    """What a create wanted; null for a change."""


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """A request and how each of its topics fared."""

    request_id: str
    api: str
    api_version: int
    principal: str
    client_id: str | None
    host: str
    """The client's address; empty where the log does not have it."""
    requested_at: str
    requested_at_ms: int
    requested_offset: int
    timeout_ms: int | None
    deadline_at: str | None
    deadline_at_ms: int | None
    topics: tuple[RequestTopicView, ...]


class EndpointShape(msgspec.Struct, frozen=True):
    """Where a broker listens."""

    name: str
    host: str
    port: int


class BrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """A registered broker; `changed_at` and `reason` say since when and why it is fenced or live."""

    broker_id: int
    fenced: bool
    cordoned: bool
    """All log directories are cordoned, so that new replicas are not placed on it."""
    rack: str | None
    endpoints: tuple[EndpointShape, ...]
    broker_epoch: int
    incarnation: str
    registered_at: str
    registered_at_ms: int
    changed_at: str
    changed_at_ms: int
    changed_offset: int
    reason: str


class BrokersView(msgspec.Struct, frozen=True):
    """The brokers by id, the ids of the live ones, and the settings that decide, by Kafka's names."""

    brokers: tuple[BrokerView, ...]
    live: tuple[int, ...]
    settings: dict[str, str]
    release: str
    as_of: AsOfView


class CauseView(msgspec.Struct, frozen=True):
    """The command that led to an event."""

    command: str
    request_id: str


class EventView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event; `fields` are those of its type in `events/catalog.py`. `partition` is there where the log has several,
    each with offsets of its own."""

    offset: int
    at: str
    at_ms: int
    type: str
    text: str
    """What it says, in words."""
    cause: CauseView
    fields: dict[str, Any]
    partition: int | None = None


class EventsView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of events; `next_cursor` is what to give as `cursor` for the next one, missing where these are the last.

    Where the oldest come first and the page shows one partition, `next` is the same as an offset for `from`, else null.
    The events of several partitions are in the order of their times.
    """

    events: tuple[EventView, ...]
    next: int | None
    end: int
    """The offset that the next event will have; of several partitions how many events they have together."""
    next_cursor: str | None = None


class StepView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a chain; `after_ms` since the first; `because` names the change of brokers that it follows from."""

    offset: int
    at: str
    at_ms: int
    after_ms: int
    event: str
    text: str
    because: str
    cause: CauseView
    partition: int | None = None


class ExplanationView(msgspec.Struct, frozen=True, kw_only=True):
    """The chain of events behind a topic or a request; `omitted` steps of a long one are left out of its middle."""

    subject: str
    kind: str
    summary: str
    steps: tuple[StepView, ...]
    omitted: int


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the service is alive, or ready to decide; `reason` says why not, or what else is not as it should be."""

    status: str
    reason: str = ""


class SimulatedBrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated broker as it was set up; what the controller knows of it is under `/brokers`."""

    broker_id: int
    rack: str
    running: bool
    delay_ms: int


class ErrorView(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong: Kafka's name and number for it, and a message in words.

    `request_id` and `rule` are there where a topic was refused: the request to look up, and the rule that decided.
    """

    error: str
    code: int
    message: str
    request_id: str = ""
    rule: str = ""


class ProblemView(ErrorView, frozen=True, kw_only=True):
    """Every answer over HTTP that is an error (RFC 9457): `type` and `title` stand for Kafka's error, `detail` is its
    message, `instance` the path of the request to look up, empty where there is none."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
