"""Builds responses about the cluster for the HTTP API: brokers, one broker, the health of the cluster, the
policies, and who may do what.

These functions read only the log, so they may run in any thread.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from controller.machine.state import Cluster
from controller.store.request_index import RULE, values_of
from events.names import BrokerId
from projections.queries.events import newest_of, starts
from projections.queries.health import broker_issues, partition_issues
from projections.queries.query import Ends, NotFound, Queries
from projections.queries.requests import RequestFilter, scan_requests, summary_of
from projections.queries.topics import Counted, counted_at, settings_at
from projections.text.wording import acl_text, entity_text
from projections.views import overviews
from projections.views.brokers import BrokersView, ClusterRow, rule_views
from projections.views.events import event_view
from projections.views.view import AsOfView, IssueView

DAY_MS = 86_400_000
NEWEST_SHOWN = 10
REFUSALS_SCANNED_MAX = 1000
"""The maximum number of refusals to scan, divided among the rules: some tens of milliseconds for all rules."""
RULES_SHOWN_MAX = 100
BROKER_EVENTS_SHOWN = 20
ACCESS_SHOWN_MAX = 1000


def brokers(query: Queries, at: str | None) -> BrokersView:
    """The brokers and settings at a point in time. Raises InvalidPointInTime."""
    end = query.end(at)
    return query.cluster_at(end).view(query.as_of(end))


def health(
    query: Queries,
    at: str | None,
    counted: Counted | None = None,
    of_process: Sequence[IssueView] = (),
    waiting: Iterable[IssueView] = (),
) -> overviews.ClusterHealthView:
    """The health at a point in time. For the present there are counts, problems of the process, and those of topics
    that are not ready; for the past, topics are counted here if that is quick. Raises InvalidPointInTime."""
    end = query.end(at)
    cluster = query.cluster_at(end)
    newest = scan_requests(
        query, RequestFilter(), end, until=end, since=(0,) * len(end), limit=NEWEST_SHOWN, scanned_max=NEWEST_SHOWN
    )
    as_of = query.as_of(end)
    counted = counted or counted_at(query, end)
    found = (*of_process, *_issues(query, end, cluster, counted), *waiting)
    issues = tuple(sorted(found, key=lambda one: one.severity))  # "critical" is before "warning"
    state, summary = _state(issues, counted)
    return overviews.ClusterHealthView(
        state=state,
        summary=summary,
        issues=issues,
        **_counts(counted),
        brokers_registered=len(cluster.brokers),
        live=tuple(sorted(cluster.live)),
        fenced=tuple(sorted(key for key, one in cluster.brokers.items() if one.fenced)),
        refused=tuple(_refused_of_day(query, end, as_of)),
        newest=tuple(map(summary_of, newest.requests)),
        release=cluster.release,
        as_of=as_of,
    )


def _issues(query: Queries, end: Ends, cluster: ClusterRow, counted: Counted | None) -> Iterator[IssueView]:
    found: tuple[IssueView, ...] = ()
    if counted is not None:
        settings = settings_at(query.parts[0], end[0])
        found = tuple(partition_issues(counted.tallies, counted.unhealthy, cluster.brokers, settings, (query, end)))
    yield from (*found, *broker_issues(cluster.brokers, found))


def _state(issues: Sequence[IssueView], counted: Counted | None) -> tuple[overviews.ClusterState, str]:
    """The state of the cluster in one word, and in one sentence."""
    if issues:
        worst = issues[0]
        sentence = f"{worst.text}: {worst.cause}." if worst.cause else f"{worst.text}."
        offline = 0 if counted is None else counted.tallies.health.offline
        if counted is not None and worst.kind == "offline" and worst.partitions < offline:
            awaited = worst.cause.partition(" for ")[2]
            sentence = (
                f"{offline} of {counted.partitions} partitions are offline; {worst.partitions} wait for {awaited}."
            )
        return "critical" if worst.severity == "critical" else "degraded", sentence[0].upper() + sentence[1:]
    if counted is None:
        return "unknown", "The partitions at this time are too many to count."
    return "healthy", "Every partition has a leader, and all replicas are in sync."


def _counts(counted: Counted | None) -> dict[str, Any]:
    if counted is None:
        return {}
    health = counted.tallies.health
    return {
        "topics": counted.topics,
        "partitions": counted.partitions,
        "topics_pending": counted.pending,
        "under_replicated_partitions": health.under_replicated,
        "offline_partitions": health.offline,
        "placeholders": health.placeholders,
    }


def _refused_of_day(query: Queries, end: Ends, point_in_time: AsOfView) -> Iterator[overviews.RefusedView]:
    since = starts(query, f"{max(0, (point_in_time.at_ms or 0) - DAY_MS)}ms")
    rules = dict.fromkeys(rule for part in query.parts for rule in islice(values_of(part.log, RULE), RULES_SHOWN_MAX))
    scanned_max = REFUSALS_SCANNED_MAX // max(1, min(len(rules), RULES_SHOWN_MAX))
    for rule in list(rules)[:RULES_SHOWN_MAX]:
        which = RequestFilter(rule=rule)
        page = scan_requests(query, which, end, until=end, since=since, limit=scanned_max, scanned_max=scanned_max)
        if page.requests:
            yield overviews.RefusedView(
                rule=rule,
                count=sum(one.outcomes.get("rejected", 0) for one in page.requests),
                more=page.next_place is not None,
                latest=summary_of(page.requests[0]),
            )


def policies(query: Queries, at: str | None, now_ms: int) -> overviews.PoliciesView:
    """The rules at a point in time. Raises InvalidPointInTime."""
    end = query.end(at)
    cluster, point_in_time = query.cluster_at(end), query.as_of(end)
    text = "" if cluster.rules is None else cluster.rules.text
    return overviews.PoliciesView(
        version=cluster.rules,
        rules=rule_views(text, now_ms if at is None else point_in_time.at_ms or now_ms),
        as_of=point_in_time,
    )


def access(query: Queries, cluster: Cluster, text: str) -> overviews.AccessView:
    """The ACLs, users and quotas that contain the text, in any case."""
    lines: dict[str, list[str]] = {
        "acls": [acl_text(acl) for acl in sorted(cluster.acls)],
        "users": sorted(f"{user} by {how}, {one.iterations} iterations" for (user, how), one in cluster.scram.items()),
        "quotas": sorted(
            f"{entity_text(entity)}: {key}={value:.17g}"
            for entity, pairs in cluster.quotas.items()
            for key, value in pairs
        ),
    }
    found = {name: [one for one in each if text.lower() in one.lower()] for name, each in lines.items()}
    shown: Any = {name: tuple(each[:ACCESS_SHOWN_MAX]) for name, each in found.items()}
    more = any(len(each) > ACCESS_SHOWN_MAX for each in found.values())
    return overviews.AccessView(**shown, more=more, as_of=query.as_of(query.end()))


def broker(
    query: Queries, broker_id: int, at: str | None, load: tuple[int, int] | None = None
) -> overviews.BrokerDetailView:
    """A broker at a point in time, with its newest events. `load` has its current numbers of leaders and replicas; the
    past is counted as for the health. Raises NotFound, InvalidPointInTime."""
    end = query.end(at)
    row = query.cluster_at(end).brokers.get(BrokerId(broker_id))
    if row is None:
        raise NotFound(f"there is no broker {broker_id}")
    counted = counted_at(query, end) if load is None else None
    if counted is not None:
        load = counted.tallies.brokers.get(broker_id, (0, 0))
    part = query.parts[0]
    newest = newest_of(part, None, end[0])
    events = islice((one for one in newest if getattr(one.event, "broker_id", None) == broker_id), BROKER_EVENTS_SHOWN)
    return overviews.BrokerDetailView(
        **msgspec.structs.asdict(row),
        leaders=None if load is None else load[0],
        replicas=None if load is None else load[1],
        events=tuple(event_view(record, part.partition) for record in events),
        as_of=query.as_of(end),
    )
