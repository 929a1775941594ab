"""Listener ports for the brokers of a target cluster: assigned in order, remembered, and limited."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.http.metrics import Metrics
from controller.machine.state import Cluster
from controller.serving.broker_listeners import FILE, BrokerListeners
from controller.serving.client_listeners import Address, ClientListeners
from controller.settings.load import SettingsError, load_settings
from events.catalog import Endpoint
from events.names import BrokerId
from tests.support.ports import free_ports


class Gateway:
    """A gateway that knows brokers with these ids."""

    def __init__(self, *ids: int) -> None:
        self.broker_ports: Callable[[Endpoint, BrokerId], Endpoint | None] | None = None
        self.know(*ids)

    def know(self, *ids: int) -> None:
        self.cluster = Cluster(brokers={BrokerId(each): None for each in ids})  # type: ignore[misc]

    def at_listener(self, at: Endpoint) -> Gateway:
        return self

    def port(self, broker_id: int, at: Endpoint) -> int | None:
        assert self.broker_ports is not None
        endpoint = self.broker_ports(at, BrokerId(broker_id))
        return None if endpoint is None else endpoint.port


def listening_for(gateway: Gateway, *overrides: str) -> ClientListeners:
    local = Address("127.0.0.1", 0)
    return ClientListeners(load_settings(overrides=overrides), local, local, Metrics(), lambda: gateway.cluster)


@asynccontextmanager
async def served(folder: Path, gateway: Gateway, ports: str = "any") -> AsyncIterator[tuple[BrokerListeners, Endpoint]]:
    clients = listening_for(gateway, f"cluster.broker.ports={ports}")
    made = BrokerListeners(folder, clients._settings.cluster_broker_ports, clients)
    await clients.listen()
    try:
        await made.start()
        made.open(gateway, lambda *_: {})  # type: ignore[arg-type]
        yield made, clients.advertised[0]
    finally:
        await made.stop()
        await clients.stop(0)


def range_of(count: int) -> tuple[str, list[int]]:
    """Returns a range of free ports, as text and as a list."""
    while True:
        (first,) = free_ports(1)
        try:
            for port in range(first, first + count):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
        except OSError:
            continue
        return f"{first}-{first + count - 1}", list(range(first, first + count))


async def test_broker_ports_are_assigned_in_discovery_order_and_remembered(tmp_path: Path) -> None:
    text, ports = range_of(3)
    gateway = Gateway(5, 3)
    async with served(tmp_path, gateway, text) as (_, at):
        assert [gateway.port(each, at) for each in (5, 3)] == ports[:2]
    later = Gateway(1, 3, 5)
    async with served(tmp_path, later, text) as (made, at):
        assert [later.port(each, at) for each in (5, 3, 1)] == ports
        assert made.error is None
    assert json.loads((tmp_path / FILE).read_bytes()) == dict(
        zip(("PLAINTEXT/5", "PLAINTEXT/3", "PLAINTEXT/1"), ports, strict=True)
    )


async def test_a_new_broker_gets_a_port_without_a_restart(tmp_path: Path) -> None:
    gateway = Gateway(1)
    async with served(tmp_path, gateway) as (_, at):
        gateway.know(1, 2)
        port = gateway.port(2, at)
        assert port not in (None, gateway.port(1, at))
        with socket.create_connection(("127.0.0.1", port or 0)):
            pass


async def test_remembered_ports_listen_before_the_cluster_is_known(tmp_path: Path) -> None:
    gateway = Gateway(1)
    async with served(tmp_path, gateway) as (_, at):
        port = gateway.port(1, at)
    clients = listening_for(gateway)
    made = BrokerListeners(tmp_path, clients._settings.cluster_broker_ports, clients)
    await made.start()
    with socket.create_connection(("127.0.0.1", port or 0)):
        await made.stop()


async def test_too_few_broker_ports_end_the_start(tmp_path: Path) -> None:
    text, _ = range_of(2)
    with pytest.raises(SettingsError, match=r"cluster\.broker\.ports has 2 ports; the cluster's brokers need 3"):
        async with served(tmp_path, Gateway(1, 2, 3), text):
            pass


async def test_a_broker_without_a_free_port_is_not_listed(tmp_path: Path) -> None:
    text, ports = range_of(1)
    gateway = Gateway(1)
    async with served(tmp_path, gateway, text) as (made, at):
        gateway.know(1, 2)
        assert (gateway.port(1, at), gateway.port(2, at)) == (ports[0], None)
        assert "need 2" in str(made.error)
        gateway.know(2)
        assert gateway.port(2, at) == ports[0], "it gets the port of the unregistered broker"
        assert made.error is None


async def test_a_broker_port_in_use_is_skipped(tmp_path: Path) -> None:
    text, ports = range_of(2)
    gateway = Gateway(1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", ports[0]))
        other.listen()
        async with served(tmp_path, gateway, text) as (_, at):
            assert gateway.port(1, at) == ports[1]


async def test_cluster_broker_ports_none_opens_no_listeners(tmp_path: Path) -> None:
    gateway = Gateway(1)
    async with served(tmp_path, gateway, "none"):
        assert gateway.broker_ports is None
    assert not (tmp_path / FILE).exists()


async def test_half_of_the_connection_file_descriptors_are_for_broker_ports(tmp_path: Path) -> None:
    room = listening_for(Gateway(1)).counts.total_max
    async with served(tmp_path, Gateway(1)) as (made, _):
        assert made._listening.counts.total_max == room // 2


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"PLAINTEXT/1": "x"}', b'{"PLAINTEXT/1": -1}', b'{"x": 1}'])
async def test_a_malformed_broker_ports_file_ends_the_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(SettingsError, match=FILE):
        async with served(tmp_path, Gateway(1)):
            pass
