"""Watches the event loop and the wall clock, and ends a leader whose loop hangs.

`LoopWatch`: a timer beats on the loop. When a beat is overdue, a thread reads the stack of the loop's thread and names
the innermost Topicwright function there. If there is none, the process did not run or the interpreter was busy. A jump
of the wall clock shows at the next beat, compared with a monotonic clock.

`LoopGuard`: the other voters notice a dead leader within seconds, but requests to a leader that hangs wait for half a
minute. If the loop does not beat for `GUARD_STILL_S` while this process leads a quorum, the process exits. Time in
which the whole process did not run (SIGSTOP, suspend) does not count: the quorum has another leader by then.

Limits: neither watches before the process is ready or while it ends. While Python holds back all threads, the function
that runs right afterwards is named.
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

BEAT_S: Final = 0.05
LINE_FROM_S: Final = 0.1
"""The shortest stand-still that has a log line."""
LINE_EVERY_S: Final = 10.0
JUMP_MS: Final = 5_000
"""The smallest jump of the wall clock that is one, rather than the clock being kept right."""
BRIEF, OUTSIDE, OTHER = "brief", "outside", "other"
"""Causes that are no function: too short to look; nothing of ours ran; one more than are told apart."""
CAUSES_MAX: Final = 200

_OURS = ("controller.", "events.", "projections.")
_LOOP = "asyncio.runners"
"""The module whose frame is beneath all that the loop runs."""
_SHOWN_MAX: Final = 5  # of the functions that stand above one another


class Figures(Protocol):
    """What is counted and measured; see `controller.http.metrics`."""

    def stood_still(self, cause: str, seconds: float) -> None: ...
    def clock_jumped(self) -> None: ...


class LoopWatch:
    """Watches the running loop from `start` to `stop`. `clock_s` only goes forward, `wall_ms` is the wall clock."""

    def __init__(self, figures: Figures, log: Any, clock_s: Callable[[], float], wall_ms: Callable[[], int]) -> None:
        self._figures = figures
        self._log = log
        self._clock_s = clock_s
        self._wall_ms = wall_ms
        self._due_s = 0.0
        self._seen: list[tuple[float, tuple[str, ...]]] = []
        """What the loop was at, innermost first, at each look; with the beat that was overdue then."""
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
        threading.Thread(target=self._look_while_late, args=(thread_id,), name="loop-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    # --- on the loop

    def _set_timer(self) -> None:
        self._due_s = self._clock_s() + BEAT_S
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        due_s = self._due_s
        late_s = self._clock_s() - due_s
        seen, self._seen = [where for due, where in self._seen if due == due_s], []
        self._set_timer()
        self._look_at_wall()
        if late_s <= 0:
            return
        where = Counter(seen).most_common(1)[0][0] if seen else (BRIEF,)
        cause = self._bounded(where[0].rpartition(":")[0] or where[0])
        self._figures.stood_still(cause, late_s)
        if late_s >= LINE_FROM_S:
            self._say(late_s, cause, where)

    def _bounded(self, cause: str) -> str:
        if cause not in self._causes and len(self._causes) >= CAUSES_MAX:
            return OTHER
        self._causes.add(cause)
        return cause

    def _say(self, late_s: float, cause: str, where: tuple[str, ...]) -> None:
        now_s = self._clock_s()
        if now_s - self._logged_s < LINE_EVERY_S:
            self._suppressed += 1
            return
        ms, suppressed = round(late_s * 1000), self._suppressed
        self._log.warning("loop stood still", ms=ms, cause=cause, where=" < ".join(where), suppressed=suppressed)
        self._logged_s, self._suppressed = now_s, 0

    def _wall_ahead_ms(self) -> float:
        return self._wall_ms() - self._clock_s() * 1000

    def _look_at_wall(self) -> None:
        before_ms, self._ahead_ms = self._ahead_ms, self._wall_ahead_ms()
        jump_ms = round(self._ahead_ms - before_ms)
        if abs(jump_ms) >= JUMP_MS:
            self._figures.clock_jumped()
            self._log.warning("wall clock jumped", ms=jump_ms)

    # --- beside the loop

    def _look_while_late(self, thread_id: int) -> None:
        while not self._stopped.wait(BEAT_S):
            due_s = self._due_s
            if self._clock_s() - due_s >= BEAT_S:
                where = tuple(_functions(sys._current_frames().get(thread_id))) or (OUTSIDE,)
                if not where[0].startswith(__name__):  # it beats again
                    self._seen.append((due_s, where))


def _functions(frame: FrameType | None) -> Iterator[str]:
    """The functions of Topicwright that the loop runs, with their lines, innermost first."""
    shown = 0
    while frame is not None and shown < _SHOWN_MAX:
        module = frame.f_globals.get("__name__", "")
        if module == _LOOP:
            return
        if module.startswith(_OURS):
            shown += 1
            yield f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}"
        frame = frame.f_back


GUARD_BEAT_S: Final = 0.1
GUARD_STILL_S: Final = 2.0
GUARD_LATE_S: Final = 0.5
"""A check that is this late does not count: the process did not run."""
FAILED: Final = 3


class LoopGuard:
    """Watches the running loop. `clock_s` is monotonic; `is_needed` is true while this process leads others."""

    def __init__(
        self,
        clock_s: Callable[[], float],
        is_needed: Callable[[], bool],
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._clock_s, self._is_needed, self._end = clock_s, is_needed, end
        self._beats = 0
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._beat()
        threading.Thread(target=self._look, name="loop-guard", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self._beats += 1
        self._timer = self._loop.call_later(GUARD_BEAT_S, self._beat)

    def _look(self) -> None:
        beats, still_s, looked_s = -1, 0.0, self._clock_s()
        while not self._stopped.wait(GUARD_BEAT_S):
            passed_s, looked_s = self._clock_s() - looked_s, self._clock_s()
            if self._beats != beats or not self._is_needed():
                beats, still_s = self._beats, 0.0
            elif passed_s < GUARD_LATE_S:
                still_s += passed_s
            if still_s >= GUARD_STILL_S:
                sys.stderr.write(
                    f"the event loop did not run for {GUARD_STILL_S:g} s while this node led: the process exits\n"
                )
                sys.stderr.flush()
                self._end(FAILED)
                return
