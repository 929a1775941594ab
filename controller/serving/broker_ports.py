"""A port for each simulated broker (`simulated.broker.listeners`), open while the broker runs.

A broker's listener is what KIP-4 wants of a broker: it shows the topics that this broker has applied, and sends admin
requests away with NOT_CONTROLLER. A broker that dies cuts its clients off; it comes back at the same port.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from controller.apis.tables import broker_listener
from controller.brokers.simulated import SimulatedBroker, SimulatedBrokers
from controller.controller_api import ControllerApi
from controller.kafka.handling import ApiHandler
from controller.kafka.server.server import KafkaServer
from events.catalog import Endpoint
from events.names import BrokerId

MakeServer = Callable[[str, int], KafkaServer]
"""A server, not started, for a host and port."""


class BrokerDoors:
    """The listeners of simulated brokers; `SimulatedBrokers` calls it when a broker starts or stops."""

    def __init__(self, host: str, advertised: Endpoint, brokers: SimulatedBrokers, make_server: MakeServer) -> None:
        self._host = host
        self._advertised = advertised
        self._brokers = brokers
        self._make_server = make_server
        self._api: ControllerApi | None = None
        self._versions_max: dict[str, int] = {}
        self._servers: dict[BrokerId, KafkaServer] = {}
        self._kept: dict[BrokerId, socket.socket] = {}
        """The ports of brokers that do not listen, bound so that nobody else takes them: clients are refused."""
        self._turns: dict[BrokerId, asyncio.Task[None]] = {}
        brokers.on_running_changed = self._turn
        for broker in brokers.by_id.values():
            self._reserve(broker.broker_id)

    async def open(self, api: ControllerApi, versions_max: dict[str, int]) -> None:
        """Let clients in: the brokers are registered."""
        self._api, self._versions_max = api, versions_max
        for broker in self._brokers.by_id.values():
            self._turn(broker)
        await asyncio.gather(*self._turns.values())

    @property
    def connections(self) -> int:
        """How many clients are connected to brokers."""
        return sum(server.connections for server in self._servers.values())

    async def stop(self, deadline_s: float) -> None:
        """Close every listener; answers in flight may take until the deadline."""
        self._brokers.on_running_changed = None
        await asyncio.gather(*self._turns.values())
        servers, self._servers = list(self._servers.values()), {}
        await asyncio.gather(*(server.stop(deadline_s) for server in servers))
        for kept in self._kept.values():
            kept.close()

    def _turn(self, broker: SimulatedBroker) -> None:
        """A broker has started or stopped: follow it, one turn after another."""
        if broker.broker_id not in self._brokers.endpoints:
            self._reserve(broker.broker_id)
        if self._api is not None:
            before = self._turns.get(broker.broker_id)
            self._turns[broker.broker_id] = asyncio.ensure_future(self._follow(self._api, broker, before))

    def _reserve(self, broker_id: BrokerId) -> None:
        """Take a free port for a broker, before it registers."""
        port = self._keep(broker_id, 0)
        self._brokers.endpoints[broker_id] = Endpoint(self._advertised.name, self._advertised.host, port)

    def _keep(self, broker_id: BrokerId, port: int) -> int:
        kept = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((self._host, port))
        self._kept[broker_id] = kept
        bound_port: int = kept.getsockname()[1]
        return bound_port

    async def _follow(self, api: ControllerApi, broker: SimulatedBroker, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        server = self._servers.get(broker.broker_id)
        if broker.running and server is None:
            server = self._make_server(self._host, 0)
            server.handlers = self._handlers(api, broker)
            await server.start(self._kept.pop(broker.broker_id))
            self._servers[broker.broker_id] = server
        elif not broker.running and server is not None:
            del self._servers[broker.broker_id]
            await server.stop(0)
            self._keep(broker.broker_id, server.port)

    def _handlers(self, api: ControllerApi, broker: SimulatedBroker) -> dict[int, ApiHandler]:
        return dict(broker_listener(api.as_of(lambda: broker.applied), self._versions_max, broker.broker_id))
