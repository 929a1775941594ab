"""Decisions on a batch of commands: poison commands, clock skew, policies, dry runs, duplicates."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from controller.brokers.cluster.actions import PlannedCommand
from controller.engine import decider
from controller.machine import apply
from controller.machine.commands.access import AclFilter, CreateAcls, DeleteAcls
from controller.machine.commands.commands import AnyCommand, CreatePartitions, CreateTopic, DeleteTopic, DryRunResult
from controller.machine.decide import decide as decide_really
from controller.machine.state import Topic
from controller.policy.interface import Request
from controller.stream.log import codec, partition
from controller.stream.log.codec import encode_command
from events.access import Acl, AclsCreated, AclsDeleted
from events.catalog import Event, Recorded, TopicCreated, Verdict
from events.names import RequestId, TopicName
from tests.stream.log.records import BORN_MS, SETTINGS, create
from tests.stream.worker.memory_kafka import MemoryKafka
from tests.stream.worker.stage import Claimed, Stage, check, events_of, home, topic_of

# Poison commands.


async def test_poison_commands_are_recorded_and_skipped(
    kafka: MemoryKafka, worker: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:

    def decide(state: Any, command: Any) -> Any:
        if getattr(command, "topic", "") == "bug":
            raise ZeroDivisionError("no such luck")
        return decide_really(state, command)

    monkeypatch.setattr(decider, "decide", decide)
    here = home("bug")
    elsewhere = next(name for name in "abcdef" if home(name) != here)
    kafka.commands[here] += [b"", b"\x01?", encode_command(create(elsewhere))]
    await worker.decide(create("bug"), create("bug2", timeout_ms=0))
    assert [fault.offset for fault in worker.faults] == [4, 5, 6, 7]
    assert "has no value" in worker.faults[0].why
    assert "is decided in partition" in worker.faults[2].why
    assert "CreateTopic of request r-bug: ZeroDivisionError: no such luck" in worker.faults[3].why
    found = check(kafka)
    assert (found.counts["faults"], found.counts["lost"]) == (4, 0)


async def test_a_command_with_inapplicable_events_is_a_fault_without_a_change(
    kafka: MemoryKafka, worker: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = apply._TOPIC_EVENTS[TopicCreated]

    def failing(topic: Topic | None, event: Event, record: Recorded) -> Topic | None:
        if record.cause.request_id == "r-bug":
            raise ZeroDivisionError("half way")
        return real(topic, event, record)

    monkeypatch.setitem(apply._TOPIC_EVENTS, TopicCreated, failing)
    near = next(name for n in range(99) if home(name := f"near{n}") == home("bug"))
    await worker.decide(create("bug"), create(near, timeout_ms=0))
    assert [fault.why for fault in worker.faults] == ["CreateTopic of request r-bug: ZeroDivisionError: half way"]
    assert (topic_of(worker, "bug"), topic_of(worker, near) is None) == (None, False)
    found = check(kafka)
    assert (found.counts["faults"], found.counts["lost"]) == (1, 0)
    monkeypatch.undo()
    await worker.decide(replace(create("bug", timeout_ms=0), request_id=RequestId("again")))
    assert topic_of(worker, "bug") is not None
    check(kafka)


async def test_deleting_a_topic_with_many_partitions_fits_into_a_record(
    kafka: MemoryKafka, worker: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several requests can grow a topic beyond one record. A deletion fits, as its answer has only the id."""
    monkeypatch.setattr(partition, "RECORD_BYTES_MAX", partition.ROOM_BYTES + 1000)
    stamps: dict[str, Any] = {"at_ms": BORN_MS, "topic": TopicName("t")}
    await worker.decide(create("t", num_partitions=20, timeout_ms=0))
    for count in range(40, 400, 20):
        await worker.decide(CreatePartitions(request_id=RequestId(f"{count}"), count=count, **stamps))
    dry: dict[str, Any] = {"validate_only": True, "request_id": RequestId("dry"), **stamps}
    await worker.decide(CreatePartitions(count=400, **dry), create("u", num_partitions=400, validate_only=True))
    assert [fault.why.split(",")[1] for fault in worker.faults] == [" more than a record may"] * 2
    await worker.decide(DeleteTopic(request_id=RequestId("gone"), **stamps))
    assert (len(worker.faults), topic_of(worker, "t")) == (2, None)
    assert max(map(len, kafka.events[home("t")])) < 1000


async def test_cluster_commands_are_decided_only_in_the_cluster_partition(kafka: MemoryKafka, worker: Stage) -> None:
    allowed = Acl(2, 3, "t", "User:alice", "*", 3, 3)
    command = encode_command(CreateAcls(request_id=RequestId("c"), at_ms=BORN_MS, acls=(allowed,)))
    for commands in kafka.commands:
        commands.append(command)
    await worker.work()
    assert [fault.why for fault in worker.faults] == ["CreateAcls is decided in partition 0 of 2"]
    assert [isinstance(events_of(worker, n)[-1].event, AclsCreated) for n in (0, 1)] == [True, False]


async def test_acls_found_by_delete_acls_filters_count_towards_the_record_size(
    kafka: MemoryKafka, claimed: Claimed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two filters match the same ACL: the event has it once, the answer twice."""
    worker = await claimed()
    allowed = Acl(2, 3, "t" * 249, "User:alice", "*", 3, 3)
    stamps: dict[str, Any] = {"request_id": RequestId("c"), "at_ms": BORN_MS}
    kafka.commands[0].append(encode_command(CreateAcls(acls=(allowed,), **stamps)))
    await worker.work()
    monkeypatch.setattr(partition, "RECORD_BYTES_MAX", partition.ROOM_BYTES + 700)
    for count in (2, 1):
        kafka.commands[0].append(encode_command(DeleteAcls(filters=(AclFilter(),) * count, **stamps)))
    await worker.work()
    assert ["more than a record may" in fault.why for fault in worker.faults] == [True]
    assert isinstance(events_of(worker, 0)[-1].event, AclsDeleted)


# Event times.


async def test_event_times_of_a_partition_never_decrease(claimed: Claimed) -> None:
    worker = await claimed()
    late = create("late", at_ms=BORN_MS + 5000, timeout_ms=0)
    early = next(create(f"e{n}", at_ms=BORN_MS, timeout_ms=0) for n in range(9) if home(f"e{n}") == home("late"))
    await worker.decide(late, early)
    times = [record.at_ms for record in events_of(worker, home("late"))]
    assert times == sorted(times)


# Policies.


class Judge:
    """Refuses names that begin with "no"; records the requests of each batch."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    async def judge(self, requests: Sequence[Request]) -> tuple[Verdict, ...]:
        self.batches.append([request.topic for request in requests])
        return tuple(
            Verdict("refused", "p", "policy:p", "no") if request.topic.startswith("no") else Verdict("allowed")
            for request in requests
        )

    async def close(self, timeout_s: float) -> tuple[str, ...]:
        return ()


async def test_policies_judge_each_batch_of_commands_once(kafka: MemoryKafka, claimed: Claimed) -> None:
    judge = Judge()
    settings = (("create.topic.policy.class.name", "some.Policy"), *SETTINGS)
    worker = await claimed(0, decision_settings=settings, judge=judge)
    await worker.work()
    names = [name for n in range(30) for name in (f"no{n}", f"yes{n}") if home(name) == 0][:6]
    kafka.commands[0] += [encode_command(create(name, timeout_ms=0)) for name in names]
    kafka.commands[0].append(encode_command(create(names[0], num_partitions=0, timeout_ms=0)))
    await worker.work()
    assert judge.batches == [names], "a request rejected without a policy is not judged"
    codes = {name: topic_of(worker, name) is not None for name in names}
    assert codes == {name: name.startswith("yes") for name in names}


async def test_a_create_after_a_deletion_in_its_batch_is_judged_late(kafka: MemoryKafka, claimed: Claimed) -> None:
    """The create fails validation until the deletion before it in the batch is decided."""
    judge = Judge()
    settings = (("create.topic.policy.class.name", "some.Policy"), *SETTINGS)
    worker = await claimed(decision_settings=settings, judge=judge)
    first: CreateTopic = create("yes", timeout_ms=0)
    await worker.decide(first)
    delete = DeleteTopic(request_id=first.request_id, at_ms=BORN_MS, topic=first.topic, api="DeleteTopics")
    kafka.put(delete, replace(first, request_id=RequestId("again")))
    await worker.work()
    assert judge.batches == [["yes"], ["yes"]]
    assert topic_of(worker, "yes").pending_create is None


# Target cluster.


class Cluster:
    """Refuses names that begin with "no", fails on "bug", and records the requests of each batch."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    async def dry_run(self, planned: Sequence[PlannedCommand]) -> list[DryRunResult]:
        self.batches.append([one.command.topic for one in planned])
        if any(one.command.topic == "bug" for one in planned) and len(planned) == 1:
            raise ZeroDivisionError("no such luck")
        return [
            DryRunResult(44, "not here") if one.command.topic.startswith("no") else DryRunResult() for one in planned
        ]


CARRIED_OUT = (("has.target.cluster", "true"), *SETTINGS)


async def test_creates_are_dry_run_at_the_target_cluster(kafka: MemoryKafka, claimed: Claimed) -> None:
    cluster = Cluster()
    worker = await claimed(0, decision_settings=CARRIED_OUT, cluster=cluster)
    await worker.work()
    there, refused, new = (
        next(f"{kind}{n}" for n in range(99) if home(f"{kind}{n}") == 0) for kind in ("yes", "no", "new")
    )
    kafka.commands[0].append(encode_command(create(there, timeout_ms=0)))
    await worker.work()
    grow = CreatePartitions(request_id=RequestId("g"), at_ms=BORN_MS, topic=TopicName(there), count=5)
    again = replace(grow, request_id=RequestId("h"), count=7)
    commands: list[AnyCommand] = [grow, create(refused, timeout_ms=0), again, create(new, timeout_ms=0)]
    kafka.commands[0] += [encode_command(command) for command in commands]
    await worker.work()
    assert cluster.batches == [[there], [there, refused, new], [there]]
    assert topic_of(worker, refused) is None
    assert [len(topic_of(worker, name).partitions) for name in (there, new)] == [7, 2]


async def test_a_failed_dry_run_is_a_fault(claimed: Claimed) -> None:
    """The worker continues, because the next owner would fail in the same way."""
    worker = await claimed(home("bug"), decision_settings=CARRIED_OUT, cluster=Cluster())
    await worker.decide(create("bug", timeout_ms=0))
    assert [fault.why for fault in worker.faults] == ["CreateTopic of request r-bug: ZeroDivisionError: no such luck"]


# Duplicates.


async def test_duplicate_deletion_spares_a_recreated_topic(worker: Stage) -> None:
    """Commands of the same request for another topic, or of another kind, are not duplicates."""
    command: CreateTopic = create("a", timeout_ms=0)
    delete = DeleteTopic(request_id=command.request_id, at_ms=BORN_MS, topic=command.topic, api="DeleteTopics")
    other = replace(command, topic=TopicName("b"))
    await worker.decide(command, other, delete, replace(command, request_id=RequestId("later")), delete)
    assert [command for _, command in worker.copies] == [delete]
    assert topic_of(worker, "a") is not None
    assert topic_of(worker, "b") is not None


async def test_duplicate_without_events_is_decided_again(worker: Stage) -> None:
    await worker.decide(*[create("a", validate_only=True)] * 2)
    assert worker.copies == []


async def test_duplicates_are_detected_by_a_new_owner(
    kafka: MemoryKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request leaves three events. Of four requests, the last three have one among the newest eight."""
    for module in (codec, partition):
        monkeypatch.setattr(module, "RECENT_EVENTS", 8)
    names = [name for n in range(20) if home(name := f"t{n}") == 0][:4]
    commands = [create(name, timeout_ms=0) for name in names]
    found = []
    for taking_over in (False, True):
        worker = Stage(kafka, tmp_path, str(taking_over))
        await worker.claim(0)
        if not taking_over:
            await worker.decide(*commands)
            assert len(events_of(worker, 0)) == 5 + 4 * 3
        state = worker.state(0)
        state.detect_duplicates()
        found.append([state.is_duplicate(command) for command in commands])
        await worker.close()
    assert found == [[False, True, True, True]] * 2


async def test_many_slow_decisions_of_a_batch_let_the_event_loop_run(
    worker: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decider, "SECONDS_PER_COMMIT_MAX", 0.0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    before = turns
    await worker.decide(*(create(f"t{number}") for number in range(50)))
    counting.cancel()
    assert turns - before >= 50
