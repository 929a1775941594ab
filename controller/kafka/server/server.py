"""A listener: accepts Kafka clients on one address and keeps their connections.

Several may run in one process, each with its own table of handlers and so its own advertised versions. Runs on uvloop
and on plain asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from controller.kafka.handling import ApiHandler
from controller.kafka.sasl.gate import LoginOutcome, OnLogin, SaslRules
from controller.kafka.server.connection import Connection
from controller.kafka.server.protocol import Outcome
from controller.kafka.server.service import ConnectionCounts, Limits, OnRequest
from controller.kafka.server.tls import Tls
from controller.kafka.server.tls_accept import TlsAccept
from controller.kafka.session import SecurityProtocol

_logger = structlog.get_logger(__name__)

_CANCELLATION_S: Final = 1.0
"""How long a stop waits for handlers to end once their clients are cut off."""

_PROTOCOLS: Final[dict[tuple[bool, bool], SecurityProtocol]] = {
    (False, False): "PLAINTEXT",
    (True, False): "SSL",
    (False, True): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}
"""By whether TLS is spoken, and whether clients log in."""

_IDLE_CHECKS: Final = 4
"""How often idle connections are looked for within the time that they may be idle."""


def _ignore_request(api_key: int, version: int, outcome: Outcome, seconds: float) -> None:
    return None


def _ignore_login(listener: str, mechanism: str, outcome: LoginOutcome) -> None:
    return None


class KafkaServer:
    """One listener.

    `handlers` maps API keys to their handlers; `on_request` is called for each request, `on_login` for each login;
    `clock` gives seconds, for idle times and durations (the loop's clock by default). Port 0 takes a free one,
    which `port` is once started. `counts` is shared by all doors of a
    process. With `tls` clients speak TLS, with `sasl` they have to log in.
    """

    def __init__(
        self,
        host: str,
        port: int,
        handlers: Mapping[int, ApiHandler],
        *,
        listener: str = "PLAINTEXT",
        tls: Tls | None = None,
        sasl: SaslRules | None = None,
        limits: Limits | None = None,
        counts: ConnectionCounts | None = None,
        on_login: OnLogin = _ignore_login,
        on_request: OnRequest = _ignore_request,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.handlers = handlers
        self.listener = listener
        self.tls = tls
        self.sasl = sasl
        self.protocol: SecurityProtocol = _PROTOCOLS[tls is not None, sasl is not None]
        self.limits = limits or Limits()
        self._counts = counts or ConnectionCounts()
        self.on_login = on_login
        self.handshakes: set[TlsAccept] = set()
        self.on_request = on_request
        self._given_clock = clock
        self._server: asyncio.Server | None = None
        self.reader = ThreadPoolExecutor(1, thread_name_prefix="read")
        self._connections: set[Connection] = set()
        self._all_closed = asyncio.Event()
        self._idle_check: asyncio.TimerHandle | None = None
        self._held = 0
        self._relief: asyncio.Handle | None = None

    async def start(self, bound: socket.socket | None = None) -> None:
        """Listen, on a socket that is bound already if one is given. Raises OSError when the address cannot be had."""
        self.loop = asyncio.get_running_loop()
        self.clock = self._given_clock or self.loop.time
        if bound is None:
            self._server = await self.loop.create_server(self._accept, self.host, self.port)
        else:
            self._server = await self.loop.create_server(self._accept, sock=bound)
        self.port = self._server.sockets[0].getsockname()[1]
        self._schedule_idle_check()

    def _accept(self) -> asyncio.Protocol:
        return Connection(self) if self.tls is None else TlsAccept(self)

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Accept and read nothing more, answer what is in flight, close; what is left after `deadline_s` is cut off."""
        assert self._server is not None, "the server was started"
        self._server.close()
        if self._idle_check is not None:
            self._idle_check.cancel()
        for handshake in tuple(self.handshakes):
            handshake.abort()
        for connection in tuple(self._connections):
            connection.drain()
        if not await self._all_close(deadline_s):
            _logger.warning("connections_cut_off", listener=self.listener, connections=len(self._connections))
            self.disconnect()
            if not await self._all_close(_CANCELLATION_S):
                _logger.error("handlers_not_cancelled", listener=self.listener, connections=len(self._connections))
        await self._server.wait_closed()
        self.reader.shutdown(wait=False, cancel_futures=True)

    def disconnect(self) -> None:
        """Cut all clients off."""
        for connection in tuple(self._connections):
            connection.abort()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def close_idle(self) -> None:
        """Close the connections that have been idle for too long. Called from time to time by the server itself."""
        limit_s = self.limits.idle_ms_max / 1000
        for connection in tuple(self._connections):
            if connection.idle_s() >= limit_s:
                connection.end("idle")

    def opened(self, connection: Connection) -> bool:
        """Keep a new connection, or refuse it with a log line when there are too many."""
        if not self._admits(connection.host):
            return False
        self._connections.add(connection)
        self._all_closed.clear()
        return True

    @property
    def handshake_s_max(self) -> float:
        """How long a handshake of TLS may take."""
        return self.limits.authentication_ms_max / 1000

    def greets(self, principal: str) -> Connection:
        """The connection of a client whose handshake is done."""
        return Connection(self, principal)

    def shakes_hands(self, handshake: TlsAccept) -> bool:
        """Keep a new handshake, or refuse it with a log line when there are too many connections."""
        if not self._admits(handshake.host):
            return False
        self.handshakes.add(handshake)
        return True

    def handshake_ended(self, handshake: TlsAccept) -> None:
        """Forget a handshake that was kept; what comes of it is a new connection."""
        self.handshakes.discard(handshake)
        self._counts.left(handshake.host)

    def _admits(self, host: str) -> bool:
        limit = self.limits.connections_max
        if len(self._connections) + len(self.handshakes) < limit:
            return self._counts.admit(host)
        reason = f"too many connections: max.connections allows {limit}"
        _logger.warning("connection_refused", reason=reason, peer=host, listener=self.listener)
        return False

    def holds(self, more: int) -> None:
        """Count what is kept for clients: half-sent requests, those worked on, and answers that nobody takes. Beyond
        the limit those are closed for which most is kept, of clients that have not logged in first."""
        self._held += more
        if more > 0 and self._held > self.limits.held_bytes_max and not self._relief:
            self._relief = self.loop.call_soon(self._relieve)

    def _relieve(self) -> None:
        self._relief = None
        for connection in sorted(self._connections, key=lambda each: (each.let_in, -each.bytes_held)):
            if self._held <= self.limits.held_bytes_max:
                return
            connection.end(f"all connections hold more than queued.max.request.bytes={self.limits.held_bytes_max}")
            self._held -= connection.bytes_held
            connection.bytes_held = 0

    def closed(self, connection: Connection) -> None:
        """Forget a connection, whose handlers have ended too."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self._counts.left(connection.host)
        if not self._connections:
            self._all_closed.set()

    async def _all_close(self, deadline_s: float) -> bool:
        """Whether all connections and their handlers end in time."""
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), deadline_s)
        return not self._connections

    def _schedule_idle_check(self) -> None:
        self._idle_check = self.loop.call_later(self.limits.idle_ms_max / 1000 / _IDLE_CHECKS, self._check_idle)

    def _check_idle(self) -> None:
        self.close_idle()
        self._schedule_idle_check()
