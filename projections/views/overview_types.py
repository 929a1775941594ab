"""The JSON of what shows many things at once: requests by time, a summary, timelines.

`json_types` has the rest, and says what holds of all.
"""

from __future__ import annotations

import msgspec

from controller.policy.in_force import PolicyInForce
from projections.queries.differences import Change
from projections.views.json_types import AsOfView, BrokerView, EventView


class RequestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A request in a list. `topics` are the first ten of `num_topics`; `outcomes` counts them by how they fare, `done`
    is one that concerns no topic; `rules` are those that refused some of them.

    Where `counted`, these are refusals that have no record of their own: `outcomes` has their number, there is no
    request of this id, and the event at `requested_offset` says more.
    """

    request_id: str
    api: str
    principal: str
    client_id: str | None
    host: str
    """The client's address; empty where it is not known."""
    requested_at: str
    requested_at_ms: int
    requested_offset: int
    topics: tuple[str, ...]
    num_topics: int
    outcomes: dict[str, int]
    rules: tuple[str, ...]
    counted: bool


class RequestsView(msgspec.Struct, frozen=True):
    """A page of requests, the newest first; `next_cursor` is what to give as `cursor` for the next one, null at the
    end."""

    requests: tuple[RequestSummary, ...]
    next_cursor: str | None
    as_of: AsOfView


class FoldShape(msgspec.Struct, frozen=True, kw_only=True):
    """What one cause led to: a request, or whatever else happened, by its id and the kind of its command.

    `principal` and `client_id` are of a request's sender, null where nobody sent one; `texts` says the first twenty of
    `num_events` in words, `types` counts them.
    """

    cause: str
    command: str
    principal: str | None
    client_id: str | None
    at: str
    at_ms: int
    until_at: str
    until_at_ms: int
    first_offset: int
    last_offset: int
    num_events: int
    types: dict[str, int]
    texts: tuple[str, ...]


class TopicTimelineView(msgspec.Struct, frozen=True):
    """A page of a topic's history folded by cause, the newest first; `next_cursor` as in other lists."""

    folds: tuple[FoldShape, ...]
    next_cursor: str | None
    as_of: AsOfView


class SpanShape(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time, and how many events happened in it; its end belongs to the next one."""

    start_at: str
    start_at_ms: int
    end_at: str
    end_at_ms: int
    events: int


class TimelineView(msgspec.Struct, frozen=True):
    """How many events happened when; no spans where there are no events."""

    spans: tuple[SpanShape, ...]
    as_of: AsOfView


class RefusedByShape(msgspec.Struct, frozen=True):
    """How many topics of a principal were refused."""

    principal: str
    count: int


class RefusedView(msgspec.Struct, frozen=True, kw_only=True):
    """How many topics a rule refused, and of whom (ten at most); `more` where it was not counted to the end. `latest`
    is the newest request."""

    rule: str
    count: int
    by: tuple[RefusedByShape, ...]
    more: bool
    latest: RequestSummary


class WaitingView(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that was never complete, and what it waits for."""

    name: str
    created_at: str
    created_at_ms: int
    waits_for: str


class LoadView(msgspec.Struct, frozen=True):
    """How many partitions a broker leads, and how many replicas it has."""

    broker_id: int
    leaders: int
    replicas: int


class SummaryView(msgspec.Struct, frozen=True, kw_only=True):
    """What an engineer on call looks at first.

    Of the past it is not known what waited for what (`waiting` is empty, `requests_open` null), and topics and
    partitions are counted only where there are few enough events and topics; else these are null. `refused` counts the
    day before the newest event that the answer shows.
    """

    topics: int | None
    partitions: int | None
    topics_pending: int | None
    requests_open: int | None
    under_replicated_partitions: int | None
    offline_partitions: int | None
    """Without a leader."""
    placeholders: int | None
    loads: tuple[LoadView, ...]
    brokers_registered: int
    live: tuple[int, ...]
    fenced: tuple[int, ...]
    waiting: tuple[WaitingView, ...]
    """The first of those that wait."""
    refused: tuple[RefusedView, ...]
    newest: tuple[RequestSummary, ...]
    release: str
    as_of: AsOfView


class BrokerDetailView(BrokerView, frozen=True, kw_only=True):
    """A broker with the newest events of its own, the newest first; how many partitions it leads and how many replicas
    it has, null of a past with too many events or topics to count."""

    leaders: int | None
    replicas: int | None
    events: tuple[EventView, ...]
    as_of: AsOfView


class ConfigView(msgspec.Struct, frozen=True, kw_only=True):
    """A config in force. `source` is Kafka's (KIP-226): `DYNAMIC_TOPIC_CONFIG` is set for the topic, `DEFAULT_CONFIG`
    by nobody. `default` is Kafka's own value; `value` and `default` are null of a sensitive one."""

    name: str
    value: str | None
    source: str
    default: str | None
    sensitive: bool


class TopicConfigsView(msgspec.Struct, frozen=True):
    """All configs of a topic in the order of their names, as DescribeConfigs shows them."""

    configs: tuple[ConfigView, ...]
    as_of: AsOfView


class PoliciesView(msgspec.Struct, frozen=True, kw_only=True):
    """What judges topics before they are created. `class_names` are those of the settings that decide; `policies` have
    their rules, null where that is not known: of the past, and at a gateway, where workers judge. `refused` counts the
    day before the newest event that the answer shows, and the refusals of built-in rules too."""

    class_names: tuple[str, ...]
    policies: tuple[PolicyInForce, ...] | None
    refused: tuple[RefusedView, ...]
    as_of: AsOfView


class ValueView(msgspec.Struct, frozen=True):
    """A value before and after; null where there is none."""

    name: str
    before: str | None
    after: str | None


class TopicDifferenceView(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that is different. `recreated` is another topic of the same name; null stands where there is no topic.

    Of partitions that are there at both moments, so many have other replicas, leaders, in-sync sets.
    """

    name: str
    change: Change
    partitions_before: int | None
    partitions_after: int | None
    configs: tuple[ValueView, ...]
    other_replicas: int
    other_leaders: int
    other_isr: int


class BrokerDifferenceView(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that is different: how it was and is (`live`, `fenced`, `live, cordoned`; null: not registered), and
    why it is so."""

    broker_id: int
    before: str | None
    after: str | None
    reason: str


class ClusterDifferenceView(msgspec.Struct, frozen=True, kw_only=True):
    """Brokers, settings, features and permissions. `acls_…` are in words; `changes` are the events between the moments
    that changed quotas, users, features and the configs of what is no topic. `more`: there are more than were looked
    at."""

    brokers: tuple[BrokerDifferenceView, ...]
    settings: tuple[ValueView, ...]
    release: ValueView | None
    acls_added: tuple[str, ...]
    acls_removed: tuple[str, ...]
    changes: tuple[EventView, ...]
    more: bool


class DifferenceView(msgspec.Struct, frozen=True):
    """What is different between two moments, a page of topics at a time. `cluster` is on the first page, for who may
    describe the cluster, else null."""

    topics: tuple[TopicDifferenceView, ...]
    cluster: ClusterDifferenceView | None
    next_cursor: str | None
    before: AsOfView
    after: AsOfView


class VoterView(msgspec.Struct, frozen=True, kw_only=True):
    """A voter. `priority` says how much it wants to lead: null of Kafka's own controllers, and of who has not shown it
    to this node yet. How far its log goes, and how many records it lacks, are known where this node leads."""

    node_id: int
    host: str
    port: int
    priority: int | None
    log_end: int | None
    lag: int | None


class QuorumView(msgspec.Struct, frozen=True, kw_only=True):
    """The quorum. `leads_since` is when the epoch began, by its first record; null where that is not here. Below
    `high_watermark` all of the metadata log is committed, and below `applied` it is in this node's event log."""

    node_id: int
    role: str
    epoch: int
    leader: int | None
    leads_since: str | None
    leads_since_ms: int | None
    high_watermark: int
    applied: int
    voters: tuple[VoterView, ...]
