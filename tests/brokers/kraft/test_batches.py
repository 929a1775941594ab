"""Record batches of the metadata log, and the events embedded in a NoOpRecord."""

import crc32c
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kafka.codec.primitives import encode_uvarint
from controller.kafka.messages.records import FeatureLevelRecord, NoOpRecord
from controller.quorum.log.batches import (
    TAG,
    BrokenBatch,
    EmbeddedEvents,
    control_type,
    decode_batches,
    embed_events,
    embedded_events,
    encode_batch,
    snapshot_footer,
    snapshot_header,
    whole_batches,
)
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.metadata_codec import decode_record, encode_record
from events.codec import encode_event
from tests.brokers.kraft.logs import real_history
from tests.quorum.logs import QUORUM, epoch_begun

RECORDS = st.lists(st.tuples(st.none() | st.binary(max_size=9), st.binary(max_size=300)), min_size=1, max_size=5)
CONTROL = st.lists(st.tuples(st.just(b"\0\0\0\x63"), st.binary(max_size=300)), min_size=1, max_size=5)
"""Control records of an unknown type."""
NUMBERS = st.integers(0, 1 << 40), st.integers(0, 1 << 30), st.integers(0, 1 << 42)
BATCHES = st.tuples(*NUMBERS, RECORDS, st.just(False)) | st.tuples(*NUMBERS, CONTROL, st.just(True))


@given(st.lists(BATCHES, max_size=4))
def test_record_batches_round_trip(batches: list[tuple[int, int, int, list[tuple[bytes | None, bytes]], bool]]) -> None:
    data = b"".join(
        encode_batch(base, epoch, at, records, is_control=control) for base, epoch, at, records, control in batches
    )
    found = list(decode_batches(data))
    assert [(b.base_offset, b.leader_epoch, b.timestamp_ms, list(b.records), b.is_control) for b in found] == batches
    assert b"".join(batch.data for batch in found) == data


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda data: data[:-1], "byte 0: not a complete batch of format 2"),
        (lambda data: data[:30], "byte 0: 30 bytes are too short for a batch header"),
        (lambda data: data[:-1] + b"x", "byte 0: wrong checksum in the batch at offset 7"),
        (lambda data: data[:16] + b"\1" + data[17:], "byte 0: not a complete batch of format 2 .format 1"),
        (lambda data: data + b"more", f"byte {68 + 5}: 4 bytes are too short"),
    ],
    ids=["cut", "short", "changed", "format", "rest"],
)
def test_broken_record_batches_are_rejected(damage: object, error: str) -> None:
    data = encode_batch(7, 1, 0, [(None, b"value")])
    with pytest.raises(BrokenBatch, match=error):
        list(decode_batches(damage(data)))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("at", "lie", "error"),
    [
        (57, b"\0\0\0\0", "byte 0: invalid batch header: offset 7, epoch 1, 0 records"),
        (57, b"\0\0\0\2", "2 records, last offset delta 0"),
        (23, b"\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0", "1 records, last offset delta 1"),
        (61, b"\x01", "the records of the batch at offset 7 do not fill it"),
        (61, b"\x60", "the records of the batch at offset 7 do not fill it"),
        (61, b"\x04", "the records of the batch at offset 7 do not fill it"),
        (66, b"\x7e", "the records of the batch at offset 7 do not fill it"),
    ],
    ids=["none", "too many", "gap", "record back", "record beyond", "record short", "value beyond"],
)
def test_invalid_record_batches_with_a_valid_checksum_are_rejected(at: int, lie: bytes, error: str) -> None:
    data = bytearray(encode_batch(7, 1, 0, [(None, b"value")]))
    data[at : at + len(lie)] = lie
    data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4, "big")
    with pytest.raises(BrokenBatch, match=error):
        list(decode_batches(bytes(data)))


def test_an_incomplete_last_batch_of_a_fetch_is_dropped() -> None:
    one, other = (encode_batch(base, 1, 0, [(None, b"value")]) for base in (0, 1))
    for size in range(len(one + other)):
        assert whole_batches((one + other)[:size]) == (b"" if size < len(one) else one)
    assert whole_batches(one + other) == one + other


def test_control_records_have_kafkas_types() -> None:
    pairs = [*epoch_begun(QUORUM), snapshot_header(5), snapshot_footer()]
    assert [control_type(key) for key, _ in pairs] == [2, 5, 6, 3, 4]
    assert b"127.0.0.1" in pairs[2][1]


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
def test_embedded_events_round_trip(first: int, values: list[bytes], root: bytes) -> None:
    assert embedded_events(embed_events(first, values, root)) == EmbeddedEvents(1, first, tuple(values), root)


def test_readers_ignore_the_unknown_tagged_field() -> None:
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
def test_other_records_have_no_embedded_events(value: bytes) -> None:
    assert embedded_events(value) is None


def test_truncated_records_have_no_embedded_events() -> None:
    for size in range(len(WHOLE)):
        assert embedded_events(WHOLE[:size]) is None, f"{size} of {len(WHOLE)} bytes"


@given(st.binary(max_size=60))
def test_embedded_events_of_random_bytes_never_raise(data: bytes) -> None:
    head = WHOLE[: WHOLE.index(encode_uvarint(TAG)) + len(encode_uvarint(TAG))]
    found = embedded_events(head + data)
    assert found is None or embedded_events(embed_events(found.first, found.values, found.root)) == found
