"""kill -9 at drawn steps; the long run is `python -m tests.store.archive.killed`."""

from __future__ import annotations

import random
from pathlib import Path

from tests.store.archive.killed import rounds

ROUNDS = 4


def test_whoever_dies_at_any_step_loses_nothing_and_does_nothing_twice(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    assert rounds(tmp_path, ROUNDS, seed)["rounds"] == ROUNDS
