"""Decoded topics, at hand: a bounded number of them."""

from __future__ import annotations

from controller.machine.state import Topic
from events.names import ShardKey


class TopicCache:
    """A bounded cache in two generations: what is used survives, what is not is dropped a generation at a time."""

    def __init__(self, partitions_max: int) -> None:
        self._partitions_max = partitions_max
        self._young: dict[ShardKey, Topic] = {}
        self._old: dict[ShardKey, Topic] = {}
        self._weight = 0

    def get(self, key: ShardKey) -> Topic | None:
        """The cached topic, or None if it is not cached."""
        topic = self._young.get(key)
        if topic is None:
            topic = self._old.get(key)
            if topic is not None:
                self.put(key, topic)
        return topic

    def put(self, key: ShardKey, topic: Topic) -> None:
        """Keep a topic in the young generation."""
        replaced = self._young.get(key)
        self._weight += len(topic.partitions) - (len(replaced.partitions) if replaced is not None else 0)
        if self._weight > self._partitions_max:
            self._old, self._young, self._weight = self._young, {}, len(topic.partitions)
        self._young[key] = topic

    def drop(self, key: ShardKey) -> None:
        """Forget a topic."""
        dropped = self._young.pop(key, None)
        if dropped is not None:
            self._weight -= len(dropped.partitions)
        self._old.pop(key, None)
