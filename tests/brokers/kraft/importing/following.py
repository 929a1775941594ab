"""A follower of another controller: batches of records in, events applied, and the invariant checked: the machine's
state, projected to records, equals the image of all batches."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from controller.brokers.kraft.importing import import_batch
from controller.brokers.kraft.importing_cluster import Imported
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.image import MetadataImage, RecordMismatch
from controller.brokers.kraft.log.metadata_codec import decode_record, encode_record, newest_version
from controller.brokers.kraft.log.metadata_records import MetadataRecord
from controller.brokers.kraft.log.projection import registration_record, topic_records
from controller.brokers.kraft.log.projector import ProtocolIds
from controller.brokers.kraft.log.record_kinds import CONFIGS, CREDENTIALS, FEATURES, QUOTAS, acl_record, kind_records
from controller.machine.apply import apply
from controller.machine.state import Cluster, DictTopics, State, Topic
from events.catalog import Event, Recorded
from events.codec import decode_event, encode_event
from events.external_decision import ExternalDecision
from events.names import Offset, TopicName
from tests.machine.rig import topics_of

LEVEL = 30
"""Records are compared at the newest known level, which has all fields."""
NOT_HELD = (kinds.RegisterControllerRecord, kinds.DelegationTokenRecord, kinds.ZkMigrationStateRecord)
"""Record types that the machine does not know."""


class Follower:
    """The state, the ids, the log, and the image of all records."""

    def __init__(self, node_id: int = 3002, epoch: int = 7) -> None:
        self.state = State(DictTopics())
        self.ids = ProtocolIds()
        self.image = MetadataImage()
        self.log: list[Recorded] = []
        self.offset = 0
        self.unsupported: str | None = None
        self.node_id, self.epoch = node_id, epoch

    def take(self, *records: MetadataRecord, in_slices: bool = False) -> list[Event]:
        """Import a batch; returns its events. They are applied at the end, or after each slice."""
        batch = [(offset, through_bytes(one)) for offset, one in enumerate(records, self.offset)]
        decided = ExternalDecision(self.node_id, self.epoch, self.offset)
        at_ms = 1000 + self.offset
        slices = import_batch(self.state, self.name_of, self.ids, batch, at_ms, decided.request_id, self.topics)
        events: list[Event] = []
        for one in slices if in_slices else list(slices):
            events += self.apply(one, decided, at_ms)
        for _, record in batch:
            try:
                self.image.apply(record)
            except RecordMismatch:
                assert self.unsupported is not None, "what does not fit is named"
        self.offset += len(batch)
        return events

    def apply(self, one: Imported, decided: ExternalDecision, at_ms: int) -> list[Event]:
        """Apply imported events, after a round trip through the codec."""
        for event in one.events:
            self.record(Recorded(Offset(len(self.log)), at_ms, decided.cause, event))
        self.ids = self.ids.after(one.ids)
        self.unsupported = self.unsupported or one.unsupported
        return list(one.events)

    def record(self, record: Recorded) -> None:
        read = decode_event(record.offset, encode_event(record.at_ms, record.cause, record.event))
        assert read == record, "what is logged is what was discovered"
        apply(self.state, record)
        self.log.append(record)

    def topics(self) -> list[Topic]:
        return topics_of(self.state)

    def name_of(self, topic_id: bytes) -> TopicName | None:
        return next((each.name for each in self.topics() if each.topic_id == topic_id), None)

    def differences(self) -> list[str]:
        ours, theirs = said_by_state(self.state, self.ids), said_by_image(self.image)
        return [
            f"only the {who} has {one}"
            for who, some in (("state", ours - theirs), ("records", theirs - ours))
            for one in sorted(some)
        ]


def through_bytes(record: MetadataRecord) -> MetadataRecord:
    """A record after a round trip, in the version that has all fields."""
    if isinstance(record, kinds.UnknownRecord):
        return record
    return decode_record(encode_record(replace(record, version=newest_version(type(record)))))


def said_by_image(image: MetadataImage) -> set[str]:
    """The records of an image that the machine knows."""
    return {_text(each) for each in image.records() if not isinstance(each, (*NOT_HELD, kinds.UnknownRecord))}


def said_by_state(state: State, ids: ProtocolIds) -> set[str]:
    """The machine's state as records."""
    return {_text(each) for each in records_of(state, ids)}


def records_of(state: State, ids: ProtocolIds) -> Iterator[MetadataRecord]:
    cluster = state.cluster
    for broker_id, broker in cluster.brokers.items():
        yield registration_record(broker, ids.broker_epochs[broker_id], LEVEL)
    for topic in topics_of(state):
        yield from topic_records(None, topic, LEVEL)
    for kind in (FEATURES, CONFIGS, CREDENTIALS, QUOTAS):
        yield from kind_records(kind, Cluster(), cluster)
    assert sorted(ids.acls.values()) == sorted(cluster.acls), "each entry has an id"
    yield from (acl_record(acl_id, "", acl) for acl_id, acl in ids.acls.items())
    if cluster.next_producer_id:
        yield kinds.ProducerIdsRecord(next_producer_id=cluster.next_producer_id)


def _text(record: MetadataRecord) -> str:
    record = replace(record, version=0)
    match record:
        case kinds.ProducerIdsRecord():
            record = replace(record, broker_id=0, broker_epoch=0)  # the machine keeps the ids alone
        case kinds.RegisterBrokerRecord():
            record = replace(record, cordoned_log_dirs=record.cordoned_log_dirs or None)
        case kinds.ClientQuotaRecord():
            record = replace(record, entity=tuple(sorted(record.entity, key=repr)))
        case kinds.PartitionRecord():
            record = replace(
                record,
                eligible_leader_replicas=record.eligible_leader_replicas or None,
                last_known_elr=record.last_known_elr or None,
            )
        case _:
            pass
    return repr(record)
