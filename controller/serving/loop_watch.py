"""Watches the event loop and the wall clock, and ends a quorum leader whose loop hangs.

A timer ticks on the loop. When a tick is overdue, a thread reads the stack of the loop's thread and names the innermost
Topicwright function there. If there is none, the process did not run or the interpreter was busy. A jump of the wall
clock shows at the next tick, compared with a monotonic clock.

The other voters notice a dead leader within seconds, but requests to a leader that hangs wait for half a minute. If the
loop does not tick for `HANG_S` while this process leads a quorum, the process exits. Time in which the whole process
did not run (SIGSTOP, suspend) does not count: the quorum has another leader by then.

Limits: it does not watch before the process is ready or while it ends. While Python holds back all threads, the
function that runs right afterwards is named.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, Protocol

TICK_S: Final = 0.05
LINE_FROM_S: Final = 0.1
"""The shortest time of a blocked loop that has a log line."""
LINE_EVERY_S: Final = 10.0
JUMP_MS: Final = 5_000
"""The smallest change of the wall clock that counts as a jump; smaller ones are adjustments."""
HANG_S: Final = 2.0
SUSPENDED_S: Final = 0.5
"""A check that is this late does not count: the process did not run."""
FAILED: Final = 3
BRIEF, OUTSIDE, OTHER = "brief", "outside", "other"
"""Causes without a function: too short to see; no function of Topicwright ran; more than CAUSES_MAX causes."""
CAUSES_MAX: Final = 200

_PACKAGES = ("controller.", "events.", "projections.")
_LOOP = "asyncio.runners"
"""The module whose frame is below everything that the loop runs."""
_FRAMES_MAX: Final = 5


class Figures(Protocol):
    """Port of the metrics, implemented by `controller.http.metrics`."""

    def loop_blocked(self, cause: str, seconds: float) -> None: ...
    def clock_jumped(self) -> None: ...


class LoopWatch:
    """Watches the running loop from `start` to `stop`. `clock_s` is monotonic, `wall_ms` is the wall clock. `leads` is
    true while this process leads other voters; `end` exits the process."""

    def __init__(
        self,
        figures: Figures,
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
        self._causes: set[str] = set()
        self._logged_s = -LINE_EVERY_S
        self._suppressed = 0
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
        cause = self._bounded(where[0].rpartition(":")[0] or where[0])
        self._figures.loop_blocked(cause, late_s)
        if late_s >= LINE_FROM_S:
            self._report(late_s, cause, where)

    def _bounded(self, cause: str) -> str:
        if cause not in self._causes and len(self._causes) >= CAUSES_MAX:
            return OTHER
        self._causes.add(cause)
        return cause

    def _report(self, late_s: float, cause: str, where: tuple[str, ...]) -> None:
        now_s = self._clock_s()
        if now_s - self._logged_s < LINE_EVERY_S:
            self._suppressed += 1
            return
        ms, suppressed = round(late_s * 1000), self._suppressed
        self._log.warning("event loop blocked", ms=ms, cause=cause, where=" < ".join(where), suppressed=suppressed)
        self._logged_s, self._suppressed = now_s, 0

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
