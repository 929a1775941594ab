"""Faults planted in the product's code, which a simulator has to find; and lives lived through one after another."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")

Bugs = Mapping[str, Sequence[tuple[Any, str, Any]]]
"""By name: whose attributes are replaced, and by what."""


@contextmanager
def planted(bugs: Bugs, name: str) -> Iterator[None]:
    """With a fault."""
    with ExitStack() as stack:
        for owner, attribute, wrong in bugs[name]:
            stack.enter_context(patch.object(owner, attribute, wrong))
        yield


def seeds_to_find(bugs: Bugs, name: str, simulate: Callable[[int], object], seeds: int) -> int | None:
    """How many seeds it takes to find a fault; None where so many do not."""
    with planted(bugs, name):
        for seed in range(seeds):
            try:
                simulate(seed)
            except Exception:
                return seed + 1
    return None


def live_through(seeds: Iterable[int], simulate: Callable[[int], T], lived: Callable[[int, int, T], None]) -> int:
    """Live through seeds, print those that fail, and the first of these whole; how many failed. `lived` is given each
    other seed, how many have failed before it, and what came of it."""
    failed = 0
    for seed in seeds:
        try:
            outcome = simulate(seed)
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
            if failed == 1:
                traceback.print_exc()
        else:
            lived(seed, failed, outcome)
    return failed
