"""Queries about topics for the HTTP API, now and at any point in time: lists, one topic, its configs, and counts.

Current topics are read on the writing thread. An index lists the unhealthy topics; any other filter scans all topics by
name. The store keeps the current counts (`controller.store.topic_indexes`). Past counts are
computed topic by topic, in some tenths of a second. With too many topics, or too many events since the nearest
snapshot, there are no past counts.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache

import msgspec
from msgspec.structs import replace

from controller.machine.configs.topic_configs import has_label
from controller.machine.configs.views import described_configs
from controller.machine.state import Settings, Topic, settings_from_pairs
from controller.patterns import Pattern
from controller.store.topic_indexes import Tallies, Unhealthy, situations, tallied
from events.logs.snapshots import SnapshotDamaged, nearest_snapshot
from events.names import shard_key
from projections.queries.health import partition_issues
from projections.queries.past import KEYS_AT_ONCE, SCANNED_MAX, MayShow, TopicPage, everything
from projections.queries.query import Ends, Queries, Query
from projections.queries.snapshot_rows import has_more_topics
from projections.text.names import WantedStatus
from projections.views import topics as topic_views
from projections.views.rows import TopicRow
from projections.views.view import IssueView, view_of


class TopicFilter(msgspec.Struct, frozen=True):
    """A filter of topics; None matches all. `not-ready` is every status but `ready`; `placeholders` selects topics with
    or without placeholders; `principal` matches who created the topic; `label` is `NAME=VALUE`, or `NAME` for any
    value."""

    name: Pattern | None = None
    status: WantedStatus | None = None
    placeholders: bool | None = None
    principal: Pattern | None = None
    label: str | None = None

    @property
    def is_unhealthy(self) -> bool:
        """True if only topics of the index of unhealthy topics can match."""
        return self.placeholders is True or self.status not in (None, "ready")

    def matches_name(self, name: str) -> bool:
        """True if a topic of this name may match."""
        return self.name is None or self.name.is_found_in(name)

    def matches(self, one: topic_views.TopicSummary) -> bool:
        """True if a topic matches, given that its name does."""
        by = one.created_by.principal if one.created_by else ""
        return (
            (self.status in (None, one.status) or (self.status == "not-ready" and one.status != "ready"))
            and self.placeholders in (None, one.placeholders > 0)
            and (self.principal is None or self.principal.is_found_in(by))
            and (self.label is None or has_label(one.configs.items(), self.label))
        )


EVERY_TOPIC = TopicFilter()


def labelled(query: Queries, label: str | None, allows: Callable[[str], bool]) -> Callable[[str], bool] | None:
    """A function, for any thread, that tells whether the topic of a name exists, has the label now, and `allows` its
    name; None without a label."""
    if label is None:
        return None

    @cache
    def is_labelled(name: str) -> bool:
        slices = query.of_topic(name).live().durable_topics((), (shard_key(name),))
        found = (topic for topics in slices for topic in topics if topic.name == name)
        return allows(name) and any(has_label(topic.configs, label) for topic in found)

    return is_labelled


def glob(text: str) -> Pattern:
    """A pattern of whole names; `*` matches any characters and `?` one. Raises PatternError."""
    signs = {"*": ".*", "?": "."}
    return Pattern("^(?s:" + "".join(signs.get(each) or f"\\x{{{ord(each):x}}}" for each in text) + ")$")


def summaries(
    rows: Iterable[TopicRow], live: topic_views.Live, which: TopicFilter
) -> tuple[topic_views.TopicSummary, ...]:
    return tuple(one for row in rows if which.matches(one := topic_views.topic_summary(row, live)))


def topics_at(
    query: Queries,
    at: str,
    after: str | None,
    limit: int,
    may_show: MayShow = everything,
    place: Callable[[str], str] = str,
    which: TopicFilter = EVERY_TOPIC,
) -> topic_views.TopicsView:
    """A page of the topics at a point in time that the caller may see. `place` encodes the shard key after which the
    next page starts, if that is not the key of a visible topic. Raises InvalidPointInTime."""
    end = query.end(at)
    page, live = query.topics_at(end, after, limit, may_show), query.cluster_at(end).live
    return topic_views.TopicsView(summaries(page.rows, live, which), query.as_of(end), _after(page, place))


def _after(page: TopicPage, place: Callable[[str], str]) -> str | None:
    if page.rows and page.reached == shard_key(page.rows[-1].name):
        return page.rows[-1].name
    return None if page.reached is None else place(page.reached)


Newest = tuple[Topic, int]
"""A current topic, and the end of its log."""


def topic_at(part: Query, name: str, at: str | None, newest: Newest | None = None) -> topic_views.TopicView:
    """A topic now, if `newest` is given, or at a point in time. Raises NoTopic, InvalidPointInTime."""
    topic, end = newest or (None, part.end(at))
    row = part.topic_at(name, end) if topic is None else part.row(topic)
    return topic_views.topic_view(row, part.cluster_at(end).live, issues_of(part, row, end), part.as_of(end))


def issues_of(part: Query, row: TopicRow, end: int) -> tuple[IssueView, ...]:
    """The problems of the partitions of a topic, with their causes."""
    brokers, settings = part.cluster_at(end).brokers, settings_at(part, end)
    return tuple(partition_issues(tallied((row,)), (), brokers, settings, of=row.name))


def configs_at(part: Query, name: str, at: str | None, newest: Newest | None = None) -> topic_views.TopicConfigsView:
    """The effective configs of a topic, as for `topic_at`."""
    topic, end = newest or (None, part.end(at))
    configs, settings = (topic or part.topic_at(name, end)).configs, settings_at(part, end)
    builtin = {entry.name: entry.value for entry in described_configs((), ())}
    effective = described_configs(configs, settings.topic_defaults, settings.dynamic_defaults)
    defaults = {entry.name: None if entry.sensitive else builtin.get(entry.name) for entry in effective}
    found = (
        view_of(topic_views.ConfigView, one, source=one.source.name, default=defaults[one.name]) for one in effective
    )
    return topic_views.TopicConfigsView(tuple(found), part.as_of(end))


def settings_at(part: Query, end: int) -> Settings:
    """The settings at a point in time, with the dynamic configs of all brokers (the default resource)."""
    row = part.cluster_at(end)
    return replace(settings_from_pairs(row.settings), dynamic_defaults=row.dynamic_defaults)


TOPICS_MAX, PARTITIONS_MAX = 1_500, 15_000
"""The maximum number of topics and partitions to count. Counting takes a tenth of a millisecond for each topic."""


class Counted(msgspec.Struct, frozen=True):
    """Counts of topics at a point in time; `pending` topics were never ready."""

    topics: int
    partitions: int
    pending: int
    tallies: Tallies
    unhealthy: Iterable[Unhealthy]
    """The topics with unhealthy partitions; for the present from the index."""


def counted_at(query: Queries, end: Ends) -> Counted | None:
    """The counts at a point in time; None if counting would take too long."""
    rows: list[TopicRow] = []
    partitions = 0
    for part, own in zip(query.parts, end, strict=True):
        after: str | None = ""
        if _is_too_much(part, own):
            return None
        while after is not None:
            if len(rows) > TOPICS_MAX or partitions > PARTITIONS_MAX:
                return None
            page = part.topics_at(own, after, KEYS_AT_ONCE)
            rows += page.rows
            partitions, after = sum(len(row.partitions) for row in rows), page.reached
    pending = sum(row.ready_at_ms is None for row in rows)
    some = tuple(Unhealthy(row.name, found) for row in rows if (found := situations(row)))
    return Counted(len(rows), partitions, pending, tallied(rows), some)


def _is_too_much(part: Query, end: int) -> bool:
    """True if the nearest snapshot has too many topics, or is too far away."""
    snapshot = nearest_snapshot(part.log, end)
    if snapshot is None:
        return end > SCANNED_MAX
    with snapshot, suppress(SnapshotDamaged):
        return end - snapshot.offset > SCANNED_MAX or has_more_topics(snapshot, TOPICS_MAX)
    return False
