"""The views about the whole cluster in the HTTP API: health, policies, differences, the quorum."""

from typing import Literal

import msgspec

from projections.views.brokers import BrokerView, RulesVersionView, RuleView
from projections.views.events import EventView, RecordedChangeView, ValueView
from projections.views.requests import RequestSummary
from projections.views.view import AsOfView, IssueKind, IssueView


class RefusedView(msgspec.Struct, frozen=True, kw_only=True):
    """The number of topics that a rule refused. If counting stopped early, `more` is true. `latest` is the newest
    request."""

    rule: str
    count: int
    more: bool
    latest: RequestSummary


ClusterState = Literal["healthy", "degraded", "critical", "unknown"]


class ClusterHealthView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the cluster at a glance: `summary` is one sentence, `issues` are its problems, the worst first.

    For the past topics that are not ready have no issue, because events do not hold what
    these wait for. The counts of topics and partitions are null, and the state `unknown` without other issues, if
    counting would take too long. `refused` covers the day before the newest event.
    """

    state: ClusterState
    summary: str
    issues: tuple[IssueView, ...]
    topics: int | None = None
    partitions: int | None = None
    topics_pending: int | None = None
    under_replicated_partitions: int | None = None
    offline_partitions: int | None = None
    placeholders: int | None = None
    brokers_registered: int
    live: tuple[int, ...]
    fenced: tuple[int, ...]
    refused: tuple[RefusedView, ...]
    newest: tuple[RequestSummary, ...]
    release: str
    as_of: AsOfView


class TopicsWhatIfView(msgspec.Struct, frozen=True):
    """The topics whose worst problem would change from `before` to `after` (null: healthy), or that would have it in
    more partitions, and the number of the latter. `examples` are the first hundred topics."""

    is_worse: bool
    before: IssueKind | None
    after: IssueKind | None
    topics: int
    partitions: int
    examples: tuple[str, ...]

    @property
    def then(self) -> str:
        return f"more {self.after}" if self.after == self.before else self.after or "healthy"


class RefusedCreateView(msgspec.Struct, frozen=True):
    """A replication factor with which topics can be created now, but could not after the change."""

    replication_factor: int
    error: str
    message: str


class WhatIfView(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a change would lead to: `changes` are its events as sentences, `issues` all problems then. If not
    `is_complete`, only `topics_read` topics are counted so far."""

    summary: str
    changes: tuple[str, ...]
    topics: tuple[TopicsWhatIfView, ...]
    creates: tuple[RefusedCreateView, ...]
    issues: tuple[IssueView, ...]
    topics_read: int
    is_complete: bool
    as_of: AsOfView


class BrokerDetailView(BrokerView, frozen=True, kw_only=True):
    """A broker with its newest events, the newest first. `leaders` and `replicas` count its partitions; null if
    counting would take too long."""

    leaders: int | None
    replicas: int | None
    events: tuple[EventView, ...]
    as_of: AsOfView


class PoliciesView(msgspec.Struct, frozen=True, kw_only=True):
    """The effective rules for changes of topics; null before any were applied."""

    version: RulesVersionView | None
    rules: tuple[RuleView, ...]
    as_of: AsOfView


class AccessView(msgspec.Struct, frozen=True, kw_only=True):
    """The effective ACLs, SCRAM users and quotas: with `ClusterAcls` those of the target cluster. If `more`, there are
    others than the first ones."""

    acls: tuple[str, ...]
    users: tuple[str, ...]
    quotas: tuple[str, ...]
    more: bool
    as_of: AsOfView


TopicChange = Literal["created", "deleted", "recreated", "changed"]


class TopicDifferenceView(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that differs between two points in time. The change `recreated` means another topic of the same name.
    Counts are null without a topic; `other_…` count the partitions in both topics whose replicas, leader or ISR
    differ. `changes` are the newest events that changed the topic, with the principal of each."""

    name: str
    change: TopicChange
    partitions_before: int | None
    partitions_after: int | None
    configs: tuple[ValueView, ...]
    other_replicas: int
    other_leaders: int
    other_isr: int
    changes: tuple[RecordedChangeView, ...]


class BrokerDifferenceView(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that differs: its states (`live`, `fenced`, `live, cordoned`; null if not registered), and the reason of
    the later state."""

    broker_id: int
    before: str | None
    after: str | None
    reason: str


class ClusterDifferenceView(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of brokers, settings and access. `acls_…` are sentences. `changes` are the events that changed
    quotas, users, features and the configs of other resources than topics. If `more`, not all events were read."""

    brokers: tuple[BrokerDifferenceView, ...]
    settings: tuple[ValueView, ...]
    release: ValueView | None
    acls_added: tuple[str, ...]
    acls_removed: tuple[str, ...]
    changes: tuple[EventView, ...]
    more: bool


class DifferenceView(msgspec.Struct, frozen=True):
    """A page of the differences between two points in time. `cluster` is on the first page, for callers who may
    describe the cluster; else null."""

    topics: tuple[TopicDifferenceView, ...]
    cluster: ClusterDifferenceView | None
    next_cursor: str | None
    before: AsOfView
    after: AsOfView


class VoterView(msgspec.Struct, frozen=True, kw_only=True):
    """A voter. `priority` is its leader priority, null if unknown, as for Kafka's own controllers. `log_end` and `lag`
    are known only to the leader."""

    node_id: int
    host: str
    port: int
    priority: int | None
    log_end: int | None
    lag: int | None


class QuorumView(msgspec.Struct, frozen=True, kw_only=True):
    """The controller quorum as this voter sees it. `leads_since` is the time of the epoch's first record, null if this
    log lacks it. Records below `high_watermark` are committed; those below `applied` are in this node's event log."""

    node_id: int
    role: str
    epoch: int
    leader: int | None
    leads_since: str | None
    leads_since_ms: int | None
    high_watermark: int
    applied: int
    voters: tuple[VoterView, ...]
