"""The state before the events of one command, to go back to where one of them cannot be applied."""

from __future__ import annotations

from collections.abc import Sequence

from controller.machine.apply import concerns_topic
from controller.machine.state import State
from events.catalog import Event
from events.names import shard_key


class Savepoint:
    """What some events may change of a state, as it is now."""

    def __init__(self, state: State, events: Sequence[Event]) -> None:
        self._state = state
        self._cluster = state.cluster
        names = {event.topic for event in events if concerns_topic(event)}  # type: ignore[union-attr]
        self._topics = {key: state.topics.get(key) for key in map(shard_key, names)}

    def restore(self) -> None:
        """Go back to it, however many of the events were applied."""
        state = self._state
        state.cluster = self._cluster
        for key, topic in self._topics.items():
            state.topics.put(key, topic)
            if topic is not None and topic.ready_at_ms is None:
                state.waiting[key] = topic.created_offset
            else:
                state.waiting.pop(key, None)
        in_order = sorted(state.waiting.items(), key=lambda waiting: waiting[1])
        state.waiting.clear()
        state.waiting.update(in_order)
