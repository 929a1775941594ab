"""Faults planted in the distributed engine, each of which the simulator has to find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from controller.stream.front.node import FrontNode
from controller.stream.log.partition import PartitionState
from controller.stream.log.recent_requests import RecentRequests
from controller.stream.worker.engine import Engine
from tests.simulation.planting import Bugs
from tests.simulation.stream.clients_of_kafka import SimulatedConsumer


async def _keep_all(engine: Engine, state: PartitionState, start: int, values: Sequence[bytes]) -> None:
    return None


def _seek_to_the_end(consumer: SimulatedConsumer, place: Any, offset: int) -> None:
    _seek(consumer, place, len(consumer._kafka.commands[place.partition]) if offset else 0)


_seek = SimulatedConsumer.seek


def _remember_nothing(state: PartitionState) -> None:
    state._recent = state._recent or RecentRequests()


def _nothing(*_: object, **__: object) -> None:
    return None


BUGS: Final[Bugs] = {
    "a decision is kept though its record did not come to lie where it should": [(Engine, "_find_own", _keep_all)],
    "a copy is decided": [(PartitionState, "decided_before", lambda *_: False)],
    "the next owner does not know what was decided": [(PartitionState, "remember_requests", _remember_nothing)],
    "commands are passed over at a rebalance": [(SimulatedConsumer, "seek", _seek_to_the_end)],
    "a front does not notice that nobody decides": [(FrontNode, "_time_is_up", _nothing)],
}
