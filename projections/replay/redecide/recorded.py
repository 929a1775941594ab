"""Yields the recorded requests of a log for `redecide` and `backtest`, each with the state before it and its events.

One pass over the events of some shards yields every request, once for each of its topics. Topics are folded with the
machine's `apply`. Brokers and settings come from a timeline that all shards share. Only one topic is in memory at a
time.

The events of a decision are consecutive: the first has the request, the others have the same cause and time. In an
altered log this may be false. Then some requests have too few events, or some events have no request.

Observations (brokers, confirmations, deadlines) are not requests, and dry runs are not recorded.

Limits of rules count topics, and a shard does not know the topics of other shards. So one pass over all shards, before
the pass over the requests, collects each change of a count. It counts only what a limit of the recorded or tried rules
needs, and is skipped without limits. Over Kafka, each partition has its own offsets. A request then has the counts of
the other partitions that its gateway knew. For limits that are only tried, they are the counts at the time of the
request.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from controller.machine.apply import CannotApply, apply_cluster, apply_topic, concerns_topic
from controller.machine.commands import commands
from controller.machine.recorded_command import recall
from controller.machine.rules.judging import KIND_OF
from controller.machine.rules.reading import recorded_rules
from controller.machine.rules.rule import Limit
from controller.machine.state import Cluster, Counts, DictTopics, State, Topic, count_changes
from controller.store.stored_topics import decode_topic
from events import catalog
from events.codec import decode_event
from events.external_decision import FOLLOW
from events.names import CLUSTER_SHARD, ShardKey
from projections.replay.log.log_ref import Ends, Ref
from projections.replay.outcome import ReplayError
from projections.replay.runner import Runner
from projections.replay.shards import (
    AT_FIRST,
    BEGUN,
    Beginning,
    Clusters,
    Row,
    Shard,
    as_batches,
    cluster_events,
    fold_shards,
    rows_of,
)

CLIENT_COMMANDS = frozenset(kind.__name__ for kind in KIND_OF if kind is not commands.DiscoverTopic)
"""The commands of client requests, as named in causes."""
_OF_CLUSTER = commands.AlterResourceConfigs.__name__
_OPENING = frozenset(
    (
        catalog.CreateRequested,
        catalog.PartitionsAdded,
        catalog.TopicDeleted,
        catalog.TopicConfigsChanged,
        catalog.ChangeRejected,
    )
)
"""The first event of a request that Topicwright decided is one of these."""


class Timeline:
    """Brokers and settings at every offset, from the cluster events of a log. Raises CannotApply for events that do not
    follow from each other."""

    def __init__(self, records: Iterable[catalog.Recorded]) -> None:
        self._offsets: list[int] = []
        self._clusters: list[Cluster] = []
        self.settings_changes: list[tuple[int, catalog.SettingsChanged]] = []
        """Each with its offset."""
        self.config_changes: list[catalog.Recorded] = []
        """The changes of broker configs that clients requested."""
        self.rules: list[str] = []
        """The text of each version of the rules."""
        self.approvals: dict[tuple[str, str], commands.Approval] = {}
        """The approvals of held requests, by the id of the request that did the change, and the topic."""
        cluster = Cluster()
        for record in records:
            if concerns_topic(record.event):
                continue
            cluster = apply_cluster(cluster, record)
            self._offsets.append(record.offset)
            self._clusters.append(cluster)
            if isinstance(record.event, catalog.SettingsChanged):
                self.settings_changes.append((record.offset, record.event))
            elif isinstance(record.event, catalog.ResourceConfigsChanged) and record.cause.command == _OF_CLUSTER:
                self.config_changes.append(record)
            elif isinstance(record.event, catalog.RulesApplied):
                self.rules.append(record.event.text)
            elif isinstance(event := record.event, catalog.ApprovalDecided) and event.outcome == "approved":
                approval = commands.Approval(event.request_id, event.principal, event.client_id, event.host)
                self.approvals[event.reason, event.name] = approval

    def before(self, offset: int) -> Cluster:
        """Brokers and settings before the event at an offset."""
        place = bisect_left(self._offsets, offset)
        return self._clusters[place - 1] if place else Cluster()


def timelines_of(clusters: Clusters) -> dict[int, Timeline]:
    """The timeline of each log partition. Raises ReplayError."""
    try:
        return {
            partition: Timeline(decode_event(offset, value) for offset, value in stored)
            for partition, stored in clusters.items()
        }
    except CannotApply as error:
        raise ReplayError(f"the broker and settings events of the log are inconsistent: {error}") from error


GROUP_CHANGES = pa.schema(
    {name: pa.int64() for name in ("log_partition", "offset", "at_ms")}
    | {"group": pa.string(), "topics": pa.int64(), "partitions": pa.int64()}
)
"""A change of the counts of a group of topics."""
_Series = list[tuple[int, int, Counts]]
"""Offsets and times of events, in order, with the counts of a group after each."""


class CountHistory:
    """The counts of groups of topics before each offset, from rows of GROUP_CHANGES."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._series: dict[str, dict[int, _Series]] = {}
        for log_partition, offset, at_ms, group, topics, partitions in sorted(rows):
            series = self._series.setdefault(group, {}).setdefault(log_partition, [])
            last = series[-1][2] if series else Counts()
            series.append((offset, at_ms, last + Counts(topics, partitions)))

    def before(self, group: str, log_partition: int, offset: int) -> Counts:
        """The counts in a partition of the log before an offset."""
        return _counts_before(self._series.get(group, {}).get(log_partition, []), 0, offset)

    def elsewhere(self, group: str, log_partition: int, at_ms: int) -> Counts:
        """The counts in the other partitions of the log before a time."""
        others = (one for other, one in self._series.get(group, {}).items() if other != log_partition)
        return sum((_counts_before(series, 1, at_ms) for series in others), Counts())


def _counts_before(series: _Series, field: int, end: int) -> Counts:
    place = bisect_left(series, end, key=itemgetter(field))
    return series[place - 1][2] if place else Counts()


def count_history(runner: Runner, ref: Ref, ends: Ends, texts: Iterable[str], begin: Beginning) -> CountHistory:
    """The counts that the limits of these rules need, from `begin` until before `ends`. Raises ReplayError."""
    limits = limits_of(texts)
    if not limits:
        return CountHistory()
    found = fold_shards(runner, ref, ends, lambda shards: group_changes(shards, limits), GROUP_CHANGES, begin=begin)
    return CountHistory(rows_of(found))


def limits_of(texts: Iterable[str]) -> list[Limit]:
    return [rule.limit for text in set(texts) for rule in recorded_rules(text).rules if rule.limit is not None]


def group_changes(shards: Iterable[Shard], limits: Sequence[Limit]) -> Iterator[Row]:
    """Rows of GROUP_CHANGES for some shards."""
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


class RecordedRequest(msgspec.Struct, frozen=True, gc=False):
    """A request for one topic, its events (`records`), and the cluster and the topic before the first event; `timeline`
    is that of its log.

    `command` is None if the records do not hold the command that caused them: a part of the log is missing.
    """

    log_partition: int
    shard: ShardKey
    command: commands.TopicCommand | None
    records: tuple[catalog.Recorded, ...]
    timeline: Timeline
    cluster: Cluster
    topic: Topic | None
    counts: CountHistory
    broken: str = ""
    """The error, if the only record cannot be applied to the topic before it. The rest of the shard is then skipped."""

    @property
    def first(self) -> catalog.Recorded:
        return self.records[0]

    def state(self, tried: Cluster | None = None) -> State:
        """The state before the request, with the cluster to try if one is given. Over Kafka, limits count those topics
        of other partitions that the command has; limits that are tried count all of them."""
        topics = _CountedTopics(self, tried is not None)
        if self.topic is not None:
            topics[self.shard] = self.topic
        return State(topics, tried or self.cluster)


class _CountedTopics(DictTopics):
    """The topic of a request, and the counts of all topics before it."""

    def __init__(self, request: RecordedRequest, is_tried: bool) -> None:
        super().__init__()
        self._request = request
        self._is_tried = is_tried

    def counts(self, group: str) -> Counts:
        of, command = self._request, self._request.command
        counts = of.counts.before(group, of.log_partition, of.first.offset)
        if not self._is_tried or (command is not None and any(group == known for known, *_ in command.elsewhere)):
            return counts
        return counts + of.counts.elsewhere(group, of.log_partition, of.first.at_ms)


def fold_requests(
    runner: Runner,
    ref: Ref,
    ends: Ends,
    job: Callable[[Iterator[RecordedRequest]], Iterable[Row]],
    schema: pa.Schema,
    rules: str = "",
    start: int = 0,
    begin: Beginning = AT_FIRST,
) -> pa.Table:
    """Run `job` on the requests from offset `start` until before `ends` of each bucket of shards, and on the changes of
    broker configs; returns its rows. `rules` are tried instead of the recorded ones. `begin` is a snapshot before
    `start`, where it may cut a request that does not count. Raises ReplayError."""
    clusters = cluster_events(ref, ends)
    timelines = timelines_of(clusters)  # raises its errors before the work begins
    texts = (text for timeline in timelines.values() for text in timeline.rules)
    counts = count_history(runner, ref, ends, (rules, *texts), begin)

    def work(shards: Iterator[Shard]) -> Iterable[Row]:
        requests = recorded_requests(shards, timelines_of(clusters), counts)
        return job(one for one in requests if one.first.offset >= start)

    of_topics = fold_shards(runner, ref, ends, work, schema, begin=begin)
    of_cluster = as_batches(job(_of_cluster(timelines, start)), schema)
    return pa.concat_tables([of_topics, pa.Table.from_batches(of_cluster, schema)])


def _of_cluster(timelines: Mapping[int, Timeline], start: int) -> Iterator[RecordedRequest]:
    """The requests to change broker configs, which no limit concerns."""
    for log_partition, timeline in timelines.items():
        for record in timeline.config_changes:
            if record.offset >= start:
                before = timeline.before(record.offset)
                where = (log_partition, CLUSTER_SHARD, recall([record]), (record,), timeline, before, None)
                yield RecordedRequest(*where, CountHistory())


def recorded_requests(
    shards: Iterable[Shard], timelines: Mapping[int, Timeline], counts: CountHistory
) -> Iterator[RecordedRequest]:
    """The requests of some shards; `timelines` are those of the log partitions."""
    for shard in shards:
        yield from _requests_of(shard, timelines[shard[0]], counts)


def _requests_of(shard: Shard, timeline: Timeline, counts: CountHistory) -> Iterator[RecordedRequest]:
    log_partition, key, events = shard
    topic: Topic | None = None
    before: Topic | None = None
    open_: list[catalog.Recorded] = []

    def request(records: list[catalog.Recorded], before: Topic | None, broken: str = "") -> RecordedRequest:
        command, cluster = None if broken else recall(records), timeline.before(records[0].offset)
        if command is not None:
            command = replace(command, approval=timeline.approvals.get((command.request_id, command.topic)))
        where = (log_partition, ShardKey(key), command, tuple(records), timeline, cluster, before)
        return RecordedRequest(*where, counts, broken)

    for offset, value in events:
        if offset == BEGUN:
            topic = decode_topic([value])
            continue
        record = decode_event(offset, value)
        opens = type(record.event) in _OPENING and record.cause.command != FOLLOW
        if open_ and (opens or (open_[0].cause, open_[0].at_ms) != (record.cause, record.at_ms)):
            yield request(open_, before)
            open_ = []
        if open_ or opens or record.cause.command in CLIENT_COMMANDS:
            before = before if open_ else topic
            open_.append(record)
        try:
            topic = apply_topic(topic, record)
        except CannotApply as error:
            yield request([record], topic, str(error))
            return
    if open_:
        yield request(open_, before)
