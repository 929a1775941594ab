"""KIP-4's routing with real clients: given one broker alone, they find the controller by themselves.

With `simulated.broker.listeners=true` each simulated broker has a port of its own, answers what a broker knows, and
sends every admin request away with NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.seen import check, parse_output
from tests.clients.test_python_clients import test_kafka_python as kafka_python_scenario
from tests.support import tools
from tests.support.kafka_tools import kafka_tools
from tests.support.topicwright import Topicwright, topicwright
from tests.support.wire import Wire


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


@pytest.mark.parametrize("version", [tools.KAFKA_SERVER, tools.KAFKA_CLIENT_OLD])
def test_java(version: str, brokers: tuple[str, ...], topic: str) -> None:
    check(parse_output(kafka_tools(version).output("Scenario", brokers[-1], topic)))


def test_franz_go(brokers: tuple[str, ...], topic: str) -> None:
    done = tools.run_quietly([tools.cached("franz/scenario"), brokers[-1], topic])
    assert done.returncode == 0, done.stderr
    check(parse_output(done.stdout))


def test_kafka_python(brokers: tuple[str, ...], topic: str) -> None:
    kafka_python_scenario(brokers[-1], topic)
