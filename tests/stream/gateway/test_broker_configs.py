"""Broker configs at a gateway: one partition decides them; they are answered when effective in all partitions."""

import asyncio
from typing import Any

from controller.machine.commands.access import ApplyRules
from controller.machine.commands.commands import AlterResourceConfigs, CopyClusterState
from controller.machine.configs.changes import OpType
from controller.machine.state import BROKERS
from controller.stream.log.codec import CLUSTER_PARTITION, decode_command
from events.catalog import ConfigOp
from events.names import RequestId, TopicName
from tests.simulation.virtual_time import on_virtual_time
from tests.stream.gateway.stage import PARTITIONS, Rig, in_partition
from tests.stream.log.records import BORN_MS, create

OTHER = CLUSTER_PARTITION + 1


def change(value: str | None, name: str = "", key: str = "unclean.leader.election.enable", **more: Any) -> Any:
    op = OpType.DELETE if value is None else OpType.SET
    return AlterResourceConfigs(
        request_id=RequestId(f"r-{key}-{value}"),
        at_ms=BORN_MS,
        topic=TopicName(f"{BROKERS}:{name}"),
        kind=BROKERS,
        name=name,
        ops=(ConfigOp(key, op, value),),
        principal="User:admin",
        **more,
    )


def sent(rig: Rig) -> list[tuple[int, str]]:
    """Returns the partition and kind of each command that the gateway has produced."""
    return [
        (number, type(decode_command(value)).__name__) for topic, number, _, value, _ in rig.put if topic == "commands"
    ]


def effective_configs(rig: Rig) -> list[dict[str, str]]:
    """Returns the cluster-wide dynamic configs in each partition, as the gateway has read them."""
    return [dict(each.store.durable_cluster.settings.dynamic_defaults) for each in rig.node.partitions]


@on_virtual_time
async def test_a_broker_config_change_is_answered_when_every_partition_has_it(rig: Rig) -> None:
    waiting = rig.request(change("true"))
    assert sent(rig) == [(CLUSTER_PARTITION, "AlterResourceConfigs")]
    rig.work()
    await asyncio.sleep(0.01)
    assert not waiting.done(), "the other partition does not have it yet"
    assert sent(rig) == [(OTHER, "CopyClusterState")]
    rig.work()
    (answer,) = await waiting
    assert answer.code == 0
    assert effective_configs(rig) == [{"unclean.leader.election.enable": "true"}] * PARTITIONS
    assert dict(rig.gateway.cluster.configs_of(BROKERS, "")) == {"unclean.leader.election.enable": "true"}


@on_virtual_time
async def test_applied_rules_are_answered_when_every_partition_has_them(rig: Rig) -> None:
    text = "[[rule]]\nname = 'none'\nrefuse = 'not now'"
    waiting = rig.request(ApplyRules(request_id=RequestId("rules"), at_ms=BORN_MS, text=text))
    rig.work()
    await asyncio.sleep(0.01)
    assert not waiting.done(), "the other partition does not have them yet"
    rig.work()
    (answer,) = await waiting
    assert (answer.code, answer.number) == (0, 1)
    for number in range(PARTITIONS):
        refused = rig.request(create(in_partition(number)))
        rig.work()
        (answer,) = await refused
        assert (answer.code, answer.rule) == (44, "policy:rules/none")


@on_virtual_time
async def test_rejected_or_dry_run_change_is_not_copied(rig: Rig) -> None:
    for command, code in ((change("true", denied=31), 31), (change("true", validate_only=True), 0)):
        (answer,) = await rig.answers(command)
        assert answer.code == code
        assert sent(rig) == []


@on_virtual_time
async def test_another_gateway_completes_a_config_copy(rig: Rig) -> None:
    rig.workers[CLUSTER_PARTITION].decide(change("true"))
    rig.read()
    rig.node.heartbeat()
    assert sent(rig) == [], "the copy may still be in flight"
    rig.node.heartbeat()
    assert sent(rig) == [(OTHER, "CopyClusterState")]
    rig.work()
    assert effective_configs(rig) == [{"unclean.leader.election.enable": "true"}] * PARTITIONS
    for _ in range(3):
        rig.node.heartbeat()
    assert sent(rig) == []


@on_virtual_time
async def test_late_config_copy_is_corrected(rig: Rig) -> None:
    for value in ("true", None):
        waiting = rig.request(change(value))
        rig.work()
        await asyncio.sleep(0.01)
        rig.work()
        await waiting
    late = CopyClusterState(
        request_id=RequestId("late"), at_ms=BORN_MS, configs=(("", (("unclean.leader.election.enable", "true"),)),)
    )
    rig.workers[OTHER].decide(late)
    rig.read()
    assert effective_configs(rig)[OTHER] != {}
    for _ in range(2):
        rig.node.heartbeat()
    rig.work()
    assert effective_configs(rig) == [{}] * PARTITIONS


@on_virtual_time
async def test_a_broker_config_change_is_answered_without_an_owner_of_a_partition(rig: Rig) -> None:
    waiting = rig.request(change("true", name="1"))
    rig.work()
    await asyncio.sleep(31)
    (answer,) = await waiting
    assert answer.code == 0, "it is decided; the partition gets it when it has an owner"
