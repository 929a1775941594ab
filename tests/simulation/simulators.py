"""The four simulators: the function that runs a seed, and the planted bugs of each."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tests.simulation import bugs, simulation
from tests.simulation.brokers import bugs as brokers_bugs
from tests.simulation.brokers import simulation as brokers
from tests.simulation.lives import Outcome
from tests.simulation.planting import Bugs
from tests.simulation.quorum import bugs as quorum_bugs
from tests.simulation.quorum import simulation as quorum
from tests.simulation.stream import bugs as stream_bugs
from tests.simulation.stream import simulation as stream


class Simulator(NamedTuple):
    """A simulator. `simulate` raises an AssertionError with the seed in a note."""

    simulate: Callable[..., Outcome]
    bugs: Bugs
    title: str
    """Its name in planted.md."""


SIMULATORS: Final[Mapping[str, Simulator]] = {
    "process": Simulator(simulation.simulate, bugs.BUGS, "one process"),
    "stream": Simulator(stream.simulate, stream_bugs.BUGS, "workers and gateways"),
    "brokers": Simulator(brokers.simulate, brokers_bugs.BUGS, "Kafka brokers"),
    "quorum": Simulator(quorum.simulate, quorum_bugs.BUGS, "quorum"),
}
