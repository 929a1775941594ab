"""Offsets, groups and configs of brokers that store no records. And KIP-4's routing: clients that know one broker find
the controller."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]

from tests.clients.seen import check, parse_output
from tests.clients.test_other_languages import kafkajs
from tests.clients.test_python_clients import test_kafka_python as kafka_python_scenario
from tests.support import tools
from tests.support.kafka_tools import kafka_tools
from tests.support.real_brokers import until
from tests.support.topicwright import Topicwright, topicwright
from tests.support.wire import Wire

WITHIN_S = 60
"""A response comes at once; the limit allows for a busy machine."""


def test_kafkajs_reads_offsets_and_groups(topicwright_server: Topicwright, topic: str) -> None:
    found = json.loads(kafkajs("offsets.js", topicwright_server.kafka, topic))
    offsets = sorted(found["offsets"], key=lambda one: one["partition"])
    assert offsets == [{"partition": n, "offset": "0", "high": "0", "low": "0"} for n in range(2)]
    assert sorted(one["offset"] for one in found["at"]) == ["0", "0"], "kafkajs falls back to the end"
    (committed,) = found["committed"]
    assert [one["offset"] for one in committed["partitions"]] == ["-1", "-1"]
    assert found["listed"] == []
    assert found["described"] == [{"groupId": "nobody", "state": "Dead"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """A server whose simulated brokers have their own listeners."""
    settings = {"simulated.broker.listeners": "true"}
    with topicwright(tmp_path_factory.mktemp("listeners") / "server", settings) as running:
        yield running


@pytest.fixture(scope="module")
def brokers(server: Topicwright) -> tuple[str, ...]:
    """HOST:PORT of every broker except the controller."""
    with Wire(server.kafka) as wire:
        body = wire.call("Metadata", 12, topics=[])
    addresses = {each["node_id"]: f"{each['host']}:{each['port']}" for each in body["brokers"]}
    assert addresses.pop(body["controller_id"]) == server.kafka
    assert len(addresses) == 3
    assert server.kafka not in addresses.values()
    return tuple(addresses.values())


@pytest.mark.parametrize("version", [tools.KAFKA_SERVER, tools.KAFKA_CLIENT_OLD])
def test_java_finds_the_controller_from_one_broker(version: str, brokers: tuple[str, ...], topic: str) -> None:
    check(parse_output(kafka_tools(version).output("Scenario", brokers[-1], topic)))


def test_franz_go_finds_the_controller_from_one_broker(brokers: tuple[str, ...], topic: str) -> None:
    done = tools.run_quietly([tools.cached("franz/scenario"), brokers[-1], topic])
    assert done.returncode == 0, done.stderr
    check(parse_output(done.stdout))


def test_kafka_python(brokers: tuple[str, ...], topic: str) -> None:
    kafka_python_scenario(brokers[-1], topic)


SESSION = "consumer.session.timeout.ms"
OF_GROUP, DEFAULT = 8, 5
"""Kafka's codes of config sources."""


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, Any]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    found: dict[str, Any] = future.result(60)
    return found


def altered(admin: AdminClient, kind: ResourceType, name: str, key: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(key, value or "", incremental_operation=operation)
    (future,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=[entry])]).values()
    future.result(60)


def until_is(admin: AdminClient, kind: ResourceType, name: str, key: str, value: str, source: int) -> None:
    """A real Kafka answers before its broker has applied the change."""

    def has_it() -> bool:
        one = described(admin, kind, name)[key]
        return (one.value, one.source) == (value, source)

    until(has_it, 120, f"{key}={value} of {name}, from {source}")


@pytest.mark.parametrize("bootstrap", ["kafka", "topicwright"], indirect=True)
def test_librdkafka_alters_and_describes_group_configs(bootstrap: str) -> None:
    admin, kind = AdminClient({"bootstrap.servers": bootstrap}), ResourceType.GROUP
    assert {SESSION, "share.auto.offset.reset", "streams.num.standby.replicas"} <= described(
        admin, kind, "readers"
    ).keys()
    until_is(admin, kind, "readers", SESSION, "45000", DEFAULT)
    altered(admin, kind, "readers", SESSION, "50000")
    until_is(admin, kind, "readers", SESSION, "50000", OF_GROUP)
    assert described(admin, kind, "others")[SESSION].value == "45000"
    for bad in ("x", "1000"):
        with pytest.raises(KafkaException) as refused:
            altered(admin, kind, "readers", SESSION, bad)
        assert refused.value.args[0].name() == "INVALID_CONFIG"
    altered(admin, kind, "readers", SESSION, None)
    until_is(admin, kind, "readers", SESSION, "45000", DEFAULT)
