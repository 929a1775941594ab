"""The metadata record classes encode byte for byte like Kafka's controller."""

import pytest

from controller.kafka.messages import CLASSES, Message
from controller.kafka.messages.records import MetadataRecord, RegisterBrokerRecord, TopicRecord, UnknownRecord
from controller.kafka.schema import RECORDS, Field, Layout
from controller.quorum.log.batches import decode_batches, encode_batch
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.metadata_codec import MalformedRecord, decode_record, encode_record, layout, newest_version
from tests.reference.golden import METADATA_LOG

KINDS = [kind for name, kind in CLASSES.items() if name in RECORDS and issubclass(kind, MetadataRecord)]
VERSIONS = [(kind, version) for kind in KINDS for version in range(newest_version(kind) + 1)]
EVERY = pytest.mark.parametrize(
    ("kind", "version"), VERSIONS, ids=[f"{kind.__name__}V{version}" for kind, version in VERSIONS]
)


@EVERY
def test_metadata_records_round_trip(kind: type[MetadataRecord], version: int) -> None:
    for record in (kind(version=version), _filled(layout(kind, version), version=version)):
        assert isinstance(record, MetadataRecord)
        assert decode_record(encode_record(record)) == record


def _filled(layout: Layout, **fields: object) -> Message:
    """A record without defaults in any field of its version."""
    for field in layout.fields + layout.tagged:
        if field.entity is not None:
            fields[field.name] = (_filled(field.entity),)
        else:
            is_set = getattr(layout.message(), field.name)
            value = not is_set if field.kind == "bool" else _value(field)
            fields[field.name] = (value,) * 2 if field.is_array else value
    message: Message = layout.message(**fields)
    return message


def _value(field: Field) -> object:
    samples = {"string": "text", "bytes": b"some", "float64": 1.5, "uuid": b"0123456789abcdef"}
    return samples.get(field.kind or "", 7)


def test_an_unknown_metadata_record_is_stored_unchanged() -> None:
    value = bytes((1, 120, 0)) + b"whatever"
    assert decode_record(value) == UnknownRecord(value=value)
    assert encode_record(UnknownRecord(value=value)) == value


def test_a_truncated_metadata_record_is_rejected_by_name() -> None:
    value = encode_record(TopicRecord(name="topic", topic_id=b"0123456789abcdef"))
    with pytest.raises(MalformedRecord, match="TopicRecordV0: topic_id: the bytes end early"):
        decode_record(value[:-8])


def test_a_kafka_metadata_log_is_reencoded_byte_for_byte() -> None:
    image = MetadataImage()
    kinds: set[str] = set()
    at = 0
    for batch in decode_batches(METADATA_LOG.read_bytes()):
        again = encode_batch(
            batch.base_offset, batch.leader_epoch, batch.timestamp_ms, batch.records, is_control=batch.is_control
        )
        assert again == batch.data, f"batch at offset {batch.base_offset}"
        assert batch.base_offset == at
        at = batch.last_offset + 1
        for _, value in batch.records if not batch.is_control else ():
            record = decode_record(value)
            assert not isinstance(record, UnknownRecord), value
            assert encode_record(record) == value
            kinds.add(f"{type(record).__name__}V{record.version}")
        image.fold([batch])
    assert {"RegisterBrokerRecordV4", "BrokerRegistrationChangeRecordV3", "FeatureLevelRecordV0"} <= kinds
    assert image.level == 33
    assert [broker.fenced for broker in image.all(RegisterBrokerRecord)] == [False] * 3
