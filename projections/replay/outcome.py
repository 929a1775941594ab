"""What every sub-command of `topicwright replay` takes and gives.

Each lives in a module of its name, as `run_NAME(session, ref, options) -> Outcome`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for beside the log; each sub-command reads what concerns it.

    `at` is a moment in the syntax of `projections.text.moments`, None the newest event. `policies` are class names
    for `backtest`, `settings` its `--set` pairs. `subject` is the topic or request to explain, `view` what to rebuild
    (topics, brokers or requests). `output` is a file or folder to write to, and `format` how. `limit` bounds the
    examples that are shown.
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
    """Programs get every row, people those of `limit`."""
    more: Mapping[str, Any] = {}
    """Options of one sub-command alone, by their name on the command line."""


class Table(msgspec.Struct, frozen=True):
    """Rows under a header, for people: who prints them sees to columns."""

    header: tuple[str, ...]
    rows: Sequence[Sequence[object]]


class Outcome(msgspec.Struct, frozen=True):
    """What came of it: `rows` for programs, `lines` for people, and whether a check `found` something (exit code 1).

    `about` says for programs what was looked at: up to which offset, and how much there was.
    """

    rows: Sequence[Mapping[str, Any]]
    found: bool
    lines: Sequence[str]
    about: Mapping[str, Any] = {}
    table: Table | None = None
    """What people are shown before the lines."""
