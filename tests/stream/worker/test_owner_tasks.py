"""Owner tasks of a partition, and its status."""

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.engine.reports import Reports
from controller.machine.commands.commands import ConfirmMetadata, DeleteTopic, FenceBroker, UnfenceBroker
from controller.machine.decide import _DECIDERS
from controller.stream.log.topics import KafkaUnavailable
from controller.stream.worker.owner_tasks import dry_run_within_s
from controller.stream.worker.partition_decider import Fault
from controller.stream.worker.service import WorkerStatus
from events.catalog import BrokerRegistered, BrokerUnfenced, CreateAnswered, MetadataPropagated, TopicReady
from events.codec import decode_event
from events.names import BrokerId, RequestId, TopicName
from tests.engine.stage import Heard
from tests.simulation.virtual_time import on_virtual_time
from tests.stream.log.records import BORN_MS, create
from tests.stream.worker.memory_kafka import MemoryKafka, MemoryTransport
from tests.stream.worker.stage import Claimed, Stage, check_all_decided, topic_of
from tests.support.later_brokers import LaterBrokers


@pytest.fixture
def kafka() -> MemoryKafka:
    return MemoryKafka()


async def started(claimed: Claimed, name: str = "a", brokers: int = 3, **options: Any) -> Stage:
    worker = await claimed(name=name, brokers=brokers, **options)
    await worker.settle()
    return worker


def answers(worker: Stage) -> Counter[tuple[str, int]]:
    """Counts the terminal answers in the log by topic and code."""
    events = (record.event for record in worker.records)
    return Counter((event.topic, event.error_code) for event in events if isinstance(event, CreateAnswered))


def stop(broker_id: int) -> FenceBroker:
    return FenceBroker(request_id=RequestId("u"), at_ms=BORN_MS, broker_id=BrokerId(broker_id), reason="stopped")


async def test_brokers_are_registered_in_every_partition_and_topics_become_ready(
    kafka: MemoryKafka, claimed: Claimed
) -> None:
    worker = await started(claimed)
    for partition in (0, 1):
        assert worker.state(partition).store.durable_cluster.live == (1, 2, 3)
    kafka.put(create("a"), create("b"), create("c"))
    await worker.settle()
    assert answers(worker) == {("a", 0): 1, ("b", 0): 1, ("c", 0): 1}
    assert check_all_decided(kafka).counts["lost"] == 0


async def test_a_create_is_ready_with_the_record_that_decides_it(kafka: MemoryKafka, claimed: Claimed) -> None:
    worker = await started(claimed)
    kafka.put(stop(2), create("a"))
    commands = len(kafka.commands[0]) + len(kafka.commands[1])
    worker.records.clear()
    await worker.work()
    about_it = [record for record in worker.records if getattr(record.event, "topic", "") == "a"]
    assert [(type(record.event).__name__, record.cause.command) for record in about_it] == [
        ("CreateRequested", "CreateTopic"),
        ("TopicCreated", "CreateTopic"),
        ("MetadataPropagated", "ConfirmMetadata"),
        ("TopicReady", "ConfirmMetadata"),
        ("CreateAnswered", "ConfirmMetadata"),
    ]
    assert next(r.event.brokers for r in about_it if isinstance(r.event, MetadataPropagated)) == (1, 3)
    assert len(kafka.commands[0]) + len(kafka.commands[1]) == commands, "no command was produced"
    await worker.settle()
    check_all_decided(kafka)


async def test_a_failed_synchronous_confirmation_does_not_fail_the_create(
    kafka: MemoryKafka, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await started(claimed)

    def fail(*_: Any) -> Any:
        raise ValueError("a bug")

    monkeypatch.setitem(_DECIDERS, ConfirmMetadata, fail)
    kafka.put(create("a"))
    await worker.work()
    assert topic_of(worker, "a").ready_at_ms is None
    (fault,) = worker.faults
    assert re.fullmatch(r"ConfirmMetadata of request applied-a-7-\w+: ValueError: a bug", fault.why)
    monkeypatch.undo()
    await worker.settle()
    assert answers(worker) == {("a", 0): 1}, "brokers confirm again, by a command"
    check_all_decided(kafka)


async def test_a_new_owner_neither_registers_nor_unfences_brokers_again(kafka: MemoryKafka, claimed: Claimed) -> None:
    first = await started(claimed, "first")
    await first.close()
    second = await started(claimed, "second")
    events = [decode_event(offset, value).event for offset, value in second.state(0).log.read()]
    assert sum(isinstance(event, BrokerRegistered) for event in events) == 3
    assert sum(isinstance(event, BrokerUnfenced) for event in events) == 3


async def test_a_new_owner_unfences_a_broker_that_was_only_registered(kafka: MemoryKafka, claimed: Claimed) -> None:
    first = await started(claimed, "first", brokers=1)
    await first.close()
    for partition in range(2):
        # as if the worker had died after its first two commands: registered, but not live
        del kafka.commands[partition][1:]
        del kafka.events[partition][2:]
    second = await started(claimed, "second", brokers=1)
    assert [second.state(partition).store.durable_cluster.live for partition in (0, 1)] == [(1,), (1,)]


async def test_a_restarted_broker_rejoins_the_isr(kafka: MemoryKafka, claimed: Claimed) -> None:
    worker = await started(claimed)
    kafka.put(create("a", replication_factor=3))
    await worker.settle()
    kafka.put(stop(1))
    await worker.settle()
    topic = topic_of(worker, "a")
    assert all(set(each.isr) == {2, 3} and each.leader in (2, 3) for each in topic.partitions)
    kafka.put(UnfenceBroker(request_id=RequestId("u"), at_ms=BORN_MS, broker_id=BrokerId(1), reason="started"))
    await worker.settle()
    assert all(set(each.isr) == {1, 2, 3} for each in topic_of(worker, "a").partitions)
    check_all_decided(kafka)


class SilentBrokers(LaterBrokers):
    """Brokers that report nothing."""

    def resume(self) -> None:
        pass

    def on_events(self, *_: Any) -> None:
        pass


async def test_a_new_owner_answers_creates_past_their_deadline(
    tmp_path: Path, kafka: MemoryKafka, claimed: Claimed
) -> None:
    worker = await started(claimed, brokers_of=LaterBrokers)
    await _without_confirmations(worker, kafka, create("slow", timeout_ms=60_000))
    assert answers(worker) == {}
    heir = Stage(kafka, tmp_path, "heir", brokers=3, brokers_of=SilentBrokers)
    heir.now_ms = BORN_MS + 60_001
    decided = [worker.engine.next_source(partition) for partition in (0, 1)]
    await worker.close()
    for partition, end in enumerate(decided):
        del kafka.commands[partition][end:]  # the brokers' confirmations are lost with their owner
    await heir.claim()
    await heir.settle()
    assert answers(heir) == {("slow", 7): 1}, "the deadline had passed before the takeover"
    check_all_decided(kafka)


async def test_rejected_commands_are_reported(
    kafka: MemoryKafka, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await started(claimed, brokers_of=LaterBrokers)

    async def refuse(*_: Any) -> Any:
        raise KafkaUnavailable("no room")

    monkeypatch.setattr(MemoryTransport, "put", refuse)
    kafka.put(create("a"))
    await worker.work()
    for _ in range(100):  # lets the loop run the task that produces them
        await asyncio.sleep(0)
    assert worker.losses == ["Kafka rejected commands: no room"]
    monkeypatch.undo()
    await worker.claim()
    await worker.settle()
    assert answers(worker) == {("a", 0): 1}, "the next owner produces the dropped commands again"


async def _without_confirmations(worker: Stage, kafka: MemoryKafka, command: Any) -> None:
    """Decide a create, but none of its confirmations."""
    kafka.put(command)
    await worker.work()
    assert not any(isinstance(record.event, TopicReady) for record in worker.records)


@pytest.mark.parametrize(
    ("timeouts_ms", "within_s"),
    [((), 5), ((0,), 5), ((-1,), 5), ((3_000,), 5), ((12_000,), 12), ((1_000, 20_000), 20), ((3_600_000,), 30)],
)
def test_a_dry_run_of_the_target_cluster_times_out(timeouts_ms: tuple[int, ...], within_s: float) -> None:
    creates = [create(f"t{place}", timeout_ms=timeout_ms) for place, timeout_ms in enumerate(timeouts_ms)]
    delete = DeleteTopic(request_id=RequestId("d"), at_ms=0, topic=TopicName("d"))
    assert dry_run_within_s([*creates, delete]) == within_s


def raised(offset: int) -> Fault:
    try:
        raise ZeroDivisionError("x" * 1_000_000)
    except ZeroDivisionError as error:
        return Fault(0, offset, "CreateTopic of request r: ZeroDivisionError", error)


@on_virtual_time
async def test_skipped_commands_are_logged_and_counted() -> None:
    with capture_logs() as lines:
        heard = Heard()
        status = WorkerStatus(Reports(heard, heard.write, heard))
        status.skipped(raised(5))
        status.skipped(Fault(1, 6, "not a command"))
        assert [(line["offset"], line["partition"]) for line in lines] == [(5, 0), (6, 1)]
        assert len(str(lines[0])) < 20_000
    counts = {name: value for name, _, value in status.gauges()}
    assert counts["commands_passed_over"] == 2
