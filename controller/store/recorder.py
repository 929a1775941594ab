"""Writes events to a log: applies and encodes them, and commits them with the resulting state, indexes and Merkle tree.

Every writer of a log uses `Recorder`: the group commit of `serve`, workers and gateways, and the adoption of a cluster.
"""

from collections.abc import Mapping, Sequence

from controller.machine.apply import apply_all
from controller.machine.commands.commands import AnyCommand
from controller.machine.decision import Answer
from controller.machine.state import State
from controller.store.request_index import RequestIndex
from controller.store.store import TopicStore
from controller.store.topic_indexes import CREATION_KINDS, put_creation
from controller.store.tree import LogTree
from events.catalog import Cause, Event, Recorded
from events.codec import decode_event, encode_event
from events.external_decision import request_of
from events.logs.log import Commit, Entry, EventLog, read_one
from events.names import ShardKey


class Projector:
    """Applies the events of a commit. A subclass also derives further state: with KRaft brokers, the records of the
    metadata log."""

    def apply(self, state: State, records: Sequence[Recorded]) -> list[ShardKey]:
        """Apply the events of a command, and derive the further state. An exception leaves everything unchanged."""
        return apply_all(state, records)

    def changes(self) -> Mapping[bytes, bytes | None]:
        """The state keys to write with the events since the last call; None deletes."""
        return {}

    def reload(self) -> None:
        """Reload the state from the log, for example after a failed write."""


def cause_of(command: AnyCommand) -> Cause:
    return Cause(type(command).__name__, command.request_id)


WITHOUT_METADATA_LOG = Projector()


class Recorder:
    """Records events in a log. Between `record` and `commit` its `state` is ahead of the log: after a failed commit
    the caller must create a new recorder, which reads the state again."""

    def __init__(self, log: EventLog, store: TopicStore, projector: Projector = WITHOUT_METADATA_LOG) -> None:
        """Read the state from `store`. Raises LogError."""
        self.store = store
        self.state = store.state()
        self._log = log
        self._projector = projector
        self._entries: list[Entry] = []
        self._tree = LogTree(log)
        self._requests = RequestIndex(log)
        self._recorded: list[Recorded] = []
        end = log.next_offset
        self.last_ms = decode_event(end - 1, read_one(log, end - 1)).at_ms if end else 0
        """The time of the newest event. Later events must not have an earlier time."""

    def record(self, at_ms: int, cause: Cause, events: Sequence[Event]) -> list[Recorded]:
        """Apply and encode the events of a command, at the next offsets of the log. If an event raises, nothing is
        changed."""
        first = self._log.next_offset + len(self._entries)
        records = [Recorded(offset, at_ms, cause, event) for offset, event in enumerate(events, first)]  # type: ignore[arg-type]
        self.record_encoded(records, [encode_event(at_ms, cause, event) for event in events])
        return records

    def record_decision(self, command: AnyCommand, events: Sequence[Event], _: Sequence[Answer] = ()) -> list[Recorded]:
        """Record the events of a decision on a command. If an event raises, nothing is changed."""
        return self.record(command.at_ms, cause_of(command), events) if events else []

    def record_encoded(self, records: Sequence[Recorded], values: Sequence[bytes]) -> None:
        """Apply events of a command that are already encoded. If an event raises, nothing is changed."""
        if not records:
            return
        for record, value, key in zip(records, values, self._projector.apply(self.state, records), strict=True):
            self._entries.append(Entry(value, key, request_of(record)))
        self.last_ms = max(self.last_ms, *[record.at_ms for record in records])
        self._recorded += records

    def take_commit(self, more: Mapping[bytes, bytes | None] | None = None) -> Commit:
        """The events since the last commit, with the resulting state and `more` keys."""
        entries, self._entries = self._entries, []
        recorded, self._recorded = self._recorded, []
        changes = self.store.changes(self.state)
        for record, entry in zip(recorded, entries, strict=True):
            if type(record.event) in CREATION_KINDS:
                put_creation(changes, record.offset, entry.shard_key)
        if entries:
            changes |= self._requests.changes(recorded, entries)
            changes |= self._tree.changes([entry.value for entry in entries])
        return Commit(entries, {**changes, **self._projector.changes(), **(more or {})})

    def commit(self, more: Mapping[bytes, bytes | None] | None = None) -> None:
        """Write the events since the last commit; the log's next flush makes them durable. Raises LogError."""
        self._log.write(self.take_commit(more))
