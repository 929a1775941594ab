"""`python -m tests.simulation.planted`: the table of docs/testing.md, of the planted bugs and the seeds each takes.

Seeds are from 0 on; who is not found within `SEEDS` is shown so, and the command fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from tests.simulation import bugs as of_process
from tests.simulation.brokers import bugs as of_brokers
from tests.simulation.brokers.simulation import simulate as live_brokers
from tests.simulation.planting import Bugs, seeds_to_find
from tests.simulation.quorum import bugs as of_quorum
from tests.simulation.quorum.simulation import simulate as live_quorum
from tests.simulation.simulation import simulate as live_process
from tests.simulation.stream import bugs as of_stream
from tests.simulation.stream.simulation import simulate as live_stream

SEEDS: Final = 400
HEAD: Final = "| planted bug | simulator | seeds that it took |\n|---|---|---|"
SIMULATORS: Final[Sequence[tuple[str, Bugs, Callable[[int], object]]]] = (
    ("one process", of_process.BUGS, live_process),
    ("workers and gateways", of_stream.BUGS, live_stream),
    ("Kafka brokers", of_brokers.BUGS, live_brokers),
    ("quorum", of_quorum.BUGS, live_quorum),
)


def main() -> None:
    """Print the table."""
    missed = 0
    print(HEAD)
    for simulator, bugs, simulate in SIMULATORS:
        for bug in bugs:
            found = seeds_to_find(bugs, bug, simulate, SEEDS)
            missed += found is None
            print(f"| {bug} | {simulator} | {found or f'not found in {SEEDS}'} |", flush=True)
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
