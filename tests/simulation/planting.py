"""Plants bugs in the product's code that a simulator must find."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

Bugs = Mapping[str, Sequence[tuple[Any, str, Any]]]
"""Bug name → (owner, attribute, replacement)."""


@contextmanager
def planted(bugs: Bugs, name: str) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, attribute, wrong in bugs[name]:
            stack.enter_context(patch.object(owner, attribute, wrong))
        yield


def seeds_to_find(bugs: Bugs, name: str, simulate: Callable[[int], object], seeds: int, first: int = 0) -> int | None:
    """The number of seeds, starting at `first`, until one fails with the bug; None if none of them fails."""
    with planted(bugs, name):
        for seed in range(first, first + seeds):
            try:
                simulate(seed)
            except Exception:
                return seed - first + 1
    return None
