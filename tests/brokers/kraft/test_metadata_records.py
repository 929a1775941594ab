"""The entity classes of metadata records: those of Kafka's schemas, and byte for byte as Kafka's controller writes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controller.brokers.kraft.batches import decode_batches, encode_batch
from controller.brokers.kraft.image import MetadataImage
from controller.brokers.kraft.metadata_records.codec import (
    MalformedRecord,
    UnknownRecord,
    decode_record,
    encode_record,
)
from controller.brokers.kraft.metadata_records.table import RECORDS
from tests.support import tools
from tests.support.generate_metadata_records import FOLDER, JAR, modules
from tests.support.reference_kafka import ReferenceKafka

EVERY = pytest.mark.parametrize("kind", RECORDS.values(), ids=[kind.__name__ for kind in RECORDS.values()])


@EVERY
def test_every_record_is_read_as_it_was_written(kind: Any) -> None:
    for record in (kind(), _filled(kind)):
        assert decode_record(encode_record(record)) == record


def _filled(kind: Any) -> Any:
    """A record of which no field has its default."""
    return kind(**{field.name: _value(field) for field in dataclasses.fields(kind)})


def _value(field: dataclasses.Field[Any]) -> Any:
    text = str(field.type)
    nested = [arg for arg in getattr(field.type, "__args__", ()) if dataclasses.is_dataclass(arg)]
    if nested:
        return (_filled(nested[0]),)
    samples = {"bool": True, "string": "text", "bytes": b"some", "float64": 1.5, "uuid": b"0123456789abcdef"}
    one = samples.get(field.metadata["kafka_type"], 7)
    return (one, one) if "tuple" in text else not field.default if isinstance(one, bool) else one


def test_an_unknown_record_is_kept_as_it_is() -> None:
    value = bytes((1, 120, 0)) + b"whatever"
    assert decode_record(value) == UnknownRecord(value)
    assert encode_record(UnknownRecord(value)) == value


def test_a_cut_record_is_refused_by_name() -> None:
    value = encode_record(RECORDS[2, 0](name="topic", topic_id=b"0123456789abcdef"))
    with pytest.raises(MalformedRecord, match="TopicRecordV0: topic_id: the bytes end early"):
        decode_record(value[:-8])


def test_the_classes_are_those_of_kafkas_schemas(tmp_path: Path) -> None:
    if not JAR.exists():
        tools.absent(str(JAR))
    texts = modules(JAR)
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    ruff = Path(sys.executable).parent / "ruff"
    subprocess.run([ruff, "format", "-q", "--line-length", "120", tmp_path], check=True)
    kept = {path.name for path in FOLDER.glob("*.py")} - {"__init__.py", "codec.py"}
    assert kept == set(texts)
    for name in texts:
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text(), name


def test_a_log_of_kafkas_own_controller_is_encoded_again_byte_for_byte(kafka43: ReferenceKafka) -> None:
    data = (kafka43.metadata / f"{0:020d}.log").read_bytes()
    image = MetadataImage()
    kinds: set[str] = set()
    at = 0
    for batch in decode_batches(_whole(data)):
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
            kinds.add(type(record).__name__)
        image.fold([batch])
    assert {"RegisterBrokerRecordV4", "BrokerRegistrationChangeRecordV3", "FeatureLevelRecordV0"} <= kinds
    assert image.level == 30
    assert [broker.fenced for broker in image.kept["RegisterBrokerRecord"].values()] == [False] * 3


def _whole(data: bytes) -> bytes:
    """A log as far as it is whole: its writer may be at work, and has set room aside."""
    end = 0
    while end + 12 <= len(data) and (length := int.from_bytes(data[end + 8 : end + 12], "big")):
        if end + 12 + length > len(data):
            break
        end += 12 + length
    return data[:end]
