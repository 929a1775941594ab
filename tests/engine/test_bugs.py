"""A bug beside deciding on a command stops deciding, leaves nobody waiting, and has the process ended."""

from __future__ import annotations

import asyncio

from tests.engine.stage import Stage, codes, on_stage


@on_stage()
async def test_a_bug_beside_the_group_commit_stops_the_controller_too(stage: Stage) -> None:
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


@on_stage()
async def test_a_bug_in_the_fleet_stops_the_controller(stage: Stage) -> None:

    def on_events(*_: object) -> None:
        raise KeyError("the brokers's")

    stage.brokers.on_events = on_events  # type: ignore[method-assign,assignment]
    stage.create("a")
    await asyncio.wait_for(stage.controller.failed.wait(), 5)
    assert isinstance(stage.controller.failure, KeyError)


@on_stage()
async def test_only_the_first_failure_is_reported(stage: Stage) -> None:

    async def bug(number: int) -> None:
        raise ValueError(number)

    for number in (1, 2):
        stage.controller.background(bug(number))
    await stage.settle()
    assert stage.controller.failure is not None
    assert stage.controller.failure.args == (1,)
    assert [line["event"] for line in stage.heard.lines].count("controller failed") == 1
