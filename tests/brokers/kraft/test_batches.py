"""Record batches: what Kafka writes is read, what is broken is refused, and says where."""

from __future__ import annotations

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.brokers.kraft.log.batches import (
    BrokenBatch,
    control_type,
    decode_batches,
    encode_batch,
    snapshot_footer,
    snapshot_header,
    whole_batches,
)
from tests.brokers.kraft.quorum.logs import QUORUM, epoch_begun

RECORDS = st.lists(st.tuples(st.none() | st.binary(max_size=9), st.binary(max_size=300)), min_size=1, max_size=5)
CONTROL = st.lists(st.tuples(st.just(b"\0\0\0\x63"), st.binary(max_size=300)), min_size=1, max_size=5)
"""Records of a type of control record that is not known."""
NUMBERS = st.integers(0, 1 << 40), st.integers(0, 1 << 30), st.integers(0, 1 << 42)
BATCHES = st.tuples(*NUMBERS, RECORDS, st.just(False)) | st.tuples(*NUMBERS, CONTROL, st.just(True))


@given(st.lists(BATCHES, max_size=4))
def test_batches_are_read_as_they_were_written(
    batches: list[tuple[int, int, int, list[tuple[bytes | None, bytes]], bool]],
) -> None:
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
        (lambda data: data + b"more", f"byte {68 + 5}: 4 bytes are less"),
    ],
    ids=["cut", "short", "changed", "format", "rest"],
)
def test_what_is_broken_is_refused(damage: object, error: str) -> None:
    data = encode_batch(7, 1, 0, [(None, b"value")])
    with pytest.raises(BrokenBatch, match=error):
        list(decode_batches(damage(data)))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("at", "lie", "error"),
    [
        (57, b"\0\0\0\0", "byte 0: a batch at offset 7, epoch 1, of 0 records"),
        (57, b"\0\0\0\2", "2 records, last offset delta 0"),
        (23, b"\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0", "1 records, last offset delta 1"),
        (61, b"\x01", "the batch at offset 7 is too short"),
        (61, b"\x60", "the batch at offset 7 is too short"),
        (61, b"\x04", "the batch at offset 7 is too short"),
        (66, b"\x7e", "the batch at offset 7 is too short"),
    ],
    ids=["none", "too many", "gap", "record back", "record beyond", "record short", "value beyond"],
)
def test_what_lies_under_a_good_checksum_is_refused(at: int, lie: bytes, error: str) -> None:
    data = bytearray(encode_batch(7, 1, 0, [(None, b"value")]))
    data[at : at + len(lie)] = lie
    data[17:21] = crc32c.crc32c(bytes(data[21:])).to_bytes(4, "big")
    with pytest.raises(BrokenBatch, match=error):
        list(decode_batches(bytes(data)))


def test_a_fetch_that_ends_within_a_batch_gives_the_whole_ones() -> None:
    one, other = (encode_batch(base, 1, 0, [(None, b"value")]) for base in (0, 1))
    for size in range(len(one + other)):
        assert whole_batches((one + other)[:size]) == (b"" if size < len(one) else one)
    assert whole_batches(one + other) == one + other


def test_control_records_say_who_leads_and_who_votes() -> None:
    pairs = [*epoch_begun(QUORUM), snapshot_header(5), snapshot_footer()]
    assert [control_type(key) for key, _ in pairs] == [2, 5, 6, 3, 4]
    assert b"127.0.0.1" in pairs[2][1]
