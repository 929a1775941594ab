"""Configs of brokers of simulated brokers: shown as Kafka shows them, changed where Kafka lets them, and counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.apis.broker_table import BROKER_CONFIGS
from controller.kafka.messages import ApiKey
from controller.kafka.messages.configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from controller.machine.configs.changes import LISTS, OpType
from controller.machine.configs.table import BROKER_SYNONYMS, TOPIC_CONFIGS
from controller.machine.configs.values import ConfigType
from events.catalog import PartitionChanged, ResourceConfigsChanged
from tests.apis.rig import Rig, rig
from tests.apis.test_permissions import BOB, Granted

TOPIC, BROKER, LOGGER = 2, 4, 8
OF_ONE, OF_ALL, STATIC, DEFAULT, OF_LOGGER = 2, 3, 4, 5, 6
SET, DELETE, APPEND = OpType.SET, OpType.DELETE, OpType.APPEND


async def shown(a: Rig, name: str, key: str, kind: int = BROKER) -> Any:
    (config,) = (await a.describe_configs(kind, name, key)).configs
    return config


async def reviewed(a: Rig) -> None:
    """Until every topic has been looked at."""
    await a.controller.decided()
    for _ in range(100):  # a sweep has its turns in between
        await asyncio.sleep(0)
        await a.controller.decided()


def changes(a: Rig) -> list[tuple[str, dict[str, str]]]:
    return [(event.name, dict(event.configs)) for event in a.events(ResourceConfigsChanged)]


async def test_describe_all_configs_of_a_broker() -> None:
    async with rig({"num.partitions": "3", "log.retention.hours": "24"}) as a:
        a.api.static_configs = {"num.partitions": "3", "log.retention.hours": "24", "ssl.key.password": "", "x": "y"}
        for broker in ("1", "2", "3"):
            found = await a.describe_configs(BROKER, broker)
            assert found.error_code == 0
            assert len(found.configs) == 350
            by_name = {each.name: each for each in found.configs}
            assert {each.name for each in found.configs if not each.documentation} == set()
            assert (by_name["node.id"].value, by_name["broker.id"].value) == (broker, broker)
            assert by_name["broker.rack"].value == f"rack-{'abc'[int(broker) - 1]}"
            assert by_name["advertised.listeners"].value == "PLAINTEXT://127.0.0.1:9092"
        partitions = by_name["num.partitions"]
        assert (partitions.value, partitions.config_source, partitions.read_only) == ("3", STATIC, True)
        assert [(each.value, each.source) for each in partitions.synonyms] == [("3", STATIC), ("1", DEFAULT)]
        assert by_name["log.retention.hours"].config_source == STATIC
        assert (by_name["log.retention.ms"].value, by_name["log.retention.ms"].read_only) == (None, False)
        secret = by_name["ssl.key.password"]
        assert (secret.value, secret.is_sensitive, secret.config_source) == (None, True, STATIC)


@pytest.mark.parametrize("name", ["9", "-1", "one", "01", "9" * 5000])
async def test_invalid_broker_ids(served: Rig, name: str) -> None:
    found = await served.describe_configs(BROKER, name)
    assert found.error_code == 42
    is_id = name in ("9", "-1")
    assert found.error_message.startswith("Unexpected broker id, expected 1, 2, 3" if is_id else "Broker id must be")
    code, message = await served.alter_configs(BROKER, name, ("log.retention.ms", SET, "5"))
    assert code == 42
    assert message is not None
    assert message.startswith("Unexpected broker id, expected 1, 2, 3" if is_id else "Node id must be an integer")


async def test_describe_broker_logger(served: Rig) -> None:
    (root,) = (await served.describe_configs(LOGGER, "1")).configs
    assert (root.name, root.value, root.config_source, root.read_only) == ("root", "INFO", OF_LOGGER, True)
    served.api.static_configs = {"log.level": "warning"}
    assert (await shown(served, "2", "root", LOGGER)).value == "WARN"
    assert (await served.describe_configs(LOGGER, "1", "another")).configs == ()
    refusals = {
        "": "Broker id must not be empty",
        "one": "Broker id must be an integer, but it is: one",
        "9": "Unexpected broker id, expected 1, 2, 3 but received 9",
    }
    for name, why in refusals.items():
        refused = await served.describe_configs(LOGGER, name)
        assert (refused.error_code, refused.error_message, refused.configs) == (42, why, ())


async def test_precedence_of_dynamic_and_static_configs() -> None:
    async with rig({"log.retention.ms": "4"}) as a:
        assert await a.alter_configs(BROKER, "", ("log.retention.ms", SET, "5")) == (0, None)
        assert await a.alter_configs(BROKER, "2", ("log.retention.ms", SET, "6")) == (0, None)
        of_two, of_one = await shown(a, "2", "log.retention.ms"), await shown(a, "1", "log.retention.ms")
        assert [(each.value, each.source) for each in of_two.synonyms][:3] == [
            ("6", OF_ONE),
            ("5", OF_ALL),
            ("4", STATIC),
        ]
        assert (of_two.value, of_two.config_source) == ("6", OF_ONE)
        assert (of_one.value, of_one.config_source) == ("5", OF_ALL)
        assert [each.error_code for each in await a.create("t")] == [0]
        topic = await shown(a, "t", "retention.ms", kind=TOPIC)
        assert (topic.value, topic.config_source, topic.synonyms[0].name) == ("5", OF_ALL, "log.retention.ms")
        assert await a.alter_configs(BROKER, "", ("log.retention.ms", DELETE, None)) == (0, None)
        assert (await shown(a, "t", "retention.ms", kind=TOPIC)).config_source == STATIC
        assert changes(a) == [("", {"log.retention.ms": "5"}), ("2", {"log.retention.ms": "6"}), ("", {})]


REFUSED = (
    ("", "listeners", SET, "A://:1", 42, "Invalid dynamic configuration: listeners cannot be altered for simulated"),
    (
        "",
        "listener.name.a.max.connections.per.ip",
        SET,
        "1",
        42,
        "Cannot update these configs at default cluster level",
    ),
    ("1", "listener.name.a.ssl.keystore.password", SET, "hush", 42, "ssl.keystore.password is a secret, which simul"),
    ("1", "sasl.jaas.config", SET, "hush", 42, "sasl.jaas.config is a secret, which simulated brokers do not use; i"),
    ("", "principal.builder.class", SET, "x", 42, "Invalid value x for configuration principal.builder.class: Class"),
    ("", "num.io.threads", SET, "3", 42, "Invalid dynamic configuration: Dynamic thread count update validation fail"),
    ("", "nonsense", SET, "x" * 32_768, 40, "The configuration value cannot be added because it exceeds the maximum"),
)
"""Others, and what Kafka says of them, are in tests/reference."""


@pytest.mark.parametrize(("name", "key", "op", "value", "code", "message"), REFUSED)
async def test_invalid_broker_configs_have_kafkas_message(
    served: Rig, name: str, key: str, op: OpType, value: str | None, code: int, message: str
) -> None:
    got_code, got = await served.alter_configs(BROKER, name, (key, op, value))
    assert (got_code, (got or "")[: len(message)]) == (code, message)
    assert changes(served) == [], "nothing of it is recorded"


@pytest.mark.parametrize(
    ("name", "key", "op", "value", "after"),
    [
        ("", "log.cleanup.policy", APPEND, "compact", "delete,compact"),
        ("1", "listener.name.a.max.connections.per.ip", SET, "5", "5"),
        ("", "unclean.leader.election.enable", SET, " TRUE ", "true"),
        ("", "log.retention.ms", SET, "+5", "5"),
        ("", "nonsense", SET, "kept, as Kafka keeps it", "kept, as Kafka keeps it"),
    ],
)
async def test_valid_broker_configs(served: Rig, name: str, key: str, op: OpType, value: str, after: str) -> None:
    assert await served.alter_configs(BROKER, name, (key, op, value), dry=True) == (0, None)
    assert changes(served) == []
    assert await served.alter_configs(BROKER, name, (key, op, value)) == (0, None)
    assert changes(served) == [(name, {key: after})]
    (config,) = (await served.describe_configs(BROKER, name or "1", key)).configs
    assert config.is_sensitive == (key == "nonsense")


async def test_alter_configs_replaces_all(served: Rig) -> None:
    steps = ("log.retention.ms", SET, "5"), ("num.io.threads", SET, "9")
    assert await served.alter_configs(BROKER, "1", *steps) == (0, None)
    configs = (AlterableConfig(name="compression.type", value="lz4"),)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=configs)
    (done,) = (await served.call(ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest(resources=(resource,)))).responses
    assert done.error_code == 0
    assert changes(served)[-1] == ("1", {"compression.type": "lz4"})


async def test_broker_configs_need_cluster_permissions() -> None:
    async with rig(authorizer=Granted(("DescribeConfigs", "Cluster", "kafka-cluster"))) as a:
        assert (await a.describe_configs(BROKER, "1", principal=BOB)).error_code == 0
        for key in ("log.retention.ms", "num.partitions"):
            denied = await a.alter_configs(BROKER, "", (key, SET, "5"), principal=BOB)
            assert denied == (31, "Cluster authorization failed.")
    async with rig(authorizer=Granted(("AlterConfigs", "Cluster", "kafka-cluster"))) as a:
        assert await a.alter_configs(BROKER, "", ("log.retention.ms", SET, "5"), principal=BOB) == (0, None)
    async with rig(authorizer=Granted()) as a:
        assert (await a.describe_configs(BROKER, "nine", principal=BOB)).error_code == 31


async def test_enabling_unclean_leader_election_elects_at_once() -> None:
    async with rig(brokers=2) as a:
        assert [each.error_code for each in await a.create("t", replication_factor=2)] == [0]
        for broker in (1, 2):
            a.brokers.stop_broker(broker)
            await reviewed(a)
        first = a.api.store.durable_named("t").partitions[0]  # type: ignore[union-attr]
        assert first.leader == -1
        a.brokers.start_broker(next(replica for replica in first.replicas if replica not in first.isr))
        await reviewed(a)
        assert await a.alter_configs(BROKER, "", ("unclean.leader.election.enable", SET, "true")) == (0, None)
        await reviewed(a)
        assert a.api.store.durable_named("t").partitions[0].leader >= 0  # type: ignore[union-attr]
        elected = [event.reason for event in a.events(PartitionChanged) if event.has_new_leader]
        assert elected[-1].startswith("unclean election")


def test_list_configs_match_the_table() -> None:
    listed = {
        name: row.default
        for name, row in BROKER_CONFIGS.items()
        if row.dynamic and row.kind is ConfigType.LIST and name not in ("listeners", "sasl.enabled.mechanisms")
    }
    own = {"listeners", "sasl.enabled.mechanisms", "match", "metrics", "streams.rack.aware.assignment.tags"}
    assert {name: text for name, text in LISTS.items() if name not in own} == listed


def test_topic_synonyms_match_in_both_tables() -> None:
    for row in TOPIC_CONFIGS:
        for synonym in row.synonyms:
            known = BROKER_CONFIGS[synonym.name]
            assert (known.kind, known.default) == (synonym.kind, synonym.default) or synonym.default is None
    dynamic = {name for name in BROKER_SYNONYMS if BROKER_CONFIGS[name].dynamic}
    assert dynamic == {row.synonyms[0].name for row in TOPIC_CONFIGS if row.synonyms}
