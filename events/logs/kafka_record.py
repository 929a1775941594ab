"""The records of the events topic: what a worker writes for each command, and when it takes a partition over.

One record a command, whole or not at all, with all the events that it led to. A record of a kind, or with a field, that
this release does not know is an error: skipping it would fold another history than the one that was written.

A record is a MessagePack array that begins with its kind. Events are in it as `events.codec` encodes them.
"""

from __future__ import annotations

import msgspec

from events.catalog import EVENT_VERSION, Fact
from events.codec import UNREADABLE


class RecordError(Exception):
    """Bytes in the events topic that this release cannot take; says why."""


class RecordFromNewerVersion(RecordError):
    """A newer release writes this partition: this one would not understand all of its events."""


class Fence(Fact, frozen=True, tag="fence"):
    """From here on only `writer` writes this partition, under `epoch`; see `events.logs.kafka_fold` for when."""

    epoch: int
    """One more than the epoch of the fence before; 1 for the first."""
    writer: str
    """Unique to one claim of one process."""
    release: str
    """The release of Topicwright that the writer runs."""
    event_version: int
    """The newest event version that the writer may write."""
    events: tuple[bytes, ...] = ()
    """`SettingsChanged`, where the writer's settings or release are not those of the partition."""
    next_source: int = 0
    """The offset of the next command to be decided, as far as the writer knew."""


class Decided(Fact, frozen=True, tag="decided"):
    """A command was decided. Without events it changed nothing, and the record only says that it was seen."""

    epoch: int
    source_offset: int
    """The command's offset in the same partition of the commands topic."""
    events: tuple[bytes, ...]
    answers: bytes = b""
    """The answers that the decision gives, as `controller.stream.log.answers` encodes them; empty for none."""
    fault: str = ""
    """Why the command could not be decided: it was passed over."""


Record = Fence | Decided

encode_record = msgspec.msgpack.Encoder().encode
"""The bytes of a record."""
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def decode_record(value: bytes) -> Record:
    """The record in `value`. Raises RecordError, or RecordFromNewerVersion for a fence of a newer event version."""
    try:
        record = _decoder.decode(value)
    except UNREADABLE as error:
        why = f"not a record that this release knows ({error}); a newer release may have written it"
        raise RecordError(why) from None
    if isinstance(record, Fence) and record.event_version > EVENT_VERSION:
        raise RecordFromNewerVersion(
            f"written by release {record.release} in event version {record.event_version}; "
            f"this release reads up to {EVENT_VERSION}: run {record.release}, or a later one"
        )
    return record
