"""An event loop on virtual time: it never sleeps, and the order of execution is deterministic.

If no task is ready, the clock jumps to the next timer. If there is no timer either, the loop raises Stuck: a lost
wake-up fails at once instead of hanging the test.

Each task and timer belongs to a *process* of the simulation (`running_as`) and inherits it from its creator. `kill`
ends all tasks and timers of a process. Like SIGKILL, it leaves them no chance to clean up.
"""

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
"""The only file is the loop's own pipe, and polling it costs more than all else, so it is polled rarely."""


THREAD_S = 0.0005
SHORTEST_S = 1e-9
"""A shorter delay may not advance a large clock value at all, and a task that waits for the rest of a time span would
wait forever."""


class Stuck(AssertionError):
    """All tasks wait, and no timer is left to wake one."""


class _InstantSelector(selectors.DefaultSelector):
    """Never blocks: a wait only advances the virtual clock."""

    now = 0.0
    steps = 0
    """The number of iterations of the loop."""

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
    """A loop whose `time()` starts at 0 and advances only while all tasks wait. `errors` has uncaught exceptions."""

    def __init__(self) -> None:
        self._virtual = _InstantSelector()
        super().__init__(self._virtual)
        self.errors: list[dict[str, Any]] = []
        self.thread_s: Callable[[], float] = lambda: THREAD_S
        """Returns the duration of the next call in a thread."""
        self._dead: set[int] = set()
        self._tasks: dict[int, list[asyncio.Task[Any]]] = {}
        self._timers: dict[int, list[asyncio.TimerHandle]] = {}
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def time(self) -> float:
        return self._virtual.now

    @property
    def steps(self) -> int:
        """The number of iterations; a seed always fails at the same step."""
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
        """Call the function after the duration of a thread, in one step; never if its process is killed before."""
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
        """The unfinished tasks and pending timers of a process."""
        tasks = [
            task for task in self._tasks.get(process, ()) if not task.done() and task is not asyncio.current_task()
        ]
        timers = self.timers()
        return [*tasks, *(timer for timer in self._timers.get(process, ()) if timer in timers)]

    def timers(self) -> list[asyncio.TimerHandle]:
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009 - private to asyncio, untyped
        return [timer for timer in scheduled if not timer.cancelled()]

    def kill(self, process: int) -> None:
        """Cancel all tasks and timers of a process, also those that it creates later."""
        self._dead.add(process)
        for timer in self._timers.pop(process, ()):
            timer.cancel()
        for task in self._tasks.pop(process, ()):
            task.cancel()


def virtual_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop), "the running loop is not a VirtualTimeLoop"
    return loop


def _process_in(context: Context | None) -> int:
    return _PROCESS.get() if context is None else context.get(_PROCESS, 0)


def _keep(kept: list[T], item: T, is_alive: Callable[[T], bool]) -> None:
    kept.append(item)
    if len(kept) % 512 == 0:
        kept[:] = filter(is_alive, kept)


@contextmanager
def running_as(process: int) -> Iterator[None]:
    """Tasks and timers created in the block belong to the process."""
    token = _PROCESS.set(process)
    try:
        yield
    finally:
        _PROCESS.reset(token)


def context_of(process: int) -> Context:
    """A context in which new tasks and timers belong to the process."""
    context = copy_context()
    context.run(_PROCESS.set, process)
    return context


def run(story: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on virtual time. Also raises AssertionError for an uncaught exception of a task."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop), "the runner must use VirtualTimeLoop"
        try:
            result = runner.run(story)
        except BaseException as error:
            error.add_note(f"step {loop.steps}, {loop.time():.3f} s")
            raise
        errors = loop.errors
    for context in errors:
        raise AssertionError(f"uncaught exception: {context['message']}") from context.get("exception")
    return result


def on_virtual_time(story: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Decorator: run an async test on virtual time."""

    @functools.wraps(story)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def run_story() -> None:
            await story(*args, **kwargs)

        run(run_story())

    return test
