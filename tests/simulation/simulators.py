"""The four simulators: how each runs from a seed, what is counted of a run, the bugs planted in what it simulates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tests.simulation import bugs, simulation
from tests.simulation.brokers import bugs as brokers_bugs
from tests.simulation.brokers import simulation as brokers
from tests.simulation.planting import Bugs
from tests.simulation.quorum import bugs as quorum_bugs
from tests.simulation.quorum import simulation as quorum
from tests.simulation.stream import bugs as stream_bugs
from tests.simulation.stream import simulation as stream


class Simulator(NamedTuple):
    """One of them; `simulate` raises an AssertionError that names the seed."""

    simulate: Callable[..., Any]
    counted: Callable[[Any], Counter[str]]
    bugs: Bugs
    title: str
    """Its name in docs/testing.md."""


def _answers(outcome: Any) -> Counter[str]:
    return Counter({f"{api} {code}": count for (api, code), count in outcome.answers.items()})


def _of_process(outcome: simulation.Outcome) -> Counter[str]:
    return Counter(outcome.faults) + Counter(requests=outcome.requests, events=outcome.events) + _answers(outcome)


def _of_stream(outcome: stream.Outcome) -> Counter[str]:
    return Counter(outcome.done) + Counter(requests=outcome.requests, events=outcome.events) + _answers(outcome)


def _of_brokers(outcome: brokers.Outcome) -> Counter[str]:
    counts = Counter(outcome.faults) + Counter(outcome.counts) + _answers(outcome)
    return counts + Counter(requests=outcome.requests, events=outcome.events)


def _of_quorum(outcome: quorum.Outcome) -> Counter[str]:
    return Counter(outcome.counts) + Counter(steps=outcome.steps, epochs=outcome.epochs, requests=outcome.answered)


SIMULATORS: Final[Mapping[str, Simulator]] = {
    "process": Simulator(simulation.simulate, _of_process, bugs.BUGS, "one process"),
    "stream": Simulator(stream.simulate, _of_stream, stream_bugs.BUGS, "workers and gateways"),
    "brokers": Simulator(brokers.simulate, _of_brokers, brokers_bugs.BUGS, "Kafka brokers"),
    "quorum": Simulator(quorum.simulate, _of_quorum, quorum_bugs.BUGS, "quorum"),
}
