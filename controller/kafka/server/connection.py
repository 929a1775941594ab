"""One Kafka client's connection: carries bytes between asyncio and `ServerProtocol`, and requests to their handlers.

`KafkaServer` creates one for each client. Requests start in order as they arrive, up to the limits. Responses that are
ready together are sent in one write, in the order of requests. Beyond a limit, and while the client does not read
(`pause_writing`), the connection reads nothing more. A large frame is decoded in another thread. While a request of an
API with `is_exclusive` (see `ApiHandler`) runs, no other request of the connection starts.

The connection closes, with one log line, after a malformed or unsupported request, when a handler raises (also
`Disconnect`), when it is idle, or when the server stops. Earlier requests are answered first. When the client
disconnects, its handlers are cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol, cast

import structlog
from msgspec.structs import replace

from controller.kafka.codec.primitives import MalformedRequest
from controller.kafka.handling import (
    ANONYMOUS,
    Answer,
    ApiHandler,
    ClientConnection,
    Disconnect,
    RequestContext,
    Session,
    address_of,
    host_of,
)
from controller.kafka.messages import APIS, Message
from controller.kafka.sasl_gate import Closed, SaslGate, SaslRules
from controller.kafka.server import eager
from controller.kafka.server.protocol import Exchange, Limits, OnRequest, ServerProtocol

_WRITE_BYTES: Final = 256 * 1024
"""The most bytes in one write to the transport."""

_BUFFERED_BYTES_IGNORED: Final = 16 * 1024
"""Buffers up to this size are not counted, because any connection needs about as much memory."""

_ROUND_S: Final = 0.005
"""The longest time that one connection may block the event loop."""

_logger = structlog.get_logger(__name__)


class _Disconnected(Exception):
    """The client has disconnected."""


class Service(Protocol):
    """The part of `KafkaServer` that its connections use."""

    handlers: Mapping[int, ApiHandler]
    listener: str
    limits: Limits
    sasl: SaslRules | None
    loop: asyncio.AbstractEventLoop
    reader: ThreadPoolExecutor
    turns: eager.Turns

    @property
    def clock(self) -> Callable[[], float]: ...
    @property
    def on_request(self) -> OnRequest: ...
    def admit(self, connection: Connection) -> bool: ...
    def buffered(self, more: int) -> None: ...
    def remove(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    def __init__(self, service: Service, principal: str = ANONYMOUS) -> None:
        """`principal` is the principal of the client's certificate, if the client has one."""
        self._service = service
        self._protocol = ServerProtocol(service.handlers, service.limits.request_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._client = ClientConnection(session=Session(principal=principal, listener=service.listener), mute=self.mute)
        self._muted: asyncio.TimerHandle | None = None
        self._authentication_timer: asyncio.TimerHandle | None = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self._exclusive: Exchange | None = None
        """A running request of an API with `is_exclusive`, or a large one being decoded; meanwhile no other starts."""
        self._reading = True
        self._writable = True
        self._round_scheduled = False
        self.bytes_held = 0
        """Bytes buffered for the client, as last reported to the server."""
        self._active_at = service.clock()

    # --- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._client.peer = address_of(peer)
        self._client.session = replace(self._client.session, host=host_of(peer))
        service = self._service
        if service.sasl is not None:
            self._protocol.gate = SaslGate(service.sasl, self._client, clock=service.clock, end=self._protocol.end)
            within_s = service.limits.authentication_ms_max / 1000
            self._authentication_timer = service.loop.call_later(within_s, self._authentication_timed_out)
        if not service.admit(self):
            self._protocol.end()
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._active_at = self._service.clock()
        self._protocol.receive(data)
        if self.authenticated:
            self._run_round()
        else:
            self._set_reading(False)
            self._schedule_round()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._active_at = self._service.clock()
        self._schedule_round()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._protocol.end()
        if self._client.session.at_cluster is not None:
            self._client.session.at_cluster.close()
        self._report_buffered(0)
        for due in (self._authentication_timer, self._muted, *self._waiting):
            if due is not None:
                due.cancel()
        if not self._waiting:
            self._service.remove(self)

    # --- called by the server

    @property
    def host(self) -> str:
        return self._client.session.host

    def drain(self) -> None:
        """Stop reading, answer requests in flight, and close."""
        self._protocol.end()
        self._run_round()

    def abort(self) -> None:
        """Close immediately, without pending responses."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def authenticated(self) -> bool:
        """True if the client has authenticated or need not."""
        return self._protocol.gate is None or self._protocol.gate.open

    def idle_s(self) -> float:
        """Seconds since the last activity; 0 while a handler runs and its response can be sent."""
        if self._waiting and self._writable:
            return 0.0
        return self._service.clock() - self._active_at

    def end(self, reason: str) -> None:
        self._log(_logger.info, reason)
        self.abort()

    def mute(self, seconds: float) -> None:
        """Start no requests for this time, because the client exceeded a quota (KIP-219)."""
        ends_s = self._service.loop.time() + seconds
        if self._transport is None or (self._muted is not None and self._muted.when() >= ends_s):
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._service.loop.call_at(ends_s, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self._schedule_round()

    def _authentication_timed_out(self) -> None:
        if not self.authenticated:
            self.end("not authenticated in time")

    # --- one round: start requests, send responses

    def _run_round(self) -> None:
        """Start requests, send responses that are ready, then pause or resume reading."""
        self._begin_requests()
        if self._client.closes_after_responses and not self._protocol.ended:
            self._protocol.end()
        self._send_answers()
        if self._transport is None:
            return
        if self._protocol.ended and not self._protocol.in_flight:
            self._transport.close()
            return
        self._report_buffered(self._protocol.bytes_held + self._transport.get_write_buffer_size())
        may_begin, has_frame = self._may_begin(), self._protocol.has_frame()
        self._set_reading(may_begin and not has_frame)
        if may_begin and has_frame:
            self._schedule_round()

    def _report_buffered(self, size: int) -> None:
        """Report the bytes buffered for the client to the server, unless they are few."""
        size = size if size > _BUFFERED_BYTES_IGNORED else 0
        if size != self.bytes_held:
            more, self.bytes_held = size - self.bytes_held, size
            self._service.buffered(more)

    def _schedule_round(self) -> None:
        """Schedule one round in the next iteration of the event loop; before a login, in turn with other logins."""
        if not self._round_scheduled:
            self._round_scheduled = True
            (self._service.loop.call_soon if self.authenticated else self._service.turns.add)(self._scheduled_round)

    def _scheduled_round(self) -> None:
        self._round_scheduled = False
        if self._transport is not None:
            self._run_round()

    def _may_begin(self) -> bool:
        limits, gate = self._service.limits, self._protocol.gate
        if (gate is not None and gate.busy) or (self._exclusive is not None and not self._exclusive.answered):
            return False
        return (
            self._writable
            and self._muted is None
            and self._protocol.in_flight < limits.requests_in_flight_max
            and self._protocol.bytes_in_flight < limits.request_bytes_max
        )

    def _set_reading(self, reading: bool) -> None:
        if self._transport is None or reading == self._reading or self._transport.is_closing():
            return
        self._reading = reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _begin_requests(self) -> None:
        clock = self._service.clock
        now = clock()
        round_ends = now + _ROUND_S
        while now < round_ends and self._may_begin():
            exchange = self._protocol.next_exchange()
            if exchange is None:
                return
            exchange.started_s = now
            if exchange.answered:
                if exchange.ends is not None:
                    self._log(_logger.warning, exchange.ends, exchange)
                self._report(exchange)
            elif exchange.unread is not None:
                self._decode_in_thread(exchange, exchange.unread)
            else:
                self._begin(exchange)
            now = clock()

    def _decode_in_thread(self, exchange: Exchange, frame: bytes) -> None:
        """Decode a large request in another thread; no other request starts before it."""
        self._exclusive, exchange.unread = exchange, None
        service, elements_max = self._service, self._service.handlers[exchange.header.api_key].elements_max
        future = service.loop.run_in_executor(service.reader, exchange.read, frame, elements_max)
        self._wait_for(future, exchange, self._decoded)

    def _decoded(self, exchange: Exchange, bytes_taken: int) -> None:
        self._exclusive = None
        self._protocol.resize(exchange, bytes_taken)
        self._begin(exchange)

    def _begin(self, exchange: Exchange) -> None:
        service, header, gate = self._service, exchange.header, self._protocol.gate
        context = RequestContext(
            header.api_key, header.api_version, header.correlation_id, header.client_id or "", self._client
        )
        handle = None if gate is None else gate.handler(header.api_key)
        try:
            if handle is None:
                handle = service.handlers[header.api_key].handle
            given = handle(context, exchange.request)
            if asyncio.iscoroutine(given):
                given = eager.start(given, service.loop)
            if given is None or isinstance(given, Message):
                self._answer(exchange, given)
                return
            future = asyncio.ensure_future(cast("asyncio.Future[Answer]", given), loop=service.loop)
        except (Exception, asyncio.CancelledError) as error:
            self._fail(exchange, error)
            return
        if service.handlers[header.api_key].is_exclusive:
            self._exclusive = exchange
        self._wait_for(future, exchange, self._answer)

    def _wait_for(self, future: asyncio.Future[Any], exchange: Exchange, then: Callable[[Exchange, Any], None]) -> None:
        """Continue the request with the result of a future."""
        self._waiting.add(future)
        future.add_done_callback(partial(self._done, exchange, then))

    def _done(self, exchange: Exchange, then: Callable[[Exchange, Any], None], future: asyncio.Future[Any]) -> None:
        error: BaseException | None
        if self._transport is None and (future.cancelled() or future.exception() is None):
            error = _Disconnected()
        elif future.cancelled():
            error = asyncio.CancelledError("the handler's wait was cancelled")
        else:
            error = future.exception()
        if error is not None:
            self._fail(exchange, error)
        else:
            then(exchange, future.result())
        self._waiting.discard(future)
        if self._transport is not None:
            self._schedule_round()
        elif not self._waiting:
            self._service.remove(self)

    def _answer(self, exchange: Exchange, response: Answer) -> None:
        try:
            exchange.answer(response)
        except Exception as error:
            self._protocol.end()
            exchange.end("the response cannot be encoded", "failed")
            self._log(partial(_logger.error, exc_info=error), "the response cannot be encoded", exchange)
        self._protocol.resize(exchange, len(exchange.frame))
        self._report(exchange)

    def _fail(self, exchange: Exchange, error: BaseException) -> None:
        """Close the connection after a malformed request, Disconnect, a bug in a handler, or a disconnect."""
        self._protocol.end()
        if isinstance(error, _Disconnected):
            exchange.end("the client disconnected", "cancelled")
        elif isinstance(error, Closed):
            exchange.end("authentication failed", "disconnected")
        elif isinstance(error, MalformedRequest | Disconnect):
            exchange.end(str(error), "malformed" if isinstance(error, MalformedRequest) else "disconnected")
            self._log(_logger.warning, str(error), exchange)
        else:
            exchange.end("the handler failed", "failed")
            self._log(partial(_logger.error, exc_info=error), "the handler failed", exchange)
        self._report(exchange)

    def _send_answers(self) -> None:
        while self._writable and self._transport is not None and not self._transport.is_closing():
            frames, ends = self._protocol.frames(_WRITE_BYTES)
            if frames:
                self._active_at = self._service.clock()
                self._transport.write(b"".join(frames) if len(frames) > 1 else frames[0])
            if ends:
                self._transport.close()
                return
            if not frames:
                return

    def _report(self, exchange: Exchange) -> None:
        assert exchange.outcome is not None, "only answered requests are reported"
        service, key, version = self._service, exchange.header.api_key, exchange.header.api_version
        api = service.handlers.get(key)
        if api is None or not api.min_version <= version <= api.max_version:
            version = -1
        service.on_request(-1 if api is None else key, version, exchange.outcome, service.clock() - exchange.started_s)

    def _log(self, log: Callable[..., object], reason: str, exchange: Exchange | None = None) -> None:
        about: dict[str, object] = {}
        if exchange is not None and exchange.header.api_key >= 0:
            api = APIS.get(exchange.header.api_key)
            about = {
                "api": exchange.header.api_key if api is None else api.name,
                "version": exchange.header.api_version,
                "client_id": exchange.header.client_id,
            }
        log("connection_closed", reason=reason, peer=self._client.peer, listener=self._service.listener, **about)
