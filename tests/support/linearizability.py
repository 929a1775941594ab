"""Checks that a history of requests about one topic is linearizable: some order, in which each request takes effect
between its start and its answer, must explain all answers.

The search is Wing and Gong's (1993), with Lowe's cache of visited states (2017). Operations that change nothing are
ordered as soon as they fit. Requests without an answer may take effect at any later time, or never.
"""

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
    """A request with the topic's id before and after it; `after` is None if nothing changed.

    A create has ABSENT and its topic's id, or only PRESENT if the topic existed. A delete has PRESENT and ABSENT, or
    only ABSENT. A describe has the returned id, or ABSENT. Each create has a unique id.
    """

    request: str
    began: float
    ended: float
    """Infinite if there is no answer."""
    before: str
    after: str | None = None

    def fits(self, topic: str) -> bool:
        """True if this can be the next operation in the topic's state."""
        return topic != ABSENT if self.before == PRESENT else topic == self.before


def unexplained(history: Sequence[Operation]) -> list[Operation]:
    """The candidates after the longest valid order, none of which fits; empty if the history is linearizable."""
    # Answered operations first, then the others; both ordered by start.
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
        changes = {}  # only the first of equal operations without an answer
        for number in reversed(candidates):
            each = operations[number]
            if each.after is not None and each.fits(topic):
                changes[each.ended, each.before, each.after] = number
        # The operation that ended first is tried first.
        stack += [(done | 1 << changes[key], key[2]) for key in sorted(changes, reverse=True)]
    return stuck


def _next(operations: Sequence[Operation], done: int, topic: str) -> tuple[int, list[int]]:
    """Order all operations that may come next and change nothing. Returns the bits of the ordered operations, and the
    numbers of the candidates: those that began before every other one ended."""
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
    """Refine creates without an answer: if its topic was described, a create ended before that; the others get the same
    id, UNKNOWN."""
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
