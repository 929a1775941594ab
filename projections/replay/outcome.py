"""The options and the result of each sub-command of `topicwright replay`.

Each sub-command is a function `run_NAME(runner, ref, options) -> Outcome` in a module of its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a sub-command; each reads those that apply to it.

    `at` is a point in time as `projections.text.moments` parses it; None is the newest event. `policies` are class
    names for `backtest`, `settings` its `--set` pairs. `subject` is the topic or request to explain, or a query; `view`
    is what to rebuild (topics, brokers or requests). `output` is a file or folder to write to, `format` its format.
    `limit` is the number of examples to show.
    """

    at: str | None = None
    policies: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    subject: str | None = None
    view: str = "topics"
    output: str | None = None
    format: str = "parquet"
    limit: int = 20
    all_rows: bool = False
    """True for JSON: all rows, not only `limit`."""
    more: Mapping[str, Any] = {}
    """Options of one sub-command only, by their name on the command line."""


class Table(msgspec.Struct, frozen=True):
    """Rows under a header; the caller aligns the columns."""

    header: tuple[str, ...]
    rows: Sequence[Sequence[object]]


class Outcome(msgspec.Struct, frozen=True):
    """The result: `rows` for programs, `lines` for people. `found` is true if a check failed (exit code 1).

    `about` tells programs up to which offset the log was read, and how many events it has.
    """

    rows: Sequence[Mapping[str, Any]]
    found: bool
    lines: Sequence[str]
    about: Mapping[str, Any] = {}
    table: Table | None = None
    """Printed before the lines."""
