"""Limits of a listener, and of all listeners together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
import structlog

from controller.kafka.server.protocol import Outcome

OnRequest = Callable[[int, int, Outcome, float], None]
"""Called for each request: API key, version, outcome, and seconds until the response was ready.

Unsupported keys and versions are -1, so that unauthenticated clients cannot create any number of them.
"""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one listener, with Kafka's names and defaults."""

    request_bytes_max: int = 4 * 1024 * 1024
    """`socket.request.max.bytes`; also the limit of bytes in flight on one connection."""
    connections_max: int = 2**31 - 1
    """`max.connections`."""
    held_bytes_max: int = 256 * 1024 * 1024
    """`queued.max.request.bytes` of all connections together, including unsent responses."""
    idle_ms_max: int = 600_000
    """`connections.max.idle.ms`."""
    requests_in_flight_max: int = 1000
    """Concurrent requests of one connection. Kafka has one; clients send 5 or more."""
    authentication_ms_max: int = 30_000
    """Time for the TLS handshake and authentication."""


UNLIMITED = 2**31 - 1
"""Kafka's default of limits on connections."""

_logger = structlog.get_logger(__name__)


class ConnectionCounts:
    """Counts the open connections of all listeners of a process, Kafka's and HTTP's; `left` undoes `admit`.

    `per_ip_max` is `max.connections.per.ip`, `overrides` is `max.connections.per.ip.overrides` by address, and
    `descriptors_max` the number of file descriptors. HTTP may have a few more connections, for health checks.
    """

    def __init__(
        self, per_ip_max: int = UNLIMITED, overrides: Mapping[str, int] | None = None, descriptors_max: int = UNLIMITED
    ) -> None:
        self.descriptors_per_connection = 1
        """2 in front of a target cluster: a forwarded request has a connection of its own to a broker."""
        self._descriptors_max = descriptors_max
        self._per_ip_max = per_ip_max
        self._overrides = overrides or {}
        self._by_host: Counter[str] = Counter()
        self.total = 0

    @property
    def total_max(self) -> int:
        return self._descriptors_max // self.descriptors_per_connection

    @property
    def is_over(self) -> bool:
        """True if there are more connections than `total_max`."""
        return self.total > self.total_max

    def admit(self, host: str, more: int = 0) -> bool:
        """True if one more client may connect from this address; it counts until `left`. `more` connections are allowed
        beyond `total_max`."""
        reason = self._refusal(host, more)
        if reason is not None:
            _logger.warning("connection_rejected", reason=reason, peer=host)
            return False
        self._by_host[host] += 1
        self.total += 1
        return True

    def left(self, host: str) -> None:
        """An admitted client has disconnected."""
        self._by_host[host] -= 1
        self.total -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _refusal(self, host: str, more: int) -> str | None:
        of_host = self._overrides.get(host, self._per_ip_max)
        if self._by_host[host] >= of_host:
            return f"too many connections from one address: max.connections.per.ip allows {of_host}"
        if self.total >= self.total_max + more:
            return f"too many connections: the process has file descriptors for {self.total_max} (ulimit -n)"
        return None
