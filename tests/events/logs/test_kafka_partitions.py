"""Partitions are those of Kafka's default partitioner."""

from __future__ import annotations

from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given
from hypothesis import strategies as st

from events.logs.events_topic import murmur2, partition_of
from events.names import shard_key


def test_it_is_the_number_that_kafka_gives() -> None:
    """The values of org.apache.kafka.common.utils.UtilsTest."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert {data: murmur2(data) for data in known} == {data: value & 0xFFFFFFFF for data, value in known.items()}


@given(st.binary(max_size=300))
def test_it_agrees_with_another_client(data: bytes) -> None:
    assert murmur2(data) == murmur2_of_aiokafka(data) & 0xFFFFFFFF, data


@given(st.text(max_size=50), st.integers(1, 100))
def test_names_that_collide_meet_in_one_partition(name: str, partitions: int) -> None:
    here = partition_of(shard_key(name), partitions)
    assert 0 <= here < partitions
    assert here == partition_of(shard_key(name.replace(".", "_")), partitions), name
