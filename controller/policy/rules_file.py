"""Reads files of rules for topic changes (docs/policies.md), for the server and for replays with other rules."""

from __future__ import annotations

from pathlib import Path

from controller.machine.rules.reading import BYTES_MAX, read_rules
from controller.machine.rules.rule import RulesError
from events.logs.log import read_text


def rules_text(path: Path) -> str:
    """Returns the text of a file without a byte order mark; the rules are not checked. Raises RulesError."""
    try:
        return read_text(path, BYTES_MAX).removeprefix("\ufeff")
    except OSError as error:
        problem = RulesError(f"cannot be read: {error.strerror}", "a TOML file of rules")
    except UnicodeDecodeError as error:
        problem = RulesError(f"is not UTF-8 at byte {error.start}", "TOML in UTF-8")
    raise problem.in_file(path)


def checked_file(path: Path) -> str:
    """Returns the text of a file after checking its rules. Raises RulesError, which names the file."""
    text = rules_text(path)
    try:
        read_rules(text)
    except RulesError as error:
        raise error.in_file(path) from None
    return text
