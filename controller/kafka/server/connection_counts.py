"""How many clients are connected through all doors together, Kafka's and HTTP's, and by address.

One process has one `ConnectionCounts`. What is over a limit is turned away before anything is read from it, with one
log line that names the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import structlog

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
