"""HTTP listeners, and connections with timeouts and limits, so that slow clients and many clients cannot block one.

uvicorn's protocol class reads and answers requests, but its server is not used: this module listens and stops. It adds
the limits that uvicorn leaves to a reverse proxy:

- Request timeout. A client must send a whole request, head and body, within REQUEST_S of its first byte, and its first
  request within REQUEST_S of connecting.
- Slow readers. A client that reads less than READ_BYTES_PER_S_MIN for STALL_S is disconnected. When a client
  disconnects, its handler is cancelled.
- Response memory. A response is written in blocks, each after the client has read the previous one. All unsent
  responses together take at most RESPONSE_BYTES_MAX. Beyond that, the address with the most bytes loses its oldest
  connection. A pipelined request waits until the client has read the previous response.
- Connection count. Beyond CONNECTIONS_MAX or the limit of open files, a new connection replaces the one that has waited
  longest for a request. If all connections have requests in progress, a few more may connect, for health checks only.
- Fair reading. Received bytes are processed in blocks and in turn, so that neither a body of tiny chunks nor many
  requests at once block the event loop.

Non-goals: answering requests, and logging single clients.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from functools import partial
from typing import Any, Final, cast

import structlog
import uvicorn
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from controller.http.errors import answer_early
from controller.http.metrics import OPEN_PATHS
from controller.http.requests import API
from controller.kafka.handling import normal_host
from controller.kafka.server.eager import Turns
from controller.kafka.server.server import ConnectionCounts
from controller.kafka.server.tls import Tls, TlsAccept
from controller.machine.errors import ErrorCode

BACKLOG: Final = 1024  # connections that the kernel accepts for us
KEEP_ALIVE_S: Final = 75  # longer than clients' and proxies' 60 s, so that they close first
STOP_WITHIN_S: Final = 2  # open requests after that are cut off
STOP_POLL_S: Final = 0.01
CONNECTIONS_MAX: Final = 1000
CONNECTIONS_FOR_HEALTH: Final = 100
"""Connections beyond CONNECTIONS_MAX, for health checks only."""
FILES_FOR_HEALTH: Final = 8
"""Connections beyond the limit of open files, for health checks only."""
REQUEST_S: Final = 20.0
STALL_S: Final = 30.0
READ_BYTES_PER_S_MIN: Final = 1024
READ_BLOCK_BYTES: Final = 16 << 10
"""Received bytes processed in one iteration of the event loop: at most about 3,000 tiny chunks, in 20 ms."""
RESPONSE_BYTES_MAX: Final = 64 << 20
WRITE_BLOCK_BYTES: Final = 32 << 10
"""The size of a response block, and of a transport's write buffer. Up to 160 KiB per TLS connection are not counted."""

_logger = structlog.get_logger("topicwright.http")


class HttpListener:
    """Serves one application on one address. Tracks and limits the connections, TLS handshakes included."""

    listener: str = API
    handshake_s_max: float = REQUEST_S
    loop: asyncio.AbstractEventLoop
    config: uvicorn.Config
    busy: ASGIApp
    """Answers the connections beyond the limit; the application of `config` answers all others."""

    def __init__(self, tls: Tls | None = None, counts: ConnectionCounts | None = None) -> None:
        self.state = ServerState()
        self.tls, self._counts = tls, counts
        self.turns, self.blocks = Turns(), Turns()
        """TLS handshakes, and received blocks, which do not wait for handshakes."""
        self._server: asyncio.Server | None = None
        self._open: set[Connection | TlsAccept] = set()
        self._waiting: dict[Connection | TlsAccept, None] = {}
        self._unsent: dict[Connection, int] = {}
        """The size of the unsent response of each connection, the oldest first."""

    async def start(self, app: ASGIApp, host: str, port: int) -> int:
        """Listen, and return the port (for port 0, the one chosen). Raises OSError naming the address."""
        listening = _listen(host, port)
        self.config = uvicorn.Config(
            app,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self.config.load()
        self.loop, self.busy = asyncio.get_running_loop(), _busy(app)
        self._server = await self.loop.create_server(self._accept, sock=listening, backlog=BACKLOG)
        return int(listening.getsockname()[1])

    def _accept(self) -> asyncio.Protocol:
        return Connection(self) if self.tls is None else TlsAccept(self)

    async def stop(self) -> None:
        """Stop accepting, abort handshakes, wait up to STOP_WITHIN_S for open requests, then close."""
        if self._server is None:
            return
        self._server.close()
        for each in tuple(self._open):
            if isinstance(each, TlsAccept):
                each.abort()
        state = self.state
        for connection in tuple(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn only has the sets
                    await asyncio.sleep(STOP_POLL_S)
        except TimeoutError:
            _logger.error("http server", why=f"{len(state.tasks)} requests did not end within {STOP_WITHIN_S} s")
            for task in state.tasks:
                task.cancel()

    def connection_of(self, principal: str) -> Connection:
        """The connection after a TLS handshake. HTTP does not use client certificates, so `principal` is ignored."""
        return Connection(self)

    def admit(self, connection: Connection | TlsAccept) -> bool:
        """Track a new connection or TLS handshake; this may close an older one. Returns False if the new one must be
        closed."""
        if self._counts is not None and not self._counts.admit(connection.host, FILES_FOR_HEALTH):
            return False
        self._open.add(connection)
        oldest = next(iter(self._waiting), None)
        if self._is_full and oldest is not None:
            self.remove(oldest)
            oldest.abort()
        if len(self._open) > CONNECTIONS_MAX + CONNECTIONS_FOR_HEALTH:
            self.remove(connection)
            return False
        if self._is_full and isinstance(connection, Connection):
            connection.handler = self.busy
        self._waiting[connection] = None
        return True

    @property
    def _is_full(self) -> bool:
        return len(self._open) > CONNECTIONS_MAX or (self._counts is not None and self._counts.is_over)

    def set_waiting(self, connection: Connection, is_waiting: bool) -> None:
        """Record that a connection waits for a whole request, or no longer does. If there are too many connections,
        `admit` closes the one that has waited longest."""
        if not is_waiting:
            self._waiting.pop(connection, None)
        elif connection in self._open:
            self._waiting.setdefault(connection)

    def begin_response(self, connection: Connection, size: int) -> None:
        """Count a response that is about to be written; closes other connections if responses take too much memory."""
        others = self._unsent
        while others and sum(others.values()) + size > RESPONSE_BYTES_MAX:
            by_host: Counter[str] = Counter()
            for each, unsent in others.items():
                by_host[each.host] += unsent
            ((host, _),) = by_host.most_common(1)
            oldest = next(each for each in others if each.host == host)
            self.end_response(oldest)
            oldest.abort()
        others[connection] = size

    def end_response(self, connection: Connection) -> None:
        """Stop counting the response of a connection: it is written or dropped."""
        self._unsent.pop(connection, None)

    def remove(self, connection: Connection | TlsAccept) -> None:
        """Stop tracking a connection that is closed or about to be closed."""
        self._waiting.pop(connection, None)
        if connection in self._open:
            self._open.discard(connection)
            if self._counts is not None:
                self._counts.release(connection.host)


class Connection(H11Protocol):
    """One client's connection, with timeouts."""

    def __init__(self, listener: HttpListener) -> None:
        super().__init__(listener.config, listener.state, {})
        self.host = ""
        self.handler: ASGIApp = listener.config.loaded_app
        self.app: Any = self._serve
        self._listener = listener
        self._handling: asyncio.Task[None] | None = None
        self._is_lost = False
        self._request_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0
        self._unread = bytearray()

    # --- called by asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=WRITE_BLOCK_BYTES)
        if self.client is not None:
            self.host = normal_host(self.client[0])
            self.client = (self.host, self.client[1])
        if self._listener.admit(self):
            self._update_request_timer()
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process the bytes in blocks, in turn with other connections."""
        if not self._unread:
            self._listener.blocks.add(self._process_block)
        self._unread += data
        if len(self._unread) > READ_BLOCK_BYTES:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_stall_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._listener.remove(self)
        self._unread.clear()
        for timer in (self._request_timer, self._stall_timer, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        if self._handling is not None:
            self._handling.cancel()

    # --- called by the listener

    def abort(self) -> None:
        self.transport.abort()

    # --- internal

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()
        if self.cycle is answered:
            self._listener.set_waiting(self, True)
        else:
            self._update_request_timer()

    def _should_upgrade(self) -> bool:
        return False  # a server may ignore Upgrade (RFC 9110)

    def _process_block(self) -> None:
        block = bytes(self._unread[:READ_BLOCK_BYTES])
        del self._unread[:READ_BLOCK_BYTES]
        if not self.transport.is_closing():
            super().data_received(block)
            self._update_request_timer()
        if self.transport.is_closing():
            self._unread.clear()
        elif self._unread:
            self._listener.blocks.add(self._process_block)
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def _update_request_timer(self) -> None:
        """Start the timer while the connection waits for a whole request; stop it when the request has arrived."""
        cycle = self.cycle
        is_waiting = cycle is None or cycle.response_complete or cycle.more_body
        self._listener.set_waiting(self, is_waiting)
        if is_waiting and self._request_timer is None:
            self._request_timer = self.loop.call_later(REQUEST_S, self.abort)
        elif not is_waiting and self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _start_stall_timer(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(STALL_S, self._check_progress)

    def _check_progress(self) -> None:
        if self._unsent_bytes - self.transport.get_write_buffer_size() < STALL_S * READ_BYTES_PER_S_MIN:
            self.abort()
        else:
            self._start_stall_timer()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        handling = self._handling = asyncio.current_task()
        try:
            await self.flow.drain()
            await self.handler(scope, receive, partial(self._send_in_blocks, send))
        except asyncio.CancelledError:
            if not self._is_lost:
                raise
        finally:
            if self._handling is handling:
                self._handling = None

    async def _send_in_blocks(self, send: Send, message: Message) -> None:
        body = message["body"] if message["type"] == "http.response.body" else b""
        if len(body) <= WRITE_BLOCK_BYTES:
            await send(message)
            return
        self._listener.begin_response(self, len(body))
        try:
            for start in range(0, len(body), WRITE_BLOCK_BYTES):
                end = start + WRITE_BLOCK_BYTES
                more_body = end < len(body) or message.get("more_body", False)
                await send(cast(Message, {**message, "body": body[start:end], "more_body": more_body}))
        finally:
            self._listener.end_response(self)


def _busy(app: ASGIApp) -> ASGIApp:
    """The application for connections beyond the limit: only health paths are answered; others get 503."""

    async def busy(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") in OPEN_PATHS:
            await app(scope, receive, send)
        else:
            message = "too many connections; try again later"
            await answer_early(send, 503, ErrorCode.REQUEST_TIMED_OUT, message, [(b"connection", b"close")])

    return busy


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port} for HTTP: {error.strerror}") from None
    return listener
