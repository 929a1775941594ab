"""Detecting duplicates of recently decided client commands.

Kafka may store a command twice although an idempotent producer sent it once (when brokers are killed), and a program
may resubmit a command whose fate it does not know. Deciding a duplicate does harm: a create that waits for its topic
would be answered that the topic exists, and a deletion could hit a topic that was created since.

A command is identified by its kind, request id and topic; each request needs a unique id. The memory follows from the
events alone, so the next owner of the partition detects the same duplicates: a command is recent while its last event
is among the partition's newest `RECENT_EVENTS`.

Non-goal: commands without events. These are dry runs, changes without effect, and undecidable commands. Each may be
decided again, with the same reply, and the client gets the first one.
"""

from __future__ import annotations

from typing import get_args

from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.commands import AnyCommand, TopicCommand
from events.catalog import Recorded

RECENT_EVENTS = 20_000
"""Larger than what a producer has in flight, so duplicates fall within. Reading as many takes some 40 ms."""
_FORGET_EVERY = 5_000  # events; the cost of looking is spread over them

_Key = tuple[str, str, str]
_OF_CLIENTS = frozenset(
    kind.__name__ for kind in get_args(AnyCommand) if issubclass(kind, TopicCommand | ClusterCommand)
)
"""The client commands, as event causes name them."""


class RecentRequests:
    """The client commands with an event among the newest of a partition, and the offset of their last one."""

    def __init__(self) -> None:
        self._last_event: dict[_Key, int] = {}
        """Ordered by offset."""
        self._forgot_at = 0

    def add(self, record: Recorded) -> None:
        """Record the partition's newest event."""
        cause = record.cause
        if cause.command in _OF_CLIENTS:
            key = cause.command, cause.request_id, getattr(record.event, "topic", "")
            self._last_event.pop(key, None)
            self._last_event[key] = record.offset
            if record.offset - self._forgot_at >= _FORGET_EVERY:
                self._forget(record.offset + 1 - RECENT_EVENTS)
                self._forgot_at = record.offset

    def contains(self, command: TopicCommand | ClusterCommand, next_event: int) -> bool:
        """True if the command was decided recently; `next_event` is the partition's next event."""
        last = self._last_event.get((type(command).__name__, command.request_id, command.topic))
        return last is not None and last >= next_event - RECENT_EVENTS

    def _forget(self, before: int) -> None:
        for key, last in list(self._last_event.items()):
            if last >= before:
                break
            del self._last_event[key]
