"""What a connection needs to know of its server: the limits of a listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec

from controller.kafka.handling import ApiHandler
from controller.kafka.sasl.gate import OnLogin, SaslRules
from controller.kafka.server.protocol import Outcome
from controller.kafka.session import SecurityProtocol

OnRequest = Callable[[int, int, Outcome, float], None]
"""Called for each request: API key, version, outcome, and the seconds from its start until its answer was ready.

Key and version are -1 where they are not spoken here: there are no more of them than the listener's table has, whatever
clients send before they log in.
"""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one listener puts up with, with Kafka's names and defaults where Kafka has them."""

    request_bytes_max: int = 4 * 1024 * 1024
    """`socket.request.max.bytes`; as much may be in flight on one connection."""
    connections_max: int = 2**31 - 1
    """`max.connections`."""
    held_bytes_max: int = 256 * 1024 * 1024
    """`queued.max.request.bytes`, of all connections together, answers that are not taken included."""
    idle_ms_max: int = 600_000
    """`connections.max.idle.ms`."""
    requests_in_flight_max: int = 1000
    """Requests of one connection that are worked on together. Kafka has one; clients send from 5 to any number."""
    authentication_ms_max: int = 30_000
    """How long a client may take until it has authenticated, the handshake of TLS included."""


class Service(Protocol):
    """What a connection needs of its server."""

    handlers: Mapping[int, ApiHandler]
    limits: Limits
    listener: str
    protocol: SecurityProtocol
    sasl: SaslRules | None
    on_login: OnLogin
    on_request: OnRequest
    clock: Callable[[], float]
    loop: asyncio.AbstractEventLoop
    reader: ThreadPoolExecutor
    """Where large requests are read."""

    def opened(self, connection: Any) -> bool:
        """Whether there is room for this connection."""
        ...

    def holds(self, more: int) -> None:
        """So many bytes more, or less, are kept for clients."""
        ...

    def closed(self, connection: Any) -> None:
        """The connection is closed and its handlers have ended."""
        ...
