"""Simulated brokers: delay, failure, restart, joining."""

import asyncio

import pytest

from controller.brokers.simulated import UnknownBroker, rack_of
from controller.machine.state import Topic
from events.catalog import BrokerRegistered, Endpoint, PartitionChanged
from events.names import BrokerId
from tests.engine.stage import Stage, codes
from tests.machine.audit.auditor import audit
from tests.simulation.virtual_time import on_virtual_time, virtual_loop


def topic(stage: Stage, name: str) -> Topic:
    found = stage.controller.store.durable_named(name)
    assert found is not None, f"no topic {name}"
    return found


def in_sync(stage: Stage, name: str) -> list[set[int]]:
    return [set(partition.isr) for partition in topic(stage, name).partitions]


def live(stage: Stage) -> tuple[BrokerId, ...]:
    return stage.controller.store.durable_cluster.live


@on_virtual_time
async def test_simulated_brokers_rotate_over_three_racks() -> None:
    stage = await Stage(brokers=5).start()
    brokers = stage.controller.store.durable_cluster.brokers
    assert [brokers[BrokerId(n)].rack for n in range(1, 6)] == ["rack-a", "rack-b", "rack-c", "rack-a", "rack-b"]
    assert live(stage) == (1, 2, 3, 4, 5)
    assert rack_of(7) == "rack-a"


@on_virtual_time
async def test_simulated_brokers_advertise_endpoints() -> None:
    stage = Stage()
    own = Endpoint("PLAINTEXT", "localhost", 19092)
    stage.brokers.endpoints[BrokerId(2)] = own
    await stage.start()
    endpoints = {event.broker_id: event.endpoints for event in stage.events(BrokerRegistered)}
    assert endpoints[BrokerId(1)] == stage.brokers.default_endpoints
    assert endpoints[BrokerId(2)] == (own,)


@on_virtual_time
async def test_a_create_waits_for_the_slowest_live_broker() -> None:
    stage = await Stage().start()
    stage.brokers.set_delay(1, 200)
    stage.brokers.set_delay(3, 700)
    [answer] = await stage.create("a")
    assert (answer.code, answer.waited_ms) == (0, 700)
    stage.brokers.set_delay(3, 0)
    [answer] = await stage.create("b")
    assert (answer.code, answer.waited_ms) == (0, 200)


@on_virtual_time
async def test_a_stopped_broker_loses_leadership_and_rejoins_the_isr() -> None:
    stage = await Stage().start()
    await stage.create("a", num_partitions=6, replication_factor=3)
    stage.brokers.stop_broker(2)
    await stage.settle()
    assert live(stage) == (1, 3)
    assert in_sync(stage, "a") == [{1, 3}] * 6
    assert {partition.leader for partition in topic(stage, "a").partitions} == {1, 3}
    stage.brokers.start_broker(2)
    await stage.settle()
    assert in_sync(stage, "a") == [{1, 2, 3}] * 6
    assert any(event.reason.startswith("reported by broker") for event in stage.events(PartitionChanged))
    assert audit(stage.records(), settled=True) == []


@on_virtual_time
async def test_the_last_isr_member_leads_again_when_it_returns() -> None:
    stage = await Stage().start()
    await stage.create("a", num_partitions=1, replication_factor=2)
    first, second = topic(stage, "a").partitions[0].replicas
    stage.brokers.stop_broker(second)
    await stage.settle()
    stage.brokers.stop_broker(first)
    stage.brokers.start_broker(second)
    await stage.settle()
    assert topic(stage, "a").partitions[0].leader == -1, "the second replica may lack records"
    stage.brokers.start_broker(first)
    await stage.settle()
    assert topic(stage, "a").partitions[0].leader == first
    assert in_sync(stage, "a") == [{first, second}]


@on_virtual_time
async def test_joining_brokers_get_free_ids_and_replicas_of_new_topics() -> None:
    stage = await Stage().start()
    stage.brokers.stop_broker(3)
    four, five = stage.brokers.add(), stage.brokers.add("far")
    assert (four.broker_id, four.rack, five.broker_id, five.rack) == (4, "rack-a", 5, "far")
    assert codes(await stage.create("a", replication_factor=4)) == [0]
    assert live(stage) == (1, 2, 4, 5)


@pytest.mark.parametrize("together", [False, True])
def test_placeholders_are_filled_as_brokers_join(together: bool) -> None:
    @on_virtual_time
    async def story() -> None:
        stage = Stage(brokers=1, settings={"enable.under.replicated.topic.creation": "true"})
        await stage.start()
        assert codes(await stage.create("a", num_partitions=4, replication_factor=3)) == [0]
        assert {partition.replicas for partition in topic(stage, "a").partitions} == {(1, -1, -2)}
        stage.brokers.add()
        if not together:
            await stage.settle()
            assert in_sync(stage, "a") == [{1, 2}] * 4, "the first broker must join the ISR"
        stage.brokers.add()
        await stage.settle()
        assert in_sync(stage, "a") == [{1, 2, 3}] * 4
        assert sum(len(event.filled) for event in stage.events(PartitionChanged)) == 8
        assert audit(stage.records(), settled=True) == []

    story()


@on_virtual_time
async def test_a_stale_isr_report_is_repeated() -> None:
    """The leader reports 2 and 3 in sync, but 3 is fenced before the decision: 2 must still join the ISR."""
    stage = await Stage().start()
    await stage.create("a", num_partitions=1, replication_factor=3)
    leader, *followers = topic(stage, "a").partitions[0].replicas
    for follower in followers:
        stage.brokers.stop_broker(follower)
    await stage.settle()
    assert in_sync(stage, "a") == [{leader}]
    stage.hold_syncs()
    for follower in followers:
        stage.brokers.start_broker(follower)
    await stage.settle()
    stage.brokers.stop_broker(followers[1])
    stage.release_syncs()
    await stage.settle()
    assert in_sync(stage, "a") == [{leader, followers[0]}]
    assert audit(stage.records(), settled=True) == []


@on_virtual_time
async def test_a_stopped_broker_loses_unapplied_metadata() -> None:
    stage = await Stage().start()
    stage.brokers.set_delay(3, 1_000)
    request = stage.create("a")
    await stage.settle(0.5)
    stage.brokers.stop_broker(3)
    stage.brokers.start_broker(3)
    [answer] = await request
    assert answer.waited_ms == 1_500, "the broker must apply the metadata again after its restart"


@on_virtual_time
async def test_stop_and_start_of_a_simulated_broker_are_idempotent() -> None:
    stage = await Stage().start()
    end = stage.log.next_offset
    stage.brokers.start_broker(1)
    await stage.settle()
    assert stage.log.next_offset == end
    stage.brokers.stop_broker(1)
    stage.brokers.stop_broker(1)
    await stage.settle()
    assert live(stage) == (2, 3)


@on_virtual_time
async def test_an_unknown_simulated_broker_is_an_error() -> None:
    stage = await Stage(brokers=2).start()
    for action in (stage.brokers.stop_broker, stage.brokers.start_broker, lambda n: stage.brokers.set_delay(n, 1)):
        with pytest.raises(UnknownBroker, match=r"no simulated broker 9; known: 1, 2"):
            action(9)


@on_virtual_time
async def test_stop_leaves_no_timers() -> None:
    stage = await Stage().start()
    stage.brokers.set_delay(1, 60_000)
    stage.create("a", timeout_ms=0)
    await stage.settle()
    await stage.controller.stop()
    assert virtual_loop().timers() == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
