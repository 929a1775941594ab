"""A bug stops deciding, leaves nobody waiting, and has the process ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from controller.engine import decider
from events.catalog import Recorded
from projections.store.recorder import EventsAlone
from tests.engine.stage import Stage, codes
from tests.simulation.virtual_time import on_virtual_time


def breaking(what: str, real: Callable[..., object], topic: str) -> Callable[..., object]:
    """The real thing, but a bug when it comes to one topic."""

    def broken(state: object, given: object) -> object:
        event = given.event if isinstance(given, Recorded) else given
        if getattr(event, "topic", "") == topic:
            raise AssertionError(f"{what} has a bug")
        return real(state, given)

    return broken


@pytest.mark.parametrize("part", ["decide", "apply"])
def test_a_bug_in_the_machine_stops_the_controller(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = decider if part == "decide" else EventsAlone
    monkeypatch.setattr(owner, part, staticmethod(breaking(part, getattr(owner, part), "poison")))

    @on_virtual_time
    async def story() -> None:
        stage = await Stage().start()
        await stage.create("before")
        stage.fleet.set_delay(1, 5_000)
        waits = stage.create("waits")
        await stage.settle()
        end = stage.log.next_offset
        together = [stage.create("good"), stage.create("poison"), stage.create("behind")]
        assert [codes(answers) for answers in await asyncio.gather(*together)] == [[-1], [-1], [-1]]
        assert codes(await waits) == [-1], "whoever waited"
        assert stage.controller.failed.is_set()
        assert str(stage.controller.failure) == f"{part} has a bug"
        assert stage.heard.lines[-1]["event"] == "controller failed"
        assert codes(await stage.create("after")) == [-1], "at once"
        await stage.settle(10)
        assert stage.log.next_offset == end, "nothing was written of a batch that was not decided to its end"
        assert stage.shows("before")
        await stage.controller.stop()
        assert len(stage.controller.replies) == 0

    story()


@on_virtual_time
async def test_a_bug_beside_the_group_commit_stops_the_controller_too() -> None:
    stage = await Stage().start()
    stage.hold_syncs()
    reply = stage.create("a")
    await stage.settle()

    async def bug() -> None:
        raise ZeroDivisionError("elsewhere")

    stage.controller.background(bug())
    assert codes(await reply) == [-1]
    stage.release_syncs()
    await stage.settle()
    assert isinstance(stage.controller.failure, ZeroDivisionError)
    await stage.controller.stop()


@on_virtual_time
async def test_a_bug_in_the_fleet_stops_the_controller() -> None:
    stage = await Stage().start()

    def learn(_: object) -> None:
        raise KeyError("the fleet's")

    stage.fleet.learn = learn  # type: ignore[method-assign,assignment]
    stage.create("a")
    await asyncio.wait_for(stage.controller.failed.wait(), 5)
    assert isinstance(stage.controller.failure, KeyError)
    await stage.controller.stop()


@on_virtual_time
async def test_only_the_first_failure_is_reported() -> None:
    stage = await Stage().start()

    async def bug(number: int) -> None:
        raise ValueError(number)

    for number in (1, 2):
        stage.controller.background(bug(number))
    await stage.settle()
    assert stage.controller.failure is not None
    assert stage.controller.failure.args == (1,)
    assert [line["event"] for line in stage.heard.lines].count("controller failed") == 1
    await stage.controller.stop()
