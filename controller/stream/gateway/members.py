"""The live gateways, which find each other by heartbeats in a topic, and the nodes in Metadata responses.

Each gateway announces itself in a topic and reads the announcements of all. A gateway that receives its own heartbeat
can write to Kafka and read from it; without one for a session timeout it has lost Kafka. Another gateway counts as dead
if its heartbeats stop for a session timeout while this gateway's own arrive. Only the last seconds of the topic matter,
so it is read from its end and has a short retention.

Nodes. Brokers with addresses (a target cluster) are listed as they are, then the live gateways. Simulated brokers
have no address, so each is listed with a gateway's address: the live gateways represent brokers round-robin, in the
same order at all gateways, and remaining gateways are nodes of their own. The controller is this gateway's
node. Clients of a listener get the gateways' addresses of the listener with the same name.
"""

import zlib
from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import structlog
from msgspec.structs import replace

from controller.controller_api import ControllerApi, ControllerPort, Node
from controller.stream.gateway.kafka import CommandProducer, NotProduced
from events.catalog import Endpoint, Fact
from events.codec import UNREADABLE

NODE_IDS_FROM, NODE_IDS = 1_000_000_000, 1_000_000_000
"""The node ids of gateways, apart from those of brokers."""
PORTS = range(1, 65_536)
HOST_MAX = 255
"""The longest host name in DNS."""


class Announcement(Fact, frozen=True):
    """A gateway's heartbeat with its addresses. Newer releases may add fields, which older ones ignore."""

    gateway_id: str
    """Unique to a data folder."""
    process: str
    """Unique to a process."""
    endpoints: Annotated[tuple[Endpoint, ...], msgspec.Meta(min_length=1)]
    """The advertised address of each listener, by its name."""
    leaving: bool = False

    def address_for(self, listener: str | None) -> tuple[str, int]:
        """The address for clients of a listener: the listener of the same name, or the first one."""
        found = next((each for each in self.endpoints if each.name == listener), self.endpoints[0])
        return found.host, found.port

    def is_valid(self) -> bool:
        return all(0 < len(each.host) <= HOST_MAX and each.port in PORTS for each in self.endpoints)


_decode = msgspec.msgpack.Decoder(Announcement).decode
_gateway_id = attrgetter("gateway_id")
encode_announcement = msgspec.msgpack.Encoder().encode


def node_id_of(gateway_id: str) -> int:
    """The node id of a gateway, the same at every gateway and after a restart."""
    return NODE_IDS_FROM + zlib.crc32(gateway_id.encode()) % NODE_IDS


class Members:
    """The live gateways. Sends this gateway's heartbeats to `topic`, and receives all. `clock` returns seconds.

    Without an own heartbeat for a session timeout this gateway has lost Kafka.
    """

    def __init__(
        self, own: Announcement, producer: CommandProducer, topic: str, *, session_s: float, clock: Callable[[], float]
    ) -> None:
        self.own = own
        self.topic = topic
        self.error: str | None = None
        """Why Kafka counts as lost; None if it does not."""
        self._producer = producer
        self._session_s = session_s
        self._clock = clock
        self._log = structlog.get_logger("topicwright")
        self._latest: dict[str, tuple[float, Announcement]] = {}
        self._began = clock()

    def on_heartbeat(self, value: bytes) -> None:
        """Process a heartbeat. Unreadable heartbeats are skipped, because heartbeats are not part of the history."""
        try:
            announcement = _decode(value)
        except UNREADABLE:
            return
        if not announcement.is_valid():  # responses to clients would hold it, and could not be encoded
            return
        if announcement.leaving and announcement.gateway_id != self.own.gateway_id:
            self._latest.pop(announcement.gateway_id, None)
        elif announcement.gateway_id != self.own.gateway_id or announcement.process == self.own.process:
            self._latest[announcement.gateway_id] = (self._clock(), announcement)
        if announcement.gateway_id == self.own.gateway_id:  # drop the dead ones, whose ids may be many
            live = {self.own.gateway_id, *(each.gateway_id for each in self.live())}
            self._latest = {gateway_id: each for gateway_id, each in self._latest.items() if gateway_id in live}

    @property
    def has_own_heartbeat(self) -> bool:
        return self.own.gateway_id in self._latest

    def silent_s(self) -> float:
        """Seconds since this gateway received its own heartbeat."""
        latest = self._latest.get(self.own.gateway_id)
        return self._clock() - (self._began if latest is None else latest[0])

    def live(self) -> list[Announcement]:
        """The live gateways, including this one, in the same order at every gateway."""
        latest = self._latest.get(self.own.gateway_id)
        newest = self._clock() if latest is None else latest[0]
        others = [each for at, each in self._latest.values() if newest - at < self._session_s]
        return sorted([*(each for each in others if each.gateway_id != self.own.gateway_id), self.own], key=_gateway_id)

    def announce(self, leaving: bool = False) -> None:
        """Send a heartbeat, the final one if the gateway is `leaving`, and check whether Kafka is lost."""
        silent_s = self.silent_s()
        if silent_s > self._session_s and self.error is None:
            self.error = "this gateway does not receive its own heartbeats from Kafka"
            self._log.warning("kafka is lost", silent_s=round(silent_s, 1))
        elif silent_s <= self._session_s and self.error is not None:
            self.error = None
            self._log.info("kafka is back")
        own = replace(self.own, leaving=leaving)
        try:
            self._producer.produce(self.topic, 0, own.gateway_id.encode(), encode_announcement(own), lambda *_: None)
        except NotProduced as error:
            self._log.warning("announcement not sent", why=str(error))


class StreamGateway(ControllerApi):
    """The `ControllerApi` of a gateway: responses list brokers and live gateways as nodes."""

    decides_here = False

    def __init__(self, controller: ControllerPort, members: Members, **options: Any) -> None:
        """`options` are those of `ControllerApi`."""
        super().__init__(controller, node_id=node_id_of(members.own.gateway_id), **options)
        self.members = members

    def nodes(self, include_fenced: bool = False) -> list[Node]:
        brokers = [broker for _, broker in sorted(self.cluster.brokers.items()) if include_fenced or not broker.fenced]
        gateways, listener = self.members.live(), self._listener
        own_nodes = [Node(node_id_of(one.gateway_id), *one.address_for(listener)) for one in gateways]
        if any(broker.endpoints and broker.endpoints[0].port > 0 for broker in brokers):
            nowhere = Endpoint("PLAINTEXT", "", -1)
            at = self._brokers_at(lambda one: self._endpoint(one) if one.endpoints else nowhere, include_fenced)
            return [*at, *own_nodes]
        live = [broker for broker in brokers if not broker.fenced]
        nodes = []
        for broker in brokers:
            turn = live.index(broker) if not broker.fenced else 0
            host, port = gateways[turn % len(gateways)].address_for(listener)
            nodes.append(Node(broker.broker_id, host, port, broker.rack, broker.fenced))
        return [*nodes, *own_nodes[len(live) :]]

    def controller_id(self) -> int:
        """The node for admin requests: this gateway."""
        own = self.members.own.address_for(self._listener)
        for node in self.nodes():
            if (node.host, node.port) == own:
                return node.node_id
        return self.node_id
