"""Which fronts live: each announces itself in a topic, and hears the announcements of all.

A front that hears its own announcement knows that Kafka takes what it writes and gives it back. One that has not heard
itself for too long has lost Kafka; one that it has not heard for too long, while it heard itself, is dead. Nothing but
the last seconds of the topic matters, so it is read from its end, and kept short.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from operator import attrgetter

import msgspec

from controller.front.front import Node
from events.catalog import Endpoint, Fact
from events.codec import UNREADABLE

ANNOUNCEMENT_VERSION = 1  # others than this are passed over
NODE_IDS_FROM, NODE_IDS = 1_000_000_000, 1_000_000_000
"""The ids of fronts as nodes of their own, away from those of brokers."""
PORTS = range(1, 65_536)
HOST_MAX = 255
"""Characters of a host's name: no name of DNS is longer."""


class Announcement(Fact, frozen=True):
    """A front says where it is. Newer releases may add fields, which older ones do not read."""

    version: int
    front_id: str
    """Unique to one data folder's front."""
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
        """Where clients of a listener reach the front: at its listener of the same name, or at its first."""
        for each in self.endpoints:
            if each.name == listener:
                return each.host, each.port
        return self.host, self.port

    def can_be_reached(self) -> bool:
        """Whether its places are such as a front can have."""
        places = [(self.host, self.port), *((each.host, each.port) for each in self.endpoints)]
        return all(0 < len(host) <= HOST_MAX and port in PORTS for host, port in places)


_decode = msgspec.msgpack.Decoder(Announcement).decode
_front_id = attrgetter("front_id")
encode_announcement = msgspec.msgpack.Encoder().encode


def node_id_of(front_id: str) -> int:
    """The id of a front as a node of its own: the same at every front, and after a restart."""
    return NODE_IDS_FROM + zlib.crc32(front_id.encode()) % NODE_IDS


class Members:
    """The fronts that live, as one of them hears it. `clock` gives seconds."""

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
        if heard.leaving and heard.front_id != self.own.front_id:
            self._heard.pop(heard.front_id, None)
        elif heard.front_id != self.own.front_id or heard.process == self.own.process:
            self._heard[heard.front_id] = (self._clock(), heard)
        if heard.front_id == self.own.front_id:  # else those that died would be kept for as long as this one lives
            live = {self.own.front_id, *(each.front_id for each in self.live())}
            self._heard = {front_id: each for front_id, each in self._heard.items() if front_id in live}

    @property
    def heard_own(self) -> bool:
        """Whether this front has heard itself at all."""
        return self.own.front_id in self._heard

    def silent_s(self) -> float:
        """For how long this front has not heard itself."""
        heard = self._heard.get(self.own.front_id)
        return self._clock() - (self._began if heard is None else heard[0])

    def live(self) -> list[Announcement]:
        """The fronts that live, this one among them, in one order at all of them."""
        heard = self._heard.get(self.own.front_id)
        newest = self._clock() if heard is None else heard[0]
        others = [each for at, each in self._heard.values() if newest - at < self.session_s]
        return sorted([*(each for each in others if each.front_id != self.own.front_id), self.own], key=_front_id)


def node_of(front: Announcement, listener: str | None) -> Node:
    """A front as a node of its own, as clients of a listener are shown it."""
    return Node(node_id_of(front.front_id), *front.at(listener))
