"""The events topic: its record format, and which records count."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.catalog import EVENT_VERSION
from events.logs.events_topic import (
    START,
    Decided,
    Fence,
    PartitionReader,
    Position,
    Record,
    RecordError,
    decode_record,
    encode_record,
)
from events.logs.log import LogCorrupted

FENCE = Fence(3, "w-1", "1.0", EVENT_VERSION, (b"settings",))
DECIDED = Decided(3, 7, (b"one", b"two"), b"answers", "")


@pytest.mark.parametrize("record", [FENCE, DECIDED, Decided(1, 0, ()), Decided(1, 5, (), b"", "it is no command")])
def test_events_topic_records_round_trip(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


def test_events_topic_record_bytes_are_stable() -> None:
    """The previous release must be able to read the bytes."""
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
def test_unknown_events_topic_records_are_rejected(value: bytes, says: str) -> None:
    with pytest.raises(RecordError, match=says):
        decode_record(value)


def test_a_fence_of_a_newer_event_version_names_its_release() -> None:
    newer = encode_record(Fence(4, "w-2", "9.0", EVENT_VERSION + 1))
    with pytest.raises(RecordError, match=r"release 9\.0.*up to"):
        decode_record(newer)


def fence(epoch: int, writer: str = "a", *events: bytes, source: int = 0) -> Fence:
    return Fence(epoch, writer, "1.0", EVENT_VERSION, events, source)


def read_all(*records: Record) -> tuple[PartitionReader, list[tuple[int | None, int, tuple[bytes, ...]]]]:
    """Returns the reader after a whole topic, and of each record that counts: source, first event number, events."""
    reader = PartitionReader(0)
    counted = []
    for offset, record in enumerate(records):
        taken = reader.read(offset, encode_record(record))
        if taken is not None:
            counted.append((getattr(taken, "source_offset", None), reader.next_event - len(taken.events), taken.events))
    return reader, counted


def test_events_are_numbered_within_the_partition() -> None:
    reader, counted = read_all(
        fence(1, "a", b"s"), Decided(1, 0, (b"x", b"y")), Decided(1, 1, ()), Decided(1, 2, (b"z",))
    )
    assert counted == [(None, 0, (b"s",)), (0, 1, (b"x", b"y")), (1, 3, ()), (2, 3, (b"z",))]
    assert reader.position == Position(4, 1, "a", 3, 4)


COUNTED: dict[str, tuple[list[Record], list[int | None]]] = {
    "nothing before the first fence": ([Decided(0, 0, ()), Decided(1, 0, ()), Decided(-1, 0, ())], []),
    "the first of two fences of one epoch": (
        [fence(1, "x"), fence(2, "a"), fence(2, "c"), Decided(2, 0, ())],
        [None, None, 0],
    ),
    **{
        f"no fence of epoch {epoch} after epoch 1": ([fence(1, "a"), fence(epoch, "b")], [None])
        for epoch in (0, 1, 3, 99)
    },
    "no decision of a fenced worker": (
        [fence(1, "x"), Decided(1, 0, ()), fence(2, "a"), Decided(1, 1, ()), Decided(2, 1, ())],
        [None, 0, None, 1],
    ),
    "a command once": ([fence(1), Decided(1, 0, ()), Decided(1, 0, (b"again",)), Decided(1, 1, ())], [None, 0, 1]),
    "commands from where the first fence says, as of a topic that was restored": (
        [fence(1, "a", source=7), Decided(1, 6, ()), Decided(1, 7, ())],
        [None, 7],
    ),
}


@pytest.mark.parametrize("what", COUNTED)
def test_the_order_of_the_topic_settles_what_counts(what: str) -> None:
    records, sources = COUNTED[what]
    reader, counted = read_all(*records)
    assert [source for source, _, _ in counted] == sources
    assert reader.writer == ("a" if sources else "")
    assert reader.ignored == len(records) - len(sources)


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([Decided(1, 0, ()), Decided(1, 2, ())], "decides command 2, and the next one is 1: records are missing; "),
        ([fence(2, "b", source=1)], "it knows of 1 commands that were decided, and the next one is 0"),
    ],
)
def test_a_missing_decision_stops_the_reader(records: list[Record], why: str) -> None:
    with pytest.raises(LogCorrupted, match=why):
        read_all(fence(1), *records)


def test_a_malformed_record_stops_the_reader_at_its_position() -> None:
    reader = PartitionReader(3)
    with pytest.raises(RecordError, match=r"partition 3, record 0: not a record"):
        reader.read(0, b"?")
    assert reader.position == START


WORKERS: list[Record] = [
    fence(1, "a", b"s"),
    *(Decided(1, source, (b"x",)) for source in range(3)),
    fence(2, "b", source=3),
    fence(2, "late", source=1),
    Decided(1, 3, (b"late",)),
    *(Decided(2, source, (b"y",)) for source in range(3, 5)),
]
"""Two workers of one partition. Records of the first after the takeover do not count."""


@given(st.lists(st.integers(0, 3), min_size=len(WORKERS), max_size=len(WORKERS)))
def test_offset_gaps_of_control_records_are_no_loss(skipped: list[int]) -> None:
    """Control records and aborted records leave gaps. A reader may restart after any record."""
    whole, (reader, *_) = read_all(*WORKERS), read_all()
    offset, counted = 0, []
    for record, skip in zip(WORKERS, skipped, strict=True):
        offset += skip
        taken = reader.read(offset, encode_record(record))
        if taken is not None:
            counted.append((getattr(taken, "source_offset", None), reader.next_event - len(taken.events), taken.events))
        offset += 1
        again = PartitionReader(0, reader.position)
        assert again.position == reader.position
        reader = again if again.kafka_offset == offset else reader  # a restart within a gap would read it again
    assert counted == whole[1]
    assert reader.position == msgspec.structs.replace(whole[0].position, kafka_offset=offset)


@pytest.mark.parametrize("start", range(len(WORKERS)))
@pytest.mark.parametrize("count", range(1, len(WORKERS)))
def test_missing_records_are_detected(start: int, count: int) -> None:
    """As in a compacted topic: the next record that counts reveals the gap. A reader may restart before it."""
    left = [(offset, record) for offset, record in enumerate(WORKERS) if not start <= offset < start + count]
    reader, why, events = PartitionReader(3), "", 0
    for offset, record in left:
        try:
            taken = reader.read(offset, encode_record(record))
        except LogCorrupted as error:
            why = str(error)
            break
        events += len(taken.events) if taken is not None else 0
        if reader.position.kafka_offset <= offset:
            reader = PartitionReader(3, msgspec.structs.replace(reader.position, kafka_offset=offset + 1))
    end = left[-1][0] if left else 0
    if why:
        assert "partition 3, record " in why
        assert "records are missing" in why
        assert "cleanup.policy=delete" in why
    else:  # the missing records do not count, or no record after them counts
        assert events == read_all(*WORKERS[: end + 1])[0].next_event or end < len(WORKERS) - 1


class Writer:
    """A worker that takes over after reading the topic, and writes until it notices a newer fence."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.epoch = 0
        self.next_source = 0

    def claim(self, topic: list[bytes]) -> None:
        seen = read(topic)
        self.epoch = seen.epoch + 1
        topic.append(encode_record(fence(self.epoch, self.name)))

    def resume(self, topic: list[bytes]) -> None:
        self.next_source = read(topic).next_source

    def write(self, topic: list[bytes]) -> None:
        if self.epoch:
            topic.append(encode_record(Decided(self.epoch, self.next_source, (self.name.encode(),))))
            self.next_source += 1


def read(topic: list[bytes]) -> PartitionReader:
    reader = PartitionReader(0)
    for offset, value in enumerate(topic):
        reader.read(offset, value)
    return reader


STEPS = st.lists(st.tuples(st.sampled_from(["claim", "write", "write", "write", "stale claim"]), st.integers(0, 2)))


@given(STEPS)
def test_each_command_counts_once_for_any_interleaving_of_writers(steps: list[tuple[str, int]]) -> None:
    """Fenced writers continue, and some take over with a stale view. Readers never stop, and count nothing twice."""
    topic: list[bytes] = []
    writers = [Writer(name) for name in "abc"]
    for step, number in steps:
        writer = writers[number]
        if step == "write":
            writer.write(topic)
        elif step == "claim":
            writer.claim(topic)
            writer.resume(topic)
        else:
            behind = topic[: len(topic) // 2]
            writer.claim(behind)
            topic.append(behind[-1])
            writer.resume(topic) if read(topic).writer == writer.name else setattr(writer, "epoch", 0)
    reader, sources = PartitionReader(0), list[int]()
    numbers: list[int] = []
    for offset, value in enumerate(topic):
        taken = reader.read(offset, value)
        if isinstance(taken, Decided):
            sources.append(taken.source_offset)
            numbers += range(reader.next_event - len(taken.events), reader.next_event)
    assert sources == list(range(len(sources))), steps
    assert numbers == list(range(len(numbers))), steps
