"""The error of a replay, and a one-line message for any error.

If an exception was raised in a Spark worker, Spark passes on its text among Python's and Java's stack traces.
`message_of` finds the line that a user can act on.
"""

from __future__ import annotations

import re

_OURS = r"ReplayError|Log[A-Z]\w+|EventDecodeError|CannotApply|Bad[A-Z]\w+"
_RAISED = re.compile(rf"^\s*(?:[\w.]+\.)?(?:{_OURS}): (.+)$", re.MULTILINE)
_ANY_RAISED = re.compile(r"^\s*(?:[\w.]+\.)?(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_LONGEST = 600  # characters of a message of Spark or Kafka


class ReplayError(Exception):
    """The replay cannot run. The message says why and what to do."""


def message_of(error: BaseException) -> str:
    """The message of an error in one line. For an error that came through Spark: the worker's message."""
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
