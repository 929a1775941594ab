"""The decider ends a slice of decisions when its time is used up."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NoReturn

import pytest

from controller.engine.decider import SECONDS_PER_COMMIT_MAX, Decider, restamped
from controller.machine.commands.commands import AnyCommand, CreateTopic, ExpireRequest
from controller.machine.state import DictTopics, State
from events.catalog import Recorded
from events.names import RequestId, TopicId, TopicName


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


@pytest.mark.parametrize(("now_ms", "left_ms", "timeout_ms"), [(110, 91, 90), (110, 80, 80), (205, 3, 0)])
def test_an_approved_create_has_no_later_deadline(now_ms: int, left_ms: int, timeout_ms: int) -> None:
    """Its request expires at the first deadline, 200."""
    given: dict[str, Any] = {"request_id": RequestId("r"), "principal": "User:a", "topic": TopicName("t")}
    create = CreateTopic(**given, at_ms=100, topic_id=TopicId(bytes(16)), timeout_ms=100)
    stamped = restamped(create, now_ms, left_ms)
    assert isinstance(stamped, CreateTopic)
    assert (stamped.at_ms, stamped.timeout_ms) == (now_ms, timeout_ms)
