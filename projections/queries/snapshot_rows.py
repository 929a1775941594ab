"""Writes and reads topic rows in snapshots, for queries about the past: a topic's state, and fields of its creation.

    t SHARD_KEY             the topic's state keys (`controller.store.stored_topics`)
    t SHARD_KEY NUL FF      MessagePack of `Creation`; it sorts after the topic's state keys
    v                       MessagePack of `ClusterRow`: brokers and settings

Only the creation events hold the fields of `Creation`. These events may be far back in the log, each in a block of its
own. Reading them for every row would take longer than the rest of a query. So a snapshot stores these fields. A new
snapshot copies them from the previous one, or reads the events of newer topics.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, islice

import msgspec

from controller.machine.state import Topic
from controller.store.stored_topics import CREATION_SUFFIX, TOPIC, decode_topic, is_creation_key, stored_values
from events import catalog
from events.codec import decode_event
from events.logs.log import EventLog
from events.logs.snapshots import Snapshot
from events.names import Offset, ShardKey
from projections.views.brokers import ClusterRow
from projections.views.rows import Creation, TopicRow, created_by, creation_of, row_of

CLUSTER_ROW = b"v"

Pair = tuple[bytes, bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode_creation = msgspec.msgpack.Decoder(Creation).decode
_decode_fields = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_offset = msgspec.msgpack.Decoder(int).decode
_decode_cluster = msgspec.msgpack.Decoder(ClusterRow).decode


# --- reading


def snapshot_topic(snapshot: Snapshot, key: ShardKey) -> TopicRow | None:
    """The row of the topic under a shard key. Raises SnapshotDamaged, msgspec.DecodeError."""
    creation = snapshot.get(TOPIC + key.encode() + CREATION_SUFFIX)
    if creation is None:
        return None
    values = stored_values(snapshot, key)
    if len(values) > 1 and values[-1] == creation:  # if the topic has blocks, their scan returns it too
        values.pop()
    return _row(values, creation)


def snapshot_creation(snapshot: Snapshot, key: ShardKey) -> Creation | None:
    """The creation of the topic under a shard key. Raises SnapshotDamaged, msgspec.DecodeError."""
    stored = snapshot.get(TOPIC + key.encode() + CREATION_SUFFIX)
    return None if stored is None else _decode_creation(stored)


def snapshot_topics(snapshot: Snapshot, after: str) -> Iterator[tuple[ShardKey, TopicRow]]:
    """The rows of the topics after a shard key ("": all), in order. Raises SnapshotDamaged, msgspec.DecodeError."""
    start = TOPIC + after.encode("utf-8", "surrogatepass") + CREATION_SUFFIX if after else None
    values: list[bytes] = []
    for key, value in snapshot.scan(TOPIC, start):
        if is_creation_key(key):
            yield ShardKey(key[len(TOPIC) : -len(CREATION_SUFFIX)].decode()), _row(values, value)
            values = []
        else:
            values.append(value)


def has_more_topics(snapshot: Snapshot, count: int) -> bool:
    """True if the snapshot has more than `count` topics. Decodes no topic. Raises SnapshotDamaged."""
    creations = (key for key, _ in snapshot.scan(TOPIC) if is_creation_key(key))
    return next(islice(creations, count, None), None) is not None


def snapshot_cluster(snapshot: Snapshot) -> ClusterRow | None:
    """Brokers and settings; None if the snapshot has none. Raises SnapshotDamaged, msgspec.DecodeError."""
    stored = snapshot.get(CLUSTER_ROW)
    return None if stored is None else _decode_cluster(stored)


def _row(values: list[bytes], creation: bytes) -> TopicRow:
    return row_of(decode_topic(values), _decode_creation(creation))


# --- writing


def with_rows(log: EventLog, pairs: Iterable[Pair], previous: Snapshot | None, cluster: ClusterRow) -> Iterator[Pair]:
    """Add the creation records and the cluster row to `pairs`, the sorted state keys of a new snapshot.

    Yields all pairs in order. `previous` is the snapshot before it, if any. Raises LogError, SnapshotDamaged.
    """
    creations = _Creations(log, previous)
    waiting: Pair | None = None
    row: Iterator[Pair] = iter(((CLUSTER_ROW, _encode(cluster)),))
    for key, value in pairs:
        if waiting is not None and not key.startswith(waiting[0] + b"\0"):
            yield creations.of(*waiting)
            waiting = None
        if key > CLUSTER_ROW:
            yield from row
        yield key, value
        if key.startswith(TOPIC) and b"\0" not in key:
            waiting = (key, value)
    yield from chain(() if waiting is None else (creations.of(*waiting),), row)


class _Creations:
    """Returns creation records, from the previous snapshot or from the events. Must be called in the order of keys."""

    def __init__(self, log: EventLog, previous: Snapshot | None) -> None:
        self._log = log
        self._known = iter(()) if previous is None else (one for one in previous.scan(TOPIC) if is_creation_key(one[0]))
        self._next: Pair = next(self._known, (b"\xff", b""))

    def of(self, key: bytes, topic: bytes) -> Pair:
        key, created = key + CREATION_SUFFIX, _created_offset(Topic, topic)
        while self._next[0] < key:
            self._next = next(self._known, (b"\xff", b""))
        if self._next[0] == key and _created_offset(Creation, self._next[1]) == created:
            return self._next
        return key, _encode(recorded_creation(self._log, created))


def _created_offset(kind: type[msgspec.Struct], stored: bytes) -> Offset:
    """The creation offset in a stored topic or creation, of which nothing else is decoded."""
    return Offset(_decode_offset(_decode_fields(stored)[kind.__struct_fields__.index("created_offset")]))


def recorded_creation(log: EventLog, created_offset: Offset) -> Creation:
    """The creation of a topic, from its event and the one before, which may be its request. Raises LogError,
    CannotApply."""
    offsets = range(max(0, created_offset - 1), created_offset + 1)
    *before, created = map(decode_event, offsets, log.read_many(offsets))
    request = before[0].event if before else None
    return creation_of(created, created_by(request) if isinstance(request, catalog.CreateRequested) else None)
