"""A request that is sent once more: what it wanted the first time, and what it was answered then.

All of it is read from the log, where the request stands under its id, so it is known for as long as the log is there,
whatever process reads it. The first answer counts: what comes later under the same id comes of a copy. An answer that
says to try again (a quota, a failure) is none. A request that left no event is not known: one that could not be
decided, that changed nothing, or whose refusal was counted with others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from controller.machine.commands.commands import TopicCommand
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.recall import recall
from controller.machine.state import Topic
from controller.machine.validation import BY_CLUSTER
from events import catalog
from events.catalog import Recorded
from events.names import RequestId
from projections.queries.query import NoTopic, Query, Questions

EVENTS_MAX: Final = 100
"""Of a request for one topic: it has some three, and each copy as many."""
_IN_VAIN: Final = frozenset(
    (
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
    )
)
"""What was answered so was not done, and may be done when it is tried again."""
_STAMPS: Final = frozenset((*TopicCommand.__struct_fields__, "topic_id", "verdict", "timeout_ms")) - {"topic"}


class Earlier(msgspec.Struct, frozen=True):
    """What a request wanted, and its answer; None while that is due."""

    command: TopicCommand
    answer: Answer | None

    def wanted_the_same(self, command: TopicCommand) -> bool:
        """Whether a command wants what the request did, whoever stamped it, and however long it waits."""
        return type(command) is type(self.command) and _wish(command) == _wish(self.command)


def _wish(command: TopicCommand) -> list[object]:
    return [getattr(command, name) for name in command.__struct_fields__ if name not in _STAMPS]


def earlier(query: Questions, request_id: RequestId, *, cluster_carries_out: bool = False) -> Earlier | None:
    """A client's request for one topic; None where no event is of it, or it was in vain. Where a cluster carries
    changes out, they are answered when it has."""
    for part in query.parts:
        records = list(islice(part.request_events(request_id), EVENTS_MAX))
        begun, answers = 0, _answers(part, records, cluster_carries_out)
        for number, answer in enumerate(answers):
            if answer is None:
                continue
            if answer.code not in _IN_VAIN and not _was_late(answer):
                command = recall(records[begun:])
                return None if command is None else Earlier(command, answer)
            begun = number + 1
        command = recall(records[begun:])
        if command is not None:
            return Earlier(command, None)
    return None


def _was_late(answer: Answer) -> bool:
    """Whether the time was up before anything was done."""
    return answer.code == ErrorCode.REQUEST_TIMED_OUT and answer.topic is None


def _answers(part: Query, records: Sequence[Recorded], cluster_carries_out: bool) -> Iterator[Answer | None]:
    """What was answered with each event."""
    for record in records:
        match record.event:
            case catalog.CreateRejected() | catalog.ChangeRejected() as e:
                yield Answer(e.request_id, e.topic, e.error_code, e.message, e.rule)
            case catalog.CreateAnswered() as e:
                topic = _topic(part, e.topic, record)
                yield Answer(e.request_id, e.topic, e.error_code, e.message, "", e.waited_ms, topic)
            case catalog.ChangeCarriedOut() as e:
                rule, topic = BY_CLUSTER if e.error_code else "", _topic(part, e.topic, record, records[0])
                yield Answer(e.request_id, e.topic, e.error_code, e.message, rule, topic=topic)
            case catalog.PartitionsAdded() | catalog.TopicConfigsChanged() | catalog.TopicDeleted() as e:
                topic = None if cluster_carries_out else _topic(part, e.topic, record, record)
                yield None if cluster_carries_out else Answer(e.request_id, e.topic, 0, topic=topic)
            case _:
                yield None


def _topic(part: Query, name: str, after: Recorded, before: Recorded | None = None) -> Topic | None:
    """The topic right after an event; where it was gone by then, as it was before another."""
    for end in (after.offset + 1, *(() if before is None else (before.offset,))):
        try:
            row = part.topic_at(name, end)
        except NoTopic:
            continue
        made = row.created_at_ms, row.created_offset
        return Topic(row.name, row.topic_id, row.partitions, row.configs, *made, row.ready_at_ms)
    return None
