"""The TLS handshake on an accepted connection, for the listeners of Kafka and HTTP; the connection's protocol follows.

Each handshake uses the current context of the listener, has a time limit and counts as a connection. Failures are
logged.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol, cast

import structlog

from controller.kafka.server import eager
from controller.kafka.server.tls import NoRuleApplies, Tls
from controller.kafka.session import address_of, host_of

_logger = structlog.get_logger(__name__)


class TlsService(Protocol):
    """The part of a listener (Kafka or HTTP) that TLS handshakes use."""

    tls: Tls | None
    listener: str
    loop: asyncio.AbstractEventLoop

    @property
    def handshake_s_max(self) -> float:
        """Time limit of a handshake."""
        ...

    def connection_of(self, principal: str) -> asyncio.Protocol:
        """The protocol for a client after its handshake; `principal` is from its certificate."""
        ...

    def admit(self, handshake: TlsAccept, /) -> bool:
        """Register a handshake; False if there are too many connections."""
        ...

    def remove(self, handshake: TlsAccept, /) -> None:
        """Unregister a handshake, failed or not."""
        ...


class TlsAccept(asyncio.Protocol):
    """A connection until its handshake is done."""

    def __init__(self, service: TlsService) -> None:
        self._service = service
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self.peer = "unknown"
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer, self.host = address_of(peer), host_of(peer)
        if not self._service.admit(self):
            self._transport.abort()
            return
        # Eagerly: uvloop reads as soon as this returns, and TLS must already be set up.
        started = eager.start(self._handshake(self._transport), self._service.loop)
        self._task = started if isinstance(started, asyncio.Task) else None

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def _handshake(self, transport: asyncio.Transport) -> None:
        service = self._service
        assert service.tls is not None, "the listener speaks TLS"
        early = _Early()
        limit_s = service.handshake_s_max
        try:
            secure = await service.loop.start_tls(
                transport, early, service.tls.context, server_side=True, ssl_handshake_timeout=limit_s
            )
            if secure is None or early.lost:
                return
            certificate = secure.get_extra_info("ssl_object").getpeercert(binary_form=True)
            principal = service.tls.principal(certificate)
        except NoRuleApplies as error:
            self._failed(str(error))
            secure.abort()  # type: ignore[union-attr]  # there is a certificate, so there is a connection
            return
        except (OSError, ValueError) as error:
            self._failed(_why(error))
            transport.abort()
            return
        finally:
            service.remove(self)
        connection = service.connection_of(principal)
        secure.set_protocol(connection)
        connection.connection_made(secure)
        early.hand_over(connection)

    def _failed(self, why: str) -> None:
        _logger.warning("tls_handshake_failed", reason=why, peer=self.peer, listener=self._service.listener)


class _Early(asyncio.Protocol):
    """Buffers what a client sends right after its handshake, until the connection takes over."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self._data.append(bytes(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def hand_over(self, connection: asyncio.Protocol) -> None:
        if self.lost:
            connection.connection_lost(None)
        elif self._data:
            connection.data_received(b"".join(self._data))


def _why(error: BaseException) -> str:
    """OpenSSL's reason of a failed handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate was rejected: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).lower().replace("_", " ")
    return str(error) or type(error).__name__
