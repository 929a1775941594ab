"""Where two sides of a topic part: the first event that the live side does not show, found by halving the history.

Halving needs something that, once true, stays true as events are added: "the rebuilt topic has gone past the live one".
Each part of a topic only moves forward during one life of it: partition epochs rise with every change of a partition,
partitions are only added, brokers only confirm until the topic is ready, who waits is answered once, and configs are
counted by their changes. So after some prefix of the events a part of the rebuilt topic is further than in the live
one, or as far with other content, and stays so. The last event of the shortest such prefix is where they part.

Each probe folds its prefix anew, so memory does not grow with the history.
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
UNEXPLAINED = "no event of the log explains what the live side has"


class Parting(msgspec.Struct, frozen=True):
    """The first event that the live side does not show: its offset, and what it says.

    `offset` is None where the live side has what the log never said.
    """

    offset: int | None
    event: str


class History:
    """The events of one shard, which can be folded up to any of them."""

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


def parting(history: History, live: Topic | None) -> Parting:
    """Where the history of a shard goes past the live topic (None: no topic). Raises CannotApply."""
    passed = _gone(history) if live is None else _passed(history, live)
    probes = range(len(history.offsets) + 1)
    shortest = bisect_left(probes, True, key=passed)
    if shortest in (0, len(probes)):
        return Parting(None, UNEXPLAINED)
    first = history.record(shortest - 1)
    return Parting(first.offset, event_text(first.event))


def _gone(history: History) -> Callable[[int], bool]:
    """Whether the topic that is there in the end was created by so many events."""
    born: int | None = None
    lives = False
    for number, record in enumerate(history.records()):
        if isinstance(record.event, _ENDS):
            lives = False
        elif isinstance(record.event, catalog.TopicCreated | catalog.TopicDiscovered) and not lives:
            born, lives = number, True
    return lambda count: born is not None and count > born


def _passed(history: History, live: Topic) -> Callable[[int], bool]:
    """Whether the topic has gone past `live` after so many events: false up to some count, and true from there on."""
    born = bisect_left(history.offsets, live.created_offset)
    changes = _config_changes(history, live)

    def passed(count: int) -> bool:
        if count <= born:
            return False
        topic = history.after(count)
        if topic is None or topic.created_offset != live.created_offset:
            return True
        newest = history.offsets[count - 1]
        return is_past(topic, live) or any(offset <= newest for offset in changes)

    return passed


def is_past(topic: Topic, live: Topic) -> bool:
    """Whether any part of a topic, but for its configs, is further than in `live`, or as far with other content."""
    if (topic.name, topic.created_at_ms) != (live.name, live.created_at_ms):
        return True
    if topic.topic_id != live.topic_id and (topic.ready_at_ms is not None or topic.propagated):
        return True  # before that a cluster that carries decisions out may still give it another id
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
    """The offsets of the changes of configs, the creation among them, that `live` does not show: those after the
    newest that left the configs as it has them."""
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
