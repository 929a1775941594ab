"""Commands are read as they were written, and have the partition of their shard key. Invalid bytes and commands of a
newer release are different errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.machine.commands.commands import (
    AnyCommand,
    ConfirmMetadata,
    DeleteTopic,
    ExpireRequest,
    ReconcileTopics,
)
from controller.stream.log.codec import TIME_END_MS, CommandError, decode_command, encode_command, key_of, partition_of
from events.names import BrokerId, Offset, RequestId, ShardKey, TopicName, shard_key
from tests.stream.log.records import BORN_MS, create, joined

ONE, NAME = RequestId("r"), TopicName("b.c")
COMMANDS: list[AnyCommand] = [
    create("b.c", configs=(("retention.ms", None), ("a", "b"))),
    DeleteTopic(request_id=ONE, at_ms=BORN_MS, topic=NAME),
    ExpireRequest(request_id=ONE, at_ms=BORN_MS, topic=NAME),
    ReconcileTopics(request_id=ONE, at_ms=BORN_MS, topics=(NAME,)),
    ConfirmMetadata(request_id=ONE, at_ms=BORN_MS, brokers=(BrokerId(1),), offset=Offset(7)),
    *joined(3),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_commands_round_trip(command: AnyCommand) -> None:
    assert decode_command(encode_command(command)) == command


def test_partition_matches_kafkas_partitioner() -> None:
    """The hashes are from org.apache.kafka.common.utils.UtilsTest."""
    known = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107}
    partitions = {key: partition_of(ShardKey(key), 1000) for key in known}
    assert partitions == {key: (value & 0x7FFFFFFF) % 1000 for key, value in known.items()}


@given(st.text(max_size=50), st.integers(1, 100))
def test_colliding_topic_names_share_a_partition(name: str, partitions: int) -> None:
    here = partition_of(shard_key(name), partitions)
    assert 0 <= here < partitions
    assert here == partition_of(shard_key(name.replace(".", "_")), partitions), name


def test_command_key_is_the_shard_key() -> None:
    assert [key_of(command) for command in COMMANDS] == ["b_c", "b_c", "b_c", "", "", "", ""]


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"\x01", b"\x01\xc1", b"\x01\x81\xa4type\xa5Paint", b"\x00\x80"),
        encode_command(COMMANDS[0])[:40],
        *(encode_command(create("t", at_ms=at_ms)) for at_ms in (TIME_END_MS, 2**63 - 1)),
    ],
)
def test_invalid_commands_are_rejected(value: bytes | None) -> None:
    with pytest.raises(CommandError, match="not a command"):
        decode_command(value)
