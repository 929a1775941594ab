"""What is different between two moments, from the log alone, as it goes out."""

from __future__ import annotations

from collections.abc import Callable

from projections.queries.differences import (
    ClusterDifference,
    TopicDifference,
    cluster_difference,
    topic_differences,
)
from projections.queries.past import MayShow
from projections.queries.query import Questions, everything
from projections.text.access_words import acls_in_words
from projections.views import difference_types as types
from projections.views import to_json
from projections.views.brokers import BrokerRow


def difference(
    query: Questions,
    since: str,
    until: str | None,
    after: str | None,
    limit: int,
    may_show: MayShow = everything,
    *,
    with_cluster: bool = True,
    place: Callable[[str], str] = str,
) -> types.DifferenceView:
    """A page of what is different between two moments (`until` None: now); `place` writes the shard key that the next
    one goes on after. Raises BadMoment."""
    start, end = query.end(since), query.end(until)
    page = topic_differences(query, start, end, after or "", limit, may_show)
    cluster = _cluster(cluster_difference(query, start, end)) if with_cluster and after is None else None
    reached = None if page.reached is None else place(page.reached)
    moments = to_json.as_of(query.as_of(start)), to_json.as_of(query.as_of(end))
    return types.DifferenceView(tuple(map(_topic, page.topics)), cluster, reached, *moments)


def _topic(one: TopicDifference) -> types.TopicDifferenceView:
    return types.TopicDifferenceView(
        name=one.name,
        change=one.change,
        partitions_before=None if one.before is None else len(one.before.partitions),
        partitions_after=None if one.after is None else len(one.after.partitions),
        configs=tuple(types.ValueView(*pair) for pair in one.configs),
        other_replicas=one.partitions_with_other("replicas"),
        other_leaders=one.partitions_with_other("leader"),
        other_isr=one.partitions_with_other("isr"),
    )


def _cluster(one: ClusterDifference) -> types.ClusterDifferenceView:
    same_release = one.before.release == one.after.release
    return types.ClusterDifferenceView(
        brokers=tuple(_broker(*both) for both in one.brokers),
        settings=tuple(types.ValueView(*pair) for pair in one.settings),
        release=None if same_release else types.ValueView("release", one.before.release, one.after.release),
        acls_added=tuple(acls_in_words([acl]) for acl in one.acls_added),
        acls_removed=tuple(acls_in_words([acl]) for acl in one.acls_removed),
        changes=tuple(map(to_json.event, one.others)),
        more=one.more,
    )


def _broker(before: BrokerRow | None, after: BrokerRow | None) -> types.BrokerDifferenceView:
    known = after or before
    assert known is not None, "a broker that is different is there at one of the moments"
    reason = "" if after is None else after.reason
    return types.BrokerDifferenceView(
        broker_id=known.broker_id, before=_state(before), after=_state(after), reason=reason
    )


def _state(row: BrokerRow | None) -> str | None:
    if row is None:
        return None
    return ("fenced" if row.fenced else "live") + (", cordoned" if row.cordoned else "")
