"""The requests of clients: their ids and times, the queue of their commands, and their answers.

A request id has a number and a code that only this process can compute, so that no client can guess the id of another
client's request.

The time of a command is the wall clock's, and never goes back. The wall clock may be behind the newest stamp, because
it was set back, or because another process with a fast clock wrote the stamp. Stamps then advance at half the pace of
the monotonic clock, until the wall clock catches up. Timers do not use stamps.

The engine and the gateway give the answer of a decision to `Replies` after its events are durable.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from math import inf
from typing import Final

from controller.controller_api import Reply
from controller.machine.commands.commands import AnyCommand, ClientCommand
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.names import RequestId, TopicName

MS_MAX: Final = 2**31 - 1
"""The longest timeout that a request can have."""
STORAGE_FAILED = "The controller cannot write its log. It is unknown whether this was done. Try again later."
CONTROLLER_FAILED = "The controller failed. It is unknown whether this was done. Its log has the cause."
LEAD_LOST = "This controller lost leadership. It is unknown whether this was done. The new leader knows."
CONTROLLER_STOPS = "This controller is stopping and accepts no more requests."
STILL_JUDGED = "The create-topic policies have not returned a verdict in time. The topic may be created later."
STILL_CARRIED_OUT = "The target cluster has not completed this in time. It may be done later."


class PendingRequest:
    """A request in flight. `future` gets the reply, with the answers in the order of the commands."""

    __slots__ = ("_timer", "answers", "future", "missing", "request_id", "throttled_until_s")

    def __init__(self, commands: Sequence[ClientCommand]) -> None:
        self.request_id = commands[0].request_id
        self.answers: dict[TopicName, Answer | None] = {command.topic: None for command in commands}
        assert len(self.answers) == len(commands), "a request puts each topic once"
        self.missing = len(commands)
        self.future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._timer: asyncio.TimerHandle | None = None
        self.throttled_until_s = 0.0

    def unanswered(self) -> list[TopicName]:
        return [topic for topic, answer in self.answers.items() if answer is None]

    def when_late(self, after_s: float, work: Callable[[], object]) -> None:
        """Call `work` if the request is still in flight after this time."""
        self._timer = asyncio.get_running_loop().call_later(after_s, work)

    def left_s(self) -> float:
        """Remaining time until `when_late` calls its work; infinite if there is none."""
        return inf if self._timer is None else self._timer.when() - asyncio.get_running_loop().time()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Replies:
    def __init__(self) -> None:
        self._pending: dict[RequestId, PendingRequest] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def expect(self, commands: Sequence[ClientCommand]) -> PendingRequest:
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
        if pending is None or pending.answers.get(answer.topic_name, answer) is not None:
            return  # the topic is answered, or is not one of the request's
        pending.answers[answer.topic_name] = answer
        pending.missing -= 1
        if pending.missing:
            return
        del self._pending[pending.request_id]
        pending.end()
        if not pending.future.done():
            answers = tuple(each for each in pending.answers.values() if each is not None)
            pending.future.set_result(Reply(answers, pending.throttled_until_s))

    def fail(self, pending: PendingRequest, code: ErrorCode, message: str) -> None:
        """Give one error to every unanswered topic of a request."""
        for topic in pending.unanswered():
            self.resolve(Answer(pending.request_id, topic, int(code), message))

    def fail_all(self, code: ErrorCode, message: str) -> None:
        for pending in list(self._pending.values()):
            self.fail(pending, code, message)

    def abandon_all(self) -> None:
        """Cancel all requests in flight without an answer."""
        for pending in self._pending.values():
            pending.end()
            pending.future.cancel()
        self._pending.clear()


PACE: Final = 0.5
"""Pace of stamps, relative to real time, while the wall clock is behind the newest stamp."""
_VISIBLE_CHARACTERS: Final = 6
"""Characters of the boot id in request ids. The others are secret."""
_CODE_BYTES: Final = 5


class Stamps:
    """The times and request ids that one process gives to commands. `boot_id` has 16 random bytes in hexadecimal,
    `clock_ms` is the wall clock, and `last_ms` the time of the log's newest event, which another process may have
    written by a clock that is ahead of ours. The monotonic clock is the event loop's."""

    def __init__(self, boot_id: str, clock_ms: Callable[[], int], last_ms: Callable[[], int] = lambda: 0) -> None:
        self._boot_id = boot_id[:_VISIBLE_CHARACTERS]
        self._key = boot_id.encode()
        self._clock_ms, self._last_ms = clock_ms, last_ms
        self._base_ms = last_ms()
        """The newest stamp from the wall clock, the log or a caller; `_base_s` is its time by the loop's clock."""
        self._base_s = 0.0
        self._clock_s: Callable[[], float] | None = None
        self._requests = 0

    def now_ms(self, at_least_ms: int = 0) -> int:
        """The time in ms since the epoch. It never goes back, is not earlier than the log's newest event, and is at
        least `at_least_ms`: the deadline of a timer that fired although the wall clock has not reached it."""
        if self._clock_s is None:
            self._clock_s = asyncio.get_running_loop().time
            self._base_s = self._clock_s()
        now_s = self._clock_s()
        due_ms = max(self._clock_ms(), self._last_ms(), at_least_ms)
        slowly_ms = self._base_ms + int((now_s - self._base_s) * 1000 * PACE)
        if due_ms < slowly_ms:
            return slowly_ms
        self._base_ms, self._base_s = due_ms, now_s
        return due_ms

    def new_request_id(self, origin: str = "") -> RequestId:
        self._requests += 1
        code = blake2b(b"%d" % self._requests, key=self._key, digest_size=_CODE_BYTES).hexdigest()
        return RequestId(f"{origin}{'-' if origin else ''}{self._boot_id}-{self._requests}-{code}")


class Inbox:
    """The queue of submitted commands that are not decided yet."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        """Set when `take` must return once the inbox is empty."""
        self._commands: list[AnyCommand] = []
        self._wake = asyncio.Event()
        self._interrupted = False
        self._taken = self._ended = 0
        self._progress = asyncio.Event()
        """Set for a moment whenever commands are decided or dropped, which wakes everyone who waits."""

    def enqueue(self, commands: Iterable[AnyCommand]) -> None:
        self._commands.extend(commands)
        self._wake.set()

    async def take(self, most: int) -> list[AnyCommand]:
        """Wait for the next commands; the commands of the last call count as decided. Returns an empty list if the
        inbox is empty and closed or interrupted."""
        self._end(self._taken)
        while not self._commands and not self.closed.is_set() and not self._interrupted:
            self._wake.clear()
            await self._wake.wait()
        self._interrupted = False
        taken, self._commands = self._commands[:most], self._commands[most:]
        self._taken = len(taken)
        return taken

    def return_to_head(self, commands: Sequence[AnyCommand]) -> None:
        self._commands[:0] = commands
        self._taken -= len(commands)

    def drop_all(self) -> None:
        """Drop all commands and release everyone who waits for them."""
        self._end(self._taken + len(self._commands))
        self._commands.clear()

    def interrupt(self) -> None:
        """Make `take` return at once, with the commands in the queue, if any."""
        self._interrupted = True
        self._wake.set()

    def close(self) -> None:
        """Make `take` return no commands once the inbox is empty."""
        self.closed.set()
        self._wake.set()

    async def decided(self) -> None:
        """Wait until all commands enqueued so far are decided or dropped. Background work calls this between its
        commands, so that it never floods the inbox."""
        end = self._ended + self._taken + len(self._commands)
        while self._ended < end:
            await self._progress.wait()

    def _end(self, count: int) -> None:
        self._ended, self._taken = self._ended + count, 0
        self._progress.set()
        self._progress.clear()
