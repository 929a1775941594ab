"""Differences between two points in time, for `topicwright diff` and `/v1/diff`: topics in pages, brokers, settings,
ACLs, and the events that changed quotas, users, configs, features or rules.

A page compares the topics that have an event between the two points. If these points are far apart, the index of shard
keys finds the topics; otherwise the page reads all events between the points. A value that changed and changed back is
no difference.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import groupby, islice

from events import access, catalog
from events.catalog import Recorded
from events.codec import topic_of
from events.logs.log import shard_runs
from events.names import ShardKey, shard_key
from projections.queries.events import newest_changes
from projections.queries.past import EVENTS_PER_PAUSE, KEYS_AT_ONCE, SCANNED_MAX, MayShow, everything
from projections.queries.query import Ends, Queries, Query
from projections.text.wording import acls_text, changed
from projections.views.brokers import BrokerView
from projections.views.events import RecordedChangeView, ValueView, event_view
from projections.views.overviews import (
    BrokerDifferenceView,
    ClusterDifferenceView,
    DifferenceView,
    TopicChange,
    TopicDifferenceView,
)
from projections.views.rows import TopicRow

CHANGES_SHOWN_MAX, CLUSTER_EVENTS_MAX = 5, 2000
SCANNED_KEYS_MAX, FOLDED_MAX = 3_000, 200
"""Limits of a page: the shard keys that it scans, and those whose topics it rebuilds at both points in time."""

TopicDifference = tuple[str, TopicRow | None, TopicRow | None]
"""A topic name, and the topic before and after; None if there is none."""


def _values(before: tuple[tuple[str, str], ...], after: tuple[tuple[str, str], ...]) -> tuple[ValueView, ...]:
    return tuple(ValueView(*one) for one in changed(before, after))


def topic_differences(
    query: Queries, start: Ends, end: Ends, after: str, limit: int, may_show: MayShow
) -> tuple[list[TopicDifference], ShardKey | None]:
    """Returns the topics that differ, and the shard key after which the next page starts (None at the end). A page has
    about `limit` topics, ordered by shard key, whose keys are greater than `after` ("" for the first page)."""
    found: list[TopicDifference] = []
    keys = merge(*(_touched(part, low, high, after) for part, low, high in zip(query.parts, start, end, strict=True)))
    reached, batch, folded = ShardKey(after), list[ShardKey](), 0
    for scanned, (key, together) in enumerate(groupby(keys, lambda one: one[0])):
        if scanned == SCANNED_KEYS_MAX or len(batch) >= min(limit - len(found), FOLDED_MAX - folded):
            found += _of_keys(query, batch, start, end, may_show)
            folded += len(batch)
            batch.clear()
            if scanned == SCANNED_KEYS_MAX or folded == FOLDED_MAX or len(found) >= limit:
                return found, reached
        if any(is_touched for _, is_touched in together):
            batch.append(key)
        reached = key
    found += _of_keys(query, batch, start, end, may_show)
    return found, None


def _of_keys(
    query: Queries, keys: Sequence[ShardKey], start: Ends, end: Ends, may_show: MayShow
) -> Iterator[TopicDifference]:
    rows: dict[ShardKey, tuple[TopicRow | None, TopicRow | None]] = {}
    for part, low, high in zip(query.parts, start, end, strict=True):
        here = [key for key in keys if query.of_topic(key) is part]
        both = (part.topics_under(here, each, may_show) for each in (low, high))
        rows.update(zip(here, zip(*both, strict=True), strict=True))
    for key in keys:
        before, after = rows[key]
        one = before or after
        if one is None or before == after:
            continue
        if before is None or after is None or before.name == after.name:
            yield one.name, before, after
        else:
            yield from sorted(((before.name, before, None), (after.name, None, after)), key=lambda one: one[0])


def _touched(part: Query, start: int, end: int, after: str) -> Iterator[tuple[ShardKey, bool]]:
    """Shard keys greater than `after`, in order, each with True if it has events between the two offsets."""
    if end - start > SCANNED_MAX:
        keys_here = part.log.shard_keys(after)
        while batch := list(islice(keys_here, KEYS_AT_ONCE)):
            while batch:
                runs = shard_runs(part.log, batch, start, end)
                yield from ((ShardKey(key), found != []) for key, found in zip(batch, runs, strict=False))
                batch = batch[len(runs) :]
            part.pause()
        return
    keys = set()
    for offset, value in part.log.read(start, max(start, end)):
        if offset % EVENTS_PER_PAUSE == 0:
            part.pause()
        name = topic_of(offset, value)
        if name is not None and shard_key(name) > after:
            keys.add(shard_key(name))
    yield from ((key, True) for key in sorted(keys))


_OF_ACCESS = access.QuotasChanged | access.ScramCredentialSet | access.ScramCredentialRemoved
_OTHERS = _OF_ACCESS | catalog.ResourceConfigsChanged | catalog.FeaturesChanged | catalog.RulesApplied


def _cluster(query: Queries, start: Ends, end: Ends) -> ClusterDifferenceView:
    """Differences of brokers, settings and access. The cluster events are read from the first partition."""
    part, low, high = query.parts[0], start[0], end[0]
    before, after = query.cluster_at(start), query.cluster_at(end)
    added: dict[access.Acl, None] = {}
    removed: dict[access.Acl, None] = {}
    others: list[Recorded] = []
    more = False
    for count, record in enumerate(part.events_of(None, low, max(low, high))):
        if more := count == CLUSTER_EVENTS_MAX:
            break
        match record.event:
            case access.AclsCreated():
                _add_acls(record.event.acls, added, removed)
            case access.AclsDeleted():
                _add_acls(record.event.acls, removed, added)
            case event if isinstance(event, _OTHERS):
                others.append(record)
    brokers = ((before.brokers.get(key), after.brokers.get(key)) for key in sorted({*before.brokers, *after.brokers}))
    release = ValueView("release", before.release, after.release)
    return ClusterDifferenceView(
        brokers=tuple(_broker(*both) for both in brokers if both[0] != both[1]),
        settings=_values(before.settings, after.settings),
        release=None if release.before == release.after else release,
        acls_added=tuple(acls_text([acl]) for acl in sorted(added)),
        acls_removed=tuple(acls_text([acl]) for acl in sorted(removed)),
        changes=tuple(map(event_view, others)),
        more=more,
    )


def _add_acls(acls: tuple[access.Acl, ...], to: dict[access.Acl, None], opposite: dict[access.Acl, None]) -> None:
    for acl in acls:
        if acl in opposite:
            del opposite[acl]
        else:
            to[acl] = None


def difference(
    query: Queries,
    since: str,
    until: str | None,
    after: str | None,
    limit: int,
    may_show: MayShow = everything,
    *,
    with_cluster: bool = True,
    place: Callable[[str], str] = str,
) -> DifferenceView:
    """A page of the differences between two points in time (`until` None: now). `place` encodes the shard key after
    which the next page starts. Raises InvalidPointInTime."""
    start, end = query.end(since, "from"), query.end(until, "to")
    topics, reached = topic_differences(query, start, end, after or "", limit, may_show)
    cluster = _cluster(query, start, end) if with_cluster and after is None else None
    cursor = None if reached is None else place(reached)
    spans = {part: (low, high) for part, low, high in zip(query.parts, start, end, strict=True)}
    views = []
    for name, old, new in topics:
        part = query.of_topic(name)
        low, high = spans[part]
        views.append(_topic(name, old, new, newest_changes(part, name, low, high, CHANGES_SHOWN_MAX)))
    return DifferenceView(tuple(views), cluster, cursor, query.as_of(start), query.as_of(end))


def change_of(before: TopicRow | None, after: TopicRow | None) -> TopicChange:
    if before is None or after is None:
        return "created" if before is None else "deleted"
    return "changed" if before.topic_id == after.topic_id else "recreated"


def _topic(
    name: str, before: TopicRow | None, after: TopicRow | None, changes: tuple[RecordedChangeView, ...]
) -> TopicDifferenceView:
    old, new = () if before is None else before.partitions, () if after is None else after.partitions
    both = list(zip(old, new, strict=False))
    return TopicDifferenceView(
        name=name,
        change=change_of(before, after),
        partitions_before=len(old) or None,
        partitions_after=len(new) or None,
        configs=_values(() if before is None else before.configs, () if after is None else after.configs),
        other_replicas=sum(one.replicas != other.replicas for one, other in both),
        other_leaders=sum(one.leader != other.leader for one, other in both),
        other_isr=sum(one.isr != other.isr for one, other in both),
        changes=changes,
    )


def _broker(before: BrokerView | None, after: BrokerView | None) -> BrokerDifferenceView:
    known = after or before
    assert known is not None, "a broker that differs exists at one of the two"
    reason = "" if after is None else after.reason
    return BrokerDifferenceView(broker_id=known.broker_id, before=_state(before), after=_state(after), reason=reason)


def _state(row: BrokerView | None) -> str | None:
    if row is None:
        return None
    return ("fenced" if row.fenced else "live") + (", cordoned" if row.cordoned else "")
