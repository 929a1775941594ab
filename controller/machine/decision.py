"""What a command leads to: events to record, then answers to give."""

from __future__ import annotations

import msgspec

from controller.machine.commands import NO_TOPIC
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.state import Broker, State, Topic
from events.access import Acl
from events.catalog import Event, Partition
from events.names import RequestId, TopicName, shard_key


class Detail(msgspec.Struct, frozen=True, gc=False):
    """What one part of a request about the cluster (an entry, a filter, an entity, a user) is answered; `acls` are
    those that a filter found."""

    code: int = 0
    message: str = ""
    acls: tuple[Acl, ...] = ()


class PartitionAnswer(msgspec.Struct, frozen=True, gc=False):
    """What a request is answered for one partition; `state` shows it as decided, where it is of interest."""

    partition: int
    code: int = 0
    message: str = ""
    state: Partition | None = None


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a request for a topic is answered. `topic` shows the topic as decided (also of a dry run), else None.

    A request about the cluster has an empty name, and in `details` one for each of its parts, in their order; they are
    missing only where the whole request failed with `code`.
    `partitions` are the answers to what is asked for each partition, `number` to what is asked for no topic (the first
    of a block of producer ids, the epoch of a broker).
    """

    request_id: RequestId
    topic_name: TopicName
    code: int
    message: str = ""
    rule: str = ""
    waited_ms: int = 0
    topic: Topic | None = None
    details: tuple[Detail, ...] = ()
    partitions: tuple[PartitionAnswer, ...] = ()
    number: int = 0


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Events to record, then answers to give. With `needs_approval` there is neither: the policies are to be asked first.

    `refusal` is set where the command was refused: its events change no state, and whoever records may count alike
    refusals instead of keeping each of them.
    """

    events: tuple[Event, ...] = ()
    answers: tuple[Answer, ...] = ()
    needs_approval: bool = False
    refusal: Rejection | None = None


def broker_decision(request_id: RequestId, broker: Broker | None, *events: Event) -> Decision:
    """Events about a registered broker. A real one is answered with its epoch, None that it is not registered."""
    if broker is None:
        return Decision(events, (Answer(request_id, NO_TOPIC, int(ErrorCode.BROKER_ID_NOT_REGISTERED)),))
    is_real = bool(broker.features)
    return Decision(events, (Answer(request_id, NO_TOPIC, 0, number=broker.broker_epoch),) if is_real else ())


NOTHING = Decision()
NEEDS_APPROVAL = Decision(needs_approval=True)


def topic_named(state: State, name: str) -> Topic | None:
    """The topic of exactly this name, or None."""
    topic = state.topics.get(shard_key(name))
    return topic if topic is not None and topic.name == name else None
