"""Records of the events topic: what is written is what is read, and what is not known is never skipped."""

from __future__ import annotations

import msgspec
import pytest

from events.catalog import EVENT_VERSION
from events.logs.events_topic import (
    Decided,
    Fence,
    Record,
    RecordError,
    RecordFromNewerVersion,
    decode_record,
    encode_record,
)

FENCE = Fence(3, "w-1", "1.0", EVENT_VERSION, (b"settings",))
DECIDED = Decided(3, 7, (b"one", b"two"), b"answers", "")


@pytest.mark.parametrize("record", [FENCE, DECIDED, Decided(1, 0, ()), Decided(1, 5, (), b"", "it is no command")])
def test_what_is_written_is_what_is_read(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_bytes_are_those_of_this_version() -> None:
    """Golden bytes: another encoding could not be read by the release before."""
    assert msgspec.msgpack.decode(encode_record(FENCE)) == ["fence", 3, "w-1", "1.0", EVENT_VERSION, [b"settings"], 0]
    assert msgspec.msgpack.decode(encode_record(DECIDED)) == ["decided", 3, 7, [b"one", b"two"], b"answers", ""]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (msgspec.msgpack.encode(["merged", 1, 2]), "merged"),
        (msgspec.msgpack.encode(["decided", 3, 7, [], b"", "", "more"]), "length"),
        (msgspec.msgpack.encode(["decided", 3]), "length"),
        (msgspec.msgpack.encode({"epoch": 1}), "array"),
        (b"", "newer release"),
        (b"\xc1", "newer release"),
        (encode_record(FENCE).replace(b"w-1", b"w\xff1"), "utf-8"),
    ],
)
def test_what_is_not_known_is_an_error(value: bytes, says: str) -> None:
    with pytest.raises(RecordError, match=says):
        decode_record(value)


def test_a_fence_of_a_newer_event_version_names_its_release() -> None:
    newer = encode_record(Fence(4, "w-2", "9.0", EVENT_VERSION + 1))
    with pytest.raises(RecordFromNewerVersion, match=r"release 9\.0.*up to"):
        decode_record(newer)
