"""A request that is sent once more: what it wanted the first time, and what it was answered then.

All of it is read from the log, where the request stands under its id, so it is known for as long as the log is there,
whatever process reads it. A request that was in vain (a quota, a failure) is tried anew under an id of its own, made of
the first one: a request stands in the log once. One that left no event is not known: it could not be decided, changed
nothing, or its refusal was counted with others.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import islice
from typing import Final

import msgspec

from controller.machine.commands.commands import TopicCommand
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.recorded_command import recall
from controller.machine.state import Topic
from controller.machine.validation import BY_CLUSTER
from events import catalog
from events.catalog import Recorded
from events.names import RequestId
from projections.queries.query import NoTopic, Query, Questions

TRIES_MAX: Final = 100
"""Of a request that is in vain each time; of those alike that are refused, one a minute is recorded."""
AHEAD: Final = 8
"""So many tries in a row may have left no event before one that did."""
_EVENTS_MAX: Final = 10
"""Of a request for one topic: it has three."""
_IN_VAIN: Final = frozenset(
    (
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
    )
)
_STAMPS: Final = frozenset((*TopicCommand.__struct_fields__, "topic_id", "verdict", "timeout_ms")) - {"topic"}


class TriedTooOften(Exception):
    """A request was in vain each time."""


class Earlier(msgspec.Struct, frozen=True):
    """What a request wanted, and its answer; None while that is due."""

    command: TopicCommand
    answer: Answer | None

    def wanted_the_same(self, command: TopicCommand) -> bool:
        """Whether a command wants what the request did, whoever stamped it, and however long it waits."""
        return type(command) is type(self.command) and _wish(command) == _wish(self.command)


def _wish(command: TopicCommand) -> list[object]:
    return [getattr(command, name) for name in command.__struct_fields__ if name not in _STAMPS]


def was_late(answer: Answer) -> bool:
    """Whether the time was up before anything was decided; it may be decided later."""
    return answer.code == ErrorCode.REQUEST_TIMED_OUT and answer.topic is None


def earlier(
    query: Questions, first: RequestId, late: Container[RequestId] = (), *, has_target_cluster: bool = False
) -> tuple[RequestId, Earlier | None]:
    """The try of a client's request for one topic that was not in vain; or None, and the id for the next try, which is
    none of those that may be decided `late`. Where a cluster carries changes out, they are answered when it has. Raises
    TriedTooOften."""
    free: RequestId | None = None
    unknown = 0
    for number in range(1, TRIES_MAX + 1):
        request_id = first if number == 1 else RequestId(f"{first}-{number}")
        found = _found(query, request_id, has_target_cluster)
        if found is not None and not _is_in_vain(found.answer):
            return request_id, found
        if found is not None:
            free, unknown = None, 0
            continue
        unknown += 1
        if free is None and request_id not in late:
            free = request_id
        if free is not None and unknown >= AHEAD:
            break
    if free is None:
        raise TriedTooOften
    return free, None


def _is_in_vain(answer: Answer | None) -> bool:
    return answer is not None and (answer.code in _IN_VAIN or was_late(answer))


def _found(query: Questions, request_id: RequestId, has_target_cluster: bool) -> Earlier | None:
    for part in query.parts:
        records = list(islice(part.request_events(request_id), _EVENTS_MAX))
        command = recall(records)
        if command is not None:
            return Earlier(command, _answer(part, records, has_target_cluster))
    return None


def _answer(part: Query, records: Sequence[Recorded], has_target_cluster: bool) -> Answer | None:
    for record in records:
        match record.event:
            case catalog.CreateRejected() | catalog.ChangeRejected() as e:
                return Answer(e.request_id, e.topic, e.error_code, e.message, e.rule)
            case catalog.CreateAnswered() as e:
                topic = _topic(part, e.topic, record)
                return Answer(e.request_id, e.topic, e.error_code, e.message, "", e.waited_ms, topic)
            case catalog.ChangeCarriedOut() as e:
                rule, topic = BY_CLUSTER if e.error_code else "", _topic(part, e.topic, record, records[0])
                return Answer(e.request_id, e.topic, e.error_code, e.message, rule, topic=topic)
            case catalog.PartitionsAdded() | catalog.TopicConfigsChanged() | catalog.TopicDeleted() as e:
                if not has_target_cluster:
                    return Answer(e.request_id, e.topic, 0, topic=_topic(part, e.topic, record, record))
    return None


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
