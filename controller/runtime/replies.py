"""Who waits for which answers.

An ask is one client request with a command for each of its topics; it is answered when every topic is. Answers come
from decisions, after their events are durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from controller.machine.commands import Asked
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.runtime.mutation_quotas import Throttle
from events.names import RequestId, TopicName

STORAGE_FAILED = "The controller cannot write its log: whether this was done is not known. Try again later."
CONTROLLER_FAILED = "The controller failed: whether this was done is not known. Its log has the cause."
CONTROLLER_STOPS = "This controller is stopping and takes no more requests."
STILL_JUDGED = "The create-topic policies have not judged the topic in time; it may be created later."
STILL_CARRIED_OUT = "The cluster has not answered, or not carried this out, in time; it may be done later."


class PendingAsk:
    """One request on its way; `future` gets the answers in the order of the commands."""

    __slots__ = ("answers", "future", "index", "missing", "request_id", "throttle", "timer")

    def __init__(
        self, commands: Sequence[Asked], future: asyncio.Future[list[Answer]], throttle: Throttle | None
    ) -> None:
        self.request_id = commands[0].request_id
        self.index = {command.topic: number for number, command in enumerate(commands)}
        assert len(self.index) == len(commands), "a request puts each topic once"
        self.answers: list[Answer | None] = [None] * len(commands)
        self.missing = len(commands)
        self.future = future
        self.timer: asyncio.TimerHandle | None = None
        self.throttle = throttle

    def unanswered(self) -> list[TopicName]:
        """The topics that have no answer yet."""
        return [topic for topic, number in self.index.items() if self.answers[number] is None]


class Replies:
    """The asks that are on their way, by request id."""

    def __init__(self) -> None:
        self._asks: dict[RequestId, PendingAsk] = {}

    def __len__(self) -> int:
        return len(self._asks)

    def expect(
        self, commands: Sequence[Asked], loop: asyncio.AbstractEventLoop, throttle: Throttle | None = None
    ) -> PendingAsk:
        """Wait for the answers to the commands of one request; their topics must be distinct."""
        ask = PendingAsk(commands, loop.create_future(), throttle)
        self._asks[ask.request_id] = ask
        return ask

    def throttle(self, request_id: RequestId, until_ms: int) -> None:
        """Tell a request until when the quota of its asker is exhausted."""
        ask = self._asks.get(request_id)
        if ask is not None and ask.throttle is not None:
            ask.throttle.until_ms = max(ask.throttle.until_ms, until_ms)

    def resolve(self, answer: Answer) -> None:
        """Take an answer; the last one of a request completes it. Answers that nobody waits for are dropped: their
        client is gone, or they belong to a process that died."""
        ask = self._asks.get(answer.request_id)
        if ask is None:
            return
        number = ask.index.get(answer.topic_name)
        if number is None or ask.answers[number] is not None:
            return
        ask.answers[number] = answer
        ask.missing -= 1
        if ask.missing == 0:
            self._finish(ask)

    def fail(self, ask: PendingAsk, code: ErrorCode, message: str) -> None:
        """Answer what is unanswered of a request with one error."""
        for topic in ask.unanswered():
            self.resolve(Answer(ask.request_id, topic, int(code), message))

    def fail_all(self, code: ErrorCode, message: str) -> None:
        """Answer everything that is on its way with one error."""
        for ask in list(self._asks.values()):
            self.fail(ask, code, message)

    def abandon_all(self) -> None:
        """Give up without an answer: whoever waits for one is cancelled."""
        for ask in self._asks.values():
            if ask.timer is not None:
                ask.timer.cancel()
            ask.future.cancel()
        self._asks.clear()

    def _finish(self, ask: PendingAsk) -> None:
        del self._asks[ask.request_id]
        if ask.timer is not None:
            ask.timer.cancel()
        if not ask.future.done():
            ask.future.set_result([answer for answer in ask.answers if answer is not None])
