"""What is different between two moments: topics a page at a time, brokers, settings, and who may do what.

A topic is looked at only if an event between the two speaks of its shard key; of two moments far apart that is found
by the index of shards, a key at a time, else by reading what lies between. What is the same at both is no difference,
whatever happened between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import groupby, islice
from typing import Literal

import msgspec

from events import access, catalog
from events.catalog import Recorded
from events.codec import decode_event, topic_of
from events.names import CLUSTER_SHARD, ShardKey, shard_key
from projections.queries.past import EVENTS_PER_STRETCH, KEYS_AT_ONCE, MayShow
from projections.queries.query import LOOKED_AT_MAX, Ends, Query, Questions, everything
from projections.text.wording import acls_in_words
from projections.views import overview_types as types
from projections.views import to_json
from projections.views.brokers import BrokerRow, ClusterRow
from projections.views.topics import TopicRow

PASSED_MAX, FOLDED_MAX = 10_000, 1000
"""Of a page: how many shard keys it passes, and of how many it looks at the topics, before it ends."""

Change = Literal["created", "deleted", "recreated", "changed"]
Pair = tuple[str, str | None, str | None]
"""A name, and its values before and after; None where there is none."""


class TopicDifference(msgspec.Struct, frozen=True):
    """A topic at both moments; None where there was none."""

    name: str
    before: TopicRow | None
    after: TopicRow | None

    @property
    def change(self) -> Change:
        """What became of it."""
        if self.before is None or self.after is None:
            return "created" if self.before is None else "deleted"
        return "changed" if self.before.topic_id == self.after.topic_id else "recreated"

    @property
    def configs(self) -> tuple[Pair, ...]:
        """Its explicit configs that have other values."""
        return pairs(
            () if self.before is None else self.before.configs, () if self.after is None else self.after.configs
        )

    def partitions_with_other(self, field: Literal["replicas", "leader", "isr"]) -> int:
        """How many partitions that are there at both moments differ in this."""
        if self.before is None or self.after is None:
            return 0
        both = zip(self.before.partitions, self.after.partitions, strict=False)
        return sum(getattr(one, field) != getattr(other, field) for one, other in both)


class TopicDifferences(msgspec.Struct, frozen=True):
    """Differences in the order of shard keys; `reached` is the key to go on after, None at the end."""

    topics: tuple[TopicDifference, ...]
    reached: ShardKey | None


class ClusterDifference(msgspec.Struct, frozen=True):
    """Brokers and settings at both moments; access control entries that came or went; other changes of access and
    configs between the two, in order. `more`: so many events lie between that not all were looked at."""

    before: ClusterRow
    after: ClusterRow
    acls_added: tuple[access.Acl, ...]
    acls_removed: tuple[access.Acl, ...]
    others: tuple[Recorded, ...]
    more: bool

    @property
    def settings(self) -> tuple[Pair, ...]:
        """Settings that have other values."""
        return pairs(self.before.settings, self.after.settings)

    @property
    def brokers(self) -> tuple[tuple[BrokerRow | None, BrokerRow | None], ...]:
        """Brokers that are not as they were."""
        ids = sorted({*self.before.brokers, *self.after.brokers})
        both = ((self.before.brokers.get(broker_id), self.after.brokers.get(broker_id)) for broker_id in ids)
        return tuple(one for one in both if one[0] != one[1])


def pairs(before: tuple[tuple[str, str], ...], after: tuple[tuple[str, str], ...]) -> tuple[Pair, ...]:
    """The names whose values differ, in order."""
    old, new = dict(before), dict(after)
    names = sorted(old.keys() | new.keys())
    return tuple((name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name))


def topic_differences(
    query: Questions, start: Ends, end: Ends, after: str, limit: int, may_show: MayShow
) -> TopicDifferences:
    """Up to `limit` topics that differ, in the order of their shard keys, after one of these ("": from the first)."""
    found: list[TopicDifference] = []
    keys = merge(*(_touched(part, low, high, after) for part, low, high in zip(query.parts, start, end, strict=True)))
    reached, some, folded = ShardKey(after), list[ShardKey](), 0
    for passed, (key, together) in enumerate(groupby(keys, lambda one: one[0])):
        if passed == PASSED_MAX or len(some) >= min(limit - len(found), FOLDED_MAX - folded):
            found += _of_keys(query, some, start, end, may_show)
            folded += len(some)
            some.clear()
            if passed == PASSED_MAX or folded == FOLDED_MAX or len(found) >= limit:
                return TopicDifferences(tuple(found), reached)
        if any(is_touched for _, is_touched in together):
            some.append(key)
        reached = key
    found += _of_keys(query, some, start, end, may_show)
    return TopicDifferences(tuple(found), None)


def _of_keys(
    query: Questions, keys: Sequence[ShardKey], start: Ends, end: Ends, may_show: MayShow
) -> Iterator[TopicDifference]:
    """The differences of topics under some keys, in their order."""
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
            yield TopicDifference(one.name, before, after)
        else:
            yield from sorted(
                (TopicDifference(before.name, before, None), TopicDifference(after.name, None, after)),
                key=lambda one: one.name,
            )


def _touched(part: Query, start: int, end: int, after: str) -> Iterator[tuple[ShardKey, bool]]:
    """Shard keys in order, after one of them, and whether events between two offsets were written under each."""
    if end - start > LOOKED_AT_MAX:
        keys_here = part.log.shard_keys(after)
        while some := list(islice(keys_here, KEYS_AT_ONCE)):
            while some:
                runs = part.log.shard_runs(some, start, end)
                yield from ((ShardKey(key), found != []) for key, found in zip(some, runs, strict=False))
                some = some[len(runs) :]
            part.rest()
        return
    keys = set()
    for offset, value in part.log.read(start, max(start, end)):
        if offset % EVENTS_PER_STRETCH == 0:
            part.rest()
        name = topic_of(offset, value)
        if name is not None and shard_key(name) > after:
            keys.add(shard_key(name))
    yield from ((key, True) for key in sorted(keys))


_OTHERS = (
    access.QuotasChanged,
    access.ScramCredentialSet,
    access.ScramCredentialRemoved,
    catalog.ResourceConfigsChanged,
    catalog.FeaturesChanged,
)


def cluster_difference(query: Questions, start: Ends, end: Ends) -> ClusterDifference:
    """Brokers, settings and access; in the words of the first partition, as everything of the whole cluster."""
    part, low, high = query.parts[0], start[0], end[0]
    before, after = query.cluster_at(start), query.cluster_at(end)
    offsets = list(islice(part.log.shard_offsets(CLUSTER_SHARD, low, max(low, high)), LOOKED_AT_MAX + 1))
    added: dict[access.Acl, None] = {}
    removed: dict[access.Acl, None] = {}
    others: list[Recorded] = []
    for count, offset in enumerate(offsets[:LOOKED_AT_MAX], 1):
        if count % EVENTS_PER_STRETCH == 0:
            part.rest()
        record = decode_event(offset, part.log.read_one(offset))
        match record.event:
            case access.AclsCreated():
                _come_and_go(record.event.acls, added, removed)
            case access.AclsDeleted():
                _come_and_go(record.event.acls, removed, added)
            case event if isinstance(event, _OTHERS):
                others.append(record)
    more = len(offsets) > LOOKED_AT_MAX
    return ClusterDifference(before, after, tuple(sorted(added)), tuple(sorted(removed)), tuple(others), more)


def _come_and_go(acls: tuple[access.Acl, ...], here: dict[access.Acl, None], there: dict[access.Acl, None]) -> None:
    for acl in acls:
        if acl in there:
            del there[acl]
        else:
            here[acl] = None


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
