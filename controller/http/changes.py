"""Changes that clients request: stamped, submitted, waited for; and under an `Idempotency-Key` put once.

A client that got no answer does not know whether its change was made. Where it sent a key with it
(draft-ietf-httpapi-idempotency-key-header) it may send the same again: the request's id is then made of who it is and
the key, so what came of it is found in the log, also by the process that comes after this one, and answered as it was.
Nothing is kept beside the log but which of these requests are at work, or may be decided late.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from controller.controller_api import ControllerApi, Reply
from controller.http.errors import HttpRequest, Refused, refused
from controller.http.query_threads import Reading, Stopping
from controller.http.requests import API, caller_of
from controller.machine.commands.commands import TopicCommand
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.names import RequestId
from projections.queries.query import Questions
from projections.queries.repeats import TRIES_MAX, Earlier, TriedTooOften, earlier, was_late
from projections.views.json_types import ErrorView

KEY: Final = "Idempotency-Key"
KEY_CHARACTERS_MAX: Final = 255
AT_WORK, OTHER_WISH = 409, 422
LATE_MAX: Final = 1000
_OF_KEY: Final = "key-"
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_WHAT_A_KEY_IS: Final = f"1 to {KEY_CHARACTERS_MAX} printable ASCII characters, which may stand in double quotes"

_Command = TypeVar("_Command", bound=TopicCommand)


class Changes:
    """The changes that come over HTTP."""

    def __init__(self, api: ControllerApi, queries: Questions, reading: Reading, stopping: Stopping) -> None:
        self._api = api
        self._queries = queries
        self._reading = reading
        self._stopping = stopping
        self._at_work: set[RequestId] = set()
        """The requests with a key that are not answered yet."""
        self._late: dict[RequestId, None] = {}
        """Those that may be decided though they were answered already, in the order of their answers."""

    def stamps(self, request: HttpRequest, *, is_dry_run: bool = False) -> dict[str, Any]:
        """What a command has of the request that it comes of: its id, the time, who sent it. A dry run has no need of
        a key. Raises Refused."""
        caller, controller = caller_of(request), self._api.controller
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
        """Submit a command and wait for its answer, or until the service stops; of one that was put before, under the
        same key, the answer that it had. Raises Refused."""
        first = command.request_id
        if not first.startswith(_OF_KEY):
            return await self._answer(command, submit(command))
        if first in self._at_work:
            raise _refused(AT_WORK, first, "a request with this key is at work: send it again when that has ended")
        self._at_work.add(first)
        answering: asyncio.Future[Reply] | None = None
        try:
            request_id, known = await self._earlier(first)
            if known is None:
                put = replace(command, request_id=request_id)
                answering = submit(put)
                return await self._answer(put, answering)
        finally:
            if answering is None:
                self._at_work.discard(first)
            else:  # until its answer is there, also where its client has gone
                answering.add_done_callback(partial(self._ended, first))
        if not known.has_same_parameters(command):
            raise _refused(OTHER_WISH, request_id, "the request that had this key wanted something else")
        if known.answer is None:
            raise _refused(AT_WORK, request_id, "the request that had this key is not answered yet")
        return known.answer

    async def _earlier(self, first: RequestId) -> tuple[RequestId, Earlier | None]:
        carried_out = self._api.cluster.settings.cluster_carries_out
        try:
            return await self._reading.run(
                earlier, self._queries, first, frozenset(self._late), cluster_carries_out=carried_out
            )
        except TriedTooOften:
            why = f"requests with this key were in vain {TRIES_MAX} times: take another"
            raise _refused(OTHER_WISH, first, why) from None

    def _ended(self, first: RequestId, answering: asyncio.Future[Reply]) -> None:
        self._at_work.discard(first)
        if not answering.cancelled() and answering.exception() is None:
            self._note(answering.result().answers[0])

    def _note(self, answer: Answer) -> None:
        """Whoever decides here may yet decide what was answered too early, so it must not be put again under its id.
        Workers pass over what has an id that they know."""
        if was_late(answer) and self._api.decides_here:
            self._late[answer.request_id] = None
            while len(self._late) > LATE_MAX:
                del self._late[next(iter(self._late))]

    async def _answer(self, command: TopicCommand, answering: asyncio.Future[Reply]) -> Answer:
        stops = asyncio.ensure_future(self._stopping.event.wait())
        try:
            await asyncio.wait((answering, stops), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stops.cancel()
        if not answering.done():
            message = f"the service is stopping; request {command.request_id} will show how it ended"
            raise refused(503, ErrorCode.REQUEST_TIMED_OUT, message)
        return answering.result().answers[0]


def key_of(request: HttpRequest) -> str | None:
    """The key of a request, with or without the quotes that the draft wants; None without one. Raises Refused."""
    given = request.headers.getall(KEY, [])
    if not given:
        return None
    text = str(given[0]).strip()
    quoted = _QUOTED.fullmatch(text)
    key = text if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
    is_torn = quoted is None and text.startswith('"')
    if len(given) > 1 or is_torn or not 0 < len(key) <= KEY_CHARACTERS_MAX or not (key.isascii() and key.isprintable()):
        raise refused(400, ErrorCode.INVALID_REQUEST, f"{KEY}: it is given once, and is {_WHAT_A_KEY_IS}")
    return key


def request_id_of(principal: str, key: str) -> RequestId:
    """The id of a principal's request with a key: nobody else's has it."""
    return RequestId(_OF_KEY + blake2b(json.dumps([principal, key]).encode(), digest_size=16).hexdigest())


def _refused(status: int, request_id: RequestId, why: str) -> Refused:
    code = ErrorCode.INVALID_REQUEST
    return Refused(status, ErrorView(error=code.name, code=int(code), message=f"{KEY}: {why}", request_id=request_id))
