"""How often an archive had to be gone to for an answer; apart, for those that show it and need nothing else of one."""

from __future__ import annotations

from contextvars import ContextVar


class Visits:
    """How many objects of an archive were fetched."""

    def __init__(self) -> None:
        self.count = 0


visits: ContextVar[Visits | None] = ContextVar("visits", default=None)
"""Counts for the answer that is worked on in this context, where somebody wants to know."""
