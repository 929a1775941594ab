"""Simulated brokers with ports of their own: what a broker's listener answers, and when it is there."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.topicwright import Topicwright, topicwright
from tests.support.wire import Wire


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topicwright]:
    settings = {"simulated.broker.listeners": "true", "default.replication.factor": "3"}
    with topicwright(tmp_path_factory.mktemp("ports"), settings) as running:
        yield running


def put(server: Topicwright, method: str, path: str, body: object = None) -> Any:
    data = json.dumps(body).encode() if body is not None else b""
    request = urllib.request.Request(f"http://{server.http}{path}", data, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def brokers_of(server: Topicwright) -> dict[int, str]:
    with Wire(server.kafka) as wire:
        nodes = wire.call("Metadata", 12, topics=[])["brokers"]
    return {node["node_id"]: f"{node['host']}:{node['port']}" for node in nodes if node["node_id"] != 0}


def create(address: str, name: str, timeout_ms: int = 5000, version: int = 7, factor: int = -1) -> int:
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1 if version < 4 else factor,
        "assignments": [],
        "configs": [],
    }
    with Wire(address) as wire:
        answer = wire.call("CreateTopics", version, topics=[topic], timeout_ms=timeout_ms, validate_only=False)
    return int(answer["topics"][0]["error_code"])


def known(address: str, name: str) -> bool:
    with Wire(address) as wire:
        answer = wire.call("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
    return int(answer["topics"][0]["error_code"]) == 0


def reached(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 240
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def refused(address: str) -> bool:
    try:
        Wire(address).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_broker_shows_topics_and_sends_creates_away(server: Topicwright) -> None:
    brokers = brokers_of(server)
    assert {1, 2, 3} <= brokers.keys()
    assert create(server.kafka, "here") == 0
    for address in brokers.values():
        assert known(address, "here")
        for version in range(8):
            assert create(address, "elsewhere", version=version) == 41, "NOT_CONTROLLER"
    assert not known(server.kafka, "elsewhere")


def test_a_broker_does_not_know_what_it_has_not_applied(server: Topicwright) -> None:
    brokers = brokers_of(server)
    put(server, "PUT", "/v1/simulated/brokers/3/delay", {"delay_ms": 2000})
    assert create(server.kafka, "slow", timeout_ms=200) == 7, "REQUEST_TIMED_OUT: broker 3 does not know it yet"
    assert known(brokers[1], "slow")
    assert not known(brokers[3], "slow")
    assert reached(lambda: known(brokers[3], "slow"))
    put(server, "PUT", "/v1/simulated/brokers/3/delay", {"delay_ms": 0})


def test_a_stopped_broker_refuses_connections_and_comes_back_at_its_port(server: Topicwright) -> None:
    brokers = brokers_of(server)
    with Wire(brokers[2]) as wire:
        put(server, "POST", "/v1/simulated/brokers/2/stop")
        assert reached(lambda: refused(brokers[2]))
        with pytest.raises(ConnectionError):
            wire.call("Metadata", 12, topics=[])
    assert create(server.kafka, "meanwhile", factor=len(brokers)) == 38, "a replica on each needs all of them alive"
    put(server, "POST", "/v1/simulated/brokers/2/start")
    assert reached(lambda: not refused(brokers[2]))
    assert reached(lambda: create(server.kafka, "later") == 0)
    assert known(brokers[2], "later")


def test_a_broker_that_joins_has_a_port_too(server: Topicwright) -> None:
    new = put(server, "POST", "/v1/simulated/brokers", {})["broker_id"]
    assert reached(lambda: new in brokers_of(server))
    assert create(server.kafka, "for.the.new.one") == 0
    assert reached(lambda: known(brokers_of(server)[new], "for.the.new.one"))
