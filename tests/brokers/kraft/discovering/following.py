"""Somebody who follows another controller, on a bench: batches of records in, events applied, and the law checked.

The law: the machine's state after the events, as records, says what the records of all batches say.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from controller.brokers.kraft.discovering.batch import discovering
from controller.brokers.kraft.discovering.reading import Discovered, together
from controller.brokers.kraft.discovering.wire import KnownWire
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.access_records import acl_record, credential_and_quota_records
from controller.brokers.kraft.log.image import CannotFold, MetadataImage
from controller.brokers.kraft.log.metadata_codec import decode_record, encode_record, newest_version
from controller.brokers.kraft.log.metadata_records import MetadataRecord
from controller.brokers.kraft.log.projection import config_records, registration_record, topic_records
from controller.machine.apply import apply
from controller.machine.state import Cluster, DictTopics, State, Topic
from events.catalog import Event, Recorded
from events.codec import decode_event, encode_event
from events.external_decision import ExternalDecision
from events.names import Offset, TopicName
from tests.machine.rig import topics_of

LEVEL = 30
"""Records are compared in the versions of the newest level that is known, which have all fields."""
NOT_HELD = (kinds.RegisterControllerRecord, kinds.DelegationTokenRecord, kinds.ZkMigrationStateRecord)
"""Kinds of which the machine knows nothing."""


class Follower:
    """The state, what is known of the wire, the log, and the image of all records, whose law the state keeps."""

    def __init__(self, node_id: int = 3002, epoch: int = 7) -> None:
        self.state = State(DictTopics())
        self.wire = KnownWire()
        self.image = MetadataImage()
        self.log: list[Recorded] = []
        self.offset = 0
        self.unfoldable: str | None = None
        self.node_id, self.epoch = node_id, epoch

    def take(self, *records: MetadataRecord, in_slices: bool = False) -> list[Event]:
        """One batch; the events that it became. They are applied at the end, or after each slice."""
        batch = [(offset, through_bytes(one)) for offset, one in enumerate(records, self.offset)]
        decided = ExternalDecision(self.node_id, self.epoch, self.offset)
        at_ms = 1000 + self.offset
        slices = discovering(
            self.state,
            self.name_of,
            self.wire,
            batch,
            at_ms,
            decided.request_id,
            self.topics,
        )
        events: list[Event] = []
        for one in slices if in_slices else [together(slices)]:
            events += self.apply(one, decided, at_ms)
        for _, record in batch:
            try:
                self.image.apply(record)
            except CannotFold:
                assert self.unfoldable is not None, "what does not fit is named"
        self.offset += len(batch)
        return events

    def apply(self, one: Discovered, decided: ExternalDecision, at_ms: int) -> list[Event]:
        """Bring the state past a discovery; its events have been through the codec."""
        for event in one.events:
            self.record(Recorded(Offset(len(self.log)), at_ms, decided.cause, event))
        self.wire = self.wire.after(one.wire)
        self.unfoldable = self.unfoldable or one.unfoldable
        return list(one.events)

    def record(self, record: Recorded) -> None:
        """Bring the state past an event."""
        read = decode_event(record.offset, encode_event(record.at_ms, record.cause, record.event))
        assert read == record, "what is logged is what was discovered"
        apply(self.state, record)
        self.log.append(record)

    def topics(self) -> list[Topic]:
        """All topics, by shard key."""
        return topics_of(self.state)

    def name_of(self, topic_id: bytes) -> TopicName | None:
        """The name of a topic that stands."""
        return next((each.name for each in self.topics() if each.topic_id == topic_id), None)

    def differences(self) -> list[str]:
        """Where the state does not say what the records say."""
        ours, theirs = said_by_state(self.state, self.wire), said_by_image(self.image)
        return [
            f"only the {who} has {one}"
            for who, some in (("state", ours - theirs), ("records", theirs - ours))
            for one in sorted(some)
        ]


def through_bytes(record: MetadataRecord) -> MetadataRecord:
    """A record as it is read from a log, in the version that has all fields."""
    if isinstance(record, kinds.UnknownRecord):
        return record
    return decode_record(encode_record(replace(record, version=newest_version(type(record)))))


def said_by_image(image: MetadataImage) -> set[str]:
    """What records say, of that which the machine holds."""
    return {_text(each) for each in image.records() if not isinstance(each, (*NOT_HELD, kinds.UnknownRecord))}


def said_by_state(state: State, wire: KnownWire) -> set[str]:
    """What the machine's state says, as records."""
    return {_text(each) for each in records_of(state, wire)}


def records_of(state: State, wire: KnownWire) -> Iterator[MetadataRecord]:
    """A state as records."""
    cluster = state.cluster
    for name, level in cluster.features:
        yield kinds.FeatureLevelRecord(name=name, feature_level=level)
    for broker_id, broker in cluster.brokers.items():
        yield registration_record(broker, wire.broker_epochs[broker_id], LEVEL)
    for topic in topics_of(state):
        yield from topic_records(None, topic, LEVEL)
    for (kind, name), configs in cluster.resource_configs:
        yield from config_records(kind, name, (), configs)
    yield from credential_and_quota_records(Cluster(), cluster)
    assert sorted(wire.acls.values()) == sorted(cluster.acls), "each entry has an id"
    yield from (acl_record(acl, acl_id) for acl_id, acl in wire.acls.items())
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
