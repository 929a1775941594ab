"""Checks a history of requests about one topic: some order of them, in which each takes effect between its beginning
and its answer, must explain all answers. Then clients see one topic, whichever voter answers.

The search is Wing and Gong's (1993), with Lowe's memory of what was tried (2017). Answers that change nothing are
ordered as soon as they fit. Requests without an answer may take effect at any later time, or never.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

ABSENT: Final = ""
PRESENT: Final = "*"
"""Any id."""
UNKNOWN: Final = "?"
"""The id of a topic that was never described."""


class Operation(msgspec.Struct, frozen=True):
    """A request: its answer shows the topic's id before it, and the id after it, None if that is the same.

    A create has ABSENT and the id of its topic, or PRESENT if it found one; a delete has PRESENT and ABSENT, or only
    ABSENT; a describe has the id that it returned, or ABSENT. Each create has an id of its own.
    """

    request: str
    began: float
    ended: float
    """Infinite without an answer."""
    before: str
    after: str | None = None

    def fits(self, topic: str) -> bool:
        """True if this can be the next operation on a topic."""
        return topic != ABSENT if self.before == PRESENT else topic == self.before


def unexplained(history: Sequence[Operation]) -> list[Operation]:
    """The operations that may come after the longest order that explains the ones before; empty if an order explains
    all answers."""
    # The answered ones first, each part in the order in which they began.
    operations = sorted(_bounded(history), key=lambda each: (each.ended == math.inf, each.began))
    tried: set[tuple[int, str]] = set()
    most, stuck = -1, list[Operation]()
    stack = [(0, ABSENT)]
    while stack:
        done, topic = stack.pop()
        done, candidates = _next(operations, done, topic)
        if all(operations[number].ended == math.inf for number in candidates):
            return []
        if (done, topic) in tried:
            continue
        tried.add((done, topic))
        if done.bit_count() > most:
            most, stuck = done.bit_count(), [operations[number] for number in candidates]
        changes = {}  # of equal ones without an answer only the first
        for number in reversed(candidates):
            each = operations[number]
            if each.after is not None and each.fits(topic):
                changes[each.ended, each.before, each.after] = number
        # The one that ended first is tried first.
        stack += [(done | 1 << changes[key], key[2]) for key in sorted(changes, reverse=True)]
    return stuck


def _next(operations: Sequence[Operation], done: int, topic: str) -> tuple[int, list[int]]:
    """Order all operations that change nothing and may come now. Returns the bits of all ordered ones, and the numbers
    of those that may come next, because they began before every other one ended."""
    while True:
        first_end, candidates = math.inf, list[int]()
        for number in range((~done & done + 1).bit_length() - 1, len(operations)):
            each = operations[number]
            if not done >> number & 1 and each.began <= first_end:
                candidates.append(number)
                first_end = min(first_end, each.ended)
        candidates = [number for number in candidates if operations[number].began <= first_end]
        unchanged = [number for number in candidates if operations[number].after is None]
        unchanged = [number for number in unchanged if operations[number].fits(topic)]
        if not unchanged:
            return done, candidates
        done |= sum(1 << number for number in unchanged)


def _bounded(history: Sequence[Operation]) -> Iterator[Operation]:
    """The history with what is known of creates without an answer: one whose topic was described took effect before
    that, and all others are alike."""
    described: dict[str, float] = {}
    for each in history:
        if each.after is None:
            described[each.before] = min(each.ended, described.get(each.before, math.inf))
    for each in history:
        if each.ended < math.inf or each.after in (None, ABSENT):
            yield each
        elif each.after in described:
            yield replace(each, ended=described[each.after])
        else:
            yield replace(each, after=UNKNOWN)
