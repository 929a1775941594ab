"""Requests in flight and their answers.

A pending request is one client request with a command for each of its topics. Its reply is complete when every command
is answered. Answers come from decisions, after their events are durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from controller.controller_api import Reply
from controller.machine.commands.commands import ClientCommand
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.names import RequestId, TopicName

MS_MAX: Final = 2**31 - 1
"""The longest timeout that a request can have."""
STORAGE_FAILED = "The controller cannot write its log. It is unknown whether this was done. Try again later."
CONTROLLER_FAILED = "The controller failed. It is unknown whether this was done. Its log has the cause."
LEAD_LOST = "This controller lost leadership. It is unknown whether this was done. The new leader knows."
ANOTHER_LEADS = "Another controller is the leader."
CONTROLLER_STOPS = "This controller is stopping and accepts no more requests."
STILL_JUDGED = "The create-topic policies have not returned a verdict in time. The topic may be created later."
STILL_CARRIED_OUT = "The target cluster has not completed this in time. It may be done later."


class PendingRequest:
    """A request in flight. `future` gets the reply, with the answers in the order of the commands."""

    __slots__ = ("_timer", "answers", "future", "index", "missing", "request_id", "throttled_until_s")

    def __init__(self, commands: Sequence[ClientCommand]) -> None:
        self.request_id = commands[0].request_id
        self.index = {command.topic: number for number, command in enumerate(commands)}
        assert len(self.index) == len(commands), "a request puts each topic once"
        self.answers: list[Answer | None] = [None] * len(commands)
        self.missing = len(commands)
        self.future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None
        self.throttled_until_s = 0.0

    def unanswered(self) -> list[TopicName]:
        """The topics that have no answer yet."""
        return [topic for topic, number in self.index.items() if self.answers[number] is None]

    def when_late(self, after_s: float, work: Callable[[], object]) -> None:
        """Call `work` if the request is still in flight after this time."""
        self._timer = asyncio.get_running_loop().call_later(after_s, work)

    def left_s(self) -> float:
        """Remaining time until `when_late` calls; infinite without it."""
        return inf if self._timer is None else self._timer.when() - asyncio.get_running_loop().time()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Replies:
    """The requests in flight, by id."""

    def __init__(self) -> None:
        self._pending: dict[RequestId, PendingRequest] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def expect(self, commands: Sequence[ClientCommand]) -> PendingRequest:
        """Register the commands of one request; their topics must be distinct."""
        pending = PendingRequest(commands)
        self._pending[pending.request_id] = pending
        return pending

    def left_ms(self, request_id: RequestId) -> int:
        """Remaining timeout of a request; 0 once it is answered."""
        pending = self._pending.get(request_id)
        return 0 if pending is None else int(max(0.0, min(pending.left_s() * 1000, MS_MAX)))

    def throttle(self, request_id: RequestId, wait_ms: int) -> None:
        """Set the throttle time of the reply, from now."""
        pending = self._pending.get(request_id)
        if pending is not None:
            until_s = asyncio.get_running_loop().time() + wait_ms / 1000
            pending.throttled_until_s = max(pending.throttled_until_s, until_s)

    def resolve(self, answer: Answer) -> None:
        """Add an answer; the last one completes the request. Answers without a pending request are dropped: the client
        is gone, or another process received the request."""
        pending = self._pending.get(answer.request_id)
        if pending is None:
            return
        number = pending.index.get(answer.topic_name)
        if number is None or pending.answers[number] is not None:
            return
        pending.answers[number] = answer
        pending.missing -= 1
        if pending.missing == 0:
            self._finish(pending)

    def fail(self, pending: PendingRequest, code: ErrorCode, message: str) -> None:
        """Give one error to every unanswered topic of a request."""
        for topic in pending.unanswered():
            self.resolve(Answer(pending.request_id, topic, int(code), message))

    def fail_all(self, code: ErrorCode, message: str) -> None:
        """Give one error to all requests in flight."""
        for pending in list(self._pending.values()):
            self.fail(pending, code, message)

    def abandon_all(self) -> None:
        """Cancel all requests in flight without an answer."""
        for pending in self._pending.values():
            pending.end()
            pending.future.cancel()
        self._pending.clear()

    def _finish(self, pending: PendingRequest) -> None:
        del self._pending[pending.request_id]
        pending.end()
        if not pending.future.done():
            answers = tuple(answer for answer in pending.answers if answer is not None)
            pending.future.set_result(Reply(answers, pending.throttled_until_s))
