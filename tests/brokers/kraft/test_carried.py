"""Events in a NoOpRecord: they come back as they went, anything else is none of ours, and Kafka's readers pass over."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.brokers.kraft.log.batches import TAG, EmbeddedEvents, embed_events, embedded_events
from controller.brokers.kraft.log.image import MetadataImage
from controller.brokers.kraft.log.metadata_codec import decode_record, encode_record
from controller.brokers.kraft.log.metadata_records import FeatureLevelRecord, NoOpRecord
from controller.kafka.codec.primitives import encode_uvarint
from events.codec import encode_event
from tests.brokers.kraft.logs import real_history

VALUES = [encode_event(record.at_ms, record.cause, record.event) for record in real_history()]
WHOLE = embed_events(7, VALUES)


def tagged(*fields: tuple[int, bytes]) -> bytes:
    """A NoOpRecord with these tagged fields."""
    parts = [encode_uvarint(number) for number in (1, 20, 0, len(fields))]
    for tag, data in fields:
        parts += [encode_uvarint(tag), encode_uvarint(len(data)), data]
    return b"".join(parts)


def packed(*parts: object) -> bytes:
    return msgspec.msgpack.encode(parts)


@given(st.integers(0, 1 << 62), st.lists(st.binary(max_size=300), max_size=5), st.sampled_from([b"", b"r" * 32]))
def test_events_come_back_as_they_went(first: int, values: list[bytes], root: bytes) -> None:
    assert embedded_events(embed_events(first, values, root)) == EmbeddedEvents(1, first, tuple(values), root)


def test_a_reader_that_knows_nothing_of_it_passes_over_it() -> None:
    assert isinstance(decode_record(WHOLE), NoOpRecord)
    image, before = MetadataImage(), MetadataImage()
    image.apply(decode_record(WHOLE))
    assert list(image.records()) == list(before.records()) == []
    assert image.unknown == []


@pytest.mark.parametrize(
    "value",
    [
        b"",
        encode_record(NoOpRecord()),
        encode_record(FeatureLevelRecord(name="metadata.version", feature_level=21)),
        tagged((TAG - 1, packed(1, 7, (b"x",)))),
        tagged((3, b"x"), (TAG, packed(1, 7, (b"x",)))),
        tagged((TAG, packed(1, 7, (b"x",))), (TAG + 1, b"x")),
        tagged((TAG, packed(1, 7, (b"x",)))) + b"\0",
        tagged((TAG, packed(2, 7, (b"x",)))),
        tagged((TAG, packed(0, 7, (b"x",)))),
        tagged((TAG, packed(1, "7", (b"x",)))),
        tagged((TAG, packed(1, 7, ("text",)))),
        tagged((TAG, packed(1, 7))),
        tagged((TAG, b"")),
        tagged((TAG, packed(1, 7, ()) + b"\0")),
    ],
    ids=[
        "nothing", "plain no-op", "another record", "another tag", "a field before it", "a field behind it",
        "bytes behind it", "newer form", "form 0", "offset in words", "events in words", "too short", "empty",
        "bytes within",
    ],
)  # fmt: skip
def test_what_is_not_of_this_form_is_none(value: bytes) -> None:
    assert embedded_events(value) is None


def test_torn_or_cut_bytes_are_none() -> None:
    for size in range(len(WHOLE)):
        assert embedded_events(WHOLE[:size]) is None, f"of {len(WHOLE)} bytes {size}"


@given(st.binary(max_size=60))
def test_any_bytes_behind_the_head_are_taken_or_none(data: bytes) -> None:
    head = WHOLE[: WHOLE.index(encode_uvarint(TAG)) + len(encode_uvarint(TAG))]
    found = embedded_events(head + data)
    assert found is None or embed_events(found.first, found.values, found.root)
