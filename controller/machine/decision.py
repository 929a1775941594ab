"""The result of `decide` for the engine and API handlers: events to record and answers to send."""

from typing import Any

import msgspec

from controller.machine.commands.commands import ClientCommand
from controller.machine.errors import Rejection
from controller.machine.state import State, Topic
from events.access import Acl
from events.catalog import Event, Partition
from events.names import RequestId, TopicName, shard_key


class Detail(msgspec.Struct, frozen=True, gc=False):
    """The answer for one part of a cluster request: an ACL, an ACL filter, a quota entity or a user. `acls` are the
    ACLs that match a filter."""

    code: int = 0
    message: str = ""
    acls: tuple[Acl, ...] = ()


class PartitionAnswer(msgspec.Struct, frozen=True, gc=False):
    """The answer for one partition. `state` is the partition after the change, for APIs that return it."""

    partition: int
    code: int = 0
    message: str = ""
    state: Partition | None = None


class Answer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The answer to a request for one topic. `topic` is the topic after the change, also for a dry run.

    A request about the cluster has an empty topic name, and in `details` one answer for each of its parts, in order.
    `details` is empty if the whole request failed with `code`. `partitions` answers requests about partitions. `number`
    is a producer id or a broker epoch, for requests that return one.
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
    """Events to record and answers to send. With `needs_approval` both are empty: the command needs a verdict first.

    `refusal` is set if the command was refused. The events of a refusal change no state, so the engine may count
    similar refusals instead of recording each of them.
    """

    events: tuple[Event, ...] = ()
    answers: tuple[Answer, ...] = ()
    needs_approval: bool = False
    refusal: Rejection | None = None


NOTHING = Decision()
NEEDS_APPROVAL = Decision(needs_approval=True)


def answered(
    command: ClientCommand, *events: Event, code: int = 0, message: str = "", rule: str = "", **more: Any
) -> Decision:
    """A decision whose only answer is that of the command. `more` are further fields of `Answer`."""
    return Decision(events, (Answer(command.request_id, command.topic, int(code), message, rule, **more),))


def topic_named(state: State, name: str) -> Topic | None:
    """Returns the topic with exactly this name, or None."""
    topic = state.topics.get(shard_key(name))
    return topic if topic is not None and topic.name == name else None
