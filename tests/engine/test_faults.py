"""An exception fails only the command that caused it, for each kind of command and each place."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from controller.engine import decider
from controller.machine import apply
from controller.machine import decide as machine
from controller.machine.commands import commands
from controller.machine.commands.access import AlterClientQuotas, ClusterCommand, QuotaAlteration, RecordRefusals
from controller.machine.commands.commands import BeginQuorumEpoch, ChangeSettings, TopicCommand
from controller.machine.state import Topic
from events.access import RequestsRefused
from events.catalog import CreateRequested, Event, Recorded, TopicCreated
from events.names import RequestId, TopicName
from tests.engine.stage import Stage, codes, on_stage
from tests.simulation.virtual_time import on_virtual_time

POISON = "poison"
INDISPENSABLE = (ChangeSettings, BeginQuorumEpoch)
KINDS = sorted((kind for kind in machine._DECIDERS if kind not in INDISPENSABLE), key=lambda kind: kind.__name__)


def poison(stage: Stage, kind: type[Any]) -> Any:
    """A command that only a planted decider reads."""
    given = {"request_id": RequestId(POISON), "at_ms": stage.controller.now_ms(), "topic": TopicName(POISON)}
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    return kind(**{name: given.get(name, ()) for name in required})


def raises_on(wanted: Callable[[Any], bool], real: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that raises if `wanted` is true of its argument, and else calls the real one."""

    def planted(state: object, given: object) -> object:
        if wanted(given):
            raise ZeroDivisionError("planted")
        return real(state, given)

    return planted


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@on_virtual_time
async def test_an_exception_in_a_decision_fails_only_its_command(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = machine._DECIDERS[kind]
    monkeypatch.setitem(machine._DECIDERS, kind, raises_on(lambda command: command.request_id == POISON, real))
    stage = await Stage().start()
    before, after = stage.create("before"), poison(stage, kind)
    if isinstance(after, TopicCommand | ClusterCommand):
        failing = stage.controller.submit([after])
        behind = stage.create("behind")
        (answer,) = await failing
        assert (answer.code, answer.message.split(".")[0]) == (-1, "The controller failed on this request")
    else:
        stage.controller.submit_internal(after)
        behind = stage.create("behind")
    assert [codes(await reply) for reply in (before, behind)] == [[0], [0]]
    await stage.settle()
    assert stage.heard.failed == [kind.__name__]
    (line,) = stage.heard.of("command failed")
    assert (line["command"], line["request"], line["why"]) == (kind.__name__, POISON, "ZeroDivisionError: planted")
    assert "in planted" in line["trace"]
    refused = [(event.api, event.error_code, event.rule) for event in stage.events(RequestsRefused)]
    expected = [(kind.__name__, -1, "fault:ZeroDivisionError")]
    assert refused == ([] if kind is RecordRefusals else expected), "else each failure would record another"
    assert stage.controller.failure is None
    stage.check()
    await stage.controller.stop()


@pytest.mark.parametrize("after", [1, 2])
@on_virtual_time
async def test_applied_events_of_a_failed_command_are_reverted(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The `after`-th event of a create fails: CreateRequested or TopicCreated."""
    kind = (CreateRequested, TopicCreated)[after - 1]
    real = apply._TOPIC_EVENTS[kind]

    def failing(topic: Topic | None, event: Event, record: Recorded) -> Topic | None:
        assert record.cause.request_id != POISON, "does not fit"
        return real(topic, event, record)

    monkeypatch.setitem(apply._TOPIC_EVENTS, kind, failing)
    stage = await Stage().start()
    stage.brokers.set_delay(1, 500)
    bad = poison_create(stage)
    together = [stage.create("good"), stage.controller.submit([bad]), stage.create("behind")]
    assert [codes(reply) for reply in await asyncio.gather(*together)] == [[0], [-1], [0]]
    await stage.settle()
    assert [event.topic for event in stage.events(TopicCreated)] == ["good", "behind"]
    stage.check()
    assert codes(await stage.create(POISON)) == [0], "its name is free"
    stage.check()
    await stage.controller.stop()


def poison_create(stage: Stage) -> commands.CreateTopic:
    created: commands.CreateTopic = poison(stage, commands.CreateTopic)
    return msgspec.structs.replace(created, topic_id=bytes(16), num_partitions=1, replication_factor=1, timeout_ms=1000)


@on_stage()
async def test_an_event_that_cannot_be_encoded_fails_its_command(stage: Stage) -> None:
    """A text that is not valid UTF-8 does not stop the log."""
    together = [stage.create("good"), stage.create("a/b", client_id="\ud800"), stage.create("c", client_id="\ud800")]
    assert [codes(reply) for reply in await asyncio.gather(*together)] == [[0], [-1], [-1]]
    await stage.settle()
    assert stage.controller.failure is None
    stage.check()


@pytest.mark.parametrize("kind", INDISPENSABLE, ids=lambda kind: kind.__name__)
@on_virtual_time
async def test_a_failed_settings_or_epoch_command_fails_the_controller(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(machine._DECIDERS, kind, raises_on(lambda _: True, machine._DECIDERS[kind]))
    stage = Stage()
    if kind is BeginQuorumEpoch:
        await stage.start()
        stage.controller.submit_internal(poison(stage, kind))
    else:
        await stage.controller.start((), "1.0")
    await asyncio.wait_for(stage.controller.failed.wait(), 5)
    assert isinstance(stage.controller.failure, ZeroDivisionError)
    await stage.controller.stop()


REPEATED = (
    commands.ReconcileTopics,
    commands.ConfirmMetadata,
    commands.ExpireRequest,
    commands.AlterPartition,
    commands.RegisterBroker,
    commands.FenceBroker,
    RecordRefusals,
)


@pytest.mark.parametrize("kind", REPEATED, ids=lambda kind: kind.__name__)
@on_virtual_time
async def test_internal_commands_that_always_fail_are_retried_with_back_off(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(machine._DECIDERS, kind, raises_on(lambda _: True, machine._DECIDERS[kind]))
    stage = await Stage().start()
    for number in range(3):
        stage.create(f"t{number}", timeout_ms=1000, denied=29 * (number == 2))
    stage.brokers.stop_broker(2)
    await stage.settle(5)
    stage.brokers.start_broker(2)
    await stage.settle(5)
    tried, commits = len(stage.heard.failed), len(stage.heard.commits)
    await stage.settle(600)
    assert len(stage.heard.failed) - tried <= 20, "few retries in ten minutes"
    assert len(stage.heard.commits) - commits <= 20, "few commits in ten minutes"
    assert stage.controller.failure is None
    await stage.controller.stop()


@on_stage()
async def test_a_failed_reconciliation_of_one_topic_does_not_block_others(stage: Stage) -> None:
    names = [f"t{number}" for number in range(10)]
    await stage.create(*names, num_partitions=3, replication_factor=2)
    with pytest.MonkeyPatch.context() as patch:
        real = machine._DECIDERS[commands.ReconcileTopics]
        planted = raises_on(lambda review: "t5" in review.topics, real)
        patch.setitem(machine._DECIDERS, commands.ReconcileTopics, planted)
        stage.brokers.stop_broker(2)
        await stage.settle(5)
        topics = [topic for topic in map(stage.controller.store.durable_named, names) if topic is not None]
        led_by_2 = {topic.name for topic in topics for one in topic.partitions if one.leader == 2}
        assert led_by_2 == {"t5"}
        assert stage.heard.failed == ["ReconcileTopics"]


@on_stage()
async def test_similar_failures_are_one_event_and_a_counted_one(stage: Stage) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decider, "decide", raises_on(lambda given: given.request_id == POISON, machine.decide))
        for _ in range(500):
            await stage.controller.submit([poison_create(stage)])
        assert len(stage.heard.failed) == 500
        await stage.settle(61)
        assert [event.count for event in stage.events(RequestsRefused)] == [1, 499]


@on_stage()
async def test_a_log_line_of_a_failed_command_has_a_bounded_length(stage: Stage) -> None:

    def is_long(given: Any) -> bool:
        if len(getattr(given, "topic", "")) > 1000:
            raise ValueError(given.topic * 10)
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decider, "decide", raises_on(is_long, machine.decide))
        await stage.create("x" * 4_000_000)
    (line,) = stage.heard.of("command failed")
    assert sum(len(str(value)) for value in line.values()) < 20_000


@pytest.mark.parametrize("rate", [1e-320, 5e-324, 1e-7])
@on_stage()
async def test_a_tiny_mutation_quota_refuses_requests_without_a_failure(stage: Stage, rate: float) -> None:
    alteration = QuotaAlteration((("user", "ANONYMOUS"),), (("controller_mutation_rate", rate),))
    request_id = stage.controller.new_request_id()
    quota = AlterClientQuotas(request_id=request_id, at_ms=stage.controller.now_ms(), alterations=(alteration,))
    await stage.controller.submit([quota])
    assert [codes(await stage.create(name)) for name in "ab"] == [[0], [89]]
    reply = await stage.create("c", api_version=5)
    assert (codes(reply), reply.throttle_time_ms) == ([0], 2**31 - 1)
    await stage.controller.stop()
    again = await Stage(disk=stage.disk, boot_id="s2").start()
    assert [codes(await again.create(name)) for name in "de"] == [[0], [89]]
    assert stage.heard.failed == again.heard.failed == []
    again.check()
    await again.controller.stop()


@on_stage()
async def test_an_exception_in_a_background_task_fails_the_controller(stage: Stage) -> None:
    stage.hold_syncs()
    reply = stage.create("a")
    await stage.settle()

    async def bug(number: int) -> None:
        raise ZeroDivisionError(number)

    for number in (1, 2):
        stage.controller.background(bug(number))
    assert codes(await reply) == [-1]
    stage.release_syncs()
    await stage.settle()
    assert isinstance(stage.controller.failure, ZeroDivisionError)
    assert stage.controller.failure.args == (1,)
    assert len(stage.heard.of("controller failed")) == 1, "only the first failure is reported"
