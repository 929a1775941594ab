"""Topics of many partitions in the log's state keys: written block by block, read as one."""

from __future__ import annotations

import pytest

from controller.machine.apply import with_partition
from controller.machine.partitions.blocks import BLOCK
from controller.machine.state import Topic
from events.catalog import Partition
from events.names import BrokerId, ShardKey, shard_key
from projections.store.store import TopicStore
from projections.store.stored_topics import TOPIC, decode_topic, each_stored, stored_values
from tests.projections.test_store import Bench, topic

ONE = Partition((BrokerId(1), BrokerId(2)), (BrokerId(2),), BrokerId(2), 1, 1)


def stored(bench: Bench) -> list[Topic]:
    """The topics as a process reads them that starts now."""
    return TopicStore(bench.log).durable_slice(None, 100)


def moved(before: Topic, *indexes: int) -> Topic:
    for index in indexes:
        before = with_partition(before, index, ONE)
    return before


def of_topics(changes: dict[bytes, bytes | None]) -> dict[bytes, bytes | None]:
    return {key: value for key, value in changes.items() if key.startswith(TOPIC)}


def test_a_change_of_one_partition_writes_its_block_and_no_other() -> None:
    bench = Bench()
    big = topic("big", 10 * BLOCK)
    assert len(of_topics(bench.commit(big))) == 10
    changes = of_topics(bench.commit(moved(big, 3 * BLOCK)))
    assert list(changes) == [b"tbig\0" + (3).to_bytes(4, "big")]
    assert stored(bench) == [moved(big, 3 * BLOCK)]


def test_what_a_change_writes_is_as_much_of_a_topic_four_times_as_large() -> None:
    def written(partitions: int) -> int:
        bench, big = Bench(), topic("big", partitions)
        bench.commit(big)
        return sum(len(value or b"") for value in of_topics(bench.commit(moved(big, partitions - 1))).values())

    assert written(160 * BLOCK) == written(40 * BLOCK)


def test_topics_come_whole_and_in_order_whatever_is_beside_them() -> None:
    bench = Bench()
    topics = [topic("a", BLOCK), topic("a-b", 3 * BLOCK + 1), topic("a.b", 2), topic("aa", 2 * BLOCK), topic("b")]
    bench.commit(*topics)
    assert stored(bench) == sorted(topics, key=lambda one: shard_key(one.name))
    fresh = TopicStore(bench.log)
    for one in topics:
        assert fresh.durable_named(one.name) == one
    for after, rest in (("a", ["a-b", "a.b", "aa", "b"]), ("a-b", ["a.b", "aa", "b"]), ("aa", ["b"])):
        assert [one.name for one in TopicStore(bench.log).durable_slice(shard_key(after), 9)] == rest


def test_nothing_stays_of_a_topic_that_goes_or_is_made_anew_with_fewer() -> None:
    bench = Bench()
    bench.commit(topic("big", 5 * BLOCK), topic("other", 2 * BLOCK))
    bench.commit(gone=("big",))
    assert [one.name for one in stored(bench)] == ["other"]
    bench.commit(topic("other", BLOCK + 1, topic_id="new"))
    assert stored(bench) == [topic("other", BLOCK + 1, topic_id="new")]
    bench.commit(topic("other", 1, topic_id="newer"))
    assert [key for key, _ in bench.log.scan(TOPIC)] == [b"tother"]


def test_a_topic_grows_over_a_block() -> None:
    bench = Bench()
    for size in (1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 5):
        bench.commit(topic("big", size))
        assert stored(bench) == [topic("big", size)]


@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_values_are_found_by_key_and_in_a_walk_alike(size: int) -> None:
    bench = Bench()
    bench.commit(topic("t", size), topic("u"))
    walked = dict(each_stored(bench.log.scan(TOPIC)))
    assert walked[ShardKey("t")] == stored_values(bench.log, ShardKey("t"))
    assert decode_topic(walked[ShardKey("t")]) == topic("t", size)
    assert stored_values(bench.log, ShardKey("none")) == []
