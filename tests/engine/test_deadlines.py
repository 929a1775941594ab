"""Request timeouts: the client's answer, the events in the log, and the topic's state."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controller.engine.tasks import Deadlines
from controller.machine.commands.access import AlterClientQuotas, QuotaAlteration
from controller.machine.state import Topic
from events.catalog import Cause, CreateAnswered, CreateRequested, Event, Recorded, TopicCreated, TopicReady
from events.logs.log import LogClosed, LogCorrupted, LogError
from events.names import Offset, RequestId, ShardKey
from tests.engine.stage import Stage, codes, on_stage
from tests.simulation.virtual_time import virtual_loop

YEAR_MS = 365 * 24 * 3_600_000


@on_stage()
async def test_a_create_past_its_timeout_is_answered_with_its_progress(stage: Stage) -> None:
    stage.brokers.set_delay(3, 5_000)
    begun = asyncio.get_running_loop().time()
    [answer] = await stage.create("slow", timeout_ms=1_000)
    assert 1.0 <= asyncio.get_running_loop().time() - begun < 1.1
    assert answer.code == 7
    text = "1 of 1 partitions have a leader and 2 of 3 live brokers have applied it; it waits for broker 3."
    assert answer.message.endswith(text)
    assert stage.events(TopicReady) == []
    await stage.settle(5)
    assert [event.topic for event in stage.events(TopicReady)] == ["slow"], "the topic is ready later"
    assert stage.answers_in_log("slow") == [7], "the create is answered once"
    assert stage.shows("slow")


@on_stage()
async def test_answered_topics_have_no_deadline_and_others_of_the_request_do(stage: Stage) -> None:
    stage.brokers.set_delay(3, 5_000)
    stage.create("a", "b", timeout_ms=1_000)
    await stage.settle()
    a, b = stage.events(TopicCreated)
    answered = CreateAnswered(a.request_id, a.topic, 0, "", 0)
    events: list[Event] = [a, b, answered]
    asked_ms, cause = a.deadline_ms - 1_000, Cause("test", a.request_id)
    sink: Any = SimpleNamespace(now_ms=lambda _: asked_ms)
    deadlines = Deadlines(sink)
    records = [Recorded(Offset(number), asked_ms, cause, event) for number, event in enumerate(events)]
    deadlines.on_events(records, records[-1].offset)
    assert len(deadlines._timers) == 1
    deadlines.stop()


@on_stage()
async def test_a_create_of_a_disconnected_client_is_answered_in_the_log(stage: Stage) -> None:
    stage.brokers.set_delay(3, 5_000)
    reply = stage.create("slow", timeout_ms=1_000)
    await stage.settle()
    reply.cancel()
    await stage.settle(1)
    assert stage.answers_in_log("slow") == [7]
    assert len(stage.controller.replies) == 0


@on_stage()
async def test_a_timeout_is_answered_although_the_wall_clock_is_set_back(stage: Stage) -> None:
    stage.brokers.set_delay(3, 5_000)
    reply = stage.create("slow", timeout_ms=1_000)
    await stage.settle(0.1)
    stage.skew_ms = -3_600_000
    assert codes(await asyncio.wait_for(reply, 2)) == [7]
    requested, answered = stage.events(CreateRequested)[-1], stage.records()[-1]
    assert isinstance(answered.event, CreateAnswered)
    assert answered.at_ms >= requested.deadline_ms, "no recorded timeout precedes its deadline"


@on_stage()
async def test_quotas_and_timeouts_work_after_a_clock_error_of_a_year(stage: Stage) -> None:
    """Quotas refill, deadlines expire and requests are answered, in this process and the next."""
    alteration = QuotaAlteration((("user", "ANONYMOUS"),), (("controller_mutation_rate", 0.1),))
    at_ms = stage.controller.now_ms()
    quota = AlterClientQuotas(request_id=RequestId("q"), at_ms=at_ms, alterations=(alteration,))
    await stage.controller.submit([quota])
    stage.skew_ms = YEAR_MS
    assert codes(await stage.create("a", num_partitions=2)) == [0]
    stage.skew_ms = 0
    refused = await stage.create("b")
    assert (codes(refused), refused.throttle_time_ms) == ([89], 9_000), "one token in ten seconds"
    await goes_on(stage, "c")
    await goes_on(await Stage(disk=stage.disk, boot_id="s2").start(), "d")


async def goes_on(stage: Stage, name: str) -> None:
    """A quota of 0.1 a second refills within ten seconds. A create that waits is answered at its deadline."""
    await stage.settle(10)
    stage.brokers.set_delay(3, 3_600_000)
    begun = asyncio.get_running_loop().time()
    [late] = await stage.create(name, timeout_ms=1_000)
    assert late.code == 7
    assert asyncio.get_running_loop().time() - begun == pytest.approx(1.0, abs=0.1)
    assert 400 <= late.waited_ms <= 1_000, "timestamps advance"
    times = [record.at_ms for record in stage.records()]
    assert times == sorted(times)
    await stage.controller.stop()


@on_stage()
async def test_a_create_that_times_out_during_a_slow_sync_is_answered_once(stage: Stage) -> None:
    stage.brokers.set_delay(3, 10)
    stage.hold_syncs()
    reply = stage.create("slow", timeout_ms=100)
    await stage.settle(1)
    assert not reply.done(), "no answer before the events are durable"
    stage.release_syncs()
    assert codes(await reply) == [7]
    await stage.settle()
    assert stage.answers_in_log("slow") == [7]


@on_stage()
async def test_deleting_a_pending_topic_answers_its_create(stage: Stage) -> None:
    stage.brokers.set_delay(3, 5_000)
    reply = stage.create("slow", timeout_ms=1_000)
    await stage.settle(0.1)
    assert codes(await stage.delete("slow")) == [0]
    assert codes(await reply) == [3]
    await stage.settle(6)
    assert stage.answers_in_log("slow") == [3], "neither the deadline nor brokers answer it again"


@on_stage()
async def test_answered_requests_leave_no_timers(stage: Stage) -> None:
    for number in range(20):
        await stage.create(f"t{number}", timeout_ms=30_000)
    timers = virtual_loop().timers()
    assert timers == [], "answered requests have no timer"
    assert len(stage.controller.replies) == 0


@pytest.mark.parametrize(("error", "is_said"), [(LogClosed("it is recovered"), False), (LogCorrupted("torn"), True)])
@on_stage()
async def test_an_unreadable_topic_does_not_block_other_deadlines(stage: Stage, error: LogError, is_said: bool) -> None:
    stage.brokers.set_delay(3, 3_600_000)
    for name, timeout_ms in (("a", 1_000), ("b", 2_000)):
        stage.create(name, timeout_ms=timeout_ms)
    await stage.settle(0.1)
    await stage.controller.stop()
    later = Stage(disk=stage.disk, boot_id="s2")
    later.brokers.set_delay(3, 3_600_000)
    await later.start()
    store = later.controller.store
    read = store.durable

    def durable(key: ShardKey) -> Topic | None:
        if key == "a":
            raise error
        return read(key)

    store.durable = durable  # type: ignore[method-assign]
    await later.settle(5)
    assert (later.answers_in_log("a"), later.answers_in_log("b")) == ([], [7])
    errors, virtual_loop().errors[:] = virtual_loop().errors[:], []
    assert [each["exception"] for each in errors] == ([error] if is_said else [])
    await later.controller.stop()
