"""A Kafka listener: accepts clients on one address, tracks their connections, and enforces Kafka's limits on them.

A process may have several listeners, each with its own table of handlers and versions (`controller.serving` starts
them). Runs on uvloop and on plain asyncio.
"""

import asyncio
import contextlib
import math
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

import structlog

from controller.kafka.handling import ApiHandler
from controller.kafka.sasl_gate import SaslRules
from controller.kafka.server.connection import Connection
from controller.kafka.server.eager import Turns
from controller.kafka.server.protocol import Limits, OnRequest
from controller.kafka.server.tls import Tls, TlsAccept

__all__ = ["UNLIMITED", "ConnectionCounts", "KafkaServer", "Limits", "OnRequest"]

_logger = structlog.get_logger(__name__)

_CANCELLATION_S: Final = 1.0
"""The maximum time that `stop` waits for cancelled handlers."""

_ACCEPT_TURNS: Final = 3
"""The turns of asyncio's event loop in which an accepted connection becomes a `Connection`."""

_IDLE_CHECKS: Final = 4
"""The number of checks for idle connections in each period of `connections.max.idle.ms`."""

UNLIMITED = 2**31 - 1
"""Kafka's default for limits on the number of connections."""

_BURST_S: Final = 10
"""How many seconds' worth of `max.connection.creation.rate` may come at once, as with Kafka's quota windows, and how
many more may wait. Kafka leaves further ones in the queue of the operating system; here they are rejected."""


class ConnectionCounts:
    """Counts the open connections of all listeners of a process, Kafka's and HTTP's; `left` undoes `admit`.

    `per_ip_max` is `max.connections.per.ip`, `overrides` is `max.connections.per.ip.overrides` by address, `per_s_max`
    is `max.connection.creation.rate`, and `descriptors_max` the number of file descriptors. HTTP may have a few more
    connections, for health checks.
    """

    def __init__(
        self,
        per_ip_max: int = UNLIMITED,
        overrides: Mapping[str, int] | None = None,
        descriptors_max: int = UNLIMITED,
        per_s_max: int = UNLIMITED,
    ) -> None:
        self.descriptors_per_connection = 1
        """2 with a target cluster: each forwarded request needs a second connection, to a broker."""
        self._descriptors_max = descriptors_max
        self._per_ip_max = per_ip_max
        self._overrides = overrides or {}
        self._by_host: Counter[str] = Counter()
        self._per_s_max, self._due_s = per_s_max, -math.inf
        self.total = 0

    @property
    def total_max(self) -> int:
        return self._descriptors_max // self.descriptors_per_connection

    @property
    def is_over(self) -> bool:
        return self.total > self.total_max

    def admit(self, host: str, more: int = 0) -> bool:
        """Count a client from this address, until `left`; returns False if the limits do not allow one more. `more`
        connections are allowed beyond `total_max`."""
        reason = self._refusal(host, more)
        if reason is not None:
            _logger.warning("connection_rejected", reason=reason, peer=host)
            return False
        self._by_host[host] += 1
        self.total += 1
        return True

    def delay_s(self, now_s: float) -> float | None:
        """For how long a new connection of Kafka waits; None if too many wait already (KIP-612)."""
        due_s = max(self._due_s, now_s - _BURST_S) + 1 / self._per_s_max
        if due_s > now_s + _BURST_S:
            return None
        self._due_s = due_s
        return max(0.0, due_s - now_s)

    def release(self, host: str) -> None:
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


@dataclass(eq=False)
class KafkaServer:
    """One Kafka listener.

    `handlers` maps API keys to their handlers; `on_request` is called for each request; `clock` returns seconds, for
    idle times and durations (the loop's clock by default). With port 0, `port` is the chosen port after `start`. All
    listeners of a process share `counts`.
    """

    host: str
    port: int
    handlers: Mapping[int, ApiHandler]
    _: KW_ONLY
    listener: str = "PLAINTEXT"
    tls: Tls | None = None
    sasl: SaslRules | None = None
    limits: Limits = field(default_factory=Limits)
    counts: ConnectionCounts = field(default_factory=ConnectionCounts)
    on_request: OnRequest = lambda *_: None
    clock: Callable[[], float] = lambda: asyncio.get_running_loop().time()

    def __post_init__(self) -> None:
        self.handshake_s_max = self.limits.authentication_ms_max / 1000
        self.handshakes: set[TlsAccept] = set()
        self._server: asyncio.Server | None = None
        self.reader = ThreadPoolExecutor(1, thread_name_prefix="read")
        """The thread pool that decodes large requests."""
        self._connections: set[Connection] = set()
        self._all_closed = asyncio.Event()
        self._idle_check: asyncio.TimerHandle | None = None
        self._held = 0
        self._shedding: asyncio.Handle | None = None
        self.turns = Turns()
        """TLS handshakes, and rounds of connections without a login."""

    async def start(self, bound: socket.socket | None = None) -> None:
        """Listen, on a bound socket if one is given. Raises OSError if the address is not available."""
        self.loop = asyncio.get_running_loop()
        where: dict[str, Any] = {"host": self.host, "port": self.port} if bound is None else {"sock": bound}
        self._server = await self.loop.create_server(self._accept, **where)
        self.port = self._server.sockets[0].getsockname()[1]
        self._check_idle()

    def _accept(self) -> asyncio.Protocol:
        return Connection(self) if self.tls is None else TlsAccept(self)

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Stop accepting and reading, answer requests in flight, and close. After `deadline_s`, abort connections."""
        assert self._server is not None, "the server was started"
        for listening in self._server.sockets:
            self.loop.remove_reader(listening)
        for _ in range(_ACCEPT_TURNS):  # asyncio leaks a connection that it accepted before `close`
            await asyncio.sleep(0)
        self._server.close()
        if self._idle_check is not None:
            self._idle_check.cancel()
        for handshake in tuple(self.handshakes):
            handshake.abort()
        for connection in tuple(self._connections):
            connection.drain()
        if not await self._all_close(deadline_s):
            _logger.warning("connections_aborted", listener=self.listener, connections=len(self._connections))
            self.disconnect()
            if not await self._all_close(_CANCELLATION_S):
                _logger.error("handlers_not_cancelled", listener=self.listener, connections=len(self._connections))
        await self._server.wait_closed()
        self.reader.shutdown(wait=False, cancel_futures=True)

    def disconnect(self) -> None:
        for connection in tuple(self._connections):
            connection.abort()

    @property
    def connections(self) -> int:
        return len(self._connections)

    def close_idle(self) -> None:
        limit_s = self.limits.idle_ms_max / 1000
        for connection in tuple(self._connections):
            if connection.idle_s() >= limit_s:
                connection.end("idle")

    def admit(self, connection: Connection | TlsAccept) -> bool:
        """Register a connection or a handshake. Returns False if there are too many, so that it must close."""
        limit, reason = self.limits.connections_max, ""
        if len(self._connections) + len(self.handshakes) >= limit:
            reason = f"too many connections: max.connections allows {limit}"
        elif self.tls is None or isinstance(connection, TlsAccept):
            delay_s = self.counts.delay_s(self.loop.time())
            if delay_s is None:
                reason = "too many connections wait for max.connection.creation.rate"
            elif delay_s:
                connection.mute(delay_s)
        if reason:
            _logger.warning("connection_rejected", reason=reason, peer=connection.host, listener=self.listener)
            return False
        if not self.counts.admit(connection.host):
            return False
        if isinstance(connection, Connection):
            self._connections.add(connection)
            self._all_closed.clear()
        else:
            self.handshakes.add(connection)
        return True

    def remove(self, connection: Connection | TlsAccept) -> None:
        """Unregister a closed connection whose handlers have ended, or a handshake, failed or not."""
        if connection not in self._connections and connection not in self.handshakes:
            return
        self.counts.release(connection.host)
        if isinstance(connection, TlsAccept):
            self.handshakes.discard(connection)
            return
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()

    def connection_of(self, principal: str) -> Connection:
        return Connection(self, principal)

    def buffered(self, more: int) -> None:
        """Count the bytes buffered for clients: partial requests, requests in flight, and unsent responses. Beyond the
        limit, connections with the most bytes are closed, unauthenticated ones first."""
        self._held += more
        if more > 0 and self._held > self.limits.held_bytes_max and not self._shedding:
            self._shedding = self.loop.call_soon(self._shed)

    def _shed(self) -> None:
        self._shedding = None
        for connection in sorted(self._connections, key=lambda each: (each.authenticated, -each.bytes_held)):
            if self._held <= self.limits.held_bytes_max:
                return
            connection.end(
                f"the buffers of all connections exceed queued.max.request.bytes={self.limits.held_bytes_max}"
            )
            self._held -= connection.bytes_held
            connection.bytes_held = 0

    async def _all_close(self, deadline_s: float) -> bool:
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), deadline_s)
        return not self._connections

    def _check_idle(self) -> None:
        self.close_idle()
        self._idle_check = self.loop.call_later(self.limits.idle_ms_max / 1000 / _IDLE_CHECKS, self._check_idle)
