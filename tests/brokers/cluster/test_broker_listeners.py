"""Attacks and faults at the listeners of a cluster's brokers."""

import asyncio
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from controller.kafka.connections import Connections, Security
from controller.kafka.handling import RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.topics import MetadataRequest, MetadataResponse
from tests.brokers.cluster.served import until
from tests.kafka.server.listener import serving
from tests.support.kafka_tools import kafka_tools
from tests.support.reference_kafka import ReferenceKafka
from tests.support.topicwright import Topicwright
from tests.support.wire import Wire

BROKER = 4
"""Kafka's resource type of broker configs."""
TIMEOUT_S = 8
CONNECTIONS = 1000


def listener(server: Topicwright, broker_id: int) -> str:
    """The listener of a broker for admin clients."""
    with Wire(server.kafka) as wire:
        answer = wire.call("DescribeCluster", 2, endpoint_type=1, include_fenced_brokers=True)
    return next(f"{each['host']}:{each['port']}" for each in answer["brokers"] if each["broker_id"] == broker_id)


def configs_of(address: str, broker: str) -> Any:
    """A server's response to DescribeConfigs of a broker."""
    wanted = {"resource_type": BROKER, "resource_name": broker, "configuration_keys": ["node.id", "listeners"]}
    with Wire(address) as wire:
        answer = wire.call(
            "DescribeConfigs", 4, resources=[wanted], include_synonyms=False, include_documentation=False
        )
    return answer["results"]


def list_groups(address: str) -> None:
    with Wire(address) as wire:
        assert wire.call("ListGroups", 4, states_filter=[])["error_code"] == 0


def test_an_incomplete_frame_does_not_block_other_connections(server: Topicwright) -> None:
    address = listener(server, 1)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as silent:
        silent.sendall(b"\x00\x00\x10\x00\x00\x10")
        with socket.create_connection((host, int(port)), 60) as closed:
            closed.sendall(b"\x00\x00\x10")
        list_groups(address)


@pytest.mark.parametrize("broker", ["1", "2", "7", "", "x"])
def test_a_broker_listener_answers_configs_of_other_brokers_as_the_broker(
    kafka: ReferenceKafka, server: Topicwright, broker: str
) -> None:
    assert configs_of(listener(server, 2), broker) == configs_of(kafka.brokers[2], broker)


def test_a_broker_listener_serves_a_thousand_connections(server: Topicwright) -> None:
    with ExitStack() as held:
        wires = [held.enter_context(Wire(listener(server, 1), timeout_s=240)) for _ in range(CONNECTIONS)]
        for wire in wires:
            wire.send("ListGroups", 4, states_filter=[])
        list_groups(listener(server, 2))
        for wire in wires:
            assert wire.receive("ListGroups", 4)["error_code"] == 0


async def test_a_hanging_broker_does_not_delay_requests_to_others() -> None:
    release = asyncio.Event()

    async def hang(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        await release.wait()
        return MetadataResponse()

    async with serving({ApiKey.METADATA: hang}) as hanging, serving({ApiKey.METADATA: answer}) as other:
        connections = Connections(Security())

        async def metadata_at(port: int) -> MetadataResponse:
            address = ("127.0.0.1", port)
            return await connections.call(address, ApiKey.METADATA, 12, MetadataRequest(topics=()), MetadataResponse)

        waiting = [asyncio.create_task(metadata_at(hanging.port)) for _ in range(20)]
        assert (await metadata_at(other.port)).error_code == 0
        assert not any(each.done() for each in waiting)
        release.set()
        assert {each.error_code for each in await asyncio.gather(*waiting)} == {0}
        connections.close()


def answer(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse()


def test_a_broker_listener_recovers_with_its_broker(kafka: ReferenceKafka, server: Topicwright, tmp_path: Path) -> None:
    """The broker returns on the same port; tests/apis/test_forwarding.py tests another port."""
    address = listener(server, 3)
    config = tmp_path / "client.properties"
    config.write_text(f"default.api.timeout.ms={TIMEOUT_S}000\nrequest.timeout.ms={TIMEOUT_S}000\n")
    words = ["--describe", "--entity-type", "brokers", "--entity-name", "3", "--command-config", str(config)]

    def described(bootstrap: str) -> tuple[int, str]:
        return kafka_tools().run("kafka-configs", "--bootstrap-server", bootstrap, *words)

    kafka.stop_broker(3)
    try:
        resource = ConfigResource(ConfigResource.Type.BROKER, "3")
        began = time.monotonic()
        admin = AdminClient({"bootstrap.servers": server.kafka})
        with pytest.raises(KafkaException) as failed:
            admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result(120)
        code = failed.value.args[0].code()
        assert code in (KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
        assert time.monotonic() - began < 120
        exit_code, output = described(server.kafka)
        assert exit_code == 0 or "TimeoutException" in output, output
        until(lambda: described(server.kafka) == described(kafka.bootstrap))
    finally:
        kafka.start_broker(3)
    until(lambda: configs_of(address, "3"), lambda found: found[0]["error_code"] == 0)
    assert listener(server, 3) == address
