"""Which gateways live: each announces itself in a topic, and hears the announcements of all.

A gateway that receives its own heartbeat knows that it can write to Kafka and read from it. Without its own heartbeat
for too long, it has lost Kafka. Another gateway that is silent for too long, while the own heartbeats arrive, is dead.
Only the last seconds of the topic matter, so it is read from its end and has a short retention.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from operator import attrgetter

import msgspec

from controller.controller_api import Node
from events.catalog import Endpoint, Fact
from events.codec import UNREADABLE

ANNOUNCEMENT_VERSION = 1  # others than this are passed over
NODE_IDS_FROM, NODE_IDS = 1_000_000_000, 1_000_000_000
"""The ids of gateways as nodes of their own, away from those of brokers."""
PORTS = range(1, 65_536)
HOST_MAX = 255
"""Characters of a host's name: no name of DNS is longer."""


class Announcement(Fact, frozen=True):
    """A gateway says where it is. Newer releases may add fields, which older ones do not read."""

    version: int
    gateway_id: str
    """Unique to one data folder's gateway."""
    process: str
    """Unique to one process."""
    host: str
    port: int
    http: str
    """HOST:PORT of its HTTP side."""
    leaving: bool = False
    endpoints: tuple[Endpoint, ...] = ()
    """Where each of its listeners is reached, by the listener's name; the first is `host` and `port`."""

    def at(self, listener: str | None) -> tuple[str, int]:
        """Where clients of a listener reach the gateway: at its listener of the same name, or at its first."""
        for each in self.endpoints:
            if each.name == listener:
                return each.host, each.port
        return self.host, self.port

    def can_be_reached(self) -> bool:
        """Whether its places are such as a gateway can have."""
        places = [(self.host, self.port), *((each.host, each.port) for each in self.endpoints)]
        return all(0 < len(host) <= HOST_MAX and port in PORTS for host, port in places)


_decode = msgspec.msgpack.Decoder(Announcement).decode
_gateway_id = attrgetter("gateway_id")
encode_announcement = msgspec.msgpack.Encoder().encode


def node_id_of(gateway_id: str) -> int:
    """The id of a gateway as a node of its own: the same at every gateway, and after a restart."""
    return NODE_IDS_FROM + zlib.crc32(gateway_id.encode()) % NODE_IDS


class Members:
    """The gateways that live, as one of them hears it. `clock` gives seconds."""

    def __init__(self, own: Announcement, *, session_s: float, clock: Callable[[], float]) -> None:
        self.own = own
        self.session_s = session_s
        self._clock = clock
        self._heard: dict[str, tuple[float, Announcement]] = {}
        self._began = clock()

    def hear(self, value: bytes) -> None:
        """Take an announcement; what this release cannot read is skipped: announcements are not part of the history."""
        try:
            heard = _decode(value)
        except UNREADABLE:
            return
        if not heard.can_be_reached():  # clients would be shown it, and no answer could be encoded
            return
        if heard.leaving and heard.gateway_id != self.own.gateway_id:
            self._heard.pop(heard.gateway_id, None)
        elif heard.gateway_id != self.own.gateway_id or heard.process == self.own.process:
            self._heard[heard.gateway_id] = (self._clock(), heard)
        if heard.gateway_id == self.own.gateway_id:  # else those that died would be kept for as long as this one lives
            live = {self.own.gateway_id, *(each.gateway_id for each in self.live())}
            self._heard = {gateway_id: each for gateway_id, each in self._heard.items() if gateway_id in live}

    @property
    def heard_own(self) -> bool:
        """Whether this gateway has heard itself at all."""
        return self.own.gateway_id in self._heard

    def silent_s(self) -> float:
        """For how long this gateway has not heard itself."""
        heard = self._heard.get(self.own.gateway_id)
        return self._clock() - (self._began if heard is None else heard[0])

    def live(self) -> list[Announcement]:
        """The gateways that live, this one among them, in one order at all of them."""
        heard = self._heard.get(self.own.gateway_id)
        newest = self._clock() if heard is None else heard[0]
        others = [each for at, each in self._heard.values() if newest - at < self.session_s]
        return sorted([*(each for each in others if each.gateway_id != self.own.gateway_id), self.own], key=_gateway_id)


def node_of(gateway: Announcement, listener: str | None) -> Node:
    """A gateway as a node of its own, as clients of a listener are shown it."""
    return Node(node_id_of(gateway.gateway_id), *gateway.at(listener))
