"""Files of rules."""

from __future__ import annotations

from pathlib import Path

from controller.machine.rules.reading import BYTES_MAX, read_rules
from controller.machine.rules.rule import RulesError
from events.logs.log import read_text


def rules_text(path: Path) -> str:
    """Returns the text of a file, which need not be valid rules, without a byte order mark. Raises RulesError."""
    try:
        return read_text(path, BYTES_MAX).removeprefix("\ufeff")
    except OSError as error:
        problem = RulesError(f"cannot be read: {error.strerror}", "a TOML file of rules")
    except UnicodeDecodeError as error:
        problem = RulesError(f"is not UTF-8 at byte {error.start}", "TOML in UTF-8")
    raise problem.in_file(path)


def checked_file(path: Path) -> str:
    """Returns the text of a file of valid rules. Raises RulesError, which names the file."""
    text = rules_text(path)
    try:
        read_rules(text)
    except RulesError as error:
        raise error.in_file(path) from None
    return text
