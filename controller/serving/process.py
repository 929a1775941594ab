"""Runs a `serve`, `worker` or `gateway` process: main loop, signals, exit codes, policies, and a watch on the loop.

`LoopWatch` watches the event loop and the wall clock of the running process, and ends a quorum leader that hangs. A
timer ticks on the loop. When a tick is overdue, a thread reads the stack of the loop's thread and names the innermost
Topicwright function there. If there is none, the process did not run or the interpreter was busy. A jump of the wall
clock shows at the next tick, compared with a monotonic clock.

The other voters notice a dead leader within seconds, but requests to a leader that hangs wait for half a minute. If the
loop does not tick for `HANG_S` while this process leads a quorum, the process exits. Time in which the whole process
did not run (SIGSTOP, suspend) does not count: the quorum has another leader by then.

Limits: the loop is not watched before the process is ready or while it ends. If a call holds the interpreter lock, the
watching thread cannot run. The log line then names the function that runs when the lock is free again.
"""

import asyncio
import fcntl
import gc
import os
import signal
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final, Protocol, TypeVar

import structlog

from controller.controller_api import new_topic_ids
from controller.http.metrics import Metrics
from controller.policy.chain import PolicyChain, PolicyRunner
from controller.policy.loading import checked_file, load_policies
from controller.settings.load import ServeSettings
from projections.text.names import topic_id_text

FAILED = 3
"""The exit code after a bug, or for a log beyond recovery; the log lines have the cause."""

DRAIN_S = 3.0
"""How long responses in flight may take when the process stops; it ends within 5 s altogether."""

SWITCH_S = 0.001
"""How long a thread may hold the interpreter lock while other threads wait for the lock."""

PARTITION_BYTES = 500
"""Approximate size of a decoded partition in the cache of topics."""

RETRY_S = 1.0
LOCK = "process.lock"

T = TypeVar("T")


class Service(Protocol):
    """The parts of one process (`serve`, `worker`, `gateway`), which `run_service` starts and stops."""

    metrics: Metrics

    @property
    def failed(self) -> asyncio.Event:
        """Set once the service cannot continue; defined after `start`."""

    @property
    def ready_line(self) -> str:
        """The line to print once requests are accepted."""

    async def start(self) -> None:
        """Start everything. Raises the error that prevents the start; may be cancelled."""

    async def stop(self) -> None:
        """Stop in order, also after a start that failed or was cancelled."""


async def run_service(
    service: Service, stopping: asyncio.Event, leads_others: Callable[[], bool] = lambda: False
) -> int:
    """Run until `stopping` is set or the service fails; returns the exit code. Raises errors of the start. While
    `leads_others`, a hanging event loop ends the process."""
    starting = asyncio.create_task(service.start())
    log = structlog.get_logger("topicwright")
    watch = LoopWatch(service.metrics, log, time.monotonic, wall_ms, leads_others)
    try:
        if not await finished(starting, stopping):
            return 0
        tune_interpreter()
        watch.start()
        if not service.failed.is_set():
            print(service.ready_line, flush=True)
        failing = asyncio.create_task(service.failed.wait())
        return FAILED if await finished(failing, stopping) else 0
    finally:
        watch.stop()
        await service.stop()


async def finished(work: asyncio.Task[Any], stopping: asyncio.Event) -> bool:
    """Wait for a task; returns False if it was cancelled because `stopping` was set. Raises the task's error."""
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not work.done():
        work.cancel()
        await asyncio.wait((work,))
    if work.cancelled():
        return False
    await work
    return True


def wall_ms() -> int:
    """The wall clock, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping


async def reached(
    what: str,
    reach: Callable[[], Awaitable[T]],
    unreachable: type[Exception],
    on_wait: Callable[[str], None] = lambda _: None,
    within_s: float = inf,
    **where: str,
) -> T:
    """Call `reach` until it does not raise `unreachable`, and return its result. Each new reason is logged; `on_wait`
    receives every reason. The last reason is raised after `within_s`."""
    logged, deadline_s = "", time.monotonic() + within_s
    while True:
        try:
            return await reach()
        except unreachable as error:
            why = str(error)
        if time.monotonic() >= deadline_s:
            raise unreachable(f"{what} cannot be reached within {within_s:g} s: {why}")
        on_wait(why)
        if why != logged:
            logged = why
            structlog.get_logger("topicwright").warning(f"waiting for {what}", why=why, **where)
        await asyncio.sleep(RETRY_S)


def lock_folder(folder: Path) -> IO[str]:
    """Create the folder if missing, and lock it until the returned file is closed. Raises OSError, also if another
    process uses the folder."""
    folder.mkdir(0o700, parents=True, exist_ok=True)
    file = (folder / LOCK).open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "another process"
        file.close()
        raise OSError(f"{folder} is used by process {holder}: stop it, or choose another with --data") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def warn_of_readers(data: Path, settings: ServeSettings) -> None:
    """Warn of secrets that other users of the machine can read: the data folder, also by its group; a users file or a
    private key by everybody."""
    keys = (settings.ssl_keystore_location, *(of.get("ssl_keystore_location") for of in settings.of_listeners.values()))
    secrets = (settings.users_file, settings.log_signing_key_location, *keys)
    files = {Path(each) for each in secrets if each is not None}
    for path, others in ((data, 0o077), *((file, 0o007) for file in sorted(files))):
        with suppress(OSError):  # opening a missing or unreadable file reports it
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & others:
                change = f"chmod {'go' if others & 0o070 else 'o'}= {path}"
                structlog.get_logger("topicwright").warning(
                    "others can read secrets", path=str(path), mode=f"{mode:04o}", change=change
                )


def rules_of_file(settings: ServeSettings) -> str | None:
    """The text of the rules file; None without one. Raises RulesError."""
    return None if settings.topic_rules_file is None else checked_file(Path(settings.topic_rules_file))


def policies_of(settings: ServeSettings) -> PolicyChain:
    """The policies of the settings. Raises PolicyLoadError."""
    names, of_configs = settings.create_topic_policy_class_name, settings.alter_config_policy_class_name
    return load_policies(names, dict(settings.texts), of_configs)


def policy_runner(settings: ServeSettings, metrics: Metrics) -> PolicyRunner | None:
    """The policies of the settings; None without any. Raises PolicyLoadError."""

    def failed(policy: str, topic: str, error: BaseException) -> None:
        structlog.get_logger("topicwright").error("policy failed", policy=policy, topic=topic, exc_info=error)

    chain = policies_of(settings)
    chain.clock, chain.on_verdict, chain.on_exception = time.perf_counter, metrics.policy_judged, failed
    return PolicyRunner(chain) if chain.names else None


def tune_interpreter() -> None:
    """Set the interpreter up for serving.

    Garbage collection excludes existing objects and runs less often. The state has hundreds of thousands of objects
    without cycles. At Python's default rate, scanning them takes 10 to 14 % of the time of deciding. Queries run in
    threads. They must release the interpreter lock after `SWITCH_S`, so that the event loop hardly waits for them.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: sixteen bytes in base64url."""
    return topic_id_text(new_topic_ids(1)[0])


TICK_S: Final = 0.05
LINE_FROM_S: Final = 0.1
"""The shortest time of a blocked loop that has a log line."""
JUMP_MS: Final = 5_000
"""The smallest change of the wall clock that counts as a jump; smaller ones are adjustments."""
HANG_S: Final = 2.0
SUSPENDED_S: Final = 0.5
"""A check that is this late does not count: the process did not run."""
BRIEF, OUTSIDE = "brief", "outside"
"""Causes without a function: the block was over before the thread read the stack; no function of Topicwright ran."""

_PACKAGES = ("controller.", "events.", "projections.")
_LOOP = "asyncio.runners"
"""The module whose frame is below everything that the loop runs."""
_FRAMES_MAX: Final = 5


class LoopWatch:
    """Watches the running loop from `start` to `stop`. `clock_s` is monotonic, `wall_ms` is the wall clock. `leads` is
    true while this process leads other voters; `end` exits the process."""

    def __init__(
        self,
        figures: Metrics,
        log: Any,
        clock_s: Callable[[], float],
        wall_ms: Callable[[], int],
        leads: Callable[[], bool] = lambda: False,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._figures, self._log = figures, log
        self._clock_s, self._wall_ms = clock_s, wall_ms
        self._leads, self._end = leads, end
        self._due_s = 0.0
        self._seen: list[tuple[float, tuple[str, ...]]] = []
        """The functions on the stack, innermost first, at each check; with the tick that was overdue then."""
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ahead_ms = self._wall_ahead_ms()
        self._set_timer()
        thread_id = threading.get_ident()
        threading.Thread(target=self._check_ticks, args=(thread_id,), name="loop-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    # --- on the loop

    def _set_timer(self) -> None:
        self._due_s = self._clock_s() + TICK_S
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        due_s = self._due_s
        late_s = self._clock_s() - due_s
        seen, self._seen = [where for due, where in self._seen if due == due_s], []
        self._set_timer()
        self._check_wall_clock()
        if late_s <= 0:
            return
        where = Counter(seen).most_common(1)[0][0] if seen else (BRIEF,)
        cause = where[0].rpartition(":")[0] or where[0]
        self._figures.loop_blocked(cause, late_s)
        if late_s >= LINE_FROM_S:
            self._log.warning("event loop blocked", ms=round(late_s * 1000), cause=cause, where=" < ".join(where))

    def _wall_ahead_ms(self) -> float:
        return self._wall_ms() - self._clock_s() * 1000

    def _check_wall_clock(self) -> None:
        before_ms, self._ahead_ms = self._ahead_ms, self._wall_ahead_ms()
        jump_ms = round(self._ahead_ms - before_ms)
        if abs(jump_ms) >= JUMP_MS:
            self._figures.clock_jumped()
            self._log.warning("wall clock jumped", ms=jump_ms)

    # --- in the thread

    def _check_ticks(self, thread_id: int) -> None:
        last_due_s, hung_s, checked_s = -1.0, 0.0, self._clock_s()
        while not self._stopped.wait(TICK_S):
            due_s, now_s = self._due_s, self._clock_s()
            passed_s, checked_s = now_s - checked_s, now_s
            if now_s - due_s >= TICK_S:
                where = tuple(_functions(sys._current_frames().get(thread_id))) or (OUTSIDE,)
                if not where[0].startswith(__name__):  # else the loop ticks again
                    self._seen.append((due_s, where))
            if due_s != last_due_s or not self._leads():
                last_due_s, hung_s = due_s, 0.0
            elif passed_s < SUSPENDED_S:
                hung_s += passed_s
            if hung_s >= HANG_S:
                sys.stderr.write(f"the event loop did not run for {HANG_S:g} s while this node led: it exits\n")
                sys.stderr.flush()
                self._end(FAILED)
                return


def _functions(frame: FrameType | None) -> Iterator[str]:
    """The functions of Topicwright that the loop runs, with their lines, innermost first."""
    found = 0
    while frame is not None and found < _FRAMES_MAX:
        module = frame.f_globals.get("__name__", "")
        if module == _LOOP:
            return
        if module.startswith(_PACKAGES):
            found += 1
            yield f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}"
        frame = frame.f_back
