"""Faults planted in the product's code, which a simulator has to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

Bugs = Mapping[str, Sequence[tuple[Any, str, Any]]]
"""By name: whose attributes are replaced, and by what."""


@contextmanager
def planted(bugs: Bugs, name: str) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, attribute, wrong in bugs[name]:
            stack.enter_context(patch.object(owner, attribute, wrong))
        yield


def seeds_to_find(bugs: Bugs, name: str, simulate: Callable[[int], object], seeds: int, first: int = 0) -> int | None:
    """How many seeds it takes to find a fault, from the first on; None where so many do not."""
    with planted(bugs, name):
        for seed in range(first, first + seeds):
            try:
                simulate(seed)
            except Exception:
                return seed - first + 1
    return None
