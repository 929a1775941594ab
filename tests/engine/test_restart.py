"""Restarts on the same log."""

import asyncio
import threading

import pytest

from controller.engine import group_commit
from tests.engine.stage import Stage, codes, on_stage
from tests.machine.audit.auditor import audit
from tests.machine.rig import fold, topics_of
from tests.simulation.virtual_time import on_virtual_time, running_as, virtual_loop


async def killed(stage: Stage, process: int) -> None:
    """Simulate SIGKILL of a process."""
    virtual_loop().kill(process)
    stage.disk.crash(power=False)


@on_stage()
async def test_a_restart_restores_the_state_and_writes_nothing(stage: Stage) -> None:
    await stage.create("a", "b", num_partitions=3, replication_factor=3)
    await stage.enlarge("a", 5)
    await stage.delete("b")
    before = [*stage.controller.store.durable_from(None)]
    await stage.controller.stop()
    end = stage.log.next_offset
    later = await Stage(disk=stage.disk, boot_id="s2").start()
    assert [*later.controller.store.durable_from(None)] == before
    assert later.controller.store.durable_counts.partitions == 5
    assert later.log.next_offset == end, "a restart that changes nothing writes nothing"
    assert codes(await later.create("a")) == [36]
    assert topics_of(fold(later.records())) == [*later.controller.store.durable_from(None)]


async def test_the_rules_are_read_in_a_thread_before_the_first_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, rules = await Stage().start(), "[[rule]]\nname = 'r'\npartitions = 1\n"
    stage.controller.apply_rules_file(rules)
    await stage.controller.decided()
    await stage.controller.stop()
    threads: list[threading.Thread] = []
    monkeypatch.setattr(group_commit, "recorded_rules", lambda text: threads.append(threading.current_thread()))
    later = Stage(disk=stage.disk, boot_id="s2")
    await later.controller.start((), "1.0")
    await later.controller.stop()
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


@on_virtual_time
async def test_a_restart_adds_unreported_followers_to_the_isr() -> None:
    with running_as(1):
        stage = await Stage().start()
        await stage.create("a", num_partitions=6, replication_factor=3)
        stage.brokers.stop_broker(2)
        await stage.settle()
        stage.hold_syncs()
        stage.brokers.start_broker(2)
        await stage.settle()
    await killed(stage, 1)
    later = await Stage(disk=stage.disk, boot_id="s2").start()
    topic = later.topic("a")
    assert all(set(partition.isr) == {1, 2, 3} for partition in topic.partitions)
    await later.controller.stop()


@on_stage(brokers=4)
async def test_removed_brokers_are_fenced_at_start(stage: Stage) -> None:
    await stage.create("a", num_partitions=4, replication_factor=4)
    await stage.controller.stop()
    later = await Stage(disk=stage.disk, brokers=2, boot_id="s2").start()
    assert later.controller.store.durable_cluster.live == (1, 2)
    topic = later.topic("a")
    assert {partition.leader for partition in topic.partitions} == {1, 2}
    assert audit(later.records(), settled=True) == []


@on_stage()
async def test_accepted_requests_are_answered_before_stop_ends(stage: Stage) -> None:
    stage.hold_syncs()
    replies = [stage.create(f"t{number}", timeout_ms=0) for number in range(5)]
    await stage.settle()
    replies += [stage.create(f"u{number}", timeout_ms=0) for number in range(5)]
    stopping = asyncio.ensure_future(stage.controller.stop())
    await stage.settle()
    late = stage.create("late")
    assert codes(await late) == [41], "NOT_CONTROLLER: the client looks for another controller"
    stage.release_syncs()
    await stopping
    assert [codes(reply.result()) for reply in replies] == [[7]] * 10
    assert stage.log.durable_offset == stage.log.next_offset


@on_stage()
async def test_pending_creates_at_stop_are_answered_after_a_restart(stage: Stage) -> None:
    stage.brokers.set_delay(3, 60_000)
    reply = stage.create("slow", timeout_ms=30_000)
    await stage.settle()
    await stage.controller.stop()
    assert reply.cancelled()
    again = Stage(disk=stage.disk, boot_id="s2")
    again.brokers.by_id[3].delay_ms = 60_000  # type: ignore[index]
    await again.start()
    await again.controller.stop()
    assert virtual_loop().timers() == [], "a stopped controller has no timers"
    later = await Stage(disk=stage.disk, boot_id="s3").start()
    assert later.answers_in_log("slow") == [0]


@on_stage()
async def test_create_deadlines_expire_after_a_restart_with_a_clock_set_back(stage: Stage) -> None:
    stage.brokers.set_delay(3, 60_000)
    stage.create("slow", timeout_ms=30_000)
    await stage.settle()
    await stage.controller.stop()
    later = Stage(disk=stage.disk, boot_id="s2")
    later.brokers.by_id[3].delay_ms = 60_000  # type: ignore[index]
    await later.start()
    later.skew_ms = -3_600_000
    await later.settle(30)
    assert later.answers_in_log("slow") == [7]
    times = [record.at_ms for record in later.records()]
    assert times == sorted(times)
