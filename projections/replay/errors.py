"""What goes wrong in a replay, and how it is said.

Spark hands on what was raised in a worker as text, wrapped in its own and Java's traces. `message_of` finds the one
line in it that is for people.
"""

from __future__ import annotations

import re

_OURS = r"ReplayError|Log[A-Z]\w+|EventDecodeError|CannotApply|Bad[A-Z]\w+"
_RAISED = re.compile(rf"^\s*(?:[\w.]+\.)?(?:{_OURS}): (.+)$", re.MULTILINE)
_ANY_RAISED = re.compile(r"^\s*(?:[\w.]+\.)?(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_LONGEST = 600  # characters of what Spark or Kafka says in an error


class ReplayError(Exception):
    """The replay cannot be done; the message says why and what to do."""


def message_of(error: BaseException) -> str:
    """What an error says, in one line; of one that came through Spark, what the worker said."""
    text = str(error)
    ours = _RAISED.findall(text)
    if ours:
        return _one_line(ours[-1])
    raised = _ANY_RAISED.findall(text)
    if raised:
        kind, said = raised[-1]
        return _one_line(f"{kind}: {said}")
    return _one_line(text) or type(error).__name__


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
