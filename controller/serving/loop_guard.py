"""Ends the process when its loop stands still while it leads a quorum in which others can take over.

A dead leader is missed by the voters within seconds; of one that hangs, requests that brokers have sent wait for half a
minute. So a loop that does not beat for `STILL_S` is taken for one that never will.

What it does not do: count time in which the whole process did not run (SIGSTOP, a machine that sleeps): that is over
when it is seen, and the quorum has another leader by then.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

BEAT_S: Final = 0.1
STILL_S: Final = 2.0
LATE_S: Final = 0.5
"""A look that comes so late itself counts for nothing: the process did not run."""
FAILED: Final = 3


class LoopGuard:
    """Watches the running loop from `start` to `stop`. `clock_s` only goes forward; `is_needed` says whether others
    wait for this process."""

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
        """Watch from now on."""
        self._loop = asyncio.get_running_loop()
        self._beat()
        threading.Thread(target=self._look, name="loop-guard", daemon=True).start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self._beats += 1
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _look(self) -> None:
        beats, still_s, looked_s = -1, 0.0, self._clock_s()
        while not self._stopped.wait(BEAT_S):
            passed_s, looked_s = self._clock_s() - looked_s, self._clock_s()
            if self._beats != beats or not self._is_needed():
                beats, still_s = self._beats, 0.0
            elif passed_s < LATE_S:
                still_s += passed_s
            if still_s >= STILL_S:
                sys.stderr.write(f"the event loop stood still for {STILL_S:g} s while this node led: it ends\n")
                sys.stderr.flush()
                self._end(FAILED)
                return
