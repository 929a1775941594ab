"""Metadata logs for tests: histories of Kafka brokers, written as the controller writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from controller.brokers.kraft.adopting import COMMAND, HAND_BACK, KafkaFolder, adopted
from controller.brokers.kraft.projector import MetadataProjector, ProtocolIds
from controller.kafka.messages.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from controller.machine.access.requests import canonical_entity
from controller.machine.partitions.placement import replica_metadata_of
from controller.machine.state import DictTopics, QuorumLeader, State
from controller.quorum.log.batches import Pair, RecordBatch, decode_batches, embedded_events, encode_batch
from controller.quorum.log.image import MetadataImage, snapshot_batches
from controller.quorum.log.metadata_codec import decode_record
from controller.quorum.raft.log import QuorumState, SnapshotId
from controller.store.tree import LogTree
from events.access import (
    Acl,
    AclsCreated,
    AclsDeleted,
    QuotaEntity,
    QuotasChanged,
    ScramCredentialRemoved,
    ScramCredentialSet,
)
from events.catalog import (
    ApprovalDecided,
    ApprovalRequested,
    BrokerRegistered,
    Cause,
    MetadataHandedBack,
    QuorumEpochBegun,
    Recorded,
    SettingsChanged,
    TopicDeleted,
)
from events.codec import encode_event
from events.logs.log import Commit, Entry
from events.names import Offset, RequestId
from tests.events.golden import history
from tests.quorum.logs import epoch_begun
from tests.support.memory_log import InMemoryLog


def real_history() -> list[Recorded]:
    """The golden history of Kafka brokers, with real incarnation ids."""
    return [_with_incarnation(record) for record in history("real")]


def access_history() -> list[Recorded]:
    """ACLs, SCRAM credentials and quotas that are set, changed and removed, and requests that wait for approval, after
    the history of Kafka brokers."""
    before = real_history()
    after = [one for name in ("access", "approvals") for one in history(name) if isinstance(one.event, _ACCESS)]
    after.append(_created_again(after))
    first = before[-1].offset + 1
    return before + [replace(record, offset=Offset(at)) for at, record in enumerate(after, first)]


_ACCESS = (
    AclsCreated | AclsDeleted | QuotasChanged | ScramCredentialSet | ScramCredentialRemoved
    | ApprovalRequested | ApprovalDecided
)  # fmt: skip


def _created_again(records: Sequence[Recorded]) -> Recorded:
    """Create the ACLs of the first deletion again."""
    record, gone = next((each, each.event) for each in records if isinstance(each.event, AclsDeleted))
    event = AclsCreated(gone.request_id, gone.acls, gone.principal, gone.client_id)
    return replace(record, event=event)


def _with_incarnation(record: Recorded) -> Recorded:
    event = record.event
    if not isinstance(event, BrokerRegistered):
        return record
    incarnation = sha256(event.incarnation.encode()).hexdigest()[:32]
    return replace(record, event=replace(event, incarnation=incarnation))


class LogRig:
    """The metadata log of a quorum of one, in memory, over an event log; and the state of both.

    The quorum begins an epoch with a batch of control records, before the leader's event of the new epoch. With
    `is_kafkas`, the log embeds no events, like that of Kafka's own controller.
    """

    def __init__(self, before: LogRig | None = None, *, is_kafkas: bool = False) -> None:
        """Continues from another rig, or starts a new log."""
        self.log: InMemoryLog = before.log if before else InMemoryLog("cluster")
        self.state: State = before.state if before else State(DictTopics())
        self._is_kafkas = is_kafkas
        self.written: list[bytes] = list(before.written) if before else []
        """The batches as bytes."""
        self.projector = MetadataProjector(self.log)
        self._tree = LogTree(self.log)
        self.projector.log_end = lambda: self.end - is_kafkas  # without the record that embeds events

    @property
    def end(self) -> int:
        return self.decoded()[-1].last_offset + 1 if self.written else 0

    @property
    def epoch(self) -> int:
        return self.decoded()[-1].leader_epoch if self.written else 1

    def commit(self, records: Iterable[Recorded]) -> None:
        """Commit records in the metadata log and make them durable in the event log."""
        commit, made = self.take(records)
        for pairs in made:
            self.append(pairs[self._is_kafkas :])
        self.log.write(commit)
        self.log.mark_durable()
        self.projector.became_durable()

    def take(self, records: Iterable[Recorded], parted: bool = False) -> tuple[Commit, list[list[Pair]]]:
        """Returns a commit for both logs without writing it. With `parted`, each record is a separate command."""
        records = list(records)
        for record in records:
            if isinstance(record.event, QuorumEpochBegun):
                quorum = QuorumLeader(*msgspec.structs.astuple(record.event))
                self.append(epoch_begun(quorum), quorum.leader_epoch, is_control=True)
        for command in [[record] for record in records] if parted else [records]:
            self.projector.apply(self.state, command)
        entries = [Entry(encode_event(record.at_ms, record.cause, record.event)) for record in records]
        values = [entry.value for entry in entries]
        commit = Commit(entries, {**self.projector.changes(), **self._tree.changes(values)})
        return commit, self.projector.batches(self.log.next_offset, values)

    def append(self, pairs: Sequence[Pair], epoch: int | None = None, *, is_control: bool = False) -> None:
        """Append a batch, by default in the last epoch."""
        at_ms = 1_700_000_000_000 + self.end
        chosen = self.epoch if epoch is None else epoch
        self.written.append(encode_batch(self.end, chosen, at_ms, pairs, is_control=is_control))

    def data(self) -> bytes:
        return b"".join(self.written)

    def decoded(self) -> list[RecordBatch]:
        return list(decode_batches(self.data()))

    def records(self) -> list[Any]:
        """The metadata records, without those that embed events."""
        batches = [batch for batch in self.decoded() if not batch.is_control]
        return [decode_record(one) for batch in batches for _, one in batch.records if embedded_events(one) is None]

    def image(self) -> MetadataImage:
        image = MetadataImage()
        image.fold(self.decoded())
        return image


def log_of(records: Sequence[Recorded], commits: int = 1 << 30, *, is_kafkas: bool = False) -> LogRig:
    """A log with these records, `commits` of them per commit."""
    log = LogRig(is_kafkas=is_kafkas)
    for at in range(0, len(records), commits):
        log.commit(records[at : at + commits])
    return log


def differences(image: MetadataImage, state: State, ids: ProtocolIds | None = None) -> list[str]:
    """The differences between a metadata image and the machine's state; with `ids` also of broker epochs and ACL ids,
    which only the projector knows. It shares no code with the projection."""
    known, own = _of_image(image), _of_state(state)
    if ids is None:
        del known["broker epochs"], known["acl ids"]
    else:
        own |= {"broker epochs": dict(ids.broker_epochs), "acl ids": dict(ids.acls)}
    return [f"{what}: brokers know {known[what]}, and it is {own[what]}" for what in known if known[what] != own[what]]


def _of_image(image: MetadataImage) -> dict[str, Any]:
    brokers = image.all(RegisterBrokerRecord)
    acls = {
        r.id: Acl(r.resource_type, r.pattern_type, r.resource_name, r.principal, r.host, r.operation, r.permission_type)
        for r in image.all(AccessControlEntryRecord)
    }
    quotas: dict[QuotaEntity, dict[str, float]] = {}
    for record in image.all(ClientQuotaRecord):
        entity = canonical_entity(tuple((each.entity_type, each.entity_name) for each in record.entity))
        quotas.setdefault(entity, {})[record.key] = record.value
    return {
        "topics": {
            (r.name, r.topic_id): {index: _partition(one) for index, one in image.partitions[r.topic_id].items()}
            for r in image.all(TopicRecord)
        },
        "brokers": {
            r.broker_id: (
                r.incarnation_id.hex(), r.rack,
                [(each.name, each.host, each.port, each.security_protocol) for each in r.end_points],
                [(each.name, each.min_supported_version, each.max_supported_version) for each in r.features],
                r.fenced, r.in_controlled_shutdown, r.log_dirs, r.cordoned_log_dirs or (),
            )
            for r in brokers
        },
        "configs": {(r.resource_type, r.resource_name, r.name): r.value for r in image.all(ConfigRecord)},
        "features": {r.name: r.feature_level for r in image.all(FeatureLevelRecord)},
        "acls": sorted(acls.values()),
        "logins": {
            (r.name, r.mechanism): (r.iterations, r.salt, r.stored_key, r.server_key)
            for r in image.all(UserScramCredentialRecord)
        },
        "quotas": quotas,
        "producer ids": next((r.next_producer_id for r in image.all(ProducerIdsRecord)), 0),
        "broker epochs": {r.broker_id: r.broker_epoch for r in brokers},
        "acl ids": acls,
    }  # fmt: skip


def _partition(record: PartitionRecord) -> tuple[object, ...]:
    return (
        record.replicas, record.isr, record.leader, record.leader_epoch, record.partition_epoch, record.directories,
        record.adding_replicas, record.removing_replicas, record.eligible_leader_replicas or (),
        record.last_known_elr or (), bool(record.leader_recovery_state),
    )  # fmt: skip


def _of_state(state: State) -> dict[str, Any]:
    assert isinstance(state.topics, DictTopics), "expected: the topics of tests are in a dict"
    cluster, numbers = state.cluster, {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
    resources = dict(cluster.resource_configs) | {
        (2, str(topic.name)): topic.configs for topic in state.topics.values()
    }
    return {
        "topics": {
            (topic.name, topic.topic_id): {
                index: (
                    one.replicas, one.isr, one.leader, one.leader_epoch, one.partition_epoch, known.directories,
                    known.adding, known.removing, known.elr, known.last_known_elr, known.recovering,
                )
                for index, one in enumerate(topic.partitions)
                for known in (replica_metadata_of(one),)
            }
            for topic in state.topics.values()
        },
        "brokers": {
            one.broker_id: (
                one.incarnation, one.rack,
                [
                    (each.name, each.host, each.port, protocol)
                    for each, protocol in zip(one.endpoints, one.security_protocols, strict=True)
                ],
                [(each.name, each.lowest, each.highest) for each in one.features],
                one.fenced, one.leaving, one.log_dirs, one.cordoned,
            )
            for one in cluster.brokers.values()
        },
        "configs": {(*resource, key): value for resource, configs in resources.items() for key, value in configs},
        "features": dict(cluster.features),
        "acls": sorted(cluster.acls),
        "logins": {
            (user, numbers[mechanism]): (one.iterations, one.salt, one.stored_key, one.server_key)
            for (user, mechanism), one in cluster.scram.items()
        },
        "quotas": {entity: dict(values) for entity, values in cluster.quotas.items()},
        "producer ids": cluster.next_producer_id,
    }  # fmt: skip


def folder_of(log: LogRig, path: Path = Path("kafka-metadata")) -> KafkaFolder:
    """A metadata folder as the controller of this log would have left it."""
    known = (path, "cluster", 3000, bytes(range(16)), QuorumState(1, 3000), SnapshotId(0, 0), ())
    return KafkaFolder(*known, tuple(log.decoded()), 0)


def kafkas_log() -> LogRig:
    """The log of the cluster before its topic is deleted, as Kafka's controller 3000 would have written it."""
    return log_of([record for record in real_history() if not isinstance(record.event, TopicDeleted)], is_kafkas=True)


def adopted_records() -> list[Recorded]:
    """The events of adopting that cluster and handing it back."""
    log = kafkas_log()
    events = adopted(folder_of(log), RequestId("adopt-1")).events
    settings = SettingsChanged((("num.partitions", "1"),), "0.1.0")
    cause = Cause(COMMAND, RequestId("adopt-1"))
    records = [Recorded(Offset(n), 1000, cause, event) for n, event in enumerate((settings, *events))]
    back = MetadataHandedBack("/var/kafka/controller", 1, log.end)
    return [*records, Recorded(Offset(len(records)), 2000, Cause(HAND_BACK, RequestId("handback-1")), back)]


def snapshot_bytes(image: MetadataImage, epoch: int) -> bytes:
    """A snapshot as one byte string."""
    return b"".join(snapshot_batches(image, epoch))
