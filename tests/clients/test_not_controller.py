"""KIP-4's routing with real clients: given one broker alone, they find the controller by themselves.

With `simulated.broker.listeners=true` each simulated broker has a port of its own, answers what a broker knows, and
sends every admin request away with NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.seen import check, parse_output
from tests.clients.test_auto_creation import exists
from tests.clients.test_python_clients import test_kafka_python as kafka_python_scenario
from tests.support import tools
from tests.support.kafka_tools import kafka_tools
from tests.support.topicwright import Topicwright, topicwright
from tests.support.wire import Wire

NOT_CONTROLLER = 41


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    """A server whose simulated brokers have listeners of their own."""
    settings = {"simulated.broker.listeners": "true"}
    with topicwright(tmp_path_factory.mktemp("listeners") / "server", settings) as running:
        yield running


@pytest.fixture(scope="module")
def brokers(server: Topicwright) -> tuple[str, ...]:
    """HOST:PORT of every broker that is not the controller."""
    with Wire(server.kafka) as wire:
        body = wire.call("Metadata", 12, topics=[])
    addresses = {each["node_id"]: f"{each['host']}:{each['port']}" for each in body["brokers"]}
    assert addresses.pop(body["controller_id"]) == server.kafka
    assert len(addresses) == 3
    assert server.kafka not in addresses.values()
    return tuple(addresses.values())


@pytest.mark.parametrize("version", range(8))
def test_a_broker_sends_every_topic_away(version: int, brokers: tuple[str, ...], server: Topicwright) -> None:
    body = {"topics": [_topic("one", 1), _topic("two", 0), _topic("bad*", 1)], "timeout_ms": 1000}
    for address in brokers:
        with Wire(address) as wire:
            answer = wire.call("CreateTopics", version, **body)
        codes = {each["name"]: each["error_code"] for each in answer["topics"]}
        assert codes == {"one": NOT_CONTROLLER, "two": NOT_CONTROLLER, "bad*": NOT_CONTROLLER}
    assert not exists(server.kafka, "one")


@pytest.mark.parametrize("version", [tools.KAFKA_SERVER, tools.KAFKA_CLIENT_OLD])
def test_java(version: str, brokers: tuple[str, ...], topic: str) -> None:
    check(parse_output(kafka_tools(version).output("Scenario", brokers[-1], topic)))


def test_franz_go(brokers: tuple[str, ...], topic: str) -> None:
    done = tools.run_quietly([tools.cached("franz/scenario"), brokers[-1], topic])
    assert done.returncode == 0, done.stderr
    check(parse_output(done.stdout))


def test_kafka_python(brokers: tuple[str, ...], topic: str) -> None:
    kafka_python_scenario(brokers[-1], topic)


def _topic(name: str, partitions: int) -> dict[str, object]:
    return {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
