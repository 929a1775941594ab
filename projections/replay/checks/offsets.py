"""Whether the offsets of a log are contiguous, and how far it goes.

Each worker reports the runs of its events: stretches of offsets that rise by one. In a sound log there is one a batch,
so they are few, and the driver puts them in order and looks whether each begins where the one before it ended.
Comparing the count of a whole log with its ends would miss a hole that a repeated event makes up for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from projections.replay.checks.arrays import Ints
from projections.replay.checks.check import Violation

Run = tuple[int, int]
"""The first and the last of some offsets without a hole."""


class Extent(NamedTuple):
    """How far one log partition goes. `reviewed_ms` is when a review of topics last left an event, None when none did;
    `broken` are the offsets that do not follow the one before them, each with the one that was expected."""

    events: int
    end_offset: int
    end_ms: int
    reviewed_ms: int | None
    broken: tuple[tuple[int, int], ...] = ()


def runs(offsets: Ints) -> list[Run]:
    """The runs among some offsets, in order. An offset that is there twice begins another run."""
    ordered = np.sort(offsets)
    breaks = np.flatnonzero(np.diff(ordered) != 1) + 1
    firsts = ordered[np.concatenate(([0], breaks))] if len(ordered) else ordered
    lasts = ordered[np.concatenate((breaks - 1, [len(ordered) - 1]))] if len(ordered) else ordered
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def broken(found: Iterable[Run], start: int) -> Iterator[tuple[int, int]]:
    """Each offset that does not follow the one before it, with the one that does; the first has to be `start`."""
    expected = start
    for first, last in sorted(found):
        if first < expected:  # offsets that were there before: reported one by one, as each is there twice
            yield from ((offset, offset + 1) for offset in range(first, min(last + 1, expected)))
        elif first > expected:
            yield first, expected
        expected = max(expected, last + 1)


def offset_violations(extents: Mapping[int, Extent]) -> list[Violation]:
    """What is broken in the order of logs."""
    return [
        (partition, "", offset, None, "offsets-contiguous", f"offset {offset}", f"offset {expected}")
        for partition, extent in extents.items()
        for offset, expected in extent.broken
    ]
