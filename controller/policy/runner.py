"""Runs the create-topic policies in a thread: takes requests for topics, and returns a verdict for each.

The group commit of `serve` and the workers call `judge` before deciding on CreateTopics. A policy may be
slow, for example if it calls an HTTP service: only later creates wait. One thread calls the policies in the order of
arrival, never concurrently. Verdicts arrive on the event loop in the order of the calls.

The thread is a daemon. A policy that never returns blocks later creates, which the operator sees in log and metrics,
but not the end of the process.
"""

import asyncio
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Protocol

from controller.policy.chain import PolicyChain, error_text, failed_verdict
from controller.policy.interface import Request
from events.catalog import Verdict

Verdicts = tuple[Verdict, ...]


class PolicyRunnerClosed(Exception):
    """The runner was closed before the request had a verdict, so the request must not be decided."""


class PolicyJudge(Protocol):
    """Returns the policies' verdicts on requests to create topics; the engine then decides these requests."""

    async def judge(self, requests: Sequence[Request], /) -> Verdicts:
        """Returns a verdict for each request, in order. Raises PolicyRunnerClosed."""

    async def close(self, timeout_s: float, /) -> tuple[str, ...]:
        """Closes the policies within `timeout_s` seconds. Returns the errors of closing, empty on success."""


class PolicyRunner:
    """Runs policies in one daemon thread, which starts with the first call. Belongs to one event loop."""

    def __init__(self, chain: PolicyChain) -> None:
        self._chain = chain
        self._tasks: queue.SimpleQueue[tuple[tuple[Request, ...], Future[Verdicts]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._closed: Future[tuple[str, ...]] = Future()
        self._judging = ""

    async def judge(self, requests: Sequence[Request]) -> Verdicts:
        """Returns a verdict for each request, in order. Calls are handled in order.

        Cancelling the call does not stop the policy. Raises PolicyRunnerClosed, also if closed meanwhile.
        """
        if self._closing.is_set():
            raise PolicyRunnerClosed("the policies are closed")
        answer: Future[Verdicts] = Future()
        self._tasks.put((tuple(requests), answer))
        self._start()
        return await asyncio.wrap_future(answer)

    async def close(self, timeout_s: float) -> tuple[str, ...]:
        """Finishes the current topic, rejects all others and closes the policies, in the thread.

        Returns errors after at most `timeout_s` seconds. A policy that is still busy is abandoned. A second call waits
        for the same result.
        """
        if not self._closing.is_set():
            self._closing.set()
            self._tasks.put(None)
            self._start()
        done, _ = await asyncio.wait({asyncio.wrap_future(self._closed)}, timeout=timeout_s)
        if done:
            return self._closed.result()
        busy = f"still judging topic '{self._judging}'" if self._judging else "still closing"
        return (f"policies {', '.join(self._chain.names)}: {busy} after {timeout_s:g} s, abandoned",)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="create-topic-policy", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            requests, answer = task
            verdicts = self._judged(requests)
            with suppress(InvalidStateError):  # cancelled: nobody waits for the verdicts
                if verdicts is None:
                    answer.set_exception(PolicyRunnerClosed("the policies were closed before this request was judged"))
                else:
                    answer.set_result(verdicts)
        try:
            failures = self._chain.close()
        except BaseException as error:
            failures = (f"closing the policies raised {error_text(error)}",)
        self._closed.set_result(failures)

    def _judged(self, requests: Sequence[Request]) -> Verdicts | None:
        """None if closing began before the last topic: there are no partial results."""
        verdicts = []
        for request in requests:
            if self._closing.is_set():
                return None
            self._judging = request.topic
            try:
                verdicts.append(self._chain.validate(request))
            except BaseException as error:  # a KeyboardInterrupt in this thread was raised by the policy
                verdicts.append(failed_verdict(", ".join(self._chain.names), error))
            self._judging = ""
        return tuple(verdicts)
