"""Kafka listeners of this process that represent one broker each; `client_listeners` creates them.

`BrokerListeners` has one listener for each broker of the target cluster (`cluster.broker.ports`). Admin clients reach
every broker through this process, and every change of a topic is decided here, whichever broker the client chose.
- Brokers get ports in the order in which they become known. Ports computed from broker ids would need a huge range.
- A port stays with its broker. It is stored in the data folder, so that clients find it again after a restart.
- A port opens when a response to a client first contains its broker. A new broker needs no restart.
- A port of a broker that is no longer registered goes to a new broker once no other port is free.

`SimulatedBrokerListeners` has one for each simulated broker (`simulated.broker.listeners`), open while the broker runs.
As KIP-4 requires of a broker, each returns the topics that this broker has applied and answers admin requests with
NOT_CONTROLLER. A stopped broker's connections are closed; when it starts again, its listener has the same port.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import structlog

from controller.apis.forwarding import broker_address
from controller.apis.tables import HandlerTable, broker_listener
from controller.brokers.simulated import SimulatedBroker, SimulatedBrokers
from controller.controller_api import ControllerApi
from controller.kafka.server.server import KafkaServer
from controller.serving.listeners import KafkaListeners
from controller.settings.load import SettingsError
from events.catalog import Endpoint
from events.files import replacing
from events.names import BrokerId

FILE = "broker-ports.json"
_Key = Annotated[str, msgspec.Meta(pattern=r"^[^/]+/\d{1,10}$")]
"""LISTENER/BROKER."""
_Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
ANY = range(1)
"""The setting `any`: port 0, which the system replaces by a free one."""


class _Servers:
    """The servers for single brokers. The key is `LISTENER/BROKER` or, for simulated brokers, the broker id."""

    def __init__(self, listening: KafkaListeners) -> None:
        self._listening = listening
        self._servers: dict[Any, KafkaServer] = {}

    @property
    def connections(self) -> int:
        return sum(server.connections for server in self._servers.values())

    async def stop(self) -> None:
        await asyncio.gather(*(server.stop(0) for server in self._servers.values()))


class BrokerListeners(_Servers):
    """For each Kafka listener of the process, one further listener per broker of the target cluster."""

    def __init__(self, folder: Path, ports: range, listening: KafkaListeners) -> None:
        """`ports` may be used; a file in `folder` stores the used ones. Raises SettingsError for an invalid file."""
        super().__init__(listening)
        self._file = folder / FILE
        self._ports = ports
        self._own = {each.endpoint.name: each for each in listening.listeners}
        self._remembered = {key: port for key, port in _read(self._file).items() if key.partition("/")[0] in self._own}
        self._starting: set[asyncio.Task[None]] = set()
        self._api: ControllerApi
        self._make_handlers: Callable[[ControllerApi, BrokerId], HandlerTable]
        self.error: str | None = None
        """The reason why a broker has no listener; None if each has one."""

    async def start(self) -> None:
        """Listen at the stored ports; requests wait for `open`."""
        for key in self._remembered if self._ports else ():
            self._listen(key)
        await asyncio.gather(*self._starting)

    def open(self, api: ControllerApi, make_handlers: Callable[[ControllerApi, BrokerId], HandlerTable]) -> None:
        """Accept requests with the handlers made for each broker, and name these listeners in responses of `api`. With
        the setting `none`, open no ports. Raises SettingsError if the known brokers need more ports than there are."""
        self._listening.counts.descriptors_per_connection = 2  # a forwarded request also has one to a broker
        if not self._ports:
            return
        api.broker_ports = self.endpoint
        self._api, self._make_handlers = api, make_handlers
        for at in self._listening.advertised:
            for broker_id in api.cluster.brokers:
                self.endpoint(at, broker_id)
        if self.error is not None:
            raise SettingsError(self.error)

    def endpoint(self, at: Endpoint, broker_id: BrokerId) -> Endpoint | None:
        """The address of a broker for clients of the listener `at`; None if no port is free for it."""
        key = f"{at.name}/{broker_id}"
        server = self._servers.get(key) or self._listen(key) or self._inherit(key)
        if server is None:
            if self.error is None:
                needed = len(self._api.cluster.brokers) * len(self._own)
                self.error = f"cluster.broker.ports has {len(self._ports)} ports; the cluster's brokers need {needed}"
                structlog.get_logger("topicwright").error("a broker has no listener", broker=key, why=self.error)
            return None
        if not server.handlers:
            server.handlers = self._make_handlers(self._api.at_listener(at), broker_id)
            server.sasl = self._listening.sasl(self._own[at.name], partial(broker_address, self._api, broker_id))
        return Endpoint(at.name, at.host, server.port)

    async def stop(self) -> None:
        await asyncio.gather(*self._starting)
        await super().stop()

    def _listen(self, key: str) -> KafkaServer | None:
        """A server at the broker's stored port, or at a free one."""
        own = self._own[key.partition("/")[0]]
        for port in self._candidates(key):
            try:
                bound = _bound(own.endpoint.host, port, listen=True)
            except OSError:  # another program has the port
                continue
            server = self._listening.make_server(own, own.endpoint.host, bound.getsockname()[1])
            starting = asyncio.ensure_future(server.start(bound))
            self._starting.add(starting)
            starting.add_done_callback(self._starting.discard)
            return self._remember(key, server)
        return None

    def _candidates(self, key: str) -> list[int]:
        remembered = self._remembered.get(key)
        if self._ports == ANY:
            return [0] if remembered is None else [remembered, 0]
        if remembered is not None and remembered in self._ports:
            return [remembered]
        taken = set(self._remembered.values())
        return [port for port in self._ports if port not in taken]

    def _inherit(self, key: str) -> KafkaServer | None:
        """Returns the server of a broker that is no longer registered, after disconnecting its clients; None if there
        is none."""
        name, known = key.partition("/")[0], self._api.cluster.brokers
        for other, server in self._servers.items():
            other_name, _, broker_id = other.partition("/")
            if other_name == name and int(broker_id) not in known:
                del self._servers[other], self._remembered[other]
                server.disconnect()
                server.handlers = {}
                return self._remember(key, server)
        return None

    def _remember(self, key: str, server: KafkaServer) -> KafkaServer:
        self._servers[key] = server
        self.error = None
        if self._remembered.get(key) != server.port:
            self._remembered[key] = server.port
            with replacing(self._file) as unfinished:
                unfinished.write(msgspec.json.encode(self._remembered))
        return server


def _read(file: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[_Key, _Port])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as error:
        raise SettingsError(f"{file}: {error}; repair or delete it (without it brokers get new ports)") from None


def _bound(host: str, port: int, *, listen: bool = False) -> socket.socket:
    """A socket that is bound, and by default does not listen. Raises OSError."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        if listen:
            bound.listen()
    except OSError:
        bound.close()
        raise
    return bound


class SimulatedBrokerListeners(_Servers):
    """A listener for each simulated broker, notified when a broker starts or stops."""

    def __init__(self, brokers: SimulatedBrokers, listening: KafkaListeners) -> None:
        super().__init__(listening)
        self._brokers = brokers
        self._host = listening.servers[0].host
        self._api: ControllerApi | None = None
        self._reserved: dict[BrokerId, socket.socket] = {}
        """Ports of stopped brokers, bound so that no other process takes them; connections are refused."""
        self._changes: dict[BrokerId, asyncio.Task[None]] = {}
        brokers.on_running_changed = self._on_running_changed
        for broker in brokers.by_id.values():
            self._reserve(broker.broker_id)

    async def open(self, api: ControllerApi) -> None:
        """Accept clients; the brokers are registered."""
        self._api = api
        for broker in self._brokers.by_id.values():
            self._on_running_changed(broker)
        await asyncio.gather(*self._changes.values())

    async def stop(self) -> None:
        self._brokers.on_running_changed = lambda _: None
        await asyncio.gather(*self._changes.values())
        await super().stop()
        for reserved in self._reserved.values():
            reserved.close()

    def _on_running_changed(self, broker: SimulatedBroker) -> None:
        """Open or close the listener of a broker that started or stopped, in order."""
        if broker.broker_id not in self._brokers.endpoints:
            self._reserve(broker.broker_id)
        if self._api is not None:
            before = self._changes.get(broker.broker_id)
            self._changes[broker.broker_id] = asyncio.ensure_future(self._follow(self._api, broker, before))

    def _reserve(self, broker_id: BrokerId, port: int = 0) -> None:
        """Bind a port for a broker that does not run; a free port before it registers."""
        own, reserved = self._listening.advertised[0], _bound(self._host, port)
        self._reserved[broker_id] = reserved
        self._brokers.endpoints[broker_id] = Endpoint(own.name, own.host, reserved.getsockname()[1])

    async def _follow(self, api: ControllerApi, broker: SimulatedBroker, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        server = self._servers.get(broker.broker_id)
        if broker.running and server is None:
            server = self._listening.make_server(self._listening.listeners[0], self._host, 0)
            as_of_broker = api.as_of(lambda: broker.applied)
            server.handlers = broker_listener(as_of_broker, broker.broker_id)
            await server.start(self._reserved.pop(broker.broker_id))
            self._servers[broker.broker_id] = server
        elif not broker.running and server is not None:
            del self._servers[broker.broker_id]
            await server.stop(0)
            self._reserve(broker.broker_id, server.port)
