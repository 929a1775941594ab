"""Encodes and decodes record batches of the metadata log: Kafka's format 2, uncompressed, as in KRaft.

A batch holds the records of one append with one timestamp and leader epoch. Control records belong to the quorum:
leader changes, voters, begin and end of a snapshot (KIP-595, KIP-630, KIP-853).

The first record of each Topicwright batch is a NoOpRecord that embeds the events in a tagged field. Kafka's controllers
and brokers retain a record's bytes and ignore unknown tagged fields; their snapshots drop it. The field contains, in
MessagePack: the format version (1), the first event's offset in the leader's event log, the canonical bytes of each
event, and, in the first batch of a commit, the tree root over all events before the first.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import crc32c
import msgspec

from controller.kafka.codec.primitives import encode_uvarint, read_uvarint
from controller.kafka.codec.reader import READ_FAILURES
from controller.kafka.messages import Message
from controller.kafka.messages import records as kinds
from controller.quorum.log.metadata_codec import MalformedRecord, decode_control, encode_record
from events.errors import UserError

LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS = 2, 3, 4, 5, 6
"""Types of control records."""
_CONTROL_MESSAGES: Final[dict[int, type[Message]]] = {
    LEADER_CHANGE: kinds.LeaderChangeMessage,
    SNAPSHOT_HEADER: kinds.SnapshotHeaderRecord,
    SNAPSHOT_FOOTER: kinds.SnapshotFooterRecord,
    KRAFT_VERSION: kinds.KRaftVersionRecord,
    KRAFT_VOTERS: kinds.VotersRecord,
}
CONTROLLER_LISTENER: Final = "CONTROLLER"
METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = (1).to_bytes(16, "big")
KRAFT_VERSION_MAX: Final = 1

_CONTROL: Final = 0x20
_CONTROL_KEY_BYTES: Final = 4
_MAGIC: Final = 2
_FRONT = struct.Struct(">qiibI")
_BACK = struct.Struct(">hiqqqhii")
_CRC_END: Final = _FRONT.size
HEADER_BYTES: Final = _FRONT.size + _BACK.size
LENGTH_END: Final = 12
"""The four bytes before this one are the length of the rest of the batch."""
_FRONT_LENGTH = struct.Struct(">qi")
_OFFSET_MAX: Final = (1 << 63) - 1

Pair = tuple[bytes | None, bytes]
"""A record's key and value."""


class RecordBatch(msgspec.Struct, frozen=True):
    """A decoded batch with its bytes."""

    base_offset: int
    leader_epoch: int
    timestamp_ms: int
    records: tuple[Pair, ...]
    is_control: bool
    data: bytes

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.records) - 1


class BrokenBatch(UserError):
    """Invalid record batches; the message says where and why."""


def encode_batch(
    base_offset: int, leader_epoch: int, timestamp_ms: int, records: Sequence[Pair], *, is_control: bool = False
) -> bytes:
    """A record batch of format 2, uncompressed, with (key, value) pairs and the CRC-32C."""
    assert records, "a batch has records"
    body = bytearray()
    for delta, (key, value) in enumerate(records):
        one = b"".join(
            (b"\0\0", _varint(delta), b"\x01" if key is None else _varint(len(key)) + key, _varint(len(value)), value)
        )
        body += _varint(len(one) + 1) + one + b"\0"
    count = len(records)
    attributes = _CONTROL if is_control else 0
    tail = _BACK.pack(attributes, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count) + body
    checksum = crc32c.crc32c(tail)
    return _FRONT.pack(base_offset, len(tail) + _CRC_END - LENGTH_END, leader_epoch, _MAGIC, checksum) + tail


class BatchHead(NamedTuple):
    """The header fields of a batch, without its records, and its position in the bytes."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp_ms: int
    is_control: bool
    position: int
    end: int


def decode_batches(data: bytes, where: str = "metadata log") -> Iterator[RecordBatch]:
    """Decode all batches in `data`. Raises BrokenBatch at the first invalid batch or control record."""
    for head in scan_batches(data, where):
        count = head.last_offset - head.base_offset + 1
        try:
            records = tuple(_records(data, head.position + HEADER_BYTES, head.end, count))
        except IndexError:
            raise _broken(
                where, head.position, f"the records of the batch at offset {head.base_offset} do not fill it exactly"
            ) from None
        for offset, (key, value) in enumerate(records if head.is_control else (), head.base_offset):
            why = _why_no_control_record(key, value)
            if why:
                raise _broken(where, head.position, f"invalid control record at offset {offset}: {why}")
        yield RecordBatch(
            head.base_offset, head.epoch, head.timestamp_ms, records, head.is_control, data[head.position : head.end]
        )


def whole_batches(data: bytes, end: int = _OFFSET_MAX) -> bytes:
    """`data` without an incomplete batch at the end, and without the batches from offset `end` on. Responses of Kafka
    may end within a batch, which the receiver must drop."""
    at = 0
    while len(data) - at >= LENGTH_END:
        base, length = _FRONT_LENGTH.unpack_from(data, at)
        if base >= end or length < 0 or at + LENGTH_END + length > len(data):
            break
        at += LENGTH_END + length
    return data[:at]


def scan_batches(data: bytes | memoryview, where: str, at: int = 0) -> Iterator[BatchHead]:
    """The header of each batch in `data` from byte `at` on. Checks checksums, not records. Raises BrokenBatch at the
    first incomplete batch."""
    size = len(data)
    while at < size:
        if size - at < HEADER_BYTES:
            raise _broken(where, at, f"{size - at} bytes are too short for a batch header")
        base, length, epoch, magic, checksum = _FRONT.unpack_from(data, at)
        end = at + LENGTH_END + length
        if magic != _MAGIC or end > size or length < HEADER_BYTES - LENGTH_END:
            raise _broken(where, at, f"not a complete batch of format 2 (format {magic}, length {length})")
        if crc32c.crc32c(data[at + _CRC_END : end]) != checksum:
            raise _broken(where, at, f"wrong checksum in the batch at offset {base}")
        attributes, delta, timestamp_ms, _, _, _, _, count = _BACK.unpack_from(data, at + _CRC_END)
        if attributes & 7:
            raise _broken(where, at, f"the batch at offset {base} is compressed")
        if base < 0 or epoch < 0 or count < 1 or delta != count - 1:
            raise _broken(
                where,
                at,
                f"invalid batch header: offset {base}, epoch {epoch}, {count} records, last offset delta {delta}",
            )
        yield BatchHead(base, base + delta, epoch, timestamp_ms, bool(attributes & _CONTROL), at, end)
        at = end


def _why_no_control_record(key: bytes | None, value: bytes) -> str:
    """Why a control record is invalid; empty if it is valid or of an unknown type."""
    if key is None or len(key) < _CONTROL_KEY_BYTES:
        return "the key has no type"
    kind = _CONTROL_MESSAGES.get(control_type(key))
    try:
        message = None if kind is None else decode_control(kind, value)
    except MalformedRecord as malformed:
        return str(malformed)
    match message:
        case kinds.LeaderChangeMessage(leader_id=leader_id) if leader_id < 0:
            return f"leader {leader_id}"
        case kinds.KRaftVersionRecord(k_raft_version=version) if version < 0:
            return f"kraft.version {version}"
        case kinds.VotersRecord(voters=voters):
            ids = {each.voter_id for each in voters if each.voter_id >= 0 and each.endpoints}
            return "" if ids and len(ids) == len(voters) else "every voter needs an endpoint and an id of its own"
    return ""


def _broken(where: str, at: int, why: str) -> BrokenBatch:
    return BrokenBatch(f"{where}, byte {at}: {why}")


def _records(data: bytes, at: int, batch_end: int, count: int) -> Iterator[Pair]:
    """The records of a batch. Raises IndexError if the records do not exactly fill the batch."""
    for _ in range(count):
        size, at = _read_varint(data, at)
        end = at + size
        if size < 1 or end > batch_end:
            raise IndexError
        _, at = _read_varint(data, at + 1)
        _, at = _read_varint(data, at)
        key_size, at = _read_varint(data, at)
        key = None if key_size < 0 else data[at : at + key_size]
        size, at = _read_varint(data, at + max(key_size, 0))
        if at + size > end:
            raise IndexError
        yield key, data[at : at + max(size, 0)]
        at = end
    if at != batch_end:
        raise IndexError


def snapshot_header(timestamp_ms: int) -> Pair:
    """The first control record of a snapshot. `timestamp_ms` is that of its last record."""
    return control_record(SNAPSHOT_HEADER, kinds.SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms))


def snapshot_footer() -> Pair:
    """The last control record of a snapshot."""
    return control_record(SNAPSHOT_FOOTER, kinds.SnapshotFooterRecord())


def control_type(key: bytes | None) -> int:
    assert key is not None, "control records have keys"
    return int.from_bytes(key[2:4], "big")


def control_record(kind: int, message: Message) -> Pair:
    return struct.pack(">hh", 0, kind), encode_record(message)


def _varint(number: int) -> bytes:
    return encode_uvarint((number << 1) ^ (number >> 63) if number < 0 else number << 1)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


TAG: Final = 7409
"""The tag of the field with the events. It is far above the tags that Kafka assigns in sequence."""
_FORM: Final = 1
_HEAD: Final = b"".join(map(encode_uvarint, (1, 20, 0, 1, TAG)))
"""How a NoOpRecord with events begins: frame version 1, record key 20, version 0, and one tagged field, TAG."""


class EmbeddedEvents(msgspec.Struct, frozen=True, array_like=True):
    """The events in a NoOpRecord. `first` is the offset of the first event; `root` is the Merkle root over all events
    before that one, or empty."""

    form: int
    first: int
    values: tuple[bytes, ...]
    root: bytes = b""


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(EmbeddedEvents)


def embed_events(first: int, values: Sequence[bytes], root: bytes = b"") -> bytes:
    data = _encoder.encode((_FORM, first, tuple(values), *([root] if root else ())))
    return _HEAD + encode_uvarint(len(data)) + data


def embedded_events(value: bytes) -> EmbeddedEvents | None:
    """The events embedded in the value of a NoOpRecord; None without events, or for an unknown format version."""
    if not value.startswith(_HEAD):
        return None
    try:
        size, at = read_uvarint(value, len(_HEAD))
        found = _decoder.decode(value[at : at + size])
    except (*READ_FAILURES, msgspec.DecodeError):
        return None
    return found if found.form == _FORM and at + size == len(value) else None
