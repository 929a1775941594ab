"""Writes events to a log: applies and encodes them, and commits them with the resulting state, indexes and Merkle tree.

Every writer of a log uses it: the group commit, the partitions of a stream, and the adoption of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from controller.machine.apply import apply, concerns_topic
from controller.machine.commands.commands import AnyCommand
from controller.machine.decision import Answer
from controller.machine.state import State
from controller.store.keys import Puts
from controller.store.request_index import RequestIndex
from controller.store.store import TopicStore
from controller.store.topic_indexes import put_creation
from controller.store.tree import LogTree
from events.catalog import Cause, Event, Recorded
from events.codec import decode_event, encode_event
from events.external_decision import request_of
from events.logs.log import Commit, Entry, EventLog, read_one
from events.names import Offset, ShardKey, shard_key


class Projector(Protocol):
    """Derives further state from the events of a commit: the metadata log of KRaft brokers."""

    def apply(self, state: State, record: Recorded) -> ShardKey:
        """Apply an event to the state, as `machine.apply` does, and derive from it."""
        ...

    def changes(self) -> Mapping[bytes, bytes | None]:
        """The state keys to write with the events since the last call; None deletes."""
        ...

    def savepoint(self) -> Callable[[], None]:
        """Returns a function that undoes later events; it may be called only before the next `changes`."""
        ...

    def reload(self) -> None:
        """Reload the state from the log, for example after a failed write."""
        ...


class EventsAlone:
    """A projector that derives nothing."""

    apply = staticmethod(apply)

    def changes(self) -> Mapping[bytes, bytes | None]:
        return {}

    def savepoint(self) -> Callable[[], None]:
        return _nothing

    def reload(self) -> None:
        pass


def _nothing() -> None:
    return None


def cause_of(command: AnyCommand) -> Cause:
    """The cause of the events of a command."""
    return Cause(type(command).__name__, command.request_id)


WITHOUT_METADATA_LOG = EventsAlone()


class Recorder:
    """Records events in a log. Between `record` and `commit` its `state` is ahead of the log: after a failed commit it
    must be replaced by a new recorder, which reads the state again."""

    def __init__(self, log: EventLog, store: TopicStore, projector: Projector = WITHOUT_METADATA_LOG) -> None:
        """Read the state from `store`. Raises LogError."""
        self.store = store
        self.state = store.state()
        self.last_ms = 0
        """The time of the newest event, below which no later one may be."""
        self._log = log
        self._projector = projector
        self._entries: list[Entry] = []
        self._tree = LogTree(log)
        self._creations: Puts = {}
        self._requests = RequestIndex(log)
        self._indexed: list[Recorded] = []
        end = log.next_offset
        if end:
            self.last_ms = decode_event(end - 1, read_one(log, end - 1)).at_ms

    def record(self, at_ms: int, cause: Cause, events: Sequence[Event], *, indexed: bool = True) -> list[Recorded]:
        """Apply and encode the events of a command, which are the next of the log. Without `indexed` the request index
        skips them. If one raises, nothing is changed."""
        first = self._log.next_offset + len(self._entries)
        records = [Recorded(Offset(offset), at_ms, cause, event) for offset, event in enumerate(events, first)]
        self.take_all(records, [encode_event(at_ms, cause, event) for event in events], indexed=indexed)
        return records

    def record_decision(self, command: AnyCommand, events: Sequence[Event], _: Sequence[Answer] = ()) -> list[Recorded]:
        """Record the events of a decision on a command. If one raises, nothing is changed."""
        return self.record(command.at_ms, cause_of(command), events) if events else []

    def take_all(self, records: Sequence[Recorded], values: Sequence[bytes], *, indexed: bool = True) -> None:
        """Apply the encoded events of a command; if one raises, nothing is changed."""
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
        """Apply an encoded event."""
        key = self._projector.apply(self.state, record)
        put_creation(self._creations, record.offset, key, record.event)
        if indexed:
            self._entries.append(Entry(value, key, request_of(record)))
            self._indexed.append(record)
        else:
            self._entries.append(Entry(value, key))
        self.last_ms = max(self.last_ms, record.at_ms)

    def take_commit(self, more: Mapping[bytes, bytes | None] | None = None) -> Commit:
        """The events since the last commit, with the resulting state and `more` keys."""
        entries, self._entries = self._entries, []
        indexed, self._indexed = self._indexed, []
        creations, self._creations = (self._creations, {}) if entries else ({}, self._creations)
        changes = {**self.store.changes(self.state), **creations, **self._requests.changes(indexed)}
        tree = self._tree.changes([entry.value for entry in entries]) if entries else {}
        return Commit(entries, {**changes, **tree, **self._projector.changes(), **(more or {})})

    def commit(self, more: Mapping[bytes, bytes | None] | None = None) -> None:
        """Write the events since the last commit; the log's next flush makes them durable. Raises LogError."""
        self._log.write(self.take_commit(more))


class Savepoint:
    """The parts of a state that some events may change; `restore` undoes a command of which one event fails."""

    def __init__(self, state: State, events: Sequence[Event]) -> None:
        self._state = state
        self._cluster = state.cluster
        names = {event.topic for event in events if concerns_topic(event)}  # type: ignore[union-attr]
        self._topics = {key: state.topics.get(key) for key in map(shard_key, names)}

    def restore(self) -> None:
        """Undo the events, however many were applied."""
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
