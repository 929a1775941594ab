"""Counts topics at every offset of a log, for the limits of rules that `redecide` and `backtest` apply.

A shard does not know the topics of other shards. So one pass over all shards, before the pass over the requests,
collects each change of a count. It counts only what a limit of the recorded or tried rules needs, and is skipped
without limits.

Over Kafka, each partition has its own offsets. A request then has the counts of the other partitions that its gateway
knew. For limits that are only tried, they are the counts at the time of the request.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

import pyarrow as pa

from controller.machine.apply import CannotApply, apply_topic
from controller.machine.rules.reading import recorded_rules
from controller.machine.rules.rule import Limit
from controller.machine.state import Counts, Topic, count_changes
from controller.store.stored_topics import decode_topic
from events.codec import decode_event
from projections.replay.log.log_ref import Ends, Ref
from projections.replay.runner import Runner
from projections.replay.shards import BEGUN, Beginning, Row, Shard, fold_shards, rows_of

SCHEMA = pa.schema(
    {name: pa.int64() for name in ("log_partition", "offset", "at_ms")}
    | {"group": pa.string(), "topics": pa.int64(), "partitions": pa.int64()}
)
"""A change of the counts of a group of topics."""


_Series = list[tuple[int, int, Counts]]
"""Offsets and times of events, in order, with the counts of a group after each."""


class CountHistory:
    """The counts of groups of topics before each offset, from rows of SCHEMA."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._series: dict[str, dict[int, _Series]] = {}
        for log_partition, offset, at_ms, group, topics, partitions in sorted(rows):
            series = self._series.setdefault(group, {}).setdefault(log_partition, [])
            last = series[-1][2] if series else Counts()
            series.append((offset, at_ms, last + Counts(topics, partitions)))

    def before(self, group: str, log_partition: int, offset: int) -> Counts:
        """The counts in a partition of the log before an offset."""
        return _before(self._series.get(group, {}).get(log_partition, []), 0, offset)

    def elsewhere(self, group: str, log_partition: int, at_ms: int) -> Counts:
        """The counts in the other partitions of the log before a time."""
        others = (one for other, one in self._series.get(group, {}).items() if other != log_partition)
        return sum((_before(series, 1, at_ms) for series in others), Counts())


def _before(series: _Series, field: int, end: int) -> Counts:
    place = bisect_left(series, end, key=itemgetter(field))
    return series[place - 1][2] if place else Counts()


def count_history(runner: Runner, ref: Ref, ends: Ends, texts: Iterable[str], begin: Beginning) -> CountHistory:
    """The counts that the limits of these rules need, from `begin` until before `ends`. Raises ReplayError."""
    limits = limits_of(texts)
    if not limits:
        return CountHistory()
    found = fold_shards(runner, ref, ends, lambda shards: changes(shards, limits), SCHEMA, begin=begin)
    return CountHistory(rows_of(found))


def limits_of(texts: Iterable[str]) -> list[Limit]:
    return [rule.limit for text in set(texts) for rule in recorded_rules(text).rules if rule.limit is not None]


def changes(shards: Iterable[Shard], limits: Sequence[Limit]) -> Iterator[Row]:
    """Rows of SCHEMA for some shards."""
    prefixes = {limit.prefix for limit in limits if not limit.per}
    counts_principals = any(limit.per for limit in limits)
    for log_partition, _, events in shards:
        topic: Topic | None = None
        for offset, value in events:
            before, at_ms = topic, 0
            if offset == BEGUN:
                topic = decode_topic([value])
            else:
                record = decode_event(offset, value)
                at_ms = record.at_ms
                try:
                    topic = apply_topic(topic, record)
                except CannotApply:
                    break
            for group, change in count_changes(before, topic) if before is not topic else ():
                if counts_principals if group.startswith("@") else group in prefixes:
                    yield log_partition, offset, at_ms, group, change.topics, change.partitions
