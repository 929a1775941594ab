"""An event loop on virtual time: nothing sleeps, and the same program always runs in the same order.

When nothing is ready the clock jumps to the next timer. When there is no timer either, nothing will ever happen again,
and the loop raises Stuck, so that a lost wake-up shows at once instead of hanging a test.

What runs inside belongs to a *process* of the simulation (`running_as`): tasks and timers inherit it from what made
them, and `kill` ends all that belongs to one, without a chance to clean up, as SIGKILL does.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")

_PROCESS: ContextVar[int] = ContextVar("simulated process", default=0)


LOOK_EVERY = 100
"""There are no files in a simulation, but for the loop's own pipe: asking the system costs more than the rest."""


THREAD_S = 0.0005
SHORTEST_S = 1e-9
"""A delay that is shorter would leave the clock where it is, once that has come far enough: who waits for the rest of a
span would wait for ever."""


class Stuck(AssertionError):
    """Everybody waits, and nothing is left that could wake anyone."""


class _InstantSelector(selectors.DefaultSelector):
    """Waits for no file: passing the time moves the virtual clock."""

    now = 0.0
    steps = 0
    """How often the loop has come round."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.steps += 1
        ready = super().select(0) if self.steps % LOOK_EVERY == 0 or timeout is None else []
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Stuck("no timer is set and no task is ready")
        self.now += max(timeout, SHORTEST_S)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose `time()` starts at 0 and passes only while everybody waits. `errors` collects what nobody caught."""

    def __init__(self) -> None:
        self._virtual = _InstantSelector()
        super().__init__(self._virtual)
        self.errors: list[dict[str, Any]] = []
        self.thread_s: Callable[[], float] = lambda: THREAD_S
        """How long a thread takes for what it is given."""
        self._dead: set[int] = set()
        self._tasks: dict[int, list[asyncio.Task[Any]]] = {}
        self._timers: dict[int, list[asyncio.TimerHandle]] = {}
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def time(self) -> float:
        return self._virtual.now

    @property
    def steps(self) -> int:
        """How often it has come round: the same seed's failure is always at the same step."""
        return self._virtual.steps

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        process = _process_in(context)
        task: asyncio.Task[T] = super().create_task(coro, name=name, context=context)
        if process in self._dead:
            task.cancel()
        elif process:
            _keep(self._tasks.setdefault(process, []), task, lambda each: not each.done())
        return task

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = _process_in(context)
        timer = super().call_at(when, callback, *args, context=context)
        if process in self._dead:
            timer.cancel()
        elif process:
            _keep(
                self._timers.setdefault(process, []),
                timer,
                lambda each: not each.cancelled() and each.when() > self.time(),
            )
        return timer

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_later(max(delay, SHORTEST_S) if delay > 0 else delay, callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """What a thread does is done a moment later, all at once; never, where its process dies before."""
        future: asyncio.Future[T] = self.create_future()

        def do() -> None:
            if not future.cancelled():
                try:
                    future.set_result(func(*args))
                except Exception as error:
                    future.set_exception(error)

        self.call_later(self.thread_s(), do)
        return future

    def left_of(self, process: int) -> list[object]:
        """The tasks and timers of a process that would still do something."""
        tasks = [
            task for task in self._tasks.get(process, ()) if not task.done() and task is not asyncio.current_task()
        ]
        timers = self.timers()
        return [*tasks, *(timer for timer in self._timers.get(process, ()) if timer in timers)]

    def timers(self) -> list[asyncio.TimerHandle]:
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009 - asyncio's own, and not typed
        return [timer for timer in scheduled if not timer.cancelled()]

    def kill(self, process: int) -> None:
        """End all that belongs to a process; whatever it still begins ends at once."""
        self._dead.add(process)
        for timer in self._timers.pop(process, ()):
            timer.cancel()
        for task in self._tasks.pop(process, ()):
            task.cancel()


def virtual_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop), "this runs on virtual time"
    return loop


def _process_in(context: Context | None) -> int:
    return _PROCESS.get() if context is None else context.get(_PROCESS, 0)


def _keep(kept: list[T], item: T, is_alive: Callable[[T], bool]) -> None:
    kept.append(item)
    if len(kept) % 512 == 0:
        kept[:] = filter(is_alive, kept)


@contextmanager
def running_as(process: int) -> Iterator[None]:
    """What is begun inside the block belongs to the process."""
    token = _PROCESS.set(process)
    try:
        yield
    finally:
        _PROCESS.reset(token)


def context_of(process: int) -> Context:
    """A context in which everything belongs to the process."""
    context = copy_context()
    context.run(_PROCESS.set, process)
    return context


def run(story: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on virtual time. Raises what nobody caught, beside what it raises itself."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop), "the runner has our loop"
        try:
            result = runner.run(story)
        except BaseException as error:
            error.add_note(f"step {loop.steps}, {loop.time():.3f} s")
            raise
        errors = loop.errors
    for context in errors:
        raise AssertionError(f"nobody caught: {context['message']}") from context.get("exception")
    return result


def on_virtual_time(story: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """An async test as a test that runs on virtual time."""

    @functools.wraps(story)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def run_story() -> None:
            await story(*args, **kwargs)

        run(run_story())

    return test
