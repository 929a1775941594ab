"""A controller with a replicated log: it decides while it leads, and serves committed events while it follows."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.brokers.kraft.projector import MetadataProjector
from controller.brokers.kraft.replication import QuorumReplication
from controller.brokers.simulated import SimulatedBrokers
from controller.controller_api import Reply
from controller.engine import group_commit
from controller.engine.group_commit import Controller
from controller.engine.reports import Reports
from controller.machine.commands.access import ApplyRules
from controller.machine.commands.commands import Approval, ChangeSettings, CreateTopic
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.recorded_command import approved_command
from events.catalog import ApprovalRequested, Recorded, SettingsChanged
from events.codec import decode_event
from events.logs.log import LogDiskFull
from events.names import TopicName
from tests.brokers.kraft.desks import FIRST
from tests.engine.stage import Heard, codes, topic_id
from tests.kafka.server.listener import until
from tests.quorum.seats import PATIENCE_S, Seat, led, quorum
from tests.support.memory_log import InMemoryLog


class Process:
    """A controller and a voter. Each has different settings, so that a new leader records them."""

    def __init__(self, seat: Seat) -> None:
        assert seat.node is not None, "the node runs"
        assert seat.log is not None, "the node runs"
        self.node, self.log = seat.node, InMemoryLog("cluster")
        projector = MetadataProjector(self.log)
        self.replication = QuorumReplication(self.node, seat.log, self.log, projector, FIRST)
        self.node.on_role = self.replication.on_role_changed
        self.settings = (("num.partitions", str(seat.id)),)
        self.heard = heard = Heard()
        self.controller = Controller(
            self.log,
            SimulatedBrokers(1),
            boot_id=f"b{seat.id}",
            clock_ms=lambda: time.time_ns() // 1_000_000,
            flush=self._flush,
            reports=Reports(heard, heard.write, heard),
            projector=projector,
            replication=self.replication,
        )

    async def _flush(self) -> int:
        return self.log.flush()

    def create(self, name: str, partitions: int = 1) -> asyncio.Future[Reply]:
        controller = self.controller
        request_id = controller.new_request_id("test")
        command = CreateTopic(
            request_id=request_id,
            at_ms=controller.now_ms(),
            topic=TopicName(name),
            topic_id=topic_id(request_id, name),
            timeout_ms=60_000,
            num_partitions=partitions,
            replication_factor=1,
        )
        return controller.submit([command], 60_000)

    def rules(self, text: str) -> ApplyRules:
        controller = self.controller
        return ApplyRules(request_id=controller.new_request_id("r"), at_ms=controller.now_ms(), text=text, after=0)

    def shows(self, name: str) -> bool:
        return self.controller.store.durable_named(name) is not None

    def events(self) -> list[Recorded]:
        return [decode_event(offset, value) for offset, value in self.log.read()]

    async def has_a_broker(self) -> None:
        cluster = self.controller.store
        await until(lambda: any(not each.fenced for each in cluster.durable_cluster.brokers.values()))


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[tuple[Process, list[Process]]]:
    """Returns the leader and the followers."""
    async with quorum(folder, 3) as seats:
        node = await led(seats)
        processes = [Process(seat) for seat in seats]
        for each in processes:
            await each.controller.start(each.settings, "1.0")
        leader = next(each for each in processes if each.node is node)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await leader.controller.deciding.wait()
                yield leader, [each for each in processes if each is not leader]
        finally:
            for each in processes:
                await each.controller.stop()
        assert [each.controller.failure for each in processes] == [None] * 3


RULES = "[[rule]]\nname = 'small'\npartitions = { max = 1 }\n"


async def test_voters_apply_the_rules_file_of_the_leader_and_report_a_different_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []

    def read(text: str) -> None:
        assert text == RULES
        threads.append(threading.current_thread() is not threading.main_thread())

    monkeypatch.setattr(group_commit, "recorded_rules", read)
    async with three(tmp_path) as (leader, (same, other)):
        await leader.has_a_broker()
        same.controller.apply_rules_file(RULES)
        other.controller.apply_rules_file(f"{RULES}# not the same")
        leader.controller.apply_rules_file(RULES)
        for each in (same, other):
            await until(lambda each=each: each.controller.store.durable_cluster.rules is not None)  # type: ignore[misc]
            assert each.controller.store.durable_cluster.rules == leader.controller.state.cluster.rules
        assert codes((await leader.create("t", 2)).answers) == [ErrorCode.POLICY_VIOLATION]
        reported = [each.heard.of("the leader applied another rules file than ours") for each in (same, other)]
        assert [len(each) for each in reported] == [0, 1]
        assert reported[1][0]["version"] == 1
        await until(lambda: len(threads) >= 2)
        assert threads == [True, True], "each follower compiles the rules in a thread"


async def test_followers_reject_requests_and_serve_committed_events(tmp_path: Path) -> None:
    async with three(tmp_path) as (leader, others):
        await leader.has_a_broker()
        for each in others:
            refused = await each.create("refused")
            assert codes(refused.answers) == [ErrorCode.NOT_CONTROLLER]
            (ruled,) = (await each.controller.submit([each.rules(RULES)])).answers
            me = leader.node.quorum.me
            (host, port) = each.node.quorum.leader_address or ("", 0)
            assert f"Another controller is the leader: node {me.id} at {host}:{port}." == ruled.message
            assert ruled.code == ErrorCode.NOT_CONTROLLER
            each.controller.submit_internal(
                ChangeSettings(request_id=each.controller.new_request_id("x"), at_ms=1, settings=(), release="dropped")
            )
            await each.controller.decided()
        assert codes((await leader.create("t")).answers) == [ErrorCode.NONE]
        for each in others:
            await until(lambda each=each: each.shows("t") and each.log.next_offset == leader.log.next_offset)  # type: ignore[misc]
            assert each.events() == leader.events()
            assert not each.shows("refused")
            assert each.controller.last_offset == leader.controller.last_offset
        said = [record.event for record in leader.events() if isinstance(record.event, SettingsChanged)]
        assert [(event.settings, event.release) for event in said] == [(leader.settings, "1.0")]


async def test_a_new_leader_applies_its_own_settings_and_the_old_one_follows(tmp_path: Path) -> None:
    async with three(tmp_path) as (leader, others):
        await leader.has_a_broker()
        assert codes((await leader.create("before")).answers) == [ErrorCode.NONE]
        await leader.node.hand_over(PATIENCE_S)
        await until(lambda: any(each.replication.leads for each in others))
        (chosen,) = (each for each in others if each.replication.leads)
        await chosen.controller.deciding.wait()
        assert chosen.shows("before")
        await until(lambda: chosen.controller.store.durable_cluster.settings_pairs == chosen.settings)
        refused = await leader.create("late")
        assert codes(refused.answers) == [ErrorCode.NOT_CONTROLLER]
        await chosen.has_a_broker()
        assert codes((await chosen.create("after")).answers) == [ErrorCode.NONE]
        await until(lambda: leader.shows("after"))
        assert leader.controller.state.cluster.settings_pairs == chosen.settings
        assert leader.events() == chosen.events()[: leader.log.next_offset]


async def test_a_new_leader_approves_what_the_old_one_held(tmp_path: Path) -> None:
    rules = f"{RULES}approve_by = ['User:bob']\n"

    def waiting(process: Process) -> dict[str, ApprovalRequested]:
        return {name: one for (_, name), one in process.controller.store.durable_cluster.held.items()}

    async def approve(process: Process, name: str) -> Answer:
        controller, held = process.controller, waiting(process)[name]
        stamps: dict[str, Any] = {"request_id": controller.new_request_id("test"), "at_ms": controller.now_ms()}
        command = approved_command(
            held, Approval(held.request_id, "User:bob"), **stamps, topic_id=topic_id(held.request_id, name)
        )
        return (await controller.submit([command], 60_000)).answers[0]

    async with three(tmp_path) as (leader, others):
        await leader.has_a_broker()
        await leader.controller.submit([leader.rules(rules)])
        for name in ("a", "b"):
            assert codes((await leader.create(name, 2)).answers) == [ErrorCode.POLICY_VIOLATION]
        for each in others:
            await until(lambda each=each: waiting(each).keys() == {"a", "b"})  # type: ignore[misc]
        refused = await approve(others[0], "a")
        assert refused.code == ErrorCode.NOT_CONTROLLER
        assert f"the leader: node {leader.node.quorum.me.id} at" in refused.message
        await leader.node.hand_over(PATIENCE_S)
        await until(lambda: any(each.replication.leads for each in others))
        (chosen,) = (each for each in others if each.replication.leads)
        await chosen.controller.deciding.wait()
        await chosen.has_a_broker()
        assert (await approve(chosen, "a")).code == ErrorCode.NONE
        for each in (leader, *others):
            await until(lambda each=each: waiting(each).keys() == {"b"} and each.shows("a"))  # type: ignore[misc]


async def test_a_follower_resumes_after_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with three(tmp_path) as (leader, (follower, _)):
        await leader.has_a_broker()
        failed = asyncio.Event()

        def fail(*_: object) -> None:
            monkeypatch.undo()
            failed.set()
            raise LogDiskFull("planted")

        monkeypatch.setattr(follower.log, "write", fail)
        assert codes((await leader.create("t")).answers) == [ErrorCode.NONE]
        await failed.wait()
        await until(lambda: follower.shows("t"))
        assert codes((await leader.create("later")).answers) == [ErrorCode.NONE]
        await until(lambda: follower.shows("later"))
