"""The decider ends a slice of decisions when its time is used up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NoReturn

import pytest

from controller.engine.decider import SECONDS_PER_COMMIT_MAX, Decider
from controller.machine.commands.commands import AnyCommand, ExpireRequest
from controller.machine.state import DictTopics, State
from events.catalog import Recorded
from events.names import RequestId, TopicName


class _Log:
    state = State(topics=DictTopics())

    def record_decision(self, command: AnyCommand, *_: Sequence[Any]) -> list[Recorded]:
        return []


def _fault(command: AnyCommand, error: Exception) -> NoReturn:
    raise error


@pytest.mark.parametrize(("share", "decided"), [(0, 5), (0.5, 2), (100, 1)], ids=["fast", "half a slice", "slow"])
def test_slow_decisions_are_deferred_so_that_the_event_loop_is_free(share: float, decided: int) -> None:
    commands = [ExpireRequest(request_id=RequestId(f"r{n}"), at_ms=1, topic=TopicName("x")) for n in range(5)]
    times: Iterator[float] = (n * share * SECONDS_PER_COMMIT_MAX for n in count())
    decider = Decider(_fault, clock_s=lambda: next(times))
    assert list(decider.decide(_Log(), commands, lambda records: ()).deferred) == commands[decided:]
