"""Decider: when a slice of deciding ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from controller.engine.decider import SECONDS_PER_COMMIT_MAX, Decider
from controller.machine.commands.commands import AnyCommand, ExpireRequest
from controller.machine.state import DictTopics, State
from events.catalog import Recorded
from events.names import RequestId, TopicName


class _Log:
    state = State(topics=DictTopics())

    def record_decision(self, command: AnyCommand, *_: Sequence[Any]) -> list[Recorded]:
        return []


def test_slow_decisions_are_deferred_so_that_the_event_loop_is_free() -> None:
    commands = [ExpireRequest(request_id=RequestId(f"r{n}"), at_ms=1, topic=TopicName("x")) for n in range(5)]
    for seconds, decided in ((0.0, 5), (SECONDS_PER_COMMIT_MAX / 2, 2), (SECONDS_PER_COMMIT_MAX * 100, 1)):
        times = (n * seconds for n in count())
        decider = Decider(lambda command, error: 1 / 0, clock_s=lambda times=times: next(times))  # type: ignore[misc]
        assert decider.decide(_Log(), commands, lambda records: ()).deferred == commands[decided:] or decided == 5
