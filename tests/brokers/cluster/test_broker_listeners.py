"""Attacks and faults at the listeners of a cluster's brokers. Broker 3 is a process of its own, to be stopped."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # not said to be exported

from tests.brokers.cluster.served import in_front_of, until
from tests.support import tools
from tests.support.kafka_tools import kafka_tools
from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.reference_kafka import CLUSTER_ID, SOURCES, ReferenceKafka, node_properties, reference_kafka
from tests.support.topicwright import Topicwright
from tests.support.wire import Wire

BROKER = 4
"""The type of a broker's configs."""
TIMEOUT_S = 8
CONNECTIONS = 1000


class Third:
    """Broker 3, in a JVM of its own."""

    def __init__(self, kafka: ReferenceKafka) -> None:
        self.folder = kafka.folder
        found = re.search(r"voters=1@127.0.0.1:(\d+)", (kafka.folder / "node1.properties").read_text())
        assert found is not None
        self._controller = int(found[1])
        self.start()

    def start(self) -> None:
        """Start at a free port."""
        (self.port,) = free_ports(1)
        file = self.folder / "node3.properties"
        lines = node_properties(3, self.port, self._controller, self.folder, 3)
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        classpath = tools.compile_java(SOURCES, tools.server_classpath())
        argv = tools.java_command(classpath, "ReferenceCluster", CLUSTER_ID, f"3={file}")
        self.process = Process(argv, cwd=self.folder)
        self.process.wait_for_line("^ready", within_s=300)


class Stage(NamedTuple):
    """Brokers 1 and 2, broker 3, and Topicwright in front of them."""

    kafka: ReferenceKafka
    third: Third
    server: Topicwright

    def listener(self, broker_id: int) -> str:
        """Where admin clients reach a broker."""
        with Wire(self.server.kafka) as wire:
            answer = wire.call("DescribeCluster", 2, endpoint_type=1, include_fenced_brokers=True)
        return next(f"{each['host']}:{each['port']}" for each in answer["brokers"] if each["broker_id"] == broker_id)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("listeners")
    with reference_kafka(folder / "kafka", nodes=2, broker_session_timeout_ms="6000") as kafka:
        third = Third(kafka)
        try:
            with in_front_of(kafka, folder / "gateway") as server:
                yield Stage(kafka, third, server)
        finally:
            third.process.kill()


def configs_of(address: str, broker: str) -> Any:
    """What a server answers about the configs of a broker."""
    wanted = {"resource_type": BROKER, "resource_name": broker, "configuration_keys": ["node.id", "listeners"]}
    with Wire(address) as wire:
        answer = wire.call(
            "DescribeConfigs", 4, resources=[wanted], include_synonyms=False, include_documentation=False
        )
    return answer["results"]


def list_groups(address: str) -> None:
    """A request that is passed on, answered."""
    with Wire(address) as wire:
        assert wire.call("ListGroups", 4, states_filter=[])["error_code"] == 0


def test_half_a_frame_holds_up_nobody(stage: Stage) -> None:
    address = stage.listener(1)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as silent:
        silent.sendall(b"\x00\x00\x10\x00\x00\x10")
        with socket.create_connection((host, int(port)), 60) as closed:
            closed.sendall(b"\x00\x00\x10")
        list_groups(address)


@pytest.mark.parametrize("broker", ["1", "2", "7", "", "x"])
def test_a_listener_answers_about_other_brokers_as_its_broker_does(stage: Stage, broker: str) -> None:
    assert configs_of(stage.listener(2), broker) == configs_of(stage.kafka.brokers[2], broker)


def test_a_thousand_connections_at_one_listener(stage: Stage) -> None:
    with ExitStack() as held:
        wires = [held.enter_context(Wire(stage.listener(1), timeout_s=240)) for _ in range(CONNECTIONS)]
        for wire in wires:
            wire.send("ListGroups", 4, states_filter=[])
        list_groups(stage.listener(2))
        for wire in wires:
            assert wire.receive("ListGroups", 4)["error_code"] == 0


def test_a_broker_that_hangs_delays_requests_to_no_other(stage: Stage) -> None:
    with ExitStack() as held:
        wires = [held.enter_context(Wire(stage.listener(3), timeout_s=240)) for _ in range(20)]
        stage.third.process.popen.send_signal(signal.SIGSTOP)
        try:
            for wire in wires:
                wire.send("ListGroups", 4, states_filter=[])
            for broker_id in (1, 2):
                list_groups(stage.listener(broker_id))
                with Wire(stage.listener(broker_id)) as wire:
                    assert {each["node_id"] for each in wire.call("Metadata", 9, topics=None)["brokers"]} >= {1, 2}
                assert configs_of(stage.listener(broker_id), str(broker_id))[0]["error_code"] == 0
            list_groups(stage.server.kafka)
        finally:
            stage.third.process.popen.send_signal(signal.SIGCONT)
        for wire in wires:
            assert wire.receive("ListGroups", 4)["error_code"] == 0


def test_a_broker_that_is_down_and_returns_at_another_port(stage: Stage, tmp_path: Path) -> None:
    address, before = stage.listener(3), stage.third.port
    stage.third.process.kill()
    resource = ConfigResource(ConfigResource.Type.BROKER, "3")
    admin = AdminClient({"bootstrap.servers": stage.server.kafka})
    began = time.monotonic()
    with pytest.raises(KafkaException) as failed:
        admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result(120)
    assert failed.value.args[0].code() in (KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
    assert time.monotonic() - began < 120

    config = tmp_path / "client.properties"
    config.write_text(f"default.api.timeout.ms={TIMEOUT_S}000\nrequest.timeout.ms={TIMEOUT_S}000\n")
    words = ["--describe", "--entity-type", "brokers", "--entity-name", "3", "--command-config", str(config)]

    def described(bootstrap: str) -> tuple[int, str]:
        return kafka_tools().run("kafka-configs", "--bootstrap-server", bootstrap, *words)

    code, output = described(stage.server.kafka)
    assert code == 0 or "TimeoutException" in output, output
    until(lambda: described(stage.server.kafka) == described(stage.kafka.bootstrap))

    stage.third.start()
    assert stage.third.port != before
    found = until(lambda: configs_of(address, "3"), lambda found: found[0]["error_code"] == 0)
    listeners = {each["name"]: each["value"] for each in found[0]["configs"]}["listeners"]
    assert listeners.endswith(f":{stage.third.port}")
    assert stage.listener(3) == address
