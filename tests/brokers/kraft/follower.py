"""A follower of another controller: it imports batches, applies the events, and checks that the machine's state equals
the image of all batches. Also the golden history `followed`, of a cluster led by Kafka's controllers."""

from collections.abc import Iterator

from msgspec.structs import replace

from controller.brokers.kraft.importing import import_batch, import_snapshot
from controller.brokers.kraft.importing_cluster import Imported
from controller.brokers.kraft.projector import ProtocolIds
from controller.kafka.messages import records as kinds
from controller.kafka.messages.access import EntityData
from controller.kafka.messages.cluster import Feature, Listener
from controller.kafka.messages.records import MetadataRecord
from controller.machine.apply import apply
from controller.machine.state import DictTopics, State, Topic
from controller.quorum.log.image import MetadataImage, RecordMismatch
from controller.quorum.log.metadata_codec import decode_record, encode_record, newest_version
from events.catalog import Cause, Event, HistorySkipped, Recorded, SettingsChanged
from events.codec import decode_event, encode_event
from events.external_decision import ExternalDecision, skipped_snapshot
from events.names import Offset, RequestId, TopicName
from tests.brokers.kraft.logs import differences
from tests.machine.rig import topics_of


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
        slices = import_batch(self.state, self.name_of, self.ids, batch, at_ms, decided, self.topics)
        events: list[Event] = []
        for one in slices if in_slices else list(slices):
            events += self.apply(one, decided, at_ms)
        for _, record in batch:
            try:
                self.image.apply(record)
            except RecordMismatch:
                assert self.unsupported is not None, "a record that does not fit must be reported"
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
        assert read == record, "the codec changed the imported event"
        apply(self.state, record)
        self.log.append(record)

    def topics(self) -> list[Topic]:
        return topics_of(self.state)

    def name_of(self, topic_id: bytes) -> TopicName | None:
        return next((each.name for each in self.topics() if each.topic_id == topic_id), None)

    def differences(self) -> list[str]:
        return differences(self.image, self.state, self.ids)


def through_bytes(record: MetadataRecord) -> MetadataRecord:
    """A record after a round trip, in the version that has all fields."""
    if isinstance(record, kinds.UnknownRecord):
        return record
    return decode_record(encode_record(replace(record, version=newest_version(type(record)))))


ORDERS, PAY, AUDIT = (bytes([n]) * 16 for n in (1, 2, 3))
DIRECTORY = {broker_id: bytes([100 + broker_id]) * 16 for broker_id in (1, 2, 3, 4)}
ENTRY = kinds.AccessControlEntryRecord(
    id=b"\7" * 16,
    resource_type=2,
    resource_name="orders",
    pattern_type=3,
    principal="User:bob",
    host="*",
    operation=4,
    permission_type=3,
)
LOGIN = kinds.UserScramCredentialRecord(
    name="bob", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096
)
BY_BOB = (EntityData(entity_type="user", entity_name="bob"),)


def registered(broker_id: int, epoch: int, incarnation: int = 1) -> kinds.RegisterBrokerRecord:
    return kinds.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=bytes([broker_id, incarnation]) * 8,
        broker_epoch=epoch,
        end_points=(Listener(name="PLAINTEXT", host=f"broker{broker_id}", port=9092),),
        features=(Feature(name="metadata.version", min_supported_version=7, max_supported_version=30),),
        rack="abcd"[broker_id - 1],
        fenced=True,
        log_dirs=(DIRECTORY[broker_id],),
    )


def changed(broker_id: int, epoch: int, **changes: object) -> kinds.BrokerRegistrationChangeRecord:
    return kinds.BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **changes)  # type: ignore[arg-type]


def partition(topic_id: bytes, index: int, *replicas: int) -> kinds.PartitionRecord:
    return kinds.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(DIRECTORY[each] for each in replicas),
    )


def change(topic_id: bytes, index: int, **changes: object) -> kinds.PartitionChangeRecord:
    return kinds.PartitionChangeRecord(topic_id=topic_id, partition_id=index, **changes)  # type: ignore[arg-type]


def level(name: str, feature_level: int) -> MetadataRecord:
    return kinds.FeatureLevelRecord(name=name, feature_level=feature_level)


def config(kind: int, resource: str, name: str, value: str | None) -> MetadataRecord:
    return kinds.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def batches() -> Iterator[tuple[MetadataRecord, ...]]:
    """The batches of Kafka's controller 3002 in epoch 7."""
    yield level("metadata.version", 27), level("eligible.leader.replicas.version", 1)
    yield (kinds.RegisterControllerRecord(controller_id=3002),)
    for broker_id, epoch in ((1, 3), (2, 5), (3, 7)):
        yield (registered(broker_id, epoch),)
        yield (changed(broker_id, epoch, fenced=-1),)
    yield (  # offset 9
        kinds.TopicRecord(name="orders", topic_id=ORDERS),
        config(2, "orders", "retention.ms", "60000"),
        partition(ORDERS, 0, 1, 2, 3),
        partition(ORDERS, 1, 2, 3, 1),
    )
    yield (kinds.ProducerIdsRecord(broker_id=2, broker_epoch=5, next_producer_id=1000),)
    yield (change(ORDERS, 1, isr=(2, 3), eligible_leader_replicas=(1,)),)
    yield (  # broker 1 stops
        changed(1, 3, in_controlled_shutdown=1),
        change(ORDERS, 0, isr=(2, 3), leader=2),
    )
    yield (changed(1, 3, fenced=1),)
    yield config(4, "", "log.cleaner.threads", "2"), config(2, "orders", "retention.ms", None)
    yield (kinds.ClientQuotaRecord(entity=BY_BOB, key="producer_byte_rate", value=1024.0),)
    yield LOGIN, ENTRY
    yield partition(ORDERS, 2, 3, 2, 1), partition(ORDERS, 3, 2, 3, 1)
    yield kinds.TopicRecord(name="pay.eu", topic_id=PAY), partition(PAY, 0, 3, 2)
    yield (  # a topic with a colliding name replaces it
        kinds.RemoveTopicRecord(topic_id=PAY),
        kinds.TopicRecord(name="pay_eu", topic_id=AUDIT),
        partition(AUDIT, 0, 2),
    )
    yield (registered(1, 30, incarnation=2),)
    yield (changed(1, 30, fenced=-1, log_dirs=(DIRECTORY[1], b"\x99" * 16)),)
    yield (kinds.ClearElrRecord(topic_name="orders"),)
    yield (
        kinds.RemoveUserScramCredentialRecord(name="bob", mechanism=1),
        kinds.RemoveAccessControlEntryRecord(id=ENTRY.id),
    )
    yield changed(3, 7, fenced=1), kinds.UnregisterBrokerRecord(broker_id=3, broker_epoch=7)


def followed() -> Follower:
    """A follower of these batches that then missed records until a snapshot replaced the log."""
    follower = Follower()
    first = Recorded(Offset(0), 900, Cause("ChangeSettings", RequestId("settings-1")), SettingsChanged((), "0.1.0"))
    follower.record(first)
    for batch in batches():
        follower.take(*batch)
    while_away(follower)
    return follower


def while_away(follower: Follower) -> None:
    """A snapshot replaces a hundred records of epoch 8."""
    image = follower.image
    known = image.partitions[ORDERS]
    known[0] = replace(known[0], leader=1, isr=(1, 2), leader_epoch=9, partition_epoch=12)
    known[1] = replace(known[1], isr=(2,), partition_epoch=known[1].partition_epoch + 1)
    for record in (
        kinds.RemoveTopicRecord(topic_id=AUDIT),
        kinds.TopicRecord(name="audit", topic_id=b"\4" * 16),
        partition(b"\4" * 16, 0, 2, 1),
        config(4, "", "log.cleaner.threads", None),
        kinds.ProducerIdsRecord(broker_id=1, broker_epoch=30, next_producer_id=5000),
    ):
        image.apply(record)
    start, follower.offset = follower.offset, follower.offset + 100
    skipped = HistorySkipped(start, follower.offset, 8, "the leader had cleaned its log up to a snapshot")
    slices = import_snapshot(follower.state, follower.topics(), follower.ids, image, 9000, skipped)
    for one in list(slices):
        follower.apply(one, skipped_snapshot(skipped), 9000)


def followed_records() -> list[Recorded]:
    return followed().log
