"""One client's connection over HTTP: how long it may take for what it owes, and who gives way when there are many.

uvicorn reads and answers requests. Added is what it leaves to proxies in front of it:

- a request, its head and its body, is here within REQUEST_S of its first byte, and answers are taken: a client that
  takes less than TAKEN_BYTES_PER_S for STALL_S is cut off. What was done for a client that is gone ends;
- an answer is written in pieces, the next when the client has taken the one before. Answers that wait hold at most
  HELD_BYTES_MAX together: past that the address that holds most loses its oldest connection. A pipelined request waits
  until the answer before it is taken;
- past CONNECTIONS_MAX, and past what open files allow, the connection that has owed its request for the longest gives
  way to a new one. Where all are at work, some more are let in, and find out about health only;
- what has arrived is taken in pieces, so that a body of tiny chunks keeps nobody else waiting.

What it does not do: it answers nothing itself, and logs nothing of single clients.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast

import uvicorn
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from controller.http.requests import API
from controller.kafka.server.tls import Tls
from controller.kafka.server.tls_accept import TlsAccept
from controller.kafka.session import normal_host

CONNECTIONS_MAX: Final = 1000
CONNECTIONS_MORE: Final = 100
"""Let in when so many requests are under way, for health."""
FILES_MORE: Final = 8
"""Let in for health when all doors together have as many connections as open files allow."""
REQUEST_S: Final = 20.0
STALL_S: Final = 30.0
TAKEN_BYTES_PER_S: Final = 1024
BYTES_PER_TURN: Final = 16 << 10
"""Of the smallest chunks some 3,000, which take 20 ms."""
HELD_BYTES_MAX: Final = 64 << 20
PIECE_BYTES: Final = 32 << 10
"""Also the limit of a transport's buffer. A connection holds up to 160 KiB (TLS) that are not counted."""


class Counts(Protocol):
    """Who may come in at all, by address."""

    @property
    def is_over(self) -> bool:
        """True if all doors together have more connections than open files allow."""
        ...

    def admit(self, host: str, more: int = 0) -> bool:
        """True if one more client may come from this address; it then counts until `left`. `more` are let in beyond
        what open files allow."""
        ...

    def left(self, host: str) -> None:
        """A client that was admitted has gone."""
        ...


class Door:
    """The connections of one listener, from the handshake on where it speaks TLS.

    `busy` answers instead of `app` where there are too many. `make` makes a connection of a client that came in; it is
    set before the first one comes, as `loop` is.
    """

    listener: str = API
    handshake_s_max: float = REQUEST_S
    loop: asyncio.AbstractEventLoop
    make: Callable[[], Connection]

    def __init__(self, app: ASGIApp, busy: ASGIApp, counts: Counts | None = None, tls: Tls | None = None) -> None:
        self.app = app
        self.busy = busy
        self.tls = tls
        self._counts = counts
        self._open: set[Connection | TlsAccept] = set()
        self._owing: dict[Connection | TlsAccept, None] = {}
        self._held: dict[Connection, int] = {}
        """The size of the answer that each connection is being sent, the oldest first."""

    def accepts(self) -> asyncio.Protocol:
        """What takes a connection that was just accepted."""
        return self.make() if self.tls is None else TlsAccept(self)

    def greets(self, principal: str) -> Connection:
        """The connection of a client whose handshake is done. Certificates of clients are not looked at here."""
        return self.make()

    def shakes_hands(self, handshake: TlsAccept) -> bool:
        """Whether there is room for a handshake, which owes a request like any connection."""
        return self.admits(handshake)

    def handshake_ended(self, handshake: TlsAccept) -> None:
        """A handshake has ended; what comes of it is a new connection."""
        self.forget(handshake)

    def close(self) -> None:
        """Break off the handshakes."""
        for each in tuple(self._open):
            if isinstance(each, TlsAccept):
                each.abort()

    def admits(self, connection: Connection | TlsAccept) -> bool:
        """Whether a new connection may stay."""
        if self._counts is not None and not self._counts.admit(connection.host, FILES_MORE):
            return False
        self._open.add(connection)
        oldest = next(iter(self._owing), None)
        if self._is_full and oldest is not None:
            self.forget(oldest)
            oldest.abort()
        if len(self._open) > CONNECTIONS_MAX + CONNECTIONS_MORE:
            self.forget(connection)
            return False
        if self._is_full and isinstance(connection, Connection):
            connection.serves = self.busy
        self._owing[connection] = None
        return True

    @property
    def _is_full(self) -> bool:
        return len(self._open) > CONNECTIONS_MAX or (self._counts is not None and self._counts.is_over)

    def owes(self, connection: Connection, is_owing: bool) -> None:
        """Whether a connection has no whole request under way. The first to owe one is the first to give way."""
        if not is_owing:
            self._owing.pop(connection, None)
        elif connection in self._open:
            self._owing.setdefault(connection)

    def holds(self, connection: Connection, size: int) -> None:
        """Count an answer that is about to be written, and close connections where all hold too much."""
        others = self._held
        while others and sum(others.values()) + size > HELD_BYTES_MAX:
            by_host: Counter[str] = Counter()
            for each, held in others.items():
                by_host[each.host] += held
            ((host, _),) = by_host.most_common(1)
            oldest = next(each for each in others if each.host == host)
            self.releases(oldest)
            oldest.abort()
        others[connection] = size

    def releases(self, connection: Connection) -> None:
        """The answer of a connection is written, or is not wanted any more."""
        self._held.pop(connection, None)

    def forget(self, connection: Connection | TlsAccept) -> None:
        """A connection is gone, or as good as gone."""
        self._owing.pop(connection, None)
        if connection in self._open:
            self._open.discard(connection)
            if self._counts is not None:
                self._counts.left(connection.host)


class Connection(H11Protocol):
    """One client's connection, kept to its time."""

    def __init__(self, door: Door, config: uvicorn.Config, server_state: ServerState) -> None:
        super().__init__(config, server_state, {})
        self.host = ""
        self.serves = door.app
        self.app: Any = self._serve
        self._door = door
        self._served: asyncio.Task[None] | None = None
        self._is_lost = False
        self._late: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._untaken = 0
        self._unread = bytearray()

    # --- called by asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let the client in, or turn it away."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=PIECE_BYTES)
        if self.client is not None:
            self.host = normal_host(self.client[0])
            self.client = (self.host, self.client[1])
        if self._door.admits(self):
            self._look_at_the_clock()
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take some of what has arrived, and the rest when others had their turn."""
        if self._unread:
            self._unread += data
            self.transport.pause_reading()
        elif len(data) <= BYTES_PER_TURN:
            self._take(data)
        else:
            self._unread += data
            self.transport.pause_reading()
            self._take_some()

    def pause_writing(self) -> None:
        """The client takes nothing for now."""
        super().pause_writing()
        self._wait_for_it_to_be_taken()

    def resume_writing(self) -> None:
        """The client has taken what there was."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what is done for a client that is gone."""
        self._is_lost = True
        self._door.forget(self)
        self._unread.clear()
        for timer in (self._late, self._stalled, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        if self._served is not None:
            self._served.cancel()

    # --- called by the door

    def abort(self) -> None:
        """Close at once."""
        self.transport.abort()

    # --- inside

    def on_response_complete(self) -> None:
        """The next request may come."""
        answered = self.cycle
        super().on_response_complete()
        if self.cycle is answered:
            self._door.owes(self, True)
        else:
            self._look_at_the_clock()

    def _should_upgrade(self) -> bool:
        return False  # no other protocol is spoken, so a wish for one is passed over, as RFC 9110 has it

    def _take_some(self) -> None:
        piece = bytes(self._unread[:BYTES_PER_TURN])
        del self._unread[:BYTES_PER_TURN]
        if self.transport.is_closing():
            self._unread.clear()
        elif piece:
            self._take(piece)
            self.loop.call_soon(self._take_some)
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def _take(self, data: bytes) -> None:
        super().data_received(data)
        self._look_at_the_clock()

    def _look_at_the_clock(self) -> None:
        """Begin to wait for a request, or stop: it is here."""
        cycle = self.cycle
        is_owing = cycle is None or cycle.response_complete or cycle.more_body
        self._door.owes(self, is_owing)
        if is_owing and self._late is None:
            self._late = self.loop.call_later(REQUEST_S, self.abort)
        elif not is_owing and self._late is not None:
            self._late.cancel()
            self._late = None

    def _wait_for_it_to_be_taken(self) -> None:
        self._untaken = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(STALL_S, self._look_what_was_taken)

    def _look_what_was_taken(self) -> None:
        if self._untaken - self.transport.get_write_buffer_size() < STALL_S * TAKEN_BYTES_PER_S:
            self.abort()
        else:
            self._wait_for_it_to_be_taken()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = self._served = asyncio.current_task()
        try:
            await self.flow.drain()
            await self.serves(scope, receive, partial(self._send_in_pieces, send))
        except asyncio.CancelledError:
            if not self._is_lost:
                raise
        finally:
            if self._served is served:
                self._served = None

    async def _send_in_pieces(self, send: Send, message: Message) -> None:
        body = message["body"] if message["type"] == "http.response.body" else b""
        if len(body) <= PIECE_BYTES:
            await send(message)
            return
        self._door.holds(self, len(body))
        try:
            for start in range(0, len(body), PIECE_BYTES):
                end = start + PIECE_BYTES
                more_body = end < len(body) or message.get("more_body", False)
                await send(cast(Message, {**message, "body": body[start:end], "more_body": more_body}))
        finally:
            self._door.releases(self)
