"""A partition of the events topic as a local log: one worker writes it, readers apply it, drop it and read it again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from controller.machine.apply import CannotApply
from controller.machine.commands.commands import DeleteTopic
from controller.machine.decision import Answer
from controller.store.tree import HEAD
from controller.stream.log.partition import CacheAhead, FirstRecordsDeleted, PartitionState
from events.catalog import EVENT_VERSION, Cause, Fact, TopicReady
from events.codec import EventDecodeError, encode_event
from events.logs.events_topic import Decided, Fence, encode_record
from events.logs.log import Commit, LogLocked
from events.logs.rocksdb_recovery import marked_offset
from events.names import RequestId, TopicName
from tests.stream.log.records import BORN_MS, Writing, create, joined

CLUSTER, TOPIC = "cluster-1", "topic-1"


def opened(data: Path, **options: Any) -> PartitionState:
    return PartitionState.open(data, 2, **{"cluster_id": CLUSTER, "topic_id": TOPIC, **options})


OpenIn = Callable[..., PartitionState]


@pytest.fixture
def open_in(tmp_path: Path) -> Iterator[OpenIn]:
    """Opens partition 2 in a folder of this name; the fixture closes it."""
    with ExitStack() as held:

        def open_one(name: str, **options: Any) -> PartitionState:
            return held.enter_context(closing(opened(tmp_path / name, **options)))

        yield open_one


@pytest.fixture
def writing(open_in: OpenIn) -> Writing:
    """A worker that owns partition 2; brokers 1 and 2 are live."""
    worker = Writing(open_in("worker"))
    worker.fence()
    worker.decide(*joined(1), *joined(2))
    worker.partition.commit()
    return worker


def read_all(state: PartitionState, topic: list[bytes], commit_every: int = 1) -> list[tuple[Answer, ...]]:
    """Apply the rest of a topic; returns the answers of each record that counts."""
    accepted = []
    for offset in range(state.reader.kafka_offset, len(topic)):
        one = state.accept(offset, topic[offset])
        if one is not None:
            accepted.append(one)
        if offset % commit_every == 0:
            state.commit()
    state.commit()
    return accepted


def test_a_gateway_reads_the_same_events_and_state_as_the_worker(writing: Writing, open_in: OpenIn) -> None:
    writing.decide(create("a"), create("b.c"), create("b_c"), create("b.c", validate_only=True))
    writing.partition.commit()
    gateway = open_in("gateway", answers=True)
    accepted = read_all(gateway, writing.topic, commit_every=3)
    assert list(gateway.log.read()) == list(writing.partition.log.read())
    assert [*gateway.store.durable_from(None)] == [*writing.partition.store.durable_from(None)]
    assert gateway.store.durable_cluster == writing.partition.store.durable_cluster
    assert gateway.reader.position == writing.partition.reader.position
    assert len(accepted) == 9
    assert gateway.log.durable_offset == gateway.log.next_offset


def test_answers_contain_the_topic_of_the_decision(writing: Writing, open_in: OpenIn) -> None:
    deleting = DeleteTopic(request_id=RequestId("d"), at_ms=BORN_MS, topic=TopicName("a"))
    writing.decide(create("a", timeout_ms=0), create("a"), create("dry", validate_only=True), deleting)
    gateway = open_in("gateway", answers=True)
    answers = [answer for each in read_all(gateway, writing.topic) for answer in each]
    assert [(each.topic_name, each.code) for each in answers] == [("a", 7), ("a", 36), ("dry", 0), ("a", 0)]
    assert [each.topic.name if each.topic else None for each in answers] == ["a", None, "dry", "a"]
    assert answers[0].topic is not None
    assert answers[0].topic.created_offset >= 0, "the reader's topic, with its offset in the log"


def test_a_fault_counts_as_decided(writing: Writing, open_in: OpenIn) -> None:
    reader = writing.partition.reader
    source = reader.next_source
    writing.topic.append(encode_record(Decided(reader.epoch, source, (), b"", "no command")))
    copy = open_in("reader")
    assert read_all(copy, writing.topic)[-1] == ()
    assert copy.reader.next_source == source + 1


@pytest.mark.parametrize("keep", range(7))
def test_reopening_continues_at_the_last_commit(writing: Writing, tmp_path: Path, keep: int) -> None:
    """Closed after any record, with more records applied but not committed. No event is lost or applied twice."""
    writing.decide(create("a"), create("b"))
    data = tmp_path / "again"
    first = opened(data)
    for offset, value in enumerate(writing.topic):
        first.accept(offset, value)
        if offset == keep:
            first.commit()
    first.close()
    second = opened(data)
    assert second.reader.kafka_offset == keep + 1
    read_all(second, writing.topic)
    assert [*second.store.durable_from(None)] == _read_once(tmp_path / "once", writing.topic)
    second.close()


def _read_once(data: Path, topic: list[bytes]) -> list[Any]:
    state = opened(data)
    read_all(state, topic)
    topics = [*state.store.durable_from(None)]
    state.close()
    return list(topics)


def test_unacknowledged_decision_is_lost_on_close(writing: Writing, open_in: OpenIn) -> None:
    writing.decide(create("lost"))
    assert writing.partition.store.durable_named("lost") is None
    before = list(writing.partition.log.read())
    writing.partition.close()
    again = open_in("worker")
    assert list(again.log.read()) == before
    assert (again.reader.next_source, again.store.durable_named("lost")) == (4, None)


def test_position_is_stored_after_records_without_events(writing: Writing, open_in: OpenIn) -> None:
    writing.decide(*joined(1))
    writing.partition.commit()
    position = writing.partition.reader.position
    writing.partition.close()
    again = open_in("worker")
    assert again.reader.position == position


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic_id": "topic-2"}, "of the events topic with id topic-1, and the one in Kafka has topic-2"),
        ({"cluster_id": "cluster-2"}, "of Kafka cluster cluster-1, and this one is cluster-2"),
    ],
)
def test_a_cache_of_another_events_topic_is_retained(
    writing: Writing, open_in: OpenIn, options: dict[str, str], says: str
) -> None:
    events = list(writing.partition.log.read())
    writing.partition.close()
    with pytest.raises(CacheAhead, match=rf"partition-00002 is {says}: it may be the last copy of its events"):
        open_in("worker", **options)
    again = open_in("worker")
    assert list(again.log.read()) == events


def test_cache_without_events_is_replaced(open_in: OpenIn) -> None:
    open_in("worker").close()
    open_in("worker", topic_id="topic-2").close()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_cache_before_the_first_kafka_record_is_retained(
    writing: Writing, tmp_path: Path, open_in: OpenIn, damaged: bool
) -> None:
    """Kafka has deleted later records too, so the cache cannot be rebuilt. A damaged cache is also retained."""
    folder, first = tmp_path / "worker/partition-00002", writing.partition.reader.kafka_offset + 1
    writing.partition.close()
    if damaged:
        (folder / "CURRENT").rename(folder / "CURRENT.lost")
    before = {path.name for path in folder.iterdir() if path.suffix == ".lost"}
    for _ in range(2):
        with pytest.raises(FirstRecordsDeleted, match=f"begins at record {first} in Kafka"):
            open_in("worker", first_record=first)
    assert before <= {path.name for path in folder.iterdir()}
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    if not damaged:
        again = open_in("worker")
        assert again.log.next_offset == 5
        again.close()


def test_cache_ahead_of_the_topic_is_rejected(writing: Writing) -> None:
    end = writing.partition.reader.kafka_offset
    writing.partition.check_end(end)
    with pytest.raises(CacheAhead, match=rf"ends before record {end}, and Kafka has only records before {end - 1}"):
        writing.partition.check_end(end - 1)


def test_a_damaged_cache_is_dropped(writing: Writing, tmp_path: Path, open_in: OpenIn) -> None:
    writing.partition.close()
    (tmp_path / "worker/partition-00002/CURRENT").unlink()
    again = open_in("worker")
    assert again.log.next_offset == 0


def test_a_cache_that_contradicts_its_merkle_tree_is_dropped(writing: Writing, open_in: OpenIn) -> None:
    gateway = open_in("gateway")
    read_all(gateway, writing.topic)
    gateway.log.write(Commit(own={HEAD: gateway.log.next_offset.to_bytes(8, "big") + bytes(32)}))
    gateway.close()
    gateway = open_in("gateway")
    assert gateway.log.next_offset == 0
    read_all(gateway, writing.topic)
    assert list(gateway.log.read()) == list(writing.partition.log.read())


def test_a_partition_folder_in_use_is_rejected(writing: Writing, open_in: OpenIn) -> None:
    with pytest.raises(LogLocked):
        open_in("worker")


class _FromTheFuture(Fact, frozen=True, tag="TopicPainted"):
    topic: str


@pytest.mark.parametrize(
    ("event", "error", "says"),
    [
        (_FromTheFuture("a"), EventDecodeError, "unknown event type 'TopicPainted'"),
        (TopicReady(TopicName("nowhere")), CannotApply, "nowhere"),
    ],
)
def test_an_event_that_cannot_be_applied_stops_the_reader(
    writing: Writing, event: Any, error: type[Exception], says: str
) -> None:
    reader = writing.partition.reader
    value = encode_event(BORN_MS, Cause("c", RequestId("r")), event)
    with pytest.raises(error, match=says):
        writing.partition.accept(
            reader.kafka_offset, encode_record(Decided(reader.epoch, reader.next_source, (value,)))
        )


def test_a_losing_fence_changes_nothing(writing: Writing) -> None:
    reader = writing.partition.reader
    assert writing.partition.accept(reader.kafka_offset, encode_record(Fence(9, "x", "1", EVENT_VERSION, ()))) is None
    assert reader.writer == "w1"


def test_a_commit_does_not_wait_for_the_disk(writing: Writing) -> None:
    log = writing.partition.log
    assert log.durable_offset == log.next_offset > 0
    assert marked_offset((log.path / "DURABLE").read_bytes()) == 0, "the log was synced"


def test_a_partition_limits_its_cache_to_its_part_of_the_memory(writing: Writing, open_in: OpenIn) -> None:
    writing.decide(*(create(f"t{number}") for number in range(20)))
    gateway = open_in("gateway", memory_bytes=16_000)
    read_all(gateway, writing.topic)
    assert len([*gateway.store.durable_from(None)]) == 20
    cache = gateway.store._cache
    assert sum(len(one.partitions) for one in cache._topics.values()) <= 16
