"""Commands and answers as bytes: the values of the commands topic, and the answers in a decision's record.

A command's value is one byte, the version in which it is written, and the MessagePack map of the command with its type.
The key is the shard key of its topic, empty for a command that concerns no topic or every one. The partition is
`partition_of` that key, `CLUSTER_PARTITION` for commands of clients about the cluster, and each partition for brokers
and settings. Offsets are contiguous: the topic is neither compacted nor written in transactions.

Answers travel in the record of the decision, because some of them are not events: a dry run has none and is answered
all the same. A topic that results from the events is not repeated: the reader has it in its own state.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict, replace

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
from controller.machine.decision import Answer, Decision, Detail, PartitionAnswer
from controller.machine.state import Topic, Topics
from events.catalog import Fact
from events.codec import UNREADABLE
from events.logs.events_topic import partition_of
from events.names import CLUSTER_SHARD, RequestId, ShardKey, TopicName, shard_key

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


class _Carried(Fact, frozen=True):
    request_id: RequestId
    topic_name: TopicName
    code: int
    message: str
    rule: str
    waited_ms: int
    topic: Topic | None
    as_it_stands: bool
    """The topic shown is the one that the reader has after the events."""
    details: tuple[Detail, ...] = ()
    partitions: tuple[PartitionAnswer, ...] = ()
    number: int = 0


_encode = msgspec.msgpack.Encoder(enc_hook=tuple).encode
_decode = msgspec.msgpack.Decoder(tuple[_Carried, ...]).decode


def encode_answers(decision: Decision, topics: Topics) -> bytes:
    """The answers of a decision; `topics` are those after its events. Empty where there is no answer."""
    if not decision.answers:
        return b""
    return _encode([_carried(answer, decision, topics) for answer in decision.answers])


def size_of_answers(decision: Decision) -> int:
    """About how many bytes its answers take: their details, each of which may list thousands of access control entries,
    and the topics that a decision without events shows."""
    shown = () if decision.events else tuple(answer.topic for answer in decision.answers)
    large = (*(answer.details for answer in decision.answers), *shown)
    return sum(len(_encode(one)) for one in large if one)


def decode_answers(value: bytes, topics: Topics) -> tuple[Answer, ...]:
    """The answers that a record carries; `topics` are those after its events. Raises msgspec.DecodeError."""
    return tuple(_answer(carried, topics) for carried in _decode(value)) if value else ()


def _carried(answer: Answer, decision: Decision, topics: Topics) -> _Carried:
    shown, as_it_stands = answer.topic, False
    if shown is not None and decision.events:
        stands = topics.get(shard_key(shown.name))
        as_it_stands = stands is not None and stands.topic_id == shown.topic_id
        if stands is None:  # deleted: its id is of use, and it may have had more partitions than a record holds
            shown = replace(shown, partitions=())
    fields = {**asdict(answer), "code": int(answer.code), "topic": None if as_it_stands else shown}
    return _Carried(**fields, as_it_stands=as_it_stands)


def _answer(carried: _Carried, topics: Topics) -> Answer:
    fields = asdict(carried)
    if fields.pop("as_it_stands"):
        fields["topic"] = topics.get(shard_key(carried.topic_name))
    return Answer(**fields)
