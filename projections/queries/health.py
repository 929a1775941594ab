"""Finds the problems of a cluster with their causes: for `/v1/health`, and for what-if questions.

Each unhealthy partition counts in one problem, its worst: offline, below min.insync.replicas, at risk of an unclean
election, at min.insync.replicas, with placeholders, or only under-replicated. Partitions of one kind that wait for the
same brokers are one problem.

Method. The store counts partitions by situation (`controller.store.topic_indexes`), so the cost depends on the
number of different situations, not of topics. Only the example topics are looked up, among the first unhealthy ones.
Times and reasons come from the events of the awaited brokers, or of an example topic if these brokers are live.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from controller.machine.configs.topic_configs import allows_unclean_election, min_insync_replicas
from controller.machine.readiness import not_propagated
from controller.machine.state import Cluster, Settings, Topic
from controller.store.topic_indexes import Situation, Tallies, Unhealthy, situations
from events.catalog import PartitionChanged, PartitionsAdded, TopicCreated
from events.names import BrokerId
from projections.queries.events import newest_of_topic
from projections.queries.query import Ends, Queries
from projections.text.points_in_time import iso
from projections.text.wording import many
from projections.views.brokers import BrokerView
from projections.views.issues import IssueKind, IssueView, Severity

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

_TEXTS: Mapping[str, tuple[str, str]] = {
    "offline": ("is offline", "are offline"),
    "under-min-isr": (
        "has fewer in-sync replicas than min.insync.replicas: producers with acks=all are refused",
        "have fewer in-sync replicas than min.insync.replicas: producers with acks=all are refused",
    ),
    "unclean-risk": (
        "has one in-sync replica and allows unclean leader election: if this replica fails, records are lost",
        "have one in-sync replica and allow unclean leader election: if it fails, records are lost",
    ),
    "at-min-isr": (
        "has just min.insync.replicas replicas in sync: with one less it refuses producers with acks=all",
        "have just min.insync.replicas replicas in sync: with one less they refuse producers with acks=all",
    ),
    "placeholders": ("has replicas without a broker (KIP-409)", "have replicas without a broker (KIP-409)"),
    "under-replicated": (
        "is under-replicated, with more than min.insync.replicas in sync",
        "are under-replicated, with more than min.insync.replicas in sync",
    ),
}
"""The kinds of partition problems, the worst first: texts for one partition and for several."""
SEVERITY_ORDER = tuple(_TEXTS)
_CRITICAL = ("offline", "under-min-isr")


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
    has_placeholders: bool


def _cause_of(one: Situation, settings: Settings) -> _Cause:
    is_unclean = one.is_offline and _is_unclean(one, settings)
    return _Cause(kind_of(one, settings), one.awaited, is_unclean, one.placeholders > 0 and not one.is_offline)


def partition_issues(
    tallies: Tallies,
    unhealthy: Iterable[Unhealthy],
    brokers: Brokers,
    settings: Settings,
    since: tuple[Queries, Ends] | None = None,
    of: str = "",
) -> tuple[IssueView, ...]:
    """The problems of partitions, the worst first. `unhealthy` are the topics to choose examples from; `since` is the
    log that tells since when they wait for a live broker; `of` is the only topic, if one is in question."""
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
    return tuple(_partition_issue(cause, *counts[cause], examples[cause], brokers, since, of) for cause in worst)


def _partition_issue(
    cause: _Cause,
    partitions: int,
    topics: int,
    examples: Sequence[str],
    brokers: Brokers,
    log: tuple[Queries, Ends] | None,
    of: str,
) -> IssueView:
    began = [one.changed_at_ms for one in map(brokers.get, cause.awaited) if one is not None and _is_away(one)]
    began_ms = (min if cause.kind == "under-replicated" else max)(began, default=None)
    if began_ms is None and examples and log is not None:
        began_ms = _changed_ms(*log, examples[0])
    they = "it waits" if partitions == 1 else "all wait"
    what = f"{many(partitions, 'partition')} of {of or many(topics, 'topic')}"
    status = "offline" if cause.kind == "offline" else "under-replicated"
    return IssueView(
        kind=cause.kind,
        severity="critical" if cause.kind in _CRITICAL else "warning",
        text=f"{what} {_TEXTS[cause.kind][partitions != 1]}",
        cause=f"{they} for {_awaited(cause, brokers)}",
        resolution=_resolution(cause, brokers),
        partitions=partitions,
        topics=topics,
        waits_for=cause.awaited,
        began_at=None if began_ms is None else iso(began_ms),
        began_at_ms=began_ms,
        examples=tuple(examples),
        evidence=(f"/topics?status={status}", *_pages(cause.awaited)),
    )


def _changed_ms(query: Queries, end: Ends, name: str) -> int | None:
    """The time of the newest event that created or changed partitions of a topic."""
    part = query.of_topic(name)
    newest = islice(newest_of_topic(part, name, end[query.parts.index(part)]), EVENTS_SCANNED_MAX)
    return next((record.at_ms for record in newest if isinstance(record.event, _PLACING)), None)


def _is_away(broker: BrokerView) -> bool:
    return broker.fenced or broker.leaving


def _awaited(cause: _Cause, brokers: Brokers) -> str:
    parts = []
    if cause.awaited:
        states = [(f"broker {one}", _state(brokers.get(one))) for one in cause.awaited[:BROKERS_NAMED_MAX]]
        more = len(cause.awaited) - len(states)
        if len(cause.awaited) == 1:
            last = "the last in-sync replica, " if cause.kind == "offline" else ""
            parts.append(f"broker {cause.awaited[0]}, {last}{states[0][1]}")
        else:
            one_of = "one of " if cause.kind == "offline" else ""
            listed = "; ".join(f"{name} is {state}" for name, state in states) + (f"; and {more} more" if more else "")
            parts.append(f"{one_of}{_names(cause.awaited)}: {listed}")
    if cause.has_placeholders or not cause.awaited:
        parts.append("a new broker, because fewer brokers are usable than the replication factor")
    return ", and for ".join(parts)


def _state(broker: BrokerView | None) -> str:
    if broker is None:
        return "not registered"
    since = f"{broker.changed_at[:19]}Z"
    if broker.fenced:
        return f"fenced since {since} ({broker.reason})"
    return f"in controlled shutdown since {since}" if broker.leaving else "live but out of sync"


def _names(ids: Sequence[BrokerId]) -> str:
    named = ", ".join(map(str, ids[:BROKERS_NAMED_MAX])) + (", …" if len(ids) > BROKERS_NAMED_MAX else "")
    return f"{'broker' if len(ids) == 1 else 'brokers'} {named}"


def _resolution(cause: _Cause, brokers: Brokers) -> str:
    known = {one: brokers.get(one) for one in cause.awaited}
    away = [one for one, broker in known.items() if broker is not None and _is_away(broker)]
    live = [one for one, broker in known.items() if broker is not None and not _is_away(broker)]
    gone = [one for one, broker in known.items() if broker is None]
    steps = []
    if away:
        steps.append(f"start {'one of ' if cause.kind == 'offline' and len(away) > 1 else ''}{_names(away)}")
    if live:
        steps.append(f"check log, disks and load of {_names(live)}")
    if gone:
        steps.append(f"register {_names(gone)} again, or reassign these partitions")
    if cause.kind == "offline" and cause.is_unclean:
        steps.append("or start any other replica, which then leads without the newest records")
    elif cause.kind == "offline":
        steps.append("or, if these records are lost for good, elect another replica uncleanly")
    if cause.has_placeholders or not cause.awaited:
        steps.append("add a broker")
    return "; ".join(steps)


def _pages(brokers: Iterable[BrokerId]) -> tuple[str, ...]:
    return tuple(f"/brokers/{one}" for one in islice(brokers, BROKERS_NAMED_MAX))


def broker_issues(brokers: Brokers, awaited: Iterable[int]) -> tuple[IssueView, ...]:
    """Problems of brokers that no partition waits for, and that no broker is live."""
    away = tuple(sorted(one for one, broker in brokers.items() if _is_away(broker)))
    idle = tuple(one for one in away if one not in set(awaited))
    found = []
    if brokers and len(away) == len(brokers):
        found.append(("no-live-broker", "critical", "no broker is live: no topic can be created", away))
    elif idle:
        are = "is not live" if len(idle) == 1 else "are not live"
        found.append(("broker-away", "warning", f"{_names(idle)} {are}", idle))
    return tuple(
        IssueView(
            kind=kind,  # type: ignore[arg-type]
            severity=severity,  # type: ignore[arg-type]
            text=text,
            cause="; ".join(f"broker {one} is {_state(brokers[one])}" for one in which[:BROKERS_NAMED_MAX]),
            resolution=f"start {_names(which)}",
            waits_for=which,
            began_at=iso(began_ms),
            began_at_ms=began_ms,
            evidence=_pages(which),
        )
        for kind, severity, text, which in found
        for began_ms in (max(brokers[one].changed_at_ms for one in which),)
    )


def waiting_issues(waiting: Sequence[Topic], total: int, cluster: Cluster, now_ms: int) -> tuple[IssueView, ...]:
    """The problems of topics that are not ready for some time: `waiting` are the first of `total`."""
    groups: dict[tuple[IssueKind, tuple[BrokerId, ...]], list[Topic]] = {}
    for topic in waiting:
        if now_ms - topic.created_at_ms >= SLOW_MS:
            groups.setdefault(waits_for(topic, cluster.live), []).append(topic)
    least = "at least " if len(waiting) < total else ""
    return tuple(_waiting_issue(kind, brokers, topics, least) for (kind, brokers), topics in groups.items())


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


def _waiting_issue(kind: IssueKind, brokers: tuple[BrokerId, ...], topics: Sequence[Topic], least: str) -> IssueView:
    began_ms = min(topic.created_at_ms for topic in topics)
    step = "start" if kind == "waiting-creates" else "check the load and the network of"
    return IssueView(
        kind=kind,
        severity="warning",
        text=f"{least}{many(len(topics), 'topic')} {'is' if len(topics) == 1 else 'are'} not ready",
        cause=f"{'it waits' if len(topics) == 1 else 'all wait'} for {waiting_text(kind, brokers)}" if brokers else "",
        resolution=f"{step} {_names(brokers)}" if brokers else "",
        topics=len(topics),
        waits_for=brokers,
        began_at=iso(began_ms),
        began_at_ms=began_ms,
        examples=tuple(topic.name for topic in topics[:EXAMPLES_MAX]),
        evidence=("/topics?status=pending", *_pages(brokers)),
    )


def process_issue(kind: IssueKind, text: str, cause: str, resolution: str, evidence: tuple[str, ...] = ()) -> IssueView:
    """A problem of the answering process."""
    severity: Severity = "warning" if kind == "archive-lost" else "critical"
    return IssueView(kind=kind, severity=severity, text=text, cause=cause, resolution=resolution, evidence=evidence)
