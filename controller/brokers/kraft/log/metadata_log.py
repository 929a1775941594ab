"""The `__cluster_metadata` log: what real brokers follow, kept in the same store as the events that it shows.

Each commit of events becomes record batches here, in the very same atomic write; so after any crash the brokers' log is
that of exactly the events that there are, byte for byte as it was, and a broker never sees what could still be lost:
readers are shown durable batches only.

State keys, all under `k`:
    k m             where the log begins and ends, its epochs, its snapshot, the brokers' epochs
    k b OFFSET      a batch, by the offset of its last record
    k s OFFSET N    the N-th piece of the snapshot that ends at OFFSET
    k a ID          an access control entry: see `acl_ids`

A snapshot (see `snapshots`) stands for all before it. Two are kept; with the commit that brings a further one the
batches below the older of them go, so the log does not grow without bound, and a broker that lags a little still finds
its place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from controller.brokers.kraft.log import access_records, projection
from controller.brokers.kraft.log.acl_ids import AclIds
from controller.brokers.kraft.log.batches import Pair, RecordBatch, encode_batch, leader_change, voters
from controller.brokers.kraft.log.metadata_codec import encode_record
from controller.brokers.kraft.log.metadata_records import MetadataRecord
from controller.machine.apply import apply, concerns_topic
from controller.machine.state import Cluster, State, Topic
from events import catalog
from events.logs.log import EventLog
from events.names import BrokerId, ShardKey, shard_key

META, BATCH, PIECE = b"km", b"kb", b"ks"
RECORDS_PER_BATCH: Final = 1000
"""Bounds a batch; what one event leads to is never parted."""
_PIECE_BYTES: Final = 1 << 20  # of a snapshot, in a value of the store

_encode = msgspec.msgpack.Encoder().encode


class EpochStart(msgspec.Struct, frozen=True, array_like=True):
    """The offset at which an epoch of the quorum began."""

    epoch: int
    offset: int


class SnapshotMark(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot of all below `end_offset`, of so many bytes."""

    end_offset: int
    epoch: int
    size: int


class MetadataMark(msgspec.Struct, frozen=True, array_like=True):
    """Where the metadata log begins and ends, and what cannot be read from its batches alone."""

    start: int = 0
    end: int = 0
    epochs: tuple[EpochStart, ...] = ()
    snapshots: tuple[SnapshotMark, ...] = ()
    """The newest last; one older is kept for a broker that is fetching it."""
    broker_epochs: tuple[tuple[BrokerId, int], ...] = ()
    bytes_since_snapshot: int = 0
    adopted: bool = False
    """The log was begun by another controller (see `adopting`)."""
    tells_access: bool = False
    """Entries, logins and quotas are in the log: not in those that were begun before it was so."""

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        return self.epochs[-1].epoch if self.epochs else 0


class NewSnapshot(msgspec.Struct, frozen=True):
    """A snapshot that is made and not yet written."""

    end_offset: int
    epoch: int
    data: bytes


class MetadataLog:
    """The log of one controller. `apply` and `changes` belong to deciding, all else shows what is durable."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._acl_ids = AclIds(log)
        self.existing_topics: Callable[[], Iterable[Topic]] = tuple
        """The topics that are there when the log begins."""
        self.reload()

    def reload(self) -> None:
        """Take what the store has, as at the start and after a failed write."""
        value = self._log.get(META)
        self.mark = MetadataMark() if value is None else msgspec.msgpack.decode(value, type=MetadataMark)
        """As of the last durable commit."""
        self._lasts = [int.from_bytes(key[2:], "big") for key, _ in self._log.scan(BATCH)]
        self._staged = self.mark
        self._fresh: list[tuple[int, bytes]] = []
        self._pending: list[Pair] = []
        self._snapshot: NewSnapshot | None = None
        self._written_snapshot: NewSnapshot | None = None
        self._epochs = dict(self.mark.broker_epochs)
        self._acl_ids.reload()

    # --- deciding

    def apply(self, state: State, record: catalog.Recorded) -> ShardKey:
        """Bring the state past an event, and take what it means for brokers."""
        event: Any = record.event
        if concerns_topic(event):
            key = shard_key(event.topic)
            before = state.topics.get(key)
            applied = apply(state, record)
            if self.is_led:
                level = state.cluster.feature(projection.METADATA_VERSION_FEATURE)
                after, index = state.topics.get(key), getattr(event, "partition", None)
                self._take(record.at_ms, projection.topic_records(before, after, level, index))
            return applied
        cluster = state.cluster
        applied = apply(state, record)
        if isinstance(event, catalog.QuorumEpochBegun):
            self._begin_epoch(state, record.at_ms)
        elif self.is_led:
            first = self._staged.end + len(self._pending)
            resource = (event.kind, event.name) if isinstance(event, catalog.ResourceConfigsChanged) else None
            records = projection.cluster_records(cluster, state.cluster, self._epochs, first, resource)
            self._note_epoch(event, first)
            if isinstance(event, catalog.ProducerIdsAllocated):
                epoch = self._epochs.get(event.broker_id, -1)
                records.append(projection.producer_ids_record(event.broker_id, epoch, event.next_producer_id))
            is_first = isinstance(event, catalog.FeaturesChanged) and not cluster.features
            records += self._access_records(Cluster() if is_first else cluster, state.cluster, first + len(records))
            self._take(record.at_ms, records)
            if is_first:
                self._adopt_topics(record.at_ms, state.cluster.feature(projection.METADATA_VERSION_FEATURE))
        return applied

    @property
    def is_led(self) -> bool:
        """Whether an epoch has begun: before the first there is no log."""
        return bool(self._staged.epochs)

    def _access_records(self, before: Cluster, after: Cluster, next_offset: int) -> list[MetadataRecord]:
        """What brokers learn of logins, quotas and access control entries; before the first features it is nothing
        yet, and then all that there is."""
        if not after.features:
            return []
        records = access_records.credential_and_quota_records(before, after)
        gone, new = access_records.acl_changes(before.acls, after.acls)
        records += [access_records.acl_removal(self._acl_ids.take(acl)) for acl in gone]
        for offset, acl in enumerate(new, next_offset + len(records)):
            records.append(access_records.acl_record(acl, self._acl_ids.give(acl, offset)))
        return records

    def _adopt_topics(self, at_ms: int, level: int) -> None:
        """Take topics that were there before the metadata log began."""
        for topic in self.existing_topics():
            self._take(at_ms, projection.topic_records(None, topic, level))

    def _note_epoch(self, event: catalog.Event, offset: int) -> None:
        if isinstance(event, catalog.BrokerRegistered) and event.details is not None:
            self._epochs = {**self._epochs, event.broker_id: offset}
        elif isinstance(event, catalog.BrokerUnregistered):
            self._epochs = {key: epoch for key, epoch in self._epochs.items() if key != event.broker_id}

    def _begin_epoch(self, state: State, at_ms: int) -> None:
        self._close_batch()
        quorum = state.cluster.quorum
        assert quorum is not None, "an epoch has begun"
        start = EpochStart(quorum.leader_epoch, self._staged.end)
        self._staged = msgspec.structs.replace(self._staged, epochs=(*self._staged.epochs, start))
        self._append(at_ms, leader_change(quorum) + voters(quorum), is_control=True)
        if not self._staged.tells_access:
            self._staged = msgspec.structs.replace(self._staged, tells_access=True)
            self._take(at_ms, self._missing_access(state.cluster))

    def _missing_access(self, cluster: Cluster) -> list[MetadataRecord]:
        """What a log has never said: entries without an id, and all logins and quotas; learning the same of
        those once more changes nothing."""
        if not cluster.features:
            return []  # of the first features comes all that there is
        records = access_records.credential_and_quota_records(Cluster(), cluster)
        missing = [acl for acl in sorted(cluster.acls) if acl not in self._acl_ids]
        for offset, acl in enumerate(missing, self._staged.end + len(records)):
            records.append(access_records.acl_record(acl, self._acl_ids.give(acl, offset)))
        return records

    def _take(self, at_ms: int, records: list[MetadataRecord]) -> None:
        if not records:
            return
        self._at_ms = at_ms
        self._pending += [(None, encode_record(record)) for record in records]
        if len(self._pending) >= RECORDS_PER_BATCH:
            self._close_batch()

    def _close_batch(self) -> None:
        if self._pending:
            pending, self._pending = self._pending, []
            self._append(self._at_ms, pending)

    def _append(self, at_ms: int, records: list[Pair], *, is_control: bool = False) -> None:
        staged = self._staged
        data = encode_batch(staged.end, staged.epoch, at_ms, records, is_control=is_control)
        end = staged.end + len(records)
        self._fresh.append((end - 1, data))
        grown = staged.bytes_since_snapshot + len(data)
        self._staged = msgspec.structs.replace(staged, end=end, bytes_since_snapshot=grown)

    def changes(self) -> Mapping[bytes, bytes | None]:
        """The state keys that the next commit has to write for what was taken."""
        self._close_batch()
        if not self._fresh:
            return {}
        changes: dict[bytes, bytes | None] = {BATCH + _key(last): data for last, data in self._fresh}
        if self._snapshot is not None:
            changes |= self._with_snapshot(self._snapshot)
            self._written_snapshot, self._snapshot = self._snapshot, None
        epochs = tuple(sorted(self._epochs.items()))
        self._staged = msgspec.structs.replace(self._staged, broker_epochs=epochs)
        changes[META] = _encode(self._staged)
        changes |= self._acl_ids.changes()
        return changes

    def savepoint(self) -> Callable[[], None]:
        """What goes back to what was taken so far; to be called before the next `changes`, if at all."""
        staged, epochs, fresh = self._staged, self._epochs, len(self._fresh)
        pending, taken = self._pending, len(self._pending)
        go_back_with_ids = self._acl_ids.savepoint()

        def go_back() -> None:
            self._staged, self._epochs, self._pending = staged, epochs, pending
            del self._fresh[fresh:], pending[taken:]
            go_back_with_ids()

        return go_back

    def became_durable(self) -> None:
        """The commit of the last `changes` is on the disk: show it."""
        if self._fresh:
            self._lasts += [last for last, _ in self._fresh]
            self._fresh = []
        if self._written_snapshot is not None:
            self._written_snapshot = None
            del self._lasts[: bisect_left(self._lasts, self._staged.start)]
        self.mark = self._staged

    # --- snapshots

    def offer_snapshot(self, snapshot: NewSnapshot) -> None:
        """Write a snapshot with the next commit, and let go of the batches below it."""
        self._snapshot = snapshot

    def has_snapshot_pending(self) -> bool:
        """Whether a snapshot waits for a commit."""
        return self._snapshot is not None or self._written_snapshot is not None

    def _with_snapshot(self, snapshot: NewSnapshot) -> dict[bytes, bytes | None]:
        changes: dict[bytes, bytes | None] = {}
        for number, at in enumerate(range(0, len(snapshot.data), _PIECE_BYTES)):
            changes[_piece_key(snapshot.end_offset, number)] = snapshot.data[at : at + _PIECE_BYTES]
        mark = self._staged
        kept = mark.snapshots[-1:]
        start = kept[0].end_offset if kept else mark.start
        for last in self._lasts[: bisect_left(self._lasts, start)]:
            changes[BATCH + _key(last)] = None
        for gone in mark.snapshots[:-1]:
            for number in range(-(-gone.size // _PIECE_BYTES)):
                changes[_piece_key(gone.end_offset, number)] = None
        new = SnapshotMark(snapshot.end_offset, snapshot.epoch, len(snapshot.data))
        older = [each for each in mark.epochs if each.offset <= start]
        epochs = (*older[-1:], *(each for each in mark.epochs if each.offset > start))
        self._staged = msgspec.structs.replace(
            mark, start=start, snapshots=(*kept, new), epochs=epochs, bytes_since_snapshot=0
        )
        return changes

    def snapshot(self, end_offset: int, epoch: int) -> SnapshotMark | None:
        """The snapshot of that name, if it is kept."""
        return next((s for s in self.mark.snapshots if (s.end_offset, s.epoch) == (end_offset, epoch)), None)

    def snapshot_bytes(self, mark: SnapshotMark) -> bytes:
        """A whole snapshot."""
        pieces = range(0, mark.size, _PIECE_BYTES)
        return b"".join(self.read_snapshot(mark, position, _PIECE_BYTES) for position in pieces)

    def read_snapshot(self, mark: SnapshotMark, position: int, max_bytes: int) -> bytes:
        """Bytes of a snapshot from a position on; fewer than asked for at the end of a piece."""
        number, start = divmod(position, _PIECE_BYTES)
        piece = self._log.get(_piece_key(mark.end_offset, number)) or b""
        return piece[start : start + max_bytes]

    # --- reading

    def broker_epoch(self, broker_id: int) -> int:
        """The epoch that a registered broker has on the wire; -1 if it is not registered."""
        return dict(self.mark.broker_epochs).get(BrokerId(broker_id), -1)

    def end_of_epoch(self, epoch: int) -> EpochStart:
        """The newest epoch up to this one, with the offset at which it ends."""
        epochs = self.mark.epochs
        for index in range(len(epochs) - 1, -1, -1):
            if epochs[index].epoch <= epoch:
                end = epochs[index + 1].offset if index + 1 < len(epochs) else self.mark.end
                return EpochStart(epochs[index].epoch, end)
        return EpochStart(epoch, self.mark.start)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on, at least one if there is any."""
        parts: list[bytes] = []
        size = 0
        for data in self.batches(offset):
            if parts and size + len(data) > max_bytes:
                break
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    def batches(self, offset: int, end: int | None = None) -> Iterator[bytes]:
        """The durable batches from the one that holds `offset` on, up to those that begin at or after `end`."""
        stop = self.mark.end if end is None else end
        for last in self._lasts[bisect_left(self._lasts, offset) :]:
            if last >= stop:
                return
            data = self._log.get(BATCH + _key(last))
            assert data is not None, f"the batch that ends at {last} is kept"
            yield data


def adopted_keys(
    mark: MetadataMark, batches: Iterable[RecordBatch], snapshot: tuple[SnapshotMark, bytes] | None
) -> dict[bytes, bytes]:
    """The state keys of a log that was begun elsewhere."""
    keys = {BATCH + _key(batch.last_offset): batch.data for batch in batches}
    if snapshot is not None:
        named, data = snapshot
        for number, at in enumerate(range(0, len(data), _PIECE_BYTES)):
            keys[_piece_key(named.end_offset, number)] = data[at : at + _PIECE_BYTES]
    keys[META] = _encode(mark)
    return keys


def _key(offset: int) -> bytes:
    return offset.to_bytes(8, "big")


def _piece_key(end_offset: int, number: int) -> bytes:
    return PIECE + _key(end_offset) + number.to_bytes(4, "big")
