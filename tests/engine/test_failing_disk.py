"""Disk failures: errors of clients, events that survive, and recovery."""

import asyncio
import random

import pytest

from events.catalog import CreateAnswered, TopicCreated
from events.logs.log import LogCorrupted, LogError, LogWriteError
from tests.engine.stage import POLICY, Stage, codes, on_stage
from tests.simulation.slow_policies import SlowPolicies
from tests.simulation.virtual_time import on_virtual_time


@on_stage()
async def test_a_full_disk_fails_all_requests_until_there_is_space(stage: Stage) -> None:
    await stage.create("before")
    stage.disk.full = True
    replies = [stage.create("a", "b"), stage.delete("before"), stage.create("dry", validate_only=True)]
    assert [codes(answers) for answers in await asyncio.gather(*replies)] == [[56, 56], [56], [56]]
    assert stage.controller.storage_error == "no room left"
    assert codes(await stage.create("c")) == [56], "fails immediately while the disk is full"
    assert stage.shows("before"), "readers see durable events"
    assert not stage.shows("a")
    await stage.settle(5)
    assert stage.controller.storage_error == "still no room left"
    stage.disk.full = False
    await stage.settle(1.5)
    assert stage.controller.storage_error is None
    assert codes(await stage.create("a", "b")) == [0, 0]
    assert codes(await stage.delete("before")) == [0]
    stage.check()
    said = [line["event"] for line in stage.heard.lines if "storage" in line["event"]]
    assert said == ["storage failed", "storage recovered"]


@pytest.mark.parametrize("survives", [False, True])
@on_stage()
async def test_after_a_failed_sync_the_state_equals_the_log(stage: Stage, survives: bool) -> None:
    stage.disk.rng = _Always(survives)  # type: ignore[assignment]
    stage.disk.failing_syncs = 1.0
    assert codes(await stage.create("maybe", timeout_ms=0)) == [56], "unknown if the topic was created"
    stage.disk.failing_syncs = 0.0
    await stage.settle(2)
    assert stage.shows("maybe") is survives
    again = codes(await stage.create("maybe"))
    assert again == [36 if survives else 0], "the topic exists if its events survived"
    stage.check()
    lines = [line for line in stage.heard.lines if line.get("topic") == "maybe"]
    assert len(lines) == len(stage.events(CreateAnswered)), "each recorded answer has a log line"
    assert len(lines) == 1 + survives


class _Always:
    """A random generator that always or never keeps unsynced writes."""

    def __init__(self, survives: bool) -> None:
        self._kept = int(survives)

    def random(self) -> float:
        return 0.5

    def uniform(self, low: float, high: float) -> float:
        return low

    def choice(self, given: tuple[float, ...]) -> float:
        return self._kept if self._kept in given else given[0]


@on_stage()
async def test_commands_submitted_during_a_failed_sync_are_not_decided(stage: Stage) -> None:
    stage.hold_syncs()
    first = stage.create("first")
    await stage.settle()
    behind = stage.create("behind")
    stage.disk.failing_syncs = 1.0
    stage.release_syncs()
    assert codes(await first) == codes(await behind) == [56]
    stage.disk.failing_syncs = 0.0
    await stage.settle(2)
    assert not stage.shows("behind"), "its client got an error"
    assert "behind" not in [event.topic for event in stage.events(TopicCreated)]
    stage.check()


@on_stage()
async def test_pending_creates_are_answered_in_the_log_after_a_disk_failure(stage: Stage) -> None:
    stage.brokers.set_delay(3, 4_000)
    soon, late = stage.create("soon", timeout_ms=2_000), stage.create("late", timeout_ms=30_000)
    await stage.settle()
    stage.disk.full = True
    assert codes(await stage.create("x")) == [56]
    assert codes(await soon) == codes(await late) == [56], "all pending requests fail"
    stage.disk.full = False
    await stage.settle(10)
    assert stage.answers_in_log("soon") == [7], "the deadline expired"
    assert stage.answers_in_log("late") == [0], "the create was complete"
    stage.check()


@on_stage(policies=SlowPolicies(random.Random(0), (5, 5)))
async def test_policy_verdicts_after_a_disk_failure_are_dropped(stage: Stage) -> None:
    judged = stage.create("judged")
    await stage.settle()
    stage.disk.full = True
    assert codes(await stage.delete("none")) == [56]
    assert codes(await judged) == [56]
    stage.disk.full = False
    await stage.settle(10)
    assert not stage.shows("judged"), "its client got an error"
    stage.check()


@on_stage()
async def test_reads_fail_during_log_recovery_and_work_afterwards(stage: Stage) -> None:
    await stage.create("a")
    stage.disk.dark = True
    stage.disk.full = True
    assert codes(await stage.create("x")) == [56]
    await stage.settle(2)
    with pytest.raises(LogError):
        [*stage.controller.store.durable_from(None)]
    stage.disk.full = False
    await stage.settle(2)
    assert stage.shows("a")
    stage.check()


@on_stage()
async def test_the_controller_stops_immediately_with_a_full_disk(stage: Stage) -> None:
    stage.disk.full = True
    assert codes(await stage.create("x")) == [56]
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await stage.controller.stop()
    assert loop.time() - begun < 0.1
    assert stage.controller.failure is None, "a full disk does not fail the controller"


@on_stage()
async def test_a_damaged_log_fails_the_controller(stage: Stage) -> None:
    damaged = LogCorrupted("the log is damaged; restore it")

    def recover() -> int:
        raise damaged

    stage.log.recover = recover  # type: ignore[method-assign]
    stage.disk.full = True
    assert codes(await stage.create("x")) == [56]
    await asyncio.wait_for(stage.controller.failed.wait(), 5)
    assert stage.controller.failure is damaged
    assert codes(await stage.create("y")) == [56]


@on_stage()
async def test_disk_recovery_is_retried_at_most_once_a_second(stage: Stage) -> None:
    stage.brokers.set_delay(3, 100)
    await stage.create("a", timeout_ms=0)
    stage.disk.failing_writes = 1.0
    stage.create("b", timeout_ms=0)
    await stage.settle(60)
    assert stage.disk.failures <= 62, "at most one attempt a second"


@on_stage()
async def test_an_exception_in_a_write_is_no_storage_error(stage: Stage) -> None:

    def write(_: object) -> int:
        raise TypeError("a bug")

    stage.log.write = write  # type: ignore[method-assign,assignment]
    assert codes(await stage.create("x")) == [-1]
    assert stage.controller.storage_error is None
    assert isinstance(stage.controller.failure, TypeError)
    assert not isinstance(stage.controller.failure, LogWriteError)


@on_virtual_time
async def test_settings_apply_when_a_disk_that_was_full_at_start_has_space() -> None:
    """Then creates neither bypass a new policy nor wait for a removed one."""
    before = await Stage().start()
    await before.controller.stop()
    judged = Stage(disk=before.disk, policies=SlowPolicies(random.Random(1)), boot_id="s2")
    judged.disk.full = True
    await judged.start()
    judged.disk.full = False
    await judged.settle(2)
    assert judged.controller.state.cluster.settings_pairs == ((POLICY, "some.Policy"),)
    await judged.create("judged")
    await judged.controller.stop()
    unjudged = Stage(disk=before.disk, boot_id="s3")
    unjudged.disk.full = True
    await unjudged.start()
    unjudged.disk.full = False
    await unjudged.settle(2)
    assert unjudged.controller.state.cluster.settings_pairs == ()
    assert codes(await unjudged.create("free")) == [0]
    unjudged.check()
