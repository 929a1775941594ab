"""Rows of topics after each story. Large topics are stored in blocks and read as one."""

import pytest
from msgspec.structs import replace

from controller.machine.apply import CannotApply
from controller.machine.partitions.blocks import BLOCK, changed
from controller.machine.state import Topic
from controller.store.store import TopicStore
from controller.store.stored_topics import TOPIC, decode_topic, each_stored, stored_values
from events.catalog import (
    Cause,
    Partition,
    PartitionChanged,
    PartitionsAdded,
    Recorded,
    RequestedChange,
    RequestedPartitions,
    TopicReady,
)
from events.names import BrokerId, Offset, RequestId, ShardKey, TopicName, shard_key
from projections.views.rows import NO_PAST, TopicPast, deleted_by, fold_topic
from projections.views.topics import health, offline_replicas
from tests.machine.tables import command, given
from tests.store.test_store import Bench, topic

ONE = Partition((BrokerId(1), BrokerId(2)), (BrokerId(2),), BrokerId(2), 1, 1)


def stored(bench: Bench) -> list[Topic]:
    """Returns the topics as a new process reads them."""
    return [*TopicStore(bench.log).durable_from(None)]


def moved(before: Topic, *indexes: int) -> Topic:
    return replace(before, partitions=changed(before.partitions, dict.fromkeys(indexes, ONE)))


def of_topics(changes: dict[bytes, bytes | None]) -> dict[bytes, bytes | None]:
    return {key: value for key, value in changes.items() if key.startswith(TOPIC)}


def test_a_partition_change_writes_only_its_block() -> None:
    bench = Bench()
    big = topic("big", 10 * BLOCK)
    assert len(of_topics(bench.commit(big))) == 10
    changes = of_topics(bench.commit(moved(big, 3 * BLOCK)))
    assert list(changes) == [b"tbig\0" + (3).to_bytes(4, "big")]
    assert stored(bench) == [moved(big, 3 * BLOCK)]


def test_bytes_of_a_partition_change_do_not_grow_with_the_topic() -> None:
    def written(partitions: int) -> int:
        bench, big = Bench(), topic("big", partitions)
        bench.commit(big)
        return sum(len(value or b"") for value in of_topics(bench.commit(moved(big, partitions - 1))).values())

    assert written(160 * BLOCK) == written(40 * BLOCK)


def test_topics_of_several_blocks_are_read_in_shard_order() -> None:
    bench = Bench()
    topics = [topic("a", BLOCK), topic("a-b", 3 * BLOCK + 1), topic("a.b", 2), topic("aa", 2 * BLOCK), topic("b")]
    bench.commit(*topics)
    assert stored(bench) == sorted(topics, key=lambda one: shard_key(one.name))
    fresh = TopicStore(bench.log)
    for one in topics:
        assert fresh.durable_named(one.name) == one
    for after, rest in (("a", ["a-b", "a.b", "aa", "b"]), ("a-b", ["a.b", "aa", "b"]), ("aa", ["b"])):
        assert [one.name for one in TopicStore(bench.log).durable_from(shard_key(after))] == rest


def test_deleted_or_smaller_recreated_topics_leave_no_blocks() -> None:
    bench = Bench()
    bench.commit(topic("big", 5 * BLOCK), topic("other", 2 * BLOCK))
    bench.commit(gone=("big",))
    assert [one.name for one in stored(bench)] == ["other"]
    bench.commit(topic("other", BLOCK + 1, topic_id="new"))
    assert stored(bench) == [topic("other", BLOCK + 1, topic_id="new")]
    bench.commit(topic("other", 1, topic_id="newer"))
    assert [key for key, _ in bench.log.scan(TOPIC)] == [b"tother"]


def test_a_topic_grows_beyond_one_block() -> None:
    bench = Bench()
    for size in (1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 5):
        bench.commit(topic("big", size))
        assert stored(bench) == [topic("big", size)]


@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_stored_blocks_by_key_equal_those_of_a_scan(size: int) -> None:
    bench = Bench()
    bench.commit(topic("t", size), topic("u"))
    walked = dict(each_stored(bench.log.scan(TOPIC)))
    assert walked[ShardKey("t")] == stored_values(bench.log, ShardKey("t"))
    assert decode_topic(walked[ShardKey("t")]) == topic("t", size)
    assert stored_values(bench.log, ShardKey("none")) == []


# given | steps, separated by `;` | the row of topic t: status, partitions as LEADER:ISR/REPLICAS, other fields
TABLE = """
1 2 3          | create t 1x3 id=q                             | pending 3:3.1.2/3.1.2 by=q
1 2 3          | create t 1x3 id=q; confirm 1 2 3              | ready 3:3.1.2/3.1.2 by=q
1 2 3 fewer    | create t 1x4; confirm 1 2 3                   | under-replicated 3:3.1.2/3.1.2.-1 by=q holes=1
1 2 3          | has:t; fence 3; reconcile t                      | offline -1:3/3 by=w-t policy=allowed
1 2 3          | has:t:1x3; fence 3; reconcile t                  | under-replicated 1:1.2/3.1.2 by=w-t policy=allowed
1 2 3          | has:t:1x3; fence 3; reconcile t; unfence 3; sync t | ready 1:3.1.2/3.1.2 by=w-t policy=allowed
1 2 3          | has:t; partitions t to=2                      | ready 3:3/3 1:1/1 by=w-t policy=allowed
1 2 3          | has:t; alter t set:retention.ms=5             | ready 3:3/3 by=w-t retention.ms=5 policy=allowed
1 2 3          | create t on=0:2.1 id=mine; confirm 1 2 3      | ready 2:2.1/2.1 by=mine
1 2 3          | create t 1x1 verdict=allowed; confirm 1 2 3   | ready 3:3/3 by=q policy=allowed
1 2 3          | create t 1x1 timeout=0; confirm 1 2 3         | ready 3:3/3 by=q
1 2 3          | has:t; create t 5x1 id=again                  | ready 3:3/3 by=w-t policy=allowed
1 2 3          | has:t; delete t                               | deleted by User:alice
1 2 3          | has:t; delete t; create t 1x2 id=second       | pending 3:3.1/3.1 by=second
1 2 3          | create t 0x1                                  | nothing
1 2 3          | create t_x 1x1                                | nothing
1 2 3 fewer    | create t 1x4; register 4; unfence 4; reconcile t | pending 3:3.1.2/3.1.2.4 by=q
"""


def _shown(past: TopicPast, live: tuple[BrokerId, ...]) -> str:
    row = past.row
    if row is None:
        return "nothing" if past.deletion is None else f"deleted by {deleted_by(past.deletion)}"
    stands = health(row, live)
    words: list[str] = [stands.status]
    words += [f"{one.leader}:{_ids(one.isr)}/{_ids(one.replicas)}" for one in row.partitions]
    assert row.created_by is not None, "the request precedes the creation"
    words.append(f"by={row.created_by.request_id}")
    words += [f"{name}={value}" for name, value in row.configs]
    words += [f"holes={stands.placeholders}"] if stands.placeholders else []
    words += [f"policy={row.verdict.outcome}"] if row.verdict is not None else []
    return " ".join(words)


def _ids(brokers: tuple[BrokerId, ...]) -> str:
    return ".".join(map(str, brokers))


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_topic_rows_equal_their_events(line: str) -> None:
    begin, steps, expected = (column.strip() for column in line.split("|"))
    first, *rest = (step.strip() for step in steps.split(";"))
    has, todo = (f" {first}", rest) if first.startswith("has:") else ("", [first, *rest])
    rig = given(begin + has)
    for step in todo:
        rig.put(command(rig, step))
    past = NO_PAST
    for record in rig.log:
        if getattr(record.event, "topic", None) == "t":
            past = fold_topic(past, record)
    assert _shown(past, rig.state.cluster.live) == expected


def test_offline_replicas_are_placeholders_and_those_on_fenced_brokers() -> None:
    rig = given("1 2 3 fewer")
    rig.put(command(rig, "create t 1x4"))
    partition = rig.topic("t").partitions[0]
    assert partition.replicas == (3, 1, 2, -1)
    assert offline_replicas(partition, (BrokerId(1), BrokerId(2))) == (3, -1)


NAME = TopicName("t")
REQUESTED = RequestedChange("CreatePartitions", 3, RequestedPartitions(6, None))
MISFITS = (
    TopicReady(NAME),
    PartitionChanged(NAME, 7, ONE, replace(ONE, partition_epoch=1), "why"),
    PartitionsAdded(RequestId("q"), NAME, 5, (), "User:alice", None, (), REQUESTED),
)


@pytest.mark.parametrize("event", MISFITS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("exists", [False, True])
def test_an_inapplicable_event_fails_the_fold_with_its_offset(event: object, exists: bool) -> None:
    past = NO_PAST
    for record in given("1 2 3 has:t").log if exists else ():
        if getattr(record.event, "topic", None) == "t":
            past = fold_topic(past, record)
    record = Recorded(Offset(99), 0, Cause("X", RequestId("x")), event)  # type: ignore[arg-type]
    with pytest.raises(CannotApply, match="at offset 99 cannot be applied"):
        fold_topic(past, record)
