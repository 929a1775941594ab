"""Projects commits to batches of the metadata log: a NoOpRecord with the embedded events, then the records that brokers
and Kafka's controllers apply; `replication` appends them. A large commit is split into several batches, always between
two commands.

The metadata log is the write-ahead log of the events: a commit is written to the event log when the quorum has
committed its batches. A leader applies the events of a commit and gets the batches to append. A follower applies the
events of a batch and gets the records that the batch must have.

Brokers also use ids that the machine's state does not have: broker epochs and ACL ids. An ACL id is derived from the
offset of its record, so an ACL that is removed and created again gets a new id. With the old id, a broker that applies
both changes in one step would add an id that it already has (`AclsDelta`, `AclCache.addAcl`). Ids from another
controller's records are used unchanged.

State keys, under `k`:
    k v       the applied metadata log offset, and the brokers' epochs
    k a ID    an ACL by its id
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from controller.brokers.kraft import projection
from controller.kafka.messages.records import MetadataRecord, ProducerIdsRecord
from controller.machine.access.acls import acl_changes
from controller.machine.access.bucket_map import BucketMap, changed, differing
from controller.machine.apply import apply_all, concerns_topic
from controller.machine.state import Cluster, State, Topic
from controller.quorum.log import record_kinds
from controller.quorum.log.batches import Pair, embed_events
from controller.quorum.log.metadata_codec import encode_record
from controller.quorum.log.record_kinds import METADATA_VERSION_FEATURE
from controller.store.recorder import Projector
from controller.store.tree import stored_head
from events import catalog
from events.access import Acl
from events.logs.log import EventLog
from events.names import BrokerId, ShardKey


class ProtocolIdChanges(msgspec.Struct, frozen=True):
    """Changed broker epochs by broker, and changed ACLs by id (16 bytes); None if removed."""

    broker_epochs: Mapping[BrokerId, int | None] = {}
    acls: Mapping[bytes, Acl | None] = {}


class ProtocolIds(msgspec.Struct, frozen=True):
    """The current broker epochs and ACL ids."""

    broker_epochs: Mapping[BrokerId, int] = {}
    acls: Mapping[bytes, Acl] = {}

    def after(self, changes: ProtocolIdChanges) -> ProtocolIds:
        epochs, acls = {**self.broker_epochs, **changes.broker_epochs}, self.acls
        for acl_id, acl in changes.acls.items():
            acls = changed(acls, acl_id, acl)
        return ProtocolIds({each: epoch for each, epoch in epochs.items() if epoch is not None}, acls)


ENTRY: Final = b"ka"
_IDS: Final = uuid.UUID(int=2)


def stored_acls(log: EventLog) -> Mapping[bytes, Acl]:
    """The ACLs by id. Copies of this map share their unchanged buckets."""
    decode = msgspec.msgpack.Decoder(Acl).decode
    return BucketMap({key[len(ENTRY) :]: decode(value) for key, value in log.scan(ENTRY)})


def acl_keys(acls: Mapping[bytes, Acl | None]) -> Mapping[bytes, bytes | None]:
    """The state keys of ACLs by id; None for a removed one."""
    return {ENTRY + acl_id: None if acl is None else msgspec.msgpack.encode(acl) for acl_id, acl in acls.items()}


MARK: Final = b"kv"
RECORDS_PER_BATCH: Final = 1000
"""Limits a batch, together with BATCH_BYTES. The records of one command are never split."""
BATCH_BYTES: Final = 1 << 20

_encode = msgspec.msgpack.Encoder().encode


class MetadataMark(msgspec.Struct, frozen=True, array_like=True):
    """The state of the projection to the metadata log, stored with the events."""

    applied: int = 0
    """The metadata log below this offset is in the event log."""
    broker_epochs: tuple[tuple[BrokerId, int], ...] = ()
    """The wire epochs of brokers: the offsets of their registrations."""
    adopted: bool = False
    """The log was begun by another controller (see `adopting`)."""
    unsupported: str = ""
    """Unsupported content written by another controller; a node with unsupported content must not lead."""


class MetadataProjector(Projector):
    """The projector of one event log. `mark` is durable; all other state belongs to the commit being decided."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._cluster = uuid.uuid5(_IDS, log.cluster_id)
        self.log_end: Callable[[], int] = lambda: 0
        """Returns the end of the metadata log, where the next batch begins."""
        self.existing_topics: Callable[[], Iterable[Topic]] = tuple
        """Returns the topics that exist when the metadata log begins."""
        self.reload()

    def reload(self) -> None:
        """Read the mark from the store, at the start and after a failed write."""
        value = self._log.get(MARK)
        self.mark = MetadataMark() if value is None else msgspec.msgpack.decode(value, type=MetadataMark)
        """The mark as of the last durable commit."""
        self._staged = self.mark
        self._closed: list[tuple[int, list[Pair]]] = []
        self.begin()
        self._stored_acls = stored_acls(self._log)
        self.ids = ProtocolIds(dict(self.mark.broker_epochs), self._stored_acls)
        """The ids as of the last event."""

    def begin_import(self, end: int) -> None:
        """The next events are imported from another controller's records. With them the event log covers everything
        below `end`."""
        self.begin(end)
        self._is_import = True

    def mark_unsupported(self, what: str) -> None:
        """Record unsupported content, unless earlier unsupported content is recorded already."""
        self._staged = replace(self._staged, unsupported=self._staged.unsupported or what)

    @property
    def unsupported(self) -> str:
        """The first unsupported content as of the last batch; empty if there is none."""
        return self._staged.unsupported

    @property
    def values(self) -> Sequence[bytes]:
        """The projected records since `begin`, encoded."""
        return [value for _, value in self._records]

    def begin(self, base: int = -1) -> None:
        """Begin a batch at `base`, of the next events; -1 if the commit has no event yet."""
        self._base, self._event_count = base, 0
        self._is_import = False
        self._records: list[Pair] = []
        self._bytes = 0

    # --- deciding

    def apply(self, state: State, records: Sequence[catalog.Recorded]) -> list[ShardKey]:
        """Apply the events of a command to the state and project the differences; if one raises, nothing is changed. A
        full batch ends before the command."""
        if self._is_import:
            return apply_all(state, records)
        if len(self._records) >= RECORDS_PER_BATCH or self._bytes >= BATCH_BYTES:
            self._closed.append((self._event_count, self._records))
            self.begin(self._next_offset)
        known, before = len(self._records), (self._base, self._bytes, self.ids)
        if self._base < 0:
            self._base = self.log_end()
        try:
            keys = apply_all(state, records, self._project)
        except Exception:
            del self._records[known:]
            self._base, self._bytes, self.ids = before
            raise
        self._event_count += len(records)
        return keys

    def _project(self, event: Any, cluster: Cluster, before: Any, after: Any) -> None:
        if not concerns_topic(event):
            self._project_cluster(before, after, event)
        elif cluster.features:  # else all topics are projected with the first features
            level, index = cluster.feature(METADATA_VERSION_FEATURE), getattr(event, "partition", None)
            self._append(projection.topic_records(before, after, level, index))

    def _project_cluster(self, before: Cluster, after: Cluster, event: Any) -> None:
        first, is_first = self._next_offset, isinstance(event, catalog.FeaturesChanged) and not before.features
        records = [*record_kinds.kind_records(record_kinds.FEATURES, before, after)]
        records += projection.broker_records(before, after, self.ids.broker_epochs, first + len(records))
        records += record_kinds.kind_records(record_kinds.CONFIGS, before, after)
        if isinstance(event, catalog.BrokerRegistered) and event.details is not None:
            self.ids = self.ids.after(ProtocolIdChanges({event.broker_id: first}))
        elif isinstance(event, catalog.BrokerUnregistered):
            self.ids = self.ids.after(ProtocolIdChanges({event.broker_id: None}))
        if isinstance(event, catalog.ProducerIdsAllocated):
            end, epoch = event.next_producer_id, self.ids.broker_epochs.get(event.broker_id, -1)
            records.append(ProducerIdsRecord(broker_id=event.broker_id, broker_epoch=epoch, next_producer_id=end))
        records += self._access_records(Cluster() if is_first else before, after, first + len(records))
        self._append(records)
        if is_first:
            for topic in self.existing_topics():
                self._append(projection.topic_records(None, topic, after.feature(METADATA_VERSION_FEATURE)))

    @property
    def _next_offset(self) -> int:
        return self._base + 1 + len(self._records)

    def _access_records(self, before: Cluster, after: Cluster, next_offset: int) -> list[MetadataRecord]:
        """Returns no record before the first FeaturesChanged. With it, `before` is empty and all values get records."""
        if not after.features:
            return []
        records = [
            *record_kinds.kind_records(record_kinds.CREDENTIALS, before, after),
            *record_kinds.kind_records(record_kinds.QUOTAS, before, after),
        ]
        removed, new = acl_changes(before.acls, after.acls)
        id_of = {acl: acl_id for acl_id, acl in self.ids.acls.items()} if removed else {}
        changes: dict[bytes, Acl | None] = {id_of[acl]: None for acl in removed}
        for offset, acl in enumerate(new, next_offset + len(records) + len(changes)):
            changes[uuid.uuid5(self._cluster, str(offset)).bytes] = acl
        self.ids = self.ids.after(ProtocolIdChanges(acls=changes))
        return records + [record_kinds.acl_record(acl_id, "", acl) for acl_id, acl in changes.items()]

    def _append(self, records: list[MetadataRecord]) -> None:
        for record in records:
            value = encode_record(record)
            self._records.append((None, value))
            self._bytes += len(value)

    def changes(self) -> Mapping[bytes, bytes | None]:
        """The state keys for the next commit."""
        if self._base < 0:
            return {}
        epochs = tuple(sorted(self.ids.broker_epochs.items()))
        end = self._next_offset if self._event_count else self._base  # the last command may have failed
        self._staged = replace(self._staged, applied=end, broker_epochs=epochs)
        before, self._stored_acls = self._stored_acls, self.ids.acls
        acls = {acl_id: self.ids.acls.get(acl_id) for acl_id in differing(before, self.ids.acls)}
        return {MARK: _encode(self._staged), **acl_keys(acls)}

    # --- the quorum's log

    def batches(self, first: int, values: Sequence[bytes]) -> list[list[Pair]]:
        """The batches of the commit whose `changes` were taken, from its encoded events and their first offset."""
        closed, self._closed = self._closed, []
        if self._event_count:
            closed.append((self._event_count, self._records))
        self.begin()
        made, at = [], 0
        size, root = stored_head(self._log)
        for count, records in closed:
            known = root if first + at == size else b""
            made.append([(None, embed_events(first + at, values[at : at + count], known)), *records])
            at += count
        return made

    def record_applied(self, end: int) -> bytes:
        """Returns the encoded mark with `end` as applied; no record since the last commit caused an event."""
        self._staged = replace(self._staged, applied=end)
        return _encode(self._staged)

    def became_durable(self) -> None:
        """The commit of the last `changes` is durable."""
        self.mark = self._staged

    def broker_epoch(self, broker_id: int) -> int:
        """The wire epoch of a registered broker; -1 if it is not registered."""
        return dict(self.mark.broker_epochs).get(BrokerId(broker_id), -1)
