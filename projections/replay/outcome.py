"""The options, the result and the error of the sub-commands of `topicwright replay`.

Each sub-command is a function `run_NAME(runner, ref, options) -> Outcome` in a module of its name. If an exception was
raised in a Spark worker, Spark passes on its text among Python's and Java's stack traces. `message_of` finds the line
that a user can act on. This module does not import msgspec, because `--help` must be quick.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from events.errors import UserError, shortened

_OURS = r"ReplayError|Log[A-Z]\w+|EventDecodeError|CannotApply|Bad[A-Z]\w+|InvalidPointInTime"
_RAISED = re.compile(rf"^\s*(?:[\w.]+\.)?(?:{_OURS}): (.+)$", re.MULTILINE)
_ANY_RAISED = re.compile(r"^\s*(?:[\w.]+\.)?(\w*(?:Error|Exception): .+)$", re.MULTILINE)
_LONGEST = 600  # characters of a message of Spark or Kafka


class ReplayError(UserError):
    """The replay cannot run. The message says why and what to do."""


def message_of(error: BaseException) -> str:
    """The message of an error in one line; for an error that came through Spark, the message of the worker."""
    text = str(error)
    found = _RAISED.findall(text) or _ANY_RAISED.findall(text) or [text]
    return shortened(" ".join(found[-1].split()), _LONGEST) or type(error).__name__


class Options(NamedTuple):
    """The options of all sub-commands; each sub-command reads those that apply to it.

    `at` is a point in time as `projections.text.points_in_time` parses it; None is the newest event. `settings` are
    the `--set` pairs of `backtest`. `subject` is a query. `to` is the file or folder to write to, `export` the folder
    of an export. `limit` is the number of examples to show.
    """

    at: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    subject: str | None = None
    to: str | None = None
    limit: int = 20
    all_rows: bool = False
    """True for JSON: all rows, not only `limit`."""
    local: bool = False
    """True without Spark."""
    export: str | None = None
    data: str | None = None
    checks: Path | None = None
    from_scratch: bool = False
    recorded_policies: bool = False


class Table(NamedTuple):
    """Rows under a header; the caller aligns the columns."""

    header: tuple[str, ...]
    rows: Sequence[Sequence[object]]


class Outcome(NamedTuple):
    """The result of a sub-command: `rows` for programs, `lines` for people. `found` is true if a check failed (exit
    code 1).

    `about` has, for programs, the offset up to which the log was read, and the number of its events.
    """

    rows: Sequence[Mapping[str, Any]]
    found: bool
    lines: Sequence[str]
    about: Mapping[str, Any] = {}
    table: Table | None = None
    """Printed before the lines."""
