"""Reconciliation of topics after brokers join, stop or start."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from controller.controller_api import Reply
from controller.machine import apply as machine_apply
from controller.machine.commands.commands import AlterPartition, AlterTopicConfigs, AnyCommand, ReconcileTopics
from controller.machine.partitions import blocks
from controller.machine.partitions.blocks import BLOCK, Block, blocks_of
from controller.machine.partitions.changes import Reconciliation
from controller.machine.state import Topic
from controller.store import stored_topics
from controller.store.store import PARTITIONS_PER_SLICE, TopicStore
from controller.store.topic_indexes import blocks_with
from events.catalog import ConfigOp, Partition
from events.names import BrokerId, RequestId, ShardKey, TopicName
from tests.engine.stage import Stage, codes, on_stage
from tests.machine.audit.auditor import audit
from tests.simulation.virtual_time import on_virtual_time


async def with_topics(count: int, **fields: Any) -> Stage:
    stage = await Stage().start()
    fields = {"num_partitions": 3, "replication_factor": 2, **fields}
    for first in range(0, count, 300):
        names = [f"t{number:05}" for number in range(first, min(count, first + 300))]
        assert set(codes(await stage.create(*names, **fields))) == {0}
    return stage


def unreconciled_topics(stage: Stage) -> list[str]:
    store = stage.controller.store
    rules = Reconciliation(store.durable_cluster)
    return [t.name for t in store.durable_from(None) if not rules.is_reconciled(t)]


@on_virtual_time
async def test_broker_changes_during_reconciliation_are_included() -> None:
    stage = await with_topics(1_500)
    stage.disk.sync_s = (0.01, 0.01)
    stage.brokers.stop_broker(1)
    await stage.settle(0.04)
    stage.brokers.stop_broker(2)
    await stage.settle(0.03)
    stage.brokers.start_broker(1)
    await stage.settle(20)
    topics = [*stage.controller.store.durable_from(None)]
    assert all(set(p.replicas) & {1, 3} == set(p.isr) for t in topics for p in t.partitions if set(p.isr) != {2})
    assert audit(stage.records(), settled=True) == []


@on_virtual_time
async def test_reconciliation_reads_only_topics_with_replicas_on_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = await with_topics(500, num_partitions=1)
    await stage.settle(5)
    of_first = {key for key, _ in blocks_with(stage.log, BrokerId(1))}
    assert 300 < len(of_first) < 400, "two thirds"
    read: set[str] = set()
    durable = TopicStore.durable

    def noted(store: TopicStore, key: ShardKey) -> Topic | None:
        read.add(key)
        return durable(store, key)

    monkeypatch.setattr(TopicStore, "durable", noted)
    monkeypatch.setattr("controller.store.store.slice_of", None)
    stage.brokers.add()
    await stage.settle(5)
    assert read == set(), "the new broker has no replicas, and no replica is missing"
    for change in (stage.brokers.stop_broker, stage.brokers.start_broker):
        read.clear()
        change(1)
        await stage.settle(5)
        assert read == of_first, change
    topics = stage.controller.store.durable_from(None)
    assert all(set(one.isr) == set(one.replicas) for topic in topics for one in topic.partitions), "all are in sync"


@on_virtual_time
async def test_only_partitions_of_a_large_topic_on_the_broker_are_reconciled(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = await with_topics(1, num_partitions=3 * PARTITIONS_PER_SLICE, replication_factor=1)
    await stage.settle(5)
    own = [index for index, one in enumerate(stage.topic("t00000").partitions) if 1 in one.replicas]
    assert len(own) == PARTITIONS_PER_SLICE
    reached: list[int] = []
    submit = stage.controller.submit_internal

    def noted(command: AnyCommand) -> None:
        reached.extend(command.partitions or () if isinstance(command, ReconcileTopics) else ())
        submit(command)

    monkeypatch.setattr(stage.controller, "submit_internal", noted)
    for change in (stage.brokers.stop_broker, stage.brokers.start_broker):
        reached.clear()
        change(1)
        await stage.settle(5)
        assert reached == own, change
    assert all(one.leader > 0 for one in stage.topic("t00000").partitions)


@on_stage()
async def test_pending_topics_are_ready_when_the_last_unconfirmed_broker_stops(stage: Stage) -> None:
    stage.brokers.set_delay(3, 60_000)
    reply = stage.create("waits", num_partitions=2, replication_factor=2, timeout_ms=30_000)
    await stage.settle()
    assert not reply.done()
    stage.brokers.stop_broker(3)
    assert codes(await reply) == [0]


async def with_one_of(partitions: int) -> Stage:
    """Returns a stage with a topic larger than one request can create."""
    stage = await with_topics(1, num_partitions=min(partitions, 9_000), replication_factor=3)
    for count in [*range(18_000, partitions, 9_000), partitions]:
        if count > 9_000:
            assert codes(await stage.enlarge("t00000", count)) == [0]
    return stage


@pytest.mark.parametrize(("make", "count"), [(with_topics, 1_000), (with_one_of, 8_000)], ids=["topics", "partitions"])
@on_virtual_time
async def test_a_sweep_reaches_all_in_slices(make: Callable[[int], Awaitable[Stage]], count: int) -> None:
    stage = await make(count)
    stage.heard.commits.clear()
    stage.brokers.stop_broker(1)
    await stage.settle(5)
    assert unreconciled_topics(stage) == []
    stage.brokers.start_broker(1)
    await stage.settle(5)
    topics = stage.controller.store.durable_from(None)
    assert all(set(one.isr) == set(one.replicas) for topic in topics for one in topic.partitions)
    assert max(events for _, events in stage.heard.commits) <= 2 * PARTITIONS_PER_SLICE + 100, "about a slice"
    assert audit(stage.records(), settled=True) == []


@pytest.mark.parametrize(("make", "count"), [(with_topics, 2_000), (with_one_of, 30_000)], ids=["topics", "partitions"])
@on_virtual_time
async def test_creates_run_between_reconciliation_slices(make: Callable[[int], Awaitable[Stage]], count: int) -> None:
    stage = await make(count)
    stage.disk.sync_s = (0.01, 0.01)
    stage.brokers.stop_broker(1)
    await stage.settle(0.03)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert codes(await stage.create("impatient")) == [0]
    waited = loop.time() - begun
    assert unreconciled_topics(stage), "reconciliation is in progress"
    assert waited < 0.08, f"a create waited {waited} s, longer than three commits"
    await stage.settle(10)
    assert unreconciled_topics(stage) == []


async def work_of_a_stop_and_a_start(partitions: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns the number of partitions copied, written and reported by leaders while a broker stops and starts."""
    stage = await with_one_of(partitions)
    work: Counter[str] = Counter()
    copying, encoding, observing = blocks.changed, stored_topics.encode_topic, stage.controller.submit_internal

    def copied(before: Sequence[Partition], changes: Mapping[int, Partition]) -> Sequence[Partition]:
        after = copying(before, changes)
        work["copied"] += sum(1 for old, new in pairs(before, after) if old is not new) * BLOCK + len(blocks_of(after))
        return after

    def pairs(before: Sequence[Partition], after: Sequence[Partition]) -> Iterator[tuple[Block, Block]]:
        return zip(blocks_of(before), blocks_of(after), strict=True)

    def written(value: object) -> bytes:
        encoded = encoding(value)
        work["written"] += len(encoded)
        return encoded

    def observed(command: AnyCommand) -> None:
        work["reported"] += len(command.reports) if isinstance(command, AlterPartition) else 0
        observing(command)

    monkeypatch.setattr(machine_apply, "changed", copied)
    monkeypatch.setattr(blocks, "changed", copied)
    monkeypatch.setattr(stored_topics, "encode_topic", written)
    monkeypatch.setattr(stage.controller, "submit_internal", observed)
    stage.brokers.stop_broker(1)
    await stage.settle(5)
    stage.brokers.start_broker(1)
    await stage.settle(5)
    monkeypatch.undo()
    assert unreconciled_topics(stage) == []
    await stage.controller.stop()
    assert work["reported"] <= 3 * partitions
    return work["copied"] + work["written"]


@on_virtual_time
async def test_reconciliation_work_is_linear_in_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    small = await work_of_a_stop_and_a_start(2_000, monkeypatch)
    large = await work_of_a_stop_and_a_start(8_000, monkeypatch)
    assert large < 6 * small, f"{small} for 2,000 partitions, {large} for 8,000: four times would be linear"


@on_virtual_time
async def test_unclean_leader_election_of_a_large_topic_runs_in_ranges() -> None:
    stage = await with_topics(1, num_partitions=3 * PARTITIONS_PER_SLICE, replication_factor=2)
    for broker_id in (1, 2, 3):
        stage.brokers.stop_broker(broker_id)
        await stage.settle(2)
    stage.brokers.start_broker(1)
    await stage.settle(2)
    leaderless = [one for one in stage.topic("t00000").partitions if one.leader < 0]
    assert len(leaderless) > PARTITIONS_PER_SLICE, "an unclean leader may lack records"
    stage.heard.commits.clear()
    assert codes(await altered(stage, "retention.ms", "60000")) == [0]
    assert stage.controller.is_reconciled(), "the config does not affect elections, so no partitions are scanned"
    assert codes(await altered(stage, "unclean.leader.election.enable", "true")) == [0]
    assert not stage.controller.is_reconciled()
    await stage.settle(2)
    topic = stage.topic("t00000")
    assert all(one.leader == 1 for one in topic.partitions if 1 in one.replicas)
    assert max(events for _, events in stage.heard.commits) <= PARTITIONS_PER_SLICE
    assert audit(stage.records(), settled=True) == []


def altered(stage: Stage, name: str, value: str) -> asyncio.Future[Reply]:
    return stage.submit(
        AlterTopicConfigs(
            request_id=RequestId(name),
            at_ms=stage.controller.now_ms(),
            topic=TopicName("t00000"),
            api="IncrementalAlterConfigs",
            ops=(ConfigOp(name, 0, value),),
            incremental=True,
        )
    )


@on_virtual_time
async def test_stop_interrupts_reconciliation_and_the_next_start_resumes_it() -> None:
    stage = await with_topics(600)
    stage.disk.sync_s = (0.1, 0.1)
    stage.brokers.stop_broker(1)
    await stage.settle(0.3)
    await asyncio.wait_for(stage.controller.stop(), 2)
    assert unreconciled_topics(stage), "reconciliation was interrupted"
    later = await Stage(disk=stage.disk, boot_id="s2").start()
    await later.settle(10)
    assert unreconciled_topics(later) == [], "the next start completes it"
