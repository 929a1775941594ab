"""Limits of a listener and of all listeners together, and the interface of a connection's server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec
import structlog

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


UNLIMITED = 2**31 - 1
"""Kafka's default of limits on connections."""

_logger = structlog.get_logger(__name__)


class ConnectionCounts:
    """Counts the open connections; each that `admit` lets in is to be given back by `left`.

    `per_ip_max` is `max.connections.per.ip`, `overrides` is `max.connections.per.ip.overrides` by address, and
    `total_max` what the process has file descriptors for. HTTP may have a few more connections, for health alone.
    """

    def __init__(
        self, per_ip_max: int = UNLIMITED, overrides: Mapping[str, int] | None = None, total_max: int = UNLIMITED
    ) -> None:
        self.total_max = total_max
        self._per_ip_max = per_ip_max
        self._overrides = overrides or {}
        self._by_host: Counter[str] = Counter()
        self._total = 0

    @property
    def total(self) -> int:
        """How many are connected."""
        return self._total

    @property
    def is_over(self) -> bool:
        """True if more are connected than `total_max`."""
        return self._total > self.total_max

    def admit(self, host: str, more: int = 0) -> bool:
        """True if one more client may come from this address; it then counts until `left`. `more` are let in beyond
        `total_max`."""
        reason = self._refusal(host, more)
        if reason is not None:
            _logger.warning("connection_refused", reason=reason, peer=host)
            return False
        self._by_host[host] += 1
        self._total += 1
        return True

    def left(self, host: str) -> None:
        """A client that was admitted has gone."""
        self._by_host[host] -= 1
        self._total -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _refusal(self, host: str, more: int) -> str | None:
        of_host = self._overrides.get(host, self._per_ip_max)
        if self._by_host[host] >= of_host:
            return f"too many connections from one address: max.connections.per.ip allows {of_host}"
        if self._total >= self.total_max + more:
            return f"too many connections: the process has file descriptors for {self.total_max} (ulimit -n)"
        return None
