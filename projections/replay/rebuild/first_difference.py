"""Finds the first event that the live side of a topic does not reflect, by bisecting the history.

Bisection needs a condition that stays true once it is true: "the rebuilt topic is past the live one". Within one life
of a topic each of its parts only moves forward: every change of a partition raises its epoch, partitions are only
added, brokers only confirm until the topic is ready, a waiting request is answered once, and configs are counted by
their changes. So from some event on, a part of the rebuilt topic is further than in the live one, or as far with other
content, and stays so. The last event of the shortest such prefix is the result.

Each probe folds its prefix again, so memory does not grow with the history.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

import msgspec

from controller.machine.apply import apply_topic
from controller.machine.state import Topic
from events import catalog
from events.codec import decode_event
from events.logs.log import EventLog, read_one, shard_offsets
from events.names import ShardKey
from projections.text.wording import event_text

_ENDS = catalog.TopicDeleted | catalog.TopicVanished | catalog.CreationRefused
UNEXPLAINED = "no event in the log leads to the live state"


class FirstDifference(msgspec.Struct, frozen=True):
    """The first event that the live side does not reflect: its offset and its text.

    `offset` is None if no event leads to the live state.
    """

    offset: int | None
    event: str


class History:
    """The events of one shard, and the topic after any number of them."""

    def __init__(self, log: EventLog, shard: str) -> None:
        self._log = log
        self.offsets = list(shard_offsets(log, ShardKey(shard)))

    def record(self, number: int) -> catalog.Recorded:
        """The event at a position in this history, counted from 0."""
        offset = self.offsets[number]
        return decode_event(offset, read_one(self._log, offset))

    def after(self, count: int) -> Topic | None:
        """The topic after the first `count` events. Raises CannotApply."""
        topic: Topic | None = None
        for number in range(count):
            topic = apply_topic(topic, self.record(number))
        return topic

    def records(self) -> Iterator[catalog.Recorded]:
        """All events in order."""
        return map(self.record, range(len(self.offsets)))


def first_difference(history: History, live: Topic | None) -> FirstDifference:
    """The first event after which the rebuilt topic is past the live one (None: no topic). Raises CannotApply."""
    passed = _gone(history) if live is None else _passed(history, live)
    probes = range(len(history.offsets) + 1)
    shortest = bisect_left(probes, True, key=passed)
    if shortest in (0, len(probes)):
        return FirstDifference(None, UNEXPLAINED)
    first = history.record(shortest - 1)
    return FirstDifference(first.offset, event_text(first.event))


def _gone(history: History) -> Callable[[int], bool]:
    """A function of a count: true if the topic that exists in the end was created by that many events."""
    born: int | None = None
    lives = False
    for number, record in enumerate(history.records()):
        if isinstance(record.event, _ENDS):
            lives = False
        elif isinstance(record.event, catalog.TopicCreated | catalog.TopicDiscovered) and not lives:
            born, lives = number, True
    return lambda count: born is not None and count > born


def _passed(history: History, live: Topic) -> Callable[[int], bool]:
    """A function of a count: true if the topic is past `live` after that many events. Once true, it stays true."""
    born = bisect_left(history.offsets, live.created_offset)
    changes = _config_changes(history, live)

    def passed(count: int) -> bool:
        if count <= born:
            return False
        topic = history.after(count)
        if topic is None or topic.created_offset != live.created_offset:
            return True
        newest = history.offsets[count - 1]
        return is_ahead(topic, live) or any(offset <= newest for offset in changes)

    return passed


def is_ahead(topic: Topic, live: Topic) -> bool:
    """True if a part of a topic, except its configs, is further than in `live`, or as far with other content."""
    if (topic.name, topic.created_at_ms) != (live.name, live.created_at_ms):
        return True
    if topic.topic_id != live.topic_id and (topic.ready_at_ms is not None or topic.propagated):
        return True  # until then the target cluster may still assign another id
    if len(topic.partitions) > len(live.partitions):
        return True
    for mine, theirs in zip(topic.partitions, live.partitions, strict=False):
        if mine.partition_epoch > theirs.partition_epoch:
            return True
        if mine.partition_epoch == theirs.partition_epoch and mine != theirs:
            return True
    if topic.ready_at_ms is not None:
        if topic.ready_at_ms != live.ready_at_ms:
            return True
    elif live.ready_at_ms is None and topic.propagated != live.propagated[: len(topic.propagated)]:
        return True
    return live.pending_create is not None and topic.pending_create != live.pending_create


def _config_changes(history: History, live: Topic) -> list[int]:
    """The offsets of the config changes, creation included, that `live` does not reflect: those after the newest one
    that led to its configs."""
    unseen: list[int] = []
    for record in history.records():
        event = record.event
        if record.offset < live.created_offset:
            continue
        if isinstance(event, _ENDS):
            break
        if isinstance(event, catalog.TopicCreated | catalog.TopicConfigsChanged | catalog.TopicDiscovered):
            unseen.append(record.offset)
            if event.configs == live.configs:
                unseen.clear()
    return unseen
