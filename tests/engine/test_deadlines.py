"""Timeouts: what a client is answered when time is up, what the log says, and what happens to the topic."""

from __future__ import annotations

import asyncio

from events.catalog import CreateAnswered, CreateRequested, TopicReady
from tests.engine.stage import Stage, codes
from tests.simulation.virtual_time import on_virtual_time, virtual_loop


@on_virtual_time
async def test_a_create_that_is_not_complete_in_time_is_answered_how_far_it_came() -> None:
    stage = await Stage().start()
    stage.fleet.set_delay(3, 5_000)
    begun = asyncio.get_running_loop().time()
    [answer] = await stage.create("slow", timeout_ms=1_000)
    assert 1.0 <= asyncio.get_running_loop().time() - begun < 1.1
    assert answer.code == 7
    assert answer.message.endswith("1 of 1 partitions have a leader and 2 of 3 live brokers know it.")
    assert stage.events(TopicReady) == []
    await stage.settle(5)
    assert [event.topic for event in stage.events(TopicReady)] == ["slow"], "it completes later"
    assert stage.answers_in_log("slow") == [7], "and is answered once"
    assert stage.shows("slow")


@on_virtual_time
async def test_a_create_that_is_complete_in_time_is_answered_then() -> None:
    stage = await Stage().start()
    stage.fleet.set_delay(3, 400)
    [answer] = await stage.create("quick", timeout_ms=1_000)
    assert (answer.code, answer.waited_ms) == (0, 400)
    await stage.settle(2)
    assert stage.answers_in_log("quick") == [0]


@on_virtual_time
async def test_topics_of_one_request_are_answered_together() -> None:
    stage = await Stage().start()
    stage.fleet.set_delay(3, 5_000)
    answers = await stage.create("a", "no/name", "b", timeout_ms=300)
    assert codes(answers) == [7, 17, 7]


@on_virtual_time
async def test_a_client_that_is_gone_is_answered_in_the_log_all_the_same() -> None:
    stage = await Stage().start()
    stage.fleet.set_delay(3, 5_000)
    reply = stage.create("slow", timeout_ms=1_000)
    await stage.settle()
    reply.cancel()
    await stage.settle(1)
    assert stage.answers_in_log("slow") == [7]
    assert len(stage.controller.replies) == 0


@on_virtual_time
async def test_a_timeout_is_answered_though_the_wall_clock_goes_back() -> None:
    stage = await Stage().start()
    stage.fleet.set_delay(3, 5_000)
    reply = stage.create("slow", timeout_ms=1_000)
    await stage.settle(0.1)
    stage.skew_ms = -3_600_000
    assert codes(await asyncio.wait_for(reply, 2)) == [7]
    requested, answered = stage.events(CreateRequested)[-1], stage.records()[-1]
    assert isinstance(answered.event, CreateAnswered)
    assert answered.at_ms >= requested.deadline_ms, "the log never says that a timeout came early"


@on_virtual_time
async def test_the_time_of_the_log_never_goes_back() -> None:
    stage = await Stage().start()
    await stage.create("a")
    stage.skew_ms = -60_000
    await stage.create("b")
    await stage.controller.stop()
    later = Stage(disk=stage.disk, boot_id="s2")
    later.skew_ms = -120_000
    await later.start()
    await later.create("c")
    times = [record.at_ms for record in later.records()]
    assert times == sorted(times), "neither in one process nor over a restart"


@on_virtual_time
async def test_a_deadline_passes_while_a_sync_is_slow() -> None:
    stage = await Stage().start()
    stage.hold_syncs()
    reply = stage.create("slow", timeout_ms=100)
    await stage.settle(1)
    assert not reply.done(), "nothing is answered that is not durable"
    stage.release_syncs()
    assert codes(await reply) == [7]
    await stage.settle()
    assert stage.answers_in_log("slow") == [7]


@on_virtual_time
async def test_a_topic_deleted_while_its_create_waits_ends_the_wait() -> None:
    stage = await Stage().start()
    stage.fleet.set_delay(3, 5_000)
    reply = stage.create("slow", timeout_ms=1_000)
    await stage.settle(0.1)
    assert codes(await stage.delete("slow")) == [0]
    assert codes(await reply) == [3]
    await stage.settle(6)
    assert stage.answers_in_log("slow") == [3], "neither the deadline nor the brokers answer it again"


@on_virtual_time
async def test_nothing_is_kept_of_requests_that_are_over() -> None:
    stage = await Stage().start()
    for number in range(20):
        await stage.create(f"t{number}", timeout_ms=30_000)
    timers = virtual_loop().timers()
    assert timers == [], "the deadlines of answered requests are not waited for"
    assert len(stage.controller.replies) == 0
