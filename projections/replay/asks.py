"""The recorded asks of a log, each with the state that it was decided on and the events that were recorded of it.

One pass over events in the order of (shard, offset) gives every ask: topics of one shard are folded with the machine's
`apply`, and the brokers and settings of the moment come from a timeline that all shards share. Only one topic is kept
at a time, so memory does not grow with the log.

A decision's events stand together: the first says what was asked, the others have the same cause and time. Where an
altered log breaks that, the pieces come out as asks with too few events, or as events without an ask.

What it does not do: observations (brokers, confirmations, deadlines) are no asks, and dry runs are in no log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

import msgspec

from controller.machine.apply import CannotApply, apply_cluster, apply_topic, concerns_topic
from controller.machine.commands import AlterTopicConfigs, Ask, CreatePartitions, CreateTopic, DeleteTopic
from controller.machine.recall import recall
from controller.machine.state import Cluster, State, Topic
from events.catalog import (
    ChangeRejected,
    CreateRequested,
    PartitionsAdded,
    Recorded,
    SettingsChanged,
    TopicConfigsChanged,
    TopicDeleted,
)
from events.codec import decode_event
from events.names import ShardKey
from projections.replay.errors import ReplayError

ASKS = frozenset(command.__name__ for command in (CreateTopic, CreatePartitions, DeleteTopic, AlterTopicConfigs))
"""The commands that are a client's ask, as causes name them."""
_OPENING = frozenset((CreateRequested, PartitionsAdded, TopicDeleted, TopicConfigsChanged, ChangeRejected))
"""The events with which the record of an ask begins."""

Row = tuple[str, Recorded]
"""A record with its shard key."""


class Timeline:
    """The brokers and settings of every moment, from the cluster events of a log in their order.

    Raises CannotApply for events that do not fit each other.
    """

    def __init__(self, records: Iterable[Recorded]) -> None:
        self._offsets: list[int] = []
        self._clusters: list[Cluster] = []
        self.settings_changes: list[Recorded] = []
        """The records that hold SettingsChanged."""
        cluster = Cluster()
        for record in records:
            if concerns_topic(record.event):
                continue
            cluster = apply_cluster(cluster, record)
            self._offsets.append(record.offset)
            self._clusters.append(cluster)
            if isinstance(record.event, SettingsChanged):
                self.settings_changes.append(record)

    def before(self, offset: int) -> Cluster:
        """Brokers and settings before the event at an offset."""
        place = bisect_left(self._offsets, offset)
        return self._clusters[place - 1] if place else Cluster()

    def settings_before(self, offset: int) -> Recorded | None:
        """The SettingsChanged that is in force before the event at an offset; None in a log that begins without."""
        newest = None
        for record in self.settings_changes:
            if record.offset >= offset:
                break
            newest = record
        return newest


def timeline_of(stored: Iterable[tuple[int, bytes]]) -> Timeline:
    """The timeline of stored cluster events, each an offset with its bytes. Raises ReplayError."""
    try:
        return Timeline(decode_event(offset, value) for offset, value in stored)
    except CannotApply as error:
        raise ReplayError(f"the broker events of the log do not fit each other: {error}") from error


class OneTopic:
    """The topics of a state that knows one shard."""

    def __init__(self, topic: Topic | None) -> None:
        self.topic = topic

    def get(self, key: ShardKey) -> Topic | None:
        """The topic of the shard: whoever decides asks for no other."""
        return self.topic

    def put(self, key: ShardKey, topic: Topic | None) -> None:
        """Keep the topic of the shard."""
        self.topic = topic


class RecordedAsk(msgspec.Struct, frozen=True, gc=False):
    """An ask, the records of its decision, and what was before the first of them: the cluster and the shard's topic.

    `ask` is None for records whose cause is an ask that they do not tell: a piece of the log is missing.
    """

    shard: ShardKey
    ask: Ask | None
    records: tuple[Recorded, ...]
    cluster: Cluster
    topic: Topic | None

    @property
    def first(self) -> Recorded:
        """The first record of the decision."""
        return self.records[0]

    def state(self, cluster: Cluster | None = None) -> State:
        """The state before the ask; with another `cluster` where one is given."""
        return State(OneTopic(self.topic), self.cluster if cluster is None else cluster)


class Unfit(msgspec.Struct, frozen=True, gc=False):
    """A record that does not fit those of its shard before it: nothing is told of the shard from there on."""

    shard: ShardKey
    record: Recorded
    why: str


def recorded_asks(rows: Iterable[Row], timeline: Timeline) -> Iterator[RecordedAsk | Unfit]:
    """The asks in rows of (shard key, record), sorted by shard key and offset; events that are no topic's are passed
    over."""
    for shard, shard_rows in groupby(rows, itemgetter(0)):
        yield from _asks_of_shard(ShardKey(shard), map(itemgetter(1), shard_rows), timeline)


def _asks_of_shard(shard: ShardKey, records: Iterator[Recorded], timeline: Timeline) -> Iterator[RecordedAsk | Unfit]:
    topic: Topic | None = None
    before: Topic | None = None
    open_: list[Recorded] = []
    for record in records:
        if not concerns_topic(record.event):
            continue
        opens = type(record.event) in _OPENING
        if opens or (open_ and not _same_decision(open_[0], record)):
            if open_:
                yield _closed(shard, open_, before, timeline)
            open_ = []
        if open_ or opens or record.cause.command in ASKS:
            before = before if open_ else topic
            open_.append(record)
        try:
            topic = apply_topic(topic, record)
        except CannotApply as error:
            yield Unfit(shard, record, str(error))
            return
    if open_:
        yield _closed(shard, open_, before, timeline)


def _same_decision(first: Recorded, record: Recorded) -> bool:
    return first.cause == record.cause and first.at_ms == record.at_ms


def _closed(shard: ShardKey, records: list[Recorded], before: Topic | None, timeline: Timeline) -> RecordedAsk:
    return RecordedAsk(shard, recall(records), tuple(records), timeline.before(records[0].offset), before)
