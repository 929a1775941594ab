"""The state keys of past moments, made of the nearest snapshot before and the events since, as the machine made them.

What it is for: snapshots that are missing or damaged. What comes out is, byte for byte, what was committed with the
events; tests compare the two at every offset.

Memory: the stored bytes of all topics, and a bounded number of decoded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from controller.machine.apply import apply
from events.catalog import Cause
from events.codec import decode_event
from events.logs.log import Commit, Entry, EventLog, StateKeys
from events.logs.memory_log import InMemoryLog
from events.logs.snapshots import nearest_snapshot
from projections.store.access_state import ACL, QUOTA, SCRAM, Puts
from projections.store.store import CLUSTER, WAITING, TopicStore
from projections.store.stored_topics import TOPIC, is_extra

KEPT = tuple(sorted((ACL, CLUSTER, QUOTA, SCRAM, TOPIC, WAITING)))
"""The first bytes of the state keys that say something of their own, in order: what a snapshot has."""
EVENTS_PER_COMMIT = 500
PARTITIONS_CACHED = 25_000

_NO_CAUSE = Cause("", "")  # type: ignore[arg-type]


class Refold:
    """The state keys of a log at one offset after another. `rest` is called now and then, and may raise."""

    def __init__(self, log: EventLog, rest: Callable[[], None], *, from_scratch: bool = False) -> None:
        """With `from_scratch` no snapshot is begun with."""
        self._log = log
        self._from_scratch = from_scratch
        self._rest = rest
        self._at = -1

    def go_to(self, offset: int) -> int:
        """Go on to an offset that is not before the last one, or some events past it, where a command ends; returns
        where that is. Raises LogError, SnapshotDamaged, CannotApply."""
        self._begin_near(offset)
        cause = _NO_CAUSE
        for number, value in self._log.read(self._at):
            record = decode_event(number, value)
            if number >= offset and record.cause != cause:
                break
            apply(self._state, record)
            cause, self._at = record.cause, number + 1
            if self._at % EVENTS_PER_COMMIT == 0:
                self._keep()
        self._keep()
        return self._at

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """The state keys that a snapshot has, in order."""
        return (pair for prefix in KEPT for pair in self._keys.scan(prefix))

    def _begin_near(self, offset: int) -> None:
        """Begin at the nearest snapshot, if it is nearer than where we are."""
        snapshot = None if self._from_scratch else nearest_snapshot(self._log, offset)
        if snapshot is None:
            if self._at < 0:
                self._load({}, 0)
            return
        with snapshot:
            if snapshot.offset > self._at:
                self._load(dict(state_keys(snapshot)), snapshot.offset)

    def _load(self, keys: Puts, offset: int) -> None:
        self._keys = InMemoryLog("")
        self._put(keys)
        self._store = TopicStore(self._keys, PARTITIONS_CACHED)
        self._state = self._store.state()
        self._at = offset

    def _keep(self) -> None:
        self._put(self._store.changes(self._state))
        self._store.became_durable(self._state)
        self._rest()

    def _put(self, changes: Puts) -> None:
        self._keys.write(Commit([Entry(b"")], {key: changes[key] for key in changes if key[:1] in KEPT}))
        self._keys.flush()


def state_keys(snapshot: StateKeys) -> Iterator[tuple[bytes, bytes]]:
    """The state keys that a snapshot has, in order, without what is there for readers. Raises SnapshotDamaged."""
    return ((key, value) for prefix in KEPT for key, value in snapshot.scan(prefix) if not is_extra(key))
