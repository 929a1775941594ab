"""Commands as bytes of the commands topic.

A value is one byte, the version in which it is written, and the MessagePack map of the command with its type. The key
is the shard key of the topic that it is about, empty for a command that concerns no topic or every one. The partition
is `partition_of` that key; `CLUSTER_PARTITION` for commands of clients about the cluster; each of them for brokers
and settings. Commands have contiguous offsets: the topic is neither compacted nor written in transactions.
"""

from __future__ import annotations

import msgspec

from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.cluster import DiscoverDeletion, DiscoverTopic, FinishChange, RefuseCreation
from controller.machine.commands.commands import (
    AlterPartition,
    AlterResourceConfigs,
    AnyCommand,
    ExpireRequest,
    ReportLeader,
    TopicCommand,
)
from events.codec import UNREADABLE
from events.logs.events_topic import partition_of
from events.names import CLUSTER_SHARD, ShardKey, shard_key

COMMAND_VERSION = 2
"""The version in which commands are written; to be raised with any change to what a command can say. A kind of command
that older workers may pass over, since it is put again until it is decided (`DrawLoginSecret`), does not raise it."""

_OF_A_TOPIC = (
    TopicCommand,
    AlterPartition,
    ReportLeader,
    ExpireRequest,
    DiscoverTopic,
    DiscoverDeletion,
    RefuseCreation,
    FinishChange,
)
_OF_THE_CLUSTER = (ClusterCommand, AlterResourceConfigs)
CLUSTER_PARTITION = 0
"""Where it is decided who may do what, which quotas hold, who can log in and which configs brokers have, and where
counted refusals are recorded. One partition gives it one order, whichever gateways it comes from."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyCommand] = msgspec.msgpack.Decoder(AnyCommand)


TIME_END_MS = 1 << 47
"""In the year 6429. The time of a partition never goes back, and nobody can write down one past the year 9999."""


class CommandError(Exception):
    """Bytes that are no command of this version, and never will be: the command can only be passed over."""


class CommandFromNewerVersion(Exception):
    """A newer release wrote the command; a worker of that release can decide it, this one cannot."""


def encode_command(command: AnyCommand) -> bytes:
    """The value of a record of the commands topic."""
    return bytes((COMMAND_VERSION,)) + _encoder.encode(command)


def decode_command(value: bytes | None) -> AnyCommand:
    """The command in a value. Raises CommandError, CommandFromNewerVersion."""
    if not value:
        raise CommandError("not a command: the record has no value")
    if value[0] > COMMAND_VERSION:
        raise CommandFromNewerVersion(
            f"a command in version {value[0]}, and this release reads up to {COMMAND_VERSION}: "
            "upgrade workers before gateways"
        )
    try:
        command = _decoder.decode(memoryview(value)[1:])
    except UNREADABLE as error:
        raise CommandError(f"not a command: {error}") from None
    if command.at_ms >= TIME_END_MS:
        raise CommandError(f"not a command: no clock has its time, {command.at_ms} ms since the epoch")
    return command


def home_of(command: TopicCommand | ClusterCommand, partitions: int) -> int:
    """The one partition in which a client's command is decided."""
    if isinstance(command, _OF_THE_CLUSTER):
        return CLUSTER_PARTITION
    return partition_of(shard_key(command.topic), partitions)


def key_of(command: AnyCommand) -> ShardKey:
    """The shard that a command concerns; "" where it concerns every shard, or topics of a whole partition."""
    if isinstance(command, _OF_A_TOPIC):
        return shard_key(command.topic)
    return CLUSTER_SHARD
