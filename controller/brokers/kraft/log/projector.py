"""What a commit is in the metadata log: one batch, of a NoOpRecord with its events (`carried`) and what those mean for
brokers and Kafka's controllers. A large commit is several batches, parted between commands.

The metadata log is the quorum's, and the write-ahead log of the events: a commit is in the event log when its batches
are committed there. Both sides of that work here. Who leads takes the events of a commit one after another, and gets
batches to append; who follows takes the events of a batch, and gets what that batch must be.

State keys, under `k`:
    k v       up to where the metadata log is in the event log, and the brokers' epochs
    k a ID    an access control entry: see `acl_ids`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from controller.brokers.kraft.discovering.wire import KnownWire, Wire
from controller.brokers.kraft.log import access_records, projection
from controller.brokers.kraft.log.acl_ids import AclIds
from controller.brokers.kraft.log.batches import Pair
from controller.brokers.kraft.log.carried import carrying
from controller.brokers.kraft.log.metadata_codec import encode_record
from controller.brokers.kraft.log.metadata_records import MetadataRecord
from controller.machine.apply import apply, concerns_topic
from controller.machine.state import Cluster, State, Topic
from events import catalog
from events.logs.log import EventLog
from events.names import BrokerId, ShardKey, shard_key
from projections.store.tree import stored_head

MARK: Final = b"kv"
RECORDS_PER_BATCH: Final = 1000
"""Bounds a batch, with the next; what one command leads to is never parted."""
BATCH_BYTES: Final = 1 << 20

_encode = msgspec.msgpack.Encoder().encode


class MetadataMark(msgspec.Struct, frozen=True, array_like=True):
    """What stands in the event log's own store of the metadata log."""

    applied: int = 0
    """All of it below this offset is in the event log."""
    broker_epochs: tuple[tuple[BrokerId, int], ...] = ()
    """What a broker has for its epoch on the wire: the offset of its registration."""
    adopted: bool = False
    """The log was begun by another controller (see `adopting`)."""
    unfoldable: str = ""
    """What another controller wrote that no event says: who knows less than the metadata log must not lead."""


class MetadataProjector:
    """Belongs to one event log. `apply`, `changes` and `savepoint` belong to deciding; `mark` is what is durable."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._acl_ids = AclIds(log)
        self.log_end: Callable[[], int] = lambda: 0
        """Where the metadata log ends, and the next batch begins."""
        self.existing_topics: Callable[[], Iterable[Topic]] = tuple
        """The topics that are there when the metadata log begins."""
        self.reload()

    def reload(self) -> None:
        """Take what the store has, as at the start and after a failed write."""
        value = self._log.get(MARK)
        self.mark = MetadataMark() if value is None else msgspec.msgpack.decode(value, type=MetadataMark)
        """As of the last durable commit."""
        self._staged = self.mark
        self._epochs = dict(self.mark.broker_epochs)
        self._closed: list[tuple[int, list[Pair]]] = []
        self._discovered_end: int | None = None
        """While events are discovered: all below it is in the event log with them."""
        self._base = -1
        self._begin(-1)
        self._acl_ids.reload()

    def begin_at(self, offset: int) -> None:
        """The next events are those of the batch that begins there, which another Topicwright has appended."""
        self._begin(offset)

    def begin_discovered(self, end: int, unfoldable: str | None) -> None:
        """The next events say what another controller has decided; with them all below `end` is in the event log."""
        self._begin(end)
        self._discovered_end = end
        if unfoldable is not None:
            self.note_unfoldable(unfoldable)

    def note_unfoldable(self, what: str) -> None:
        """Something of the metadata log is not in the events; the first that there is stays."""
        self._staged = replace(self._staged, unfoldable=self._staged.unfoldable or what)

    @property
    def unfoldable(self) -> str:
        """What of the metadata log is not in the events, as of the last batch; empty where all is."""
        return self._staged.unfoldable

    @property
    def values(self) -> Sequence[bytes]:
        """What the events since `begin_at` mean for brokers, as values of records."""
        return [value for _, value in self._records]

    def take_wire(self, wire: Wire) -> None:
        """What another controller gave its brokers and entries."""
        self._epochs = dict(KnownWire(self._epochs).after(wire).broker_epochs)
        for acl_id, acl in sorted(wire.acls.items(), key=lambda pair: pair[1] is not None):
            self._acl_ids.put(acl_id, acl)

    @property
    def wire(self) -> KnownWire:
        """What brokers go by, as of the last event."""
        return KnownWire(self._epochs, self._acl_ids.entries)

    def _begin(self, base: int) -> None:
        """The next batch, which begins at `base`; -1 where no event of the commit has been taken yet."""
        self._base, self._taken = base, 0
        self._discovered_end = None
        self._records: list[Pair] = []
        self._bytes = 0

    # --- deciding

    def apply(self, state: State, record: catalog.Recorded) -> ShardKey:
        """Bring the state past an event, and take what it means for brokers."""
        if self._discovered_end is not None:
            return apply(state, record)
        if self._base < 0:
            self._begin(self.log_end())
        self._taken += 1
        event: Any = record.event
        if concerns_topic(event):
            key = shard_key(event.topic)
            before = state.topics.get(key)
            applied = apply(state, record)
            level = state.cluster.feature(projection.METADATA_VERSION_FEATURE)
            after, index = state.topics.get(key), getattr(event, "partition", None)
            if state.cluster.features:  # else they are taken with the first: see below
                self._take(projection.topic_records(before, after, level, index))
            return applied
        cluster = state.cluster
        applied = apply(state, record)
        self._take_cluster(cluster, state.cluster, event)
        return applied

    def _take_cluster(self, before: Cluster, after: Cluster, event: Any) -> None:
        first = self._next_offset
        resource = (event.kind, event.name) if isinstance(event, catalog.ResourceConfigsChanged) else None
        records = projection.cluster_records(before, after, self._epochs, first, resource)
        self._note_epoch(event, first)
        if isinstance(event, catalog.ProducerIdsAllocated):
            epoch = self._epochs.get(event.broker_id, -1)
            records.append(projection.producer_ids_record(event.broker_id, epoch, event.next_producer_id))
        is_first = isinstance(event, catalog.FeaturesChanged) and not before.features
        records += self._access_records(Cluster() if is_first else before, after, first + len(records))
        self._take(records)
        if is_first:
            for topic in self.existing_topics():
                self._take(projection.topic_records(None, topic, after.feature(projection.METADATA_VERSION_FEATURE)))

    @property
    def _next_offset(self) -> int:
        return self._base + 1 + len(self._records)

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

    def _note_epoch(self, event: catalog.Event, offset: int) -> None:
        if isinstance(event, catalog.BrokerRegistered) and event.details is not None:
            self._epochs = {**self._epochs, event.broker_id: offset}
        elif isinstance(event, catalog.BrokerUnregistered):
            self._epochs = {key: epoch for key, epoch in self._epochs.items() if key != event.broker_id}

    def _take(self, records: list[MetadataRecord]) -> None:
        for record in records:
            value = encode_record(record)
            self._records.append((None, value))
            self._bytes += len(value)

    def changes(self) -> Mapping[bytes, bytes | None]:
        """The state keys that the next commit has to write for what was taken."""
        if self._base < 0:
            return {}
        epochs = tuple(sorted(self._epochs.items()))
        end = self._next_offset if self._taken else self._base  # the last command may have come to nothing
        self._staged = replace(self._staged, applied=end, broker_epochs=epochs)
        return {MARK: _encode(self._staged), **self._acl_ids.changes()}

    def savepoint(self) -> Callable[[], None]:
        """What goes back to what was taken so far; to be called before the next `changes`, if at all. Commands begin
        here, so a batch that has enough ends here."""
        if len(self._records) >= RECORDS_PER_BATCH or self._bytes >= BATCH_BYTES:
            self._closed.append((self._taken, self._records))
            self._begin(self._next_offset)
        base, taken, size, epochs = self._base, self._taken, self._bytes, self._epochs
        records, known = self._records, len(self._records)
        go_back_with_ids = self._acl_ids.savepoint()

        def go_back() -> None:
            del records[known:]
            self._base, self._taken, self._bytes, self._epochs = base, taken, size, epochs
            self._records = records
            go_back_with_ids()

        return go_back

    # --- the quorum's log

    def batches(self, first: int, values: Sequence[bytes]) -> list[list[Pair]]:
        """The batches of the commit whose `changes` were taken: of events with these bytes, from offset `first` on."""
        taken, self._closed = self._closed, []
        if self._taken:
            taken.append((self._taken, self._records))
        self._begin(-1)
        made, at = [], 0
        size, root = stored_head(self._log)
        for count, records in taken:
            known = root if first + at == size else b""
            made.append([(None, carrying(first + at, values[at : at + count], known)), *records])
            at += count
        return made

    def end_discovered(self) -> None:
        """The commit of the last `changes` is no batch of ours."""
        self._begin(-1)

    def note_applied(self, end: int) -> bytes:
        """The value of the mark where all below `end` is in the event log, since the rest decided nothing."""
        self._staged = replace(self._staged, applied=end)
        return _encode(self._staged)

    def became_durable(self) -> None:
        """The commit of the last `changes` counts: show it."""
        self.mark = self._staged

    def broker_epoch(self, broker_id: int) -> int:
        """The epoch that a registered broker has on the wire; -1 if it is not registered."""
        return dict(self.mark.broker_epochs).get(BrokerId(broker_id), -1)
