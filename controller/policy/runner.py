"""Runs the policies off the event loop, one request after another.

A policy may be slow: it may look into a catalogue over HTTP, or read a file. While it does, the loop goes on serving
everyone else, and only creates that come after wait for it. One worker thread runs the chain, first come first judged,
so a policy never runs twice at once and needs no locks. Verdicts come back on the loop in the order of the calls.

The thread is a daemon: a policy that never returns holds up the creates behind it, which is the operator's to see in
the log and the metrics, but not the end of the process. `InlinePolicyRunner` is the same without the thread, for a
simulation on virtual time and wherever nothing else waits.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec

from controller.policy.chain import ALLOWED, SILENT, PolicyChain, PolicyProbe, error_text, failed_verdict
from controller.policy.interface import PolicyInForce, RequestMetadata
from events.catalog import Verdict

Verdicts = tuple[Verdict, ...]
_T = TypeVar("_T")


class PolicyRunnerClosed(Exception):
    """The runner was closed before this request was judged: there is no verdict, and nothing may be decided."""


class PolicyJudge(Protocol):
    """Who judges topics before they are decided on."""

    async def judge(self, requests: Sequence[RequestMetadata], /) -> Verdicts:
        """A verdict for each request, in the order of the requests. Raises PolicyRunnerClosed."""

    async def close(self, timeout_s: float, /) -> tuple[str, ...]:
        """Close the policies; after at most `timeout_s` seconds, say what went wrong with it."""


class InlinePolicyRunner:
    """Judges at once, where it is called."""

    def __init__(self, chain: PolicyChain, *, probe: PolicyProbe = SILENT) -> None:
        self._chain = chain
        self._probe = probe
        self._closed = False

    async def judge(self, requests: Sequence[RequestMetadata]) -> Verdicts:
        """A verdict for each request, in the order of the requests. Raises PolicyRunnerClosed."""
        if self._closed:
            raise PolicyRunnerClosed("the policies are closed")
        return tuple(self._chain.validate(request, self._probe) for request in requests)

    async def close(self, timeout_s: float) -> tuple[str, ...]:
        """Close the policies and say which raised what; `timeout_s` cannot bound a call on this very thread."""
        self._closed = True
        return self._chain.close()


class _Task(msgspec.Struct, frozen=True, kw_only=True):
    requests: tuple[RequestMetadata, ...]
    answer: asyncio.Future[Verdicts]


class PolicyRunner:
    """Judges on one daemon thread, which starts with the first call. An empty chain needs none and has none.

    Belongs to one event loop; `probe` is called on the worker's thread.
    """

    def __init__(self, chain: PolicyChain, *, probe: PolicyProbe = SILENT) -> None:
        self._chain = chain
        self._probe = probe
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._closed: asyncio.Future[tuple[str, ...]] | None = None
        self._judging = ""

    @property
    def waiting(self) -> int:
        """How many calls the worker has not begun."""
        return self._tasks.qsize()

    @property
    def in_force(self) -> tuple[PolicyInForce, ...]:
        """The policies in order, with their rules."""
        return self._chain.in_force

    async def judge(self, requests: Sequence[RequestMetadata]) -> Verdicts:
        """A verdict for each request, in the order of the requests; calls are judged in their order.

        Cancelling the wait does not stop the policy. Raises PolicyRunnerClosed, also when closed while waiting.
        """
        if self._closing.is_set():
            raise PolicyRunnerClosed("the policies are closed")
        if not self._chain.names:
            return (ALLOWED,) * len(requests)
        task = _Task(requests=tuple(requests), answer=asyncio.get_running_loop().create_future())
        self._put(task)
        return await task.answer

    async def close(self, timeout_s: float) -> tuple[str, ...]:
        """End the topic in hand, turn away all others, close the policies: all on the worker's thread.

        After at most `timeout_s` seconds returns what went wrong, a line each; a policy still busy by then is left
        behind, unclosed. A second call waits for the same end.
        """
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            self._closing.set()
            self._put(None)
        await asyncio.wait({self._closed}, timeout=timeout_s)
        if self._closed.done():
            return self._closed.result()
        busy = f"still judging topic '{self._judging}'" if self._judging else "still closing"
        return (f"policies {', '.join(self._chain.names)}: {busy} after {timeout_s:g} s, left behind",)

    def _put(self, task: _Task | None) -> None:
        self._tasks.put(task)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="create-topic-policy", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            verdicts = self._judged(task)
            if verdicts is None:
                _refuse(task.answer, PolicyRunnerClosed("the policies were closed before this request was judged"))
            else:
                _settle(task.answer, verdicts)
        assert self._closed is not None, "close() makes the future before it ends the work"
        _settle(self._closed, _close(self._chain))

    def _judged(self, task: _Task) -> Verdicts | None:
        """None when closing began before the last of its topics: part of an answer is none."""
        verdicts = []
        for request in task.requests:
            if self._closing.is_set():
                return None
            self._judging = request.topic
            verdicts.append(_judge_safely(self._chain, request, self._probe))
            self._judging = ""
        return tuple(verdicts)


def _judge_safely(chain: PolicyChain, request: RequestMetadata, probe: PolicyProbe) -> Verdict:
    """No key interrupts a worker's thread: a KeyboardInterrupt here is the policy's own, and costs only its topic."""
    try:
        return chain.validate(request, probe)
    except BaseException as error:
        return failed_verdict(", ".join(chain.names), error)


def _close(chain: PolicyChain) -> tuple[str, ...]:
    try:
        return chain.close()
    except BaseException as error:
        return (f"closing the policies raised {error_text(error)}",)


def _settle(future: asyncio.Future[_T], result: _T) -> None:
    _on_its_loop(future, lambda: future.set_result(result))


def _refuse(future: asyncio.Future[_T], error: Exception) -> None:
    _on_its_loop(future, lambda: future.set_exception(error))


def _on_its_loop(future: asyncio.Future[_T], settle: Callable[[], None]) -> None:
    """A future belongs to its loop's thread. One that was cancelled, or whose loop has ended, waits no more."""

    def settle_if_waited_for() -> None:
        if not future.done():
            settle()

    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(settle_if_waited_for)
