"""Listeners of simulated brokers: their responses, and when they are open."""

from collections.abc import Iterator

import pytest

from tests.serving.service import Serving, serving, wait_until
from tests.support.wire import Wire


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    settings = {"simulated.broker.listeners": "true", "default.replication.factor": "3"}
    with serving(tmp_path_factory.mktemp("ports"), settings=settings) as running:
        yield running
        assert running.process.stop(within_s=120) == 0, running.process.output[-4000:]


def brokers_of(server: Serving) -> dict[int, str]:
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


def refused(address: str) -> bool:
    try:
        Wire(address).close()
    except ConnectionRefusedError:
        return True
    return False


def test_broker_listener_serves_metadata_and_rejects_creates_with_not_controller(server: Serving) -> None:
    brokers = brokers_of(server)
    assert {1, 2, 3} <= brokers.keys()
    assert create(server.kafka, "here") == 0
    for address in brokers.values():
        assert known(address, "here")
        for version in range(8):
            assert create(address, "elsewhere", version=version) == 41, "NOT_CONTROLLER"
    assert not known(server.kafka, "elsewhere")


def test_broker_listener_omits_topics_that_the_broker_has_not_applied(server: Serving) -> None:
    brokers = brokers_of(server)
    server.post("/v1/simulated/brokers/3/delay", {"delay_ms": 2000}, "PUT")
    assert create(server.kafka, "slow", timeout_ms=200) == 7, "REQUEST_TIMED_OUT: broker 3 has not applied it"
    assert known(brokers[1], "slow")
    assert not known(brokers[3], "slow")
    wait_until(lambda: known(brokers[3], "slow"))
    server.post("/v1/simulated/brokers/3/delay", {"delay_ms": 0}, "PUT")


def test_a_stopped_broker_closes_its_port_and_reopens_it_at_start(server: Serving) -> None:
    brokers = brokers_of(server)
    with Wire(brokers[2]) as wire:
        server.post("/v1/simulated/brokers/2/stop")
        wait_until(lambda: refused(brokers[2]))
        with pytest.raises(ConnectionError):
            wire.call("Metadata", 12, topics=[])
    assert create(server.kafka, "meanwhile", factor=len(brokers)) == 38, "a replica on each needs all live"
    server.post("/v1/simulated/brokers/2/start")
    wait_until(lambda: not refused(brokers[2]))
    wait_until(lambda: create(server.kafka, "later") == 0)
    assert known(brokers[2], "later")


def test_a_joining_broker_gets_a_port(server: Serving) -> None:
    new = server.post("/v1/simulated/brokers", {})[1]["broker_id"]
    wait_until(lambda: new in brokers_of(server))
    assert create(server.kafka, "for.the.new.one") == 0
    wait_until(lambda: known(brokers_of(server)[new], "for.the.new.one"))
