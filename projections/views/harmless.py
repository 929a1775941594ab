"""Text that may be of anybody (a client's id, a message), so written that nothing acts on it instead of showing it."""

from __future__ import annotations

import re

_ACTS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, all characters that set the direction of text, and surrogates."""


def escaped(text: str) -> str:
    """A text in which nothing moves the cursor, sets the title or turns text around: such characters are written as
    escapes."""
    return text if _ACTS.search(text) is None else _ACTS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()
