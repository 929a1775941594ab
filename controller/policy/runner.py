"""Runs policies outside the event loop, one request after another.

A policy may be slow, for example if it calls an HTTP service. The event loop goes on serving other requests; only later
creates wait. One thread runs the chain in order of arrival, so that a policy is never called concurrently. Verdicts
arrive on the event loop in the order of the calls.

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

import msgspec

from controller.policy.chain import ALLOWED, SILENT, PolicyChain, PolicyProbe, error_text, failed_verdict
from controller.policy.interface import Request
from events.catalog import Verdict

Verdicts = tuple[Verdict, ...]


class PolicyRunnerClosed(Exception):
    """The runner was closed before the request had a verdict, so it must not be decided."""


class PolicyJudge(Protocol):
    """Returns verdicts on topics before they are decided."""

    async def judge(self, requests: Sequence[Request], /) -> Verdicts:
        """Returns a verdict for each request, in order. Raises PolicyRunnerClosed."""

    async def close(self, timeout_s: float, /) -> tuple[str, ...]:
        """Closes the policies within `timeout_s` seconds. Returns errors."""


class _Task(msgspec.Struct, frozen=True, kw_only=True):
    requests: tuple[Request, ...]
    answer: Future[Verdicts]


class PolicyRunner:
    """Runs policies in one daemon thread, which starts with the first call. An empty chain needs no thread.

    Belongs to one event loop. `probe` is called in the thread.
    """

    def __init__(self, chain: PolicyChain, *, probe: PolicyProbe = SILENT) -> None:
        self._chain = chain
        self._probe = probe
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
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
        if not self._chain.names:
            return (ALLOWED,) * len(requests)
        task = _Task(requests=tuple(requests), answer=Future())
        self._put(task)
        return await asyncio.wrap_future(task.answer)

    async def close(self, timeout_s: float) -> tuple[str, ...]:
        """Finishes the current topic, rejects all others and closes the policies, in the thread.

        Returns errors after at most `timeout_s` seconds. A policy that is still busy is abandoned. A second call waits
        for the same result.
        """
        if not self._closing.is_set():
            self._closing.set()
            self._put(None)
        done, _ = await asyncio.wait({asyncio.wrap_future(self._closed)}, timeout=timeout_s)
        if done:
            return self._closed.result()
        busy = f"still judging topic '{self._judging}'" if self._judging else "still closing"
        return (f"policies {', '.join(self._chain.names)}: {busy} after {timeout_s:g} s, abandoned",)

    def _put(self, task: _Task | None) -> None:
        self._tasks.put(task)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="create-topic-policy", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            verdicts = self._judged(task)
            with suppress(InvalidStateError):  # cancelled: nobody waits for the verdicts
                if verdicts is None:
                    closed = PolicyRunnerClosed("the policies were closed before this request was judged")
                    task.answer.set_exception(closed)
                else:
                    task.answer.set_result(verdicts)
        self._closed.set_result(_close(self._chain))

    def _judged(self, task: _Task) -> Verdicts | None:
        """None if closing began before the last topic: there are no partial results."""
        verdicts = []
        for request in task.requests:
            if self._closing.is_set():
                return None
            self._judging = request.topic
            verdicts.append(_judge_safely(self._chain, request, self._probe))
            self._judging = ""
        return tuple(verdicts)


def _judge_safely(chain: PolicyChain, request: Request, probe: PolicyProbe) -> Verdict:
    """A KeyboardInterrupt in this thread was raised by the policy, and only fails its topic."""
    try:
        return chain.validate(request, probe)
    except BaseException as error:
        return failed_verdict(", ".join(chain.names), error)


def _close(chain: PolicyChain) -> tuple[str, ...]:
    try:
        return chain.close()
    except BaseException as error:
        return (f"closing the policies raised {error_text(error)}",)
