"""Partitions in blocks behave like a tuple, and a change copies little."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.machine.partitions.blocks import BLOCK, blocks_of, changed, differing, extended, in_blocks, numbered
from controller.machine.state import Topic
from events.catalog import Partition
from events.names import BrokerId, Offset, TopicId, TopicName

SIZES = (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 5 * BLOCK + 7)


def partition(leader: int) -> Partition:
    return Partition((BrokerId(leader),), (BrokerId(leader),), BrokerId(leader))


def some(count: int, leader: int = 1) -> tuple[Partition, ...]:
    return tuple(partition(leader + place) for place in range(count))


def with_partition(topic: Topic, index: int, one: Partition) -> Topic:
    return replace(topic, partitions=changed(topic.partitions, {index: one}))


def topic(partitions: int) -> Topic:
    return Topic(TopicName("t"), TopicId(bytes(16)), some(partitions), (), 0, Offset(0))


@pytest.mark.parametrize("size", SIZES)
def test_partition_blocks_behave_like_a_tuple(size: int) -> None:
    plain = some(size)
    kept = in_blocks(plain)
    assert (kept == plain, plain == kept, kept == in_blocks(list(plain))) == (True, True, True)
    assert kept != some(size + 1)
    assert (len(kept), tuple(kept), repr(kept)) == (size, plain, repr(plain))
    assert [kept[place] for place in range(-size, size)] == [*plain, *plain]
    for cut in (
        slice(0, 3),
        slice(BLOCK - 2, BLOCK + 2),
        slice(None, None, 100),
        slice(5, size + 100),
        slice(-3, None),
    ):
        assert kept[cut] == plain[cut]
    for outside in (size, -size - 1):
        with pytest.raises(IndexError):
            kept[outside]
    assert list(numbered(kept)) == list(enumerate(plain))
    assert list(numbered(kept, (1, BLOCK, 10 * BLOCK))) == [(n, plain[n]) for n in (1, BLOCK) if n < len(plain)]


def test_topics_store_any_partition_sequence_in_blocks() -> None:
    for size in SIZES:
        given_in_list = Topic(TopicName("t"), TopicId(bytes(16)), list(some(size)), (), 0, Offset(0))
        assert given_in_list == topic(size)
        assert all(len(block) <= BLOCK for block in blocks_of(given_in_list.partitions))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 3 * BLOCK),
    st.integers(0, 3 * BLOCK),
    st.lists(st.tuples(st.integers(0, 6 * BLOCK - 1), st.integers(5000, 5003)), max_size=20),
)
def test_partition_block_changes_equal_list_changes(first: int, more: int, steps: list[tuple[int, int]]) -> None:
    model = [*some(first), *some(more, 1000)]
    before = in_blocks(some(first))
    grown = extended(before, some(more, 1000))
    assert grown == tuple(model)
    changes = {index: partition(leader) for index, leader in steps if index < len(model)}
    after = changed(grown, changes)
    for index, one in changes.items():
        model[index] = one
    assert after == tuple(model)
    assert dict(differing(grown, after)) == changes, "comparison by identity finds exactly the changes"
    assert dict(differing(before, grown)) == dict(list(enumerate(grown))[first:])


CHANGES: dict[str, Callable[[Topic], Topic]] = {
    "first": lambda before: with_partition(before, 0, partition(9)),
    "middle": lambda before: with_partition(before, len(before.partitions) // 2, partition(9)),
    "last": lambda before: with_partition(before, len(before.partitions) - 1, partition(9)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_partition_change_copies_one_block(change: Callable[[Topic], Topic]) -> None:
    before = topic(100_000)
    after = change(before)
    old, new = blocks_of(before.partitions), blocks_of(after.partitions)
    fresh = [block for was, block in zip(old, new, strict=True) if block is not was]
    assert [len(block) <= BLOCK for block in fresh] == [True]
    assert len(new) + BLOCK < 1000, "a change copies one block and the list of blocks"
