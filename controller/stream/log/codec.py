"""Encodes commands as records of the commands topic, and answers in records of the events topic. Finds duplicates.

A command's value is one byte, the version in which it is written, and the MessagePack map of the command with its type.
The key is the shard key of its topic (its name with `.` as `_`: names that collide in Kafka share it). It is empty for
a command that concerns no topic or every topic. The partition is `partition_of` of that key. Clients' commands about
the cluster go to `CLUSTER_PARTITION`, and commands about brokers and settings to every partition. Offsets are
contiguous: the topic is neither compacted nor written in transactions.

Answers travel in the record of the decision, because some of them are not events: a dry run has no events, but has an
answer. A topic that results from the events is not repeated: the reader has it in its own state.

Duplicates. Kafka may store a command twice although an idempotent producer sent it once (when brokers are killed), and
a program may resubmit a command of unknown outcome. Deciding a command twice does harm: a create that waits for
its topic would be answered that the topic exists, and a deletion could hit a topic that was created since. A command is
identified by its kind, request id and topic; each request needs a unique id. The set of recent requests is rebuilt from
the events, so the next owner of the partition detects the same duplicates: a command is recent while its last event is
among the partition's newest `RECENT_EVENTS`. Commands without events (dry runs, changes without effect, undecidable
commands) may be decided again, with the same reply, and the client gets the first reply.
"""

from collections import OrderedDict
from collections.abc import Sequence
from functools import reduce
from operator import or_

import msgspec
from aiokafka.partitioner import murmur2
from msgspec.structs import replace

from controller.machine.commands import NO_TOPIC
from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.commands import AlterResourceConfigs, AnyCommand, TopicCommand
from controller.machine.decide import COMMANDS
from controller.machine.decision import Answer
from controller.machine.state import Topics
from events.catalog import Recorded
from events.codec import UNREADABLE
from events.names import ShardKey, shard_key

COMMAND_VERSION = 2
"""The version of commands; raise it with any change of a command's meaning. A new kind of command that is resubmitted
until it is decided (`DrawLoginSecret`) does not need that: older workers may skip it."""

CLUSTER_PARTITION = 0
"""The partition that decides ACLs, quotas, credentials and dynamic configs, and records refusals that are only counted.
One partition gives one order, whichever gateway submits."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyCommand] = msgspec.msgpack.Decoder(reduce(or_, COMMANDS))


TIME_END_MS = 1 << 47
"""In the year 6429. A partition's time never goes back, and dates end with the year 9999."""


class CommandError(Exception):
    """The bytes are not a command of any release, so they can only be skipped."""


class CommandFromNewerVersion(Exception):
    """A newer release wrote the command; only a worker of that release can decide it."""


def encode_command(command: AnyCommand) -> bytes:
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
        raise CommandError(f"not a command: its time is out of range: {command.at_ms} ms since the epoch")
    return command


def partition_of(key: ShardKey, partitions: int) -> int:
    """The partition of a shard key, from 0 to `partitions` - 1, by Kafka's default partitioner, so that any producer
    can submit commands."""
    return int(murmur2(key.encode("utf-8", "surrogatepass")) & 0x7FFFFFFF) % partitions


def partition_of_command(command: TopicCommand | ClusterCommand, partitions: int) -> int:
    if isinstance(command, ClusterCommand | AlterResourceConfigs):
        return CLUSTER_PARTITION
    return partition_of(shard_key(command.topic), partitions)


def key_of(command: AnyCommand) -> ShardKey:
    """The shard of a command; "" if it concerns every shard, or all topics of a partition."""
    return shard_key(getattr(command, "topic", NO_TOPIC))


_encode = msgspec.msgpack.Encoder(enc_hook=tuple).encode
_decode = msgspec.msgpack.Decoder(tuple[tuple[Answer, bool], ...]).decode
"""The answers. The flag means that the answer's topic is the one in the reader's state after the events."""


def encode_answers(answers: Sequence[Answer], topics: Topics, *, has_events: bool) -> bytes:
    """The answers of a decision, empty without answers; `topics` is the state after its events."""
    return _encode([_with_flag(answer, topics, has_events) for answer in answers]) if answers else b""


def size_of_answers(answers: Sequence[Answer], *, has_events: bool) -> int:
    """The approximate size of the answers: details, each of which may list thousands of ACLs, and topics in a decision
    without events."""
    topics = () if has_events else tuple(answer.topic for answer in answers)
    return sum(len(_encode(one)) for one in (*(answer.details for answer in answers), *topics) if one)


def decode_answers(value: bytes, topics: Topics) -> tuple[Answer, ...]:
    """The answers in a record; `topics` is the state after its events. Raises msgspec.DecodeError."""
    return tuple(
        replace(answer, topic=topics.get(shard_key(answer.topic_name))) if is_current else answer
        for answer, is_current in (_decode(value) if value else ())
    )


def _with_flag(answer: Answer, topics: Topics, has_events: bool) -> tuple[Answer, bool]:
    if answer.topic is None or not has_events:
        return answer, False
    current = topics.get(shard_key(answer.topic.name))
    if current is None:  # deleted: the answer needs its id, but its partitions may be too many for a record
        return replace(answer, topic=replace(answer.topic, partitions=())), False
    is_current = current.topic_id == answer.topic.topic_id
    return replace(answer, topic=None) if is_current else answer, is_current


RECENT_EVENTS = 20_000
"""More commands than a producer has in flight, so duplicates are detected. Reading that many takes some 40 ms."""

_Key = tuple[str, str, str]
_OF_CLIENTS = frozenset(kind.__name__ for kind in COMMANDS if issubclass(kind, TopicCommand | ClusterCommand))
"""The names of the client commands' types, as in the causes of events."""


class RecentRequests:
    """The client commands with an event among the newest of a partition, by the offset of their last event."""

    def __init__(self) -> None:
        self._last_event: OrderedDict[_Key, int] = OrderedDict()
        """The offset of the last event by command, ordered by offset."""

    def add(self, record: Recorded) -> None:
        """Record the partition's newest event."""
        cause = record.cause
        if cause.command in _OF_CLIENTS:
            key = cause.command, cause.request_id, getattr(record.event, "topic", "")
            self._last_event[key] = record.offset
            self._last_event.move_to_end(key)
            while next(iter(self._last_event.values())) <= record.offset - RECENT_EVENTS:
                self._last_event.popitem(last=False)

    def contains(self, command: TopicCommand | ClusterCommand, next_event: int) -> bool:
        """True if the command was decided recently; `next_event` is the partition's next event."""
        last = self._last_event.get((type(command).__name__, command.request_id, command.topic))
        return last is not None and last >= next_event - RECENT_EVENTS
