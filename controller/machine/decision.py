"""What a command leads to: events to record, then answers to give."""

from __future__ import annotations

import msgspec

from controller.machine.state import State, Topic
from events.catalog import Event, Partition
from events.names import RequestId, TopicName, shard_key


class PartitionAnswer(msgspec.Struct, frozen=True, gc=False):
    """What a request is answered for one partition; `state` shows it as decided, where it is of interest."""

    partition: int
    code: int = 0
    message: str = ""
    state: Partition | None = None


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a request for a topic is answered. `topic` shows the topic as decided (also of a dry run), else None.

    `partitions` are the answers to what is asked for each partition, `number` to what is asked for no topic (the first
    of a block of producer ids).
    """

    request_id: RequestId
    topic_name: TopicName
    code: int
    message: str = ""
    rule: str = ""
    waited_ms: int = 0
    topic: Topic | None = None
    partitions: tuple[PartitionAnswer, ...] = ()
    number: int = 0


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Events to record, then answers to give. With `consult` there is neither: the policies are to be asked first."""

    events: tuple[Event, ...] = ()
    answers: tuple[Answer, ...] = ()
    consult: bool = False


NOTHING = Decision()
CONSULT = Decision(consult=True)


def topic_named(state: State, name: str) -> Topic | None:
    """The topic of exactly this name, or None."""
    topic = state.topics.get(shard_key(name))
    return topic if topic is not None and topic.name == name else None
