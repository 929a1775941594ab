"""Events on their way into a log: applied one by one, encoded, and written in one commit with the state they lead to,
and the tree over them.

All who write a log do it here: the group commit, the partitions of a stream, and the commands that take a cluster over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from controller.machine.apply import apply
from controller.machine.state import State
from events.catalog import Cause, Event, Recorded
from events.codec import decode_event, encode_event
from events.followed import request_of
from events.logs.log import Commit, Entry, EventLog
from events.names import Offset, ShardKey
from projections.store.access_state import Puts
from projections.store.creation_index import put_creation
from projections.store.request_index import RequestIndex
from projections.store.savepoint import Savepoint
from projections.store.store import TopicStore
from projections.store.tree import LogTree


class Projector(Protocol):
    """Keeps, with every commit, what else follows from its events: the metadata log that real brokers follow."""

    def apply(self, state: State, record: Recorded) -> ShardKey:
        """Bring the state past an event, as `machine.apply` does, and take what follows from it."""
        ...

    def changes(self) -> Mapping[bytes, bytes | None]:
        """The state keys to write with the events applied since the last call; None deletes."""
        ...

    def savepoint(self) -> Callable[[], None]:
        """What goes back to what was taken so far; to be called before the next `changes`, if at all."""
        ...

    def reload(self) -> None:
        """Take what the log's store has, as after a failed write."""
        ...


class EventsAlone:
    """Nothing but the machine's own state follows from events."""

    apply = staticmethod(apply)

    def changes(self) -> Mapping[bytes, bytes | None]:
        """Nothing: no view is kept beside the topics."""
        return {}

    def savepoint(self) -> Callable[[], None]:
        """Nothing to go back to."""
        return _nothing

    def reload(self) -> None:
        """Nothing to take."""


def _nothing() -> None:
    return None


EVENTS_ALONE = EventsAlone()


class Recorder:
    """Records events in a log. From `record` to `commit` its `state` is ahead of the log: after a failed commit only a
    new recorder, which reads the state anew, may go on."""

    def __init__(self, log: EventLog, store: TopicStore, projector: Projector = EVENTS_ALONE) -> None:
        """Read the state from `store`. Raises LogError."""
        self.store = store
        self.state = store.state()
        self.last_ms = 0
        """The time of the newest event: that of the next one must not be before it."""
        self._log = log
        self._projector = projector
        self._entries: list[Entry] = []
        self.tree = LogTree(log)
        self._creations: Puts = {}
        self._requests = RequestIndex(log)
        self._indexed: list[Recorded] = []
        end = log.next_offset
        if end:
            self.last_ms = decode_event(end - 1, log.read_one(end - 1)).at_ms

    def record(self, at_ms: int, cause: Cause, events: Sequence[Event], *, indexed: bool = True) -> list[Recorded]:
        """Bring the state past the events of a command, which nobody has encoded yet; they are the next of the log.
        Those that are not `indexed` are in no request's index. Where one raises, nothing is changed."""
        first = self._log.next_offset + len(self._entries)
        records = [Recorded(Offset(offset), at_ms, cause, event) for offset, event in enumerate(events, first)]
        self.take_all(records, [encode_event(at_ms, cause, event) for event in events], indexed=indexed)
        return records

    def take_all(self, records: Sequence[Recorded], values: Sequence[bytes], *, indexed: bool = True) -> None:
        """Bring the state past the events of a command, whose bytes are known; where one raises, nothing is changed."""
        before = Savepoint(self.state, [record.event for record in records])
        go_back, last_ms = self._projector.savepoint(), self.last_ms
        taken, indexed_taken = len(self._entries), len(self._indexed)
        try:
            for record, value in zip(records, values, strict=True):
                self.take(record, value, indexed=indexed)
        except Exception:
            del self._entries[taken:], self._indexed[indexed_taken:]
            self.last_ms = last_ms
            before.restore()
            go_back()
            raise

    def take(self, record: Recorded, value: bytes, *, indexed: bool = True) -> None:
        """Bring the state past an event whose bytes are known."""
        key = self._projector.apply(self.state, record)
        put_creation(self._creations, record.offset, key, record.event)
        if indexed:
            self._entries.append(Entry(value, key, request_of(record)))
            self._indexed.append(record)
        else:
            self._entries.append(Entry(value, key))
        self.last_ms = max(self.last_ms, record.at_ms)

    def take_commit(self, more: Mapping[bytes, bytes | None] | None = None) -> Commit:
        """What was recorded since the last commit, with the state that it led to and `more` keys, to be written."""
        entries, self._entries = self._entries, []
        indexed, self._indexed = self._indexed, []
        creations, self._creations = (self._creations, {}) if entries else ({}, self._creations)
        changes = {**self.store.changes(self.state), **creations, **self._requests.changes(indexed)}
        tree = self.tree.changes([entry.value for entry in entries]) if entries else {}
        return Commit(entries, {**changes, **tree, **self._projector.changes(), **(more or {})})

    def commit(self, more: Mapping[bytes, bytes | None] | None = None) -> None:
        """Write what was recorded since the last commit. It is durable after the log's next flush. Raises LogError."""
        self._log.write(self.take_commit(more))
