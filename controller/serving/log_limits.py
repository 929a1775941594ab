"""A bound on log lines: clients and peers cause many kinds of them, and could fill a disk without a login.

The text of a line (`event`) is its kind, so it holds nothing that others send. Of each kind LINES_AT_ONCE are written
at once and LINES_PER_S later on; the next one after a gap says how many were left out. Values are cut, but not `trace`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Final

import structlog

LINES_AT_ONCE: Final = 200
LINES_PER_S: Final = 2
CHARACTERS_MAX: Final = 500


class _Allowance:
    """How many lines of one kind may be written now."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.lines = float(LINES_AT_ONCE)
        self.left_out = 0

    def take(self, now_s: float) -> bool:
        """Whether one more line may be written."""
        self.lines = min(LINES_AT_ONCE, self.lines + (now_s - self.at_s) * LINES_PER_S)
        self.at_s = now_s
        if self.lines < 1:
            self.left_out += 1
            return False
        self.lines -= 1
        return True


class LogLimits:
    """A processor of structlog; `clock` gives seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._allowances: dict[str, _Allowance] = {}

    def __call__(self, _: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """The line as it is to be written. Raises DropEvent for one too many."""
        kind = line["event"]
        now_s = self._clock()
        allowance = self._allowances.setdefault(kind, _Allowance(now_s))
        if not allowance.take(now_s):
            raise structlog.DropEvent
        for name, value in line.items():
            if isinstance(value, str) and len(value) > CHARACTERS_MAX and name != "trace":
                line[name] = f"{value[:CHARACTERS_MAX]}… ({len(value)} characters)"
        if allowance.left_out:
            line["left_out"], allowance.left_out = allowance.left_out, 0
        return line
