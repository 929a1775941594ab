"""Regular expressions from settings, policies and queries, matched in linear time with RE2.

Python's `re` backtracks: a name of 26 characters can block it, and all other threads, for seconds. RE2 takes time in
proportion to the length of the name, but has no lookaround and no backreferences.
"""

from typing import Any, Final

import re2

ALLOWED: Final = "RE2's syntax (https://github.com/google/re2/wiki/Syntax), so no lookaround and no backreference"
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False  # otherwise RE2 writes errors to standard error
_OPTIONS.max_mem = 1 << 20  # matching the worst pattern of this size to the longest topic name takes some 60 ms


SMALL: Final = re2.Options()
"""Options for patterns of at most some thousand instructions, which take milliseconds for a text of 500 characters."""
SMALL.log_errors, SMALL.max_mem = False, 1 << 15


class PatternError(ValueError):
    """A text is not a valid pattern; the message says why."""


class Pattern:
    """A compiled regular expression. The constructor raises PatternError."""

    def __init__(self, text: str, options: Any = _OPTIONS) -> None:
        self.text: Final = text
        try:
            self._compiled: Any = re2.compile(text, options)
        except (re2.error, UnicodeEncodeError) as error:
            why = error.args[0] if isinstance(error, re2.error) else error
            raise PatternError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from None
        self.size: Final[int] = self._compiled.programsize
        """The number of RE2's instructions. Each takes at most about 20 ns for each character of a name."""

    def is_found_in(self, name: str) -> bool:
        """True if the pattern matches some part of a name."""
        return self._compiled.search(name.encode()) is not None  # spares a search for offsets

    def groups_of(self, name: str) -> tuple[str, ...] | None:
        """Returns the whole name and then the text of each group, empty for a group that matches nothing. Returns None
        if the pattern does not match the whole name."""
        found = self._compiled.fullmatch(name)
        return None if found is None else (name, *found.groups(""))
