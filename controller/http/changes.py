"""Submit the changes of HTTP clients and wait for their answers. The handlers in `writes` and the pages use it.

With an `Idempotency-Key` header (draft-ietf-httpapi-idempotency-key-header), each change is made only once. A client
that got no answer does not know whether its change was made. If it sent a key, it may retry: the request id is derived
from the principal and the key. So this module finds the first answer in the log and returns that answer, also after a
restart. Memory holds only the requests in progress, and those that may still be decided after their timeout.

If a request failed for a temporary reason (a quota, an internal error), the retry is decided again under a derived id,
because the log has each request once. A request without events was not decided, changed nothing, or its refusal was
only counted; such a request is called unknown.
"""

import asyncio
import json
import re
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from controller.controller_api import Reply
from controller.http.errors import HttpRequest, Refused, invalid, refused
from controller.http.permissions import Reader
from controller.http.requests import API, caller_of
from controller.machine.commands.commands import TopicCommand
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.recorded_command import recall
from controller.machine.state import Topic
from controller.machine.validation import BY_CLUSTER
from events import catalog
from events.catalog import Recorded
from events.names import RequestId
from projections.queries.query import NoTopic, Queries, Query

KEY: Final = "Idempotency-Key"
KEY_CHARACTERS_MAX: Final = 255
IN_PROGRESS, KEY_REUSED = 409, 422
LATE_MAX: Final = 1000
_OF_KEY: Final = "key-"
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_KEY_FORMAT: Final = f"1 to {KEY_CHARACTERS_MAX} printable ASCII characters, with or without double quotes"

_Command = TypeVar("_Command", bound=TopicCommand)


class Changes:
    """Submits the changes of HTTP clients to the controller."""

    def __init__(self, reader: Reader) -> None:
        self.api = reader.api
        self._queries, self._threads = reader.queries, reader.threads
        self._in_progress: set[RequestId] = set()
        """Requests with a key that are not answered yet."""
        self._late: dict[RequestId, None] = {}
        """Requests that timed out but may still be decided, in the order of their answers."""

    def stamps(self, request: HttpRequest, *, is_dry_run: bool = False) -> dict[str, Any]:
        """The fields that a command takes from its request: id, time, sender. A dry run ignores the key. Raises
        Refused."""
        caller, controller = caller_of(request), self.api.controller
        key = None if is_dry_run else key_of(request)
        return {
            "request_id": controller.new_request_id() if key is None else request_id_of(caller.principal, key),
            "at_ms": controller.now_ms(),
            "principal": caller.principal,
            "client_id": caller.client_id,
            "host": caller.host,
            "api": API,
        }

    async def answer(self, command: _Command, submit: Callable[[_Command], asyncio.Future[Reply]]) -> Answer:
        """Submit a command and return its answer. A retry with a known key gets the first answer. Raises Refused, also
        when the service stops before the answer."""
        first = command.request_id
        if not first.startswith(_OF_KEY):
            return (await self.answers(first, submit(command)))[0]
        if first in self._in_progress:
            raise _refused(IN_PROGRESS, first, "a request with this key is in progress: retry when it has ended")
        self._in_progress.add(first)
        answering: asyncio.Future[Reply] | None = None
        try:
            has_target_cluster = self.api.cluster.settings.has_target_cluster
            request_id, known = await self._threads.run(
                earlier_attempt, self._queries, first, frozenset(self._late), has_target_cluster=has_target_cluster
            )
            if known is None:
                answering = submit(replace(command, request_id=request_id))
                return (await self.answers(request_id, answering))[0]
        finally:
            if answering is None:
                self._in_progress.discard(first)
            else:  # until it is answered, even if the client has disconnected
                answering.add_done_callback(partial(self._ended, first))
        if not known.has_same_parameters(command):
            raise _refused(KEY_REUSED, request_id, "this key was used for a different change")
        if known.answer is None:
            raise _refused(IN_PROGRESS, request_id, "the request with this key is not answered yet")
        return known.answer

    def _ended(self, first: RequestId, answering: asyncio.Future[Reply]) -> None:
        """Forget a request with a key that was answered. If it timed out and may still be decided here, a retry gets a
        new request id. In a gateway a retry keeps its id, because workers skip requests whose id they know."""
        self._in_progress.discard(first)
        if answering.cancelled() or answering.exception() is not None:
            return
        answer = answering.result().answers[0]
        if was_late(answer) and self.api.decides_here:
            self._late[answer.request_id] = None
            while len(self._late) > LATE_MAX:
                del self._late[next(iter(self._late))]

    async def answers(self, request_id: RequestId, answering: asyncio.Future[Reply]) -> tuple[Answer, ...]:
        """The answers to a submitted request. Raises Refused if the service stops before."""
        stops = asyncio.ensure_future(self._threads.stopping.wait())
        try:
            await asyncio.wait((answering, stops), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stops.cancel()
        if not answering.done():
            message = f"the service is stopping; request {request_id} shows the outcome"
            raise refused(503, ErrorCode.REQUEST_TIMED_OUT, message)
        return answering.result().answers


def key_of(request: HttpRequest) -> str | None:
    """The key of a request, with or without the quotes of the draft; None without one. Raises Refused."""
    given = request.headers.getall(KEY, [])
    if not given:
        return None
    text = str(given[0]).strip()
    quoted = _QUOTED.fullmatch(text)
    key = text if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
    is_torn = quoted is None and text.startswith('"')
    if len(given) > 1 or is_torn or not 0 < len(key) <= KEY_CHARACTERS_MAX or not (key.isascii() and key.isprintable()):
        raise invalid(f"{KEY}: give it once, as {_KEY_FORMAT}")
    return key


def request_id_of(principal: str, key: str) -> RequestId:
    """The request id of a key, unique for the principal."""
    return RequestId(_OF_KEY + blake2b(json.dumps([principal, key]).encode(), digest_size=16).hexdigest())


def _refused(status: int, request_id: RequestId, why: str) -> Refused:
    error = refused(status, ErrorCode.INVALID_REQUEST, f"{KEY}: {why}").error
    return Refused(status, replace(error, request_id=request_id))


TRIES_MAX: Final = 100
"""The most attempts with one key, each with its own request id; of equal refusals one a minute is recorded."""
AHEAD: Final = 8
"""The search for attempts ends after this many consecutive request ids without events."""
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


class Earlier(msgspec.Struct, frozen=True):
    """A recorded command and its answer, None until it is answered."""

    command: TopicCommand
    answer: Answer | None

    def has_same_parameters(self, command: TopicCommand) -> bool:
        """True if a command has the same parameters; stamps and timeouts may differ."""
        return type(command) is type(self.command) and _parameters(command) == _parameters(self.command)


def _parameters(command: TopicCommand) -> list[object]:
    return [getattr(command, name) for name in command.__struct_fields__ if name not in _STAMPS]


def was_late(answer: Answer) -> bool:
    """True if the request timed out before it was decided; it may be decided later."""
    return answer.code == ErrorCode.REQUEST_TIMED_OUT and answer.topic is None


def earlier_attempt(
    query: Queries, first: RequestId, late: Container[RequestId] = (), *, has_target_cluster: bool = False
) -> tuple[RequestId, Earlier | None]:
    """Returns the id and the outcome of the first attempt that did not fail for a temporary reason. If there is none,
    returns the id for the next attempt, and None. Ids in `late` are not reused: those attempts may still be decided.
    With a target cluster, a change is answered when the cluster has applied it. Raises Refused if all attempts
    failed."""
    free: RequestId | None = None
    unknown = 0
    for number in range(1, TRIES_MAX + 1):
        request_id = first if number == 1 else RequestId(f"{first}-{number}")
        found = _found(query, request_id, has_target_cluster)
        if found is not None:
            answer = found.answer
            if answer is None or not (answer.code in _RETRIABLE or was_late(answer)):
                return request_id, found
            free, unknown = None, 0
            continue
        unknown += 1
        if free is None and request_id not in late:
            free = request_id
        if free is not None and unknown >= AHEAD:
            break
    if free is None:
        raise _refused(KEY_REUSED, first, f"requests with this key failed {TRIES_MAX} times: use another key")
    return free, None


def _found(query: Queries, request_id: RequestId, has_target_cluster: bool) -> Earlier | None:
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
    """The topic right after the event `after`; if it did not exist then, the topic right before the event `before`."""
    for end in (after.offset + 1, *(() if before is None else (before.offset,))):
        with suppress(NoTopic):
            return part.topic_at(name, end)
    return None
