"""Finds the problems of a cluster with their causes: for `/v1/health`, and for what-if questions.

Each unhealthy partition counts in one problem, its worst: offline, below min.insync.replicas, at risk of an unclean
election, at min.insync.replicas, with placeholders, or only under-replicated. Partitions of one kind that wait for the
same brokers are one problem.

Method. The store counts partitions by situation (`controller.store.topic_indexes`), so the cost depends on the
number of different situations, not of topics. Only the example topics are looked up, among the first unhealthy ones.
Times and reasons come from the events of the awaited brokers, or of an example topic if these brokers are live.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from controller.machine.configs.topic_configs import allows_unclean_election, min_insync_replicas
from controller.machine.observing import not_propagated
from controller.machine.state import Cluster, Settings, Topic
from controller.store.topic_indexes import Situation, Tallies, Unhealthy, situations
from events.catalog import PartitionChanged, PartitionsAdded, TopicCreated
from events.names import BrokerId
from projections.queries.events import newest_of
from projections.queries.query import Ends, Queries
from projections.text.wording import many
from projections.views.brokers import BrokerView
from projections.views.view import IssueKind, IssueView, Severity, maybe_iso

ISSUES_MAX = 20
EXAMPLES_MAX = 3
UNHEALTHY_SCANNED_MAX = 2000
"""Unhealthy topics among which examples are looked up."""
EVENTS_SCANNED_MAX = 50
BROKERS_NAMED_MAX = 5
SLOW_MS = 1000
"""A topic that is not ready after this time is a problem."""
_PLACING = PartitionChanged | PartitionsAdded | TopicCreated
Brokers = Mapping[BrokerId, BrokerView]

_TEXTS: Mapping[IssueKind, str] = {
    "offline": "{is} offline",
    "under-min-isr": "{has} fewer in-sync replicas than min.insync.replicas: producers with acks=all are refused",
    "unclean-risk": "{has} one in-sync replica and unclean leader election: if this replica fails, records are lost",
    "at-min-isr": "{has} just min.insync.replicas replicas in sync: with one less, producers with acks=all are refused",
    "placeholders": "{has} replicas without a broker (KIP-409)",
    "under-replicated": "{is} under-replicated, with more than min.insync.replicas in sync",
}
"""The kinds of partition problems, the worst first."""
SEVERITY_ORDER = tuple(_TEXTS)
_WARNINGS = frozenset((*SEVERITY_ORDER[2:], "waiting-creates", "slow-propagation", "broker-away", "archive-lost"))


def issue(
    kind: IssueKind, text: str, cause: str, resolution: str, began_ms: int | None = None, **more: Any
) -> IssueView:
    """A problem, with its severity; `more` are other fields."""
    severity: Severity = "warning" if kind in _WARNINGS else "critical"
    return IssueView(kind, severity, text, cause, resolution, maybe_iso(began_ms), began_ms, **more)


def kind_of(one: Situation, settings: Settings) -> IssueKind:
    """The worst problem of a partition in this situation. `settings` have the defaults of its topic's configs."""
    min_isr = min(min_insync_replicas((), settings), one.replicas) if one.min_isr is None else one.min_isr
    if one.is_offline:
        return "offline"
    if one.isr < min_isr:
        return "under-min-isr"
    if one.isr == 1 and _is_unclean(one, settings):
        return "unclean-risk"
    if one.isr == min_isr:
        return "at-min-isr"
    return "under-replicated" if one.awaited else "placeholders"


def _is_unclean(one: Situation, settings: Settings) -> bool:
    return allows_unclean_election((), settings) if one.unclean is None else one.unclean


class _Cause(NamedTuple):
    """The facts by which partitions are grouped to a problem."""

    kind: IssueKind
    awaited: tuple[BrokerId, ...]
    is_unclean: bool
    needs_broker: bool

    @property
    def is_offline(self) -> bool:
        return self.kind == "offline"


def _cause_of(one: Situation, settings: Settings) -> _Cause:
    is_unclean = one.is_offline and _is_unclean(one, settings)
    needs_broker = not one.awaited or (one.placeholders > 0 and not one.is_offline)
    return _Cause(kind_of(one, settings), one.awaited, is_unclean, needs_broker)


def partition_issues(
    tallies: Tallies,
    unhealthy: Iterable[Unhealthy],
    brokers: Brokers,
    settings: Settings,
    log: tuple[Queries, Ends] | None = None,
    of: str = "",
) -> Iterator[IssueView]:
    """The problems of partitions, the worst first. `unhealthy` are the topics to choose examples from; `log` tells
    since when they wait for a live broker; `of` is the only topic, if one is in question."""
    counts: dict[_Cause, tuple[int, int]] = {}
    for one, (partitions, topics) in tallies.situations.items():
        cause = _cause_of(one, settings)
        had = counts.get(cause, (0, 0))
        counts[cause] = (had[0] + partitions, had[1] + topics)
    worst = sorted(counts, key=lambda one: (SEVERITY_ORDER.index(one.kind), -counts[one][0], one.awaited))[:ISSUES_MAX]
    examples: dict[_Cause, list[str]] = {cause: [] for cause in worst}
    for topic in islice(unhealthy, UNHEALTHY_SCANNED_MAX):
        for cause in {_cause_of(one, settings) for one in topic.situations} & examples.keys():
            if len(examples[cause]) < EXAMPLES_MAX:
                examples[cause].append(topic.name)
    for cause in worst:
        partitions, topics = counts[cause]
        began = [brokers[one].changed_at_ms for one in cause.awaited if one in brokers and _is_away(brokers[one])]
        began_ms = (min if cause.kind == "under-replicated" else max)(began, default=None)
        if began_ms is None and examples[cause] and log is not None:
            began_ms = _changed_ms(*log, examples[cause][0])
        verbs = {"is": "is", "has": "has"} if partitions == 1 else {"is": "are", "has": "have"}
        yield issue(
            cause.kind,
            f"{many(partitions, 'partition')} of {of or many(topics, 'topic')} {_TEXTS[cause.kind].format_map(verbs)}",
            f"{'it waits' if partitions == 1 else 'all wait'} for {_awaited(cause, brokers)}",
            _resolution(cause, brokers),
            began_ms,
            partitions=partitions,
            topics=topics,
            waits_for=cause.awaited,
            examples=tuple(examples[cause]),
            evidence=_pages(f"/topics?status={'offline' if cause.is_offline else 'under-replicated'}", cause.awaited),
        )


def _changed_ms(query: Queries, end: Ends, name: str) -> int | None:
    """The time of the newest event that created or changed partitions of a topic."""
    part = query.of_topic(name)
    newest = islice(newest_of(part, name, end[query.parts.index(part)]), EVENTS_SCANNED_MAX)
    return next((record.at_ms for record in newest if isinstance(record.event, _PLACING)), None)


def _is_away(broker: BrokerView) -> bool:
    return broker.fenced or broker.leaving


def _pages(topics: str, brokers: Sequence[BrokerId]) -> tuple[str, ...]:
    return (topics, *(f"/brokers/{one}" for one in brokers[:BROKERS_NAMED_MAX]))


def _awaited(cause: _Cause, brokers: Brokers) -> str:
    parts = []
    if cause.awaited:
        one_of = "one of these: " if cause.is_offline and len(cause.awaited) > 1 else ""
        last = ", the last in-sync replica" if cause.is_offline and not one_of else ""
        parts.append(one_of + _states(cause.awaited, brokers, f"{last}, "))
    if cause.needs_broker:
        parts.append("a new broker, because fewer brokers are usable than the replication factor")
    return ", and for ".join(parts)


def _state(broker: BrokerView | None) -> str:
    if broker is None:
        return "not registered"
    since = f"{broker.changed_at[:19]}Z"
    if broker.fenced:
        return f"fenced since {since} ({broker.reason})"
    return f"in controlled shutdown since {since}" if broker.leaving else "live but out of sync"


def _states(ids: Sequence[BrokerId], brokers: Brokers, link: str) -> str:
    states = "; ".join(f"broker {one}{link}{_state(brokers.get(one))}" for one in ids[:BROKERS_NAMED_MAX])
    return states + (f"; and {len(ids) - BROKERS_NAMED_MAX} more" if len(ids) > BROKERS_NAMED_MAX else "")


def _names(ids: Sequence[BrokerId]) -> str:
    named = ", ".join(map(str, ids[:BROKERS_NAMED_MAX])) + (", …" if len(ids) > BROKERS_NAMED_MAX else "")
    return f"{'broker' if len(ids) == 1 else 'brokers'} {named}"


def _resolution(cause: _Cause, brokers: Brokers) -> str:
    gone = [one for one in cause.awaited if one not in brokers]
    away = [one for one in cause.awaited if one in brokers and _is_away(brokers[one])]
    live = [one for one in cause.awaited if one not in gone and one not in away]
    steps = []
    if away:
        steps.append(f"start {'one of ' if cause.is_offline and len(away) > 1 else ''}{_names(away)}")
    if live:
        steps.append(f"check log, disks and load of {_names(live)}")
    if gone:
        steps.append(f"register {_names(gone)} again, or reassign these partitions")
    if cause.is_unclean:
        steps.append("or start any other replica, which then leads without the newest records")
    elif cause.is_offline:
        steps.append("or, if these records are lost for good, elect another replica uncleanly")
    if cause.needs_broker:
        steps.append("add a broker")
    return "; ".join(steps)


def broker_issues(brokers: Brokers, found: Iterable[IssueView]) -> Iterator[IssueView]:
    """The problem that no broker is live, or that brokers are not live for which none of the problems `found` waits."""
    away = tuple(sorted(one for one, broker in brokers.items() if _is_away(broker)))
    kind: IssueKind = "no-live-broker" if len(away) == len(brokers) else "broker-away"
    text = "no broker is live: no topic can be created"
    if kind == "broker-away":
        awaited = {broker_id for one in found for broker_id in one.waits_for}
        away = tuple(one for one in away if one not in awaited)
        text = f"{_names(away)} {'is' if len(away) == 1 else 'are'} not live"
    if away:
        began_ms, pages = max(brokers[one].changed_at_ms for one in away), _pages("/brokers", away)
        cause = _states(away, brokers, " is ")
        yield issue(kind, text, cause, f"start {_names(away)}", began_ms, waits_for=away, evidence=pages)


def waiting_issues(waiting: Sequence[Topic], total: int, cluster: Cluster, now_ms: int) -> Iterator[IssueView]:
    """The problems of topics that are not ready for some time: `waiting` are the first of `total`."""
    groups: dict[tuple[IssueKind, tuple[BrokerId, ...]], list[Topic]] = {}
    for topic in waiting:
        if now_ms - topic.created_at_ms >= SLOW_MS:
            groups.setdefault(waits_for(topic, cluster.live), []).append(topic)
    least = "at least " if len(waiting) < total else ""
    for (kind, brokers), topics in groups.items():
        is_, they = ("is", "it waits") if len(topics) == 1 else ("are", "all wait")
        step = "start" if kind == "waiting-creates" else "check the load and the network of"
        yield issue(
            kind,
            f"{least}{many(len(topics), 'topic')} {is_} not ready",
            f"{they} for {waiting_text(kind, brokers)}" if brokers else "",
            f"{step} {_names(brokers)}" if brokers else "",
            min(topic.created_at_ms for topic in topics),
            topics=len(topics),
            waits_for=brokers,
            examples=tuple(topic.name for topic in topics[:EXAMPLES_MAX]),
            evidence=_pages("/topics?status=pending", brokers),
        )


def waits_for(topic: Topic, live: Collection[BrokerId]) -> tuple[IssueKind, tuple[BrokerId, ...]]:
    """The kind of problem of a topic that is not ready, and the brokers that it waits for."""
    leaderless = {one for situation in situations(topic) if situation.is_offline for one in situation.awaited}
    leaderless |= {one.leader for one in topic.partitions if 0 <= one.leader not in live}
    if leaderless:
        return "waiting-creates", tuple(sorted(leaderless))
    return "slow-propagation", not_propagated(topic, sorted(live))


def waiting_text(kind: IssueKind, brokers: Sequence[BrokerId]) -> str:
    """The event that a topic waits for which is not ready."""
    return f"{'a leader on' if kind == 'waiting-creates' else 'the metadata to be applied by'} {_names(brokers)}"
