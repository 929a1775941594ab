"""Some seconds of seeds that nobody has lived yet, another life each time. One that fails is shown with its commit, its
step and a smaller plan; whoever mends it adds nothing here, but to the table of docs/testing.md."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.simulation import simulation as one_process
from tests.simulation.brokers import simulation as brokers
from tests.simulation.lives import live_through
from tests.simulation.quorum import simulation as quorum
from tests.simulation.stream import simulation as stream

SPENT_S = 10.0
TRIES = 20
SIMULATORS: dict[str, Callable[..., object]] = {
    "tests.simulation": one_process.simulate,
    "tests.simulation.stream": stream.simulate,
    "tests.simulation.brokers": brokers.simulate,
    "tests.simulation.quorum": quorum.simulate,
}


@pytest.mark.parametrize("module", SIMULATORS)
def test_seeds_that_nobody_has_lived_yet(module: str) -> None:
    lived: list[bool] = []
    ends = time.monotonic() + SPENT_S

    def fresh() -> Iterator[int]:
        for seed in count(random.SystemRandom().randrange(10**9, 10**12)):
            yield seed
            if time.monotonic() > ends or not all(lived):
                return

    live_through(
        fresh(), SIMULATORS[module], lambda outcome: lived.append(outcome is not None), module=module, tries=TRIES
    )
    assert all(lived), "a seed failed: see what was printed"
