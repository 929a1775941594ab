"""Idempotent retries: the recorded command and answer of a request that a client sends again.

Both come from the log, which has the request under its id, so any process can answer a retry as long as the log exists.
If a request failed for a temporary reason (a quota, an internal error), the retry is decided again under a derived id,
because the log has each request once. A request without events is unknown: it was not decided, changed nothing, or its
refusal was only counted.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
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
"""The most ids of a request that keeps failing; of equal refusals one a minute is recorded."""
AHEAD: Final = 8
"""The most attempts in a row that may have left no event."""
_EVENTS_MAX: Final = 10
"""The most events to read; a request for one topic has three."""
_RETRIABLE: Final = frozenset(
    (
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
    )
)
_STAMPS: Final = frozenset((*TopicCommand.__struct_fields__, "topic_id", "verdict", "timeout_ms")) - {"topic"}


class TriedTooOften(Exception):
    """All attempts of a request failed."""


class Earlier(msgspec.Struct, frozen=True):
    """A recorded command and its answer, None until it is answered."""

    command: TopicCommand
    answer: Answer | None

    def has_same_parameters(self, command: TopicCommand) -> bool:
        """Whether a command has the same parameters; stamps and timeouts may differ."""
        return type(command) is type(self.command) and _parameters(command) == _parameters(self.command)


def _parameters(command: TopicCommand) -> list[object]:
    return [getattr(command, name) for name in command.__struct_fields__ if name not in _STAMPS]


def was_late(answer: Answer) -> bool:
    """True if the request timed out before it was decided; it may be decided later."""
    return answer.code == ErrorCode.REQUEST_TIMED_OUT and answer.topic is None


def earlier(
    query: Questions, first: RequestId, late: Container[RequestId] = (), *, has_target_cluster: bool = False
) -> tuple[RequestId, Earlier | None]:
    """The attempt of a client's request for one topic that did not fail, with its id; or None, and the id for the next
    attempt. An id in `late` is skipped: it may still be decided. With a target cluster, a change is answered when the
    cluster has applied it. Raises TriedTooOften."""
    free: RequestId | None = None
    unknown = 0
    for number in range(1, TRIES_MAX + 1):
        request_id = first if number == 1 else RequestId(f"{first}-{number}")
        found = _found(query, request_id, has_target_cluster)
        if found is not None and not _is_retriable(found.answer):
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


def _is_retriable(answer: Answer | None) -> bool:
    return answer is not None and (answer.code in _RETRIABLE or was_late(answer))


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
    """The topic right after an event; if it did not exist then, the topic right before another event."""
    for end in (after.offset + 1, *(() if before is None else (before.offset,))):
        with suppress(NoTopic):
            return part.topic_at(name, end)
    return None
