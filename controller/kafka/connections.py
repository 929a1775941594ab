"""Connects to Kafka nodes: authentication at a cluster, and a client for requests that must reach a given broker or be
forwarded byte for byte.

Records go through librdkafka and aiokafka. `Security` has librdkafka's properties; Topicwright's own sockets
authenticate as the same user.

A connection carries one request at a time, so a slow request delays no other and correlation ids stay unchanged. Failed
connections are closed; the others return to a pool. Forwarding, the target cluster and the quorum client use it.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec

from controller.kafka.cloud_tokens import METHOD, METHODS, librdkafka_settings
from controller.kafka.codec.codec import decode_response, encode_request
from controller.kafka.codec.primitives import MalformedRequest
from controller.kafka.messages import ApiKey, Message, access
from controller.kafka.sasl import OAUTHBEARER, Exchange, ScramFailed, bearer_message, prove_password
from events.errors import UserError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The security protocols, in the order of Kafka's numbers (SecurityProtocol)."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_OIDC_KEYS = tuple(f"sasl.oauthbearer.{key}" for key in ("client.id", "client.secret", "token.endpoint.url"))
NEEDED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(MECHANISMS, ("sasl.username", "sasl.password")),
    f"{OAUTHBEARER} with {METHOD}=oidc": _OIDC_KEYS,
    **{f"{OAUTHBEARER} with {METHOD}={method}": () for method in METHODS},
}
"""The properties that a login at a cluster needs, by mechanism."""


class BadCredentials(Exception):
    """Invalid connection properties; the message names the error and what is allowed."""


class NotAuthenticated(UserError):
    """The cluster rejected the credentials."""


class Security(msgspec.Struct, frozen=True):
    """Connection properties with librdkafka's names. `mechanism` is the SASL mechanism, empty without SASL."""

    properties: Mapping[str, Any] = {}
    tls: bool = False
    mechanism: str = ""
    token: Callable[[], Awaitable[str]] | None = None
    """Returns a bearer token, for OAUTHBEARER."""

    def context(self) -> ssl.SSLContext | None:
        """The TLS context; None without TLS. Raises BadCredentials for unreadable files."""
        if not self.tls:
            return None
        given = self.properties
        try:
            context = ssl.create_default_context(cafile=given.get("ssl.ca.location"))
            if "ssl.certificate.location" in given:
                key = given.get("ssl.key.location")
                context.load_cert_chain(given["ssl.certificate.location"], key, given.get("ssl.key.password"))
        except (OSError, ssl.SSLError) as error:
            raise BadCredentials(f"invalid TLS files for the cluster: {error}") from error
        if given.get("ssl.endpoint.identification.algorithm", "https") == "none":
            context.check_hostname = False
        if given.get("enable.ssl.certificate.verification", "true") == "false":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    async def authenticate(self, exchange: Exchange) -> None:
        """Send the SASL tokens of the login through `exchange`, after the SaslHandshake. Raises NotAuthenticated."""
        if self.token is not None:
            if await exchange(bearer_message(await self.token())):  # a refusal: the broker answers the next token
                await exchange(b"\1")
            return
        user, password = self.properties["sasl.username"], self.properties["sasl.password"]
        if self.mechanism == "PLAIN":
            await exchange(b"\0" + user.encode() + b"\0" + password.encode())
        else:
            try:
                await prove_password(exchange, self.mechanism, user, password)
            except ScramFailed as failure:
                raise NotAuthenticated(str(failure)) from None


def security_of(properties: Mapping[str, str]) -> Security:
    """Parse librdkafka properties and the methods of `cloud_tokens`. Raises BadCredentials, ValueError and
    MissingExtra."""
    protocol, allowed = properties.get("security.protocol", "plaintext").lower(), [each.lower() for each in PROTOCOLS]
    if protocol not in allowed:
        raise BadCredentials(f"security.protocol={protocol} is not allowed; allowed: {', '.join(allowed)}")
    tls = protocol.endswith("ssl")
    if not protocol.startswith("sasl"):
        return Security(properties, tls)
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))
    way = f"{mechanism} with {METHOD}={properties.get(METHOD, '')}" if mechanism == OAUTHBEARER else mechanism
    if way not in NEEDED:
        raise BadCredentials(f"sasl.mechanism={way} is not supported; allowed: {', '.join(NEEDED)}")
    for key in NEEDED[way]:
        if not properties.get(key):
            raise BadCredentials(f"{key} is missing; {mechanism} needs it")
    return Security(librdkafka_settings(properties), tls, mechanism)


Address = tuple[str, int]
M = TypeVar("M", bound=Message)
T = TypeVar("T")

CLIENT_ID = "topicwright"
CONNECT_S = 5.0  # an unreachable host never answers: after this time the next address is tried
RESPONSE_S = 15.0
"""Response timeout for Topicwright's own requests."""
SESSION_USED = 0.8
"""The share of a session's lifetime in which an idle connection is used again."""
IDLE_MAX = 8
"""Idle connections per broker."""
CORRELATION_ID = 1
"""All requests have the same correlation id, because a connection has one request in flight at a time."""
SASL_VERSION = 1
"""The version of SaslHandshake and SaslAuthenticate; with SaslHandshake v1, tokens are sent in SaslAuthenticate."""
RESPONSE_BYTES_MAX = 1 << 30
"""The largest accepted response. Metadata of all topics of the largest clusters takes a tenth of it."""
_SIZE = struct.Struct(">i")


def addresses(text: str) -> list[Address]:
    """Parse HOST:PORT[,HOST:PORT…], which the command line has checked."""
    parts = (each.strip().rpartition(":") for each in text.split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in parts]


class ClusterUnreachable(UserError):
    """The cluster, or the requested broker, did not answer; the message says which and why."""


class BrokerConnection:
    """A connection to a broker or controller, for one request at a time, authenticated by TLS or SASL."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, response_bytes_max: int
    ) -> None:
        self.address = address
        self._response_bytes_max = response_bytes_max
        self._reader = reader
        self._writer = writer
        self.session_ms = 0
        """The lifetime of the login (KIP-368); 0 without an end."""
        self._ends_s: float | None = None

    @classmethod
    async def open(
        cls, address: Address, security: Security, response_bytes_max: int = RESPONSE_BYTES_MAX
    ) -> BrokerConnection:
        """Connect and authenticate. Raises ClusterUnreachable and NotAuthenticated."""
        connection = await cls.connect(address, security.context(), response_bytes_max)
        if security.mechanism:
            await connection.authenticate(security.mechanism, security.authenticate)
        return connection

    @classmethod
    async def connect(
        cls, address: Address, tls: ssl.SSLContext | None, response_bytes_max: int = RESPONSE_BYTES_MAX
    ) -> BrokerConnection:
        """Connect without a login. Raises ClusterUnreachable."""
        host, port = address
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        except (OSError, TimeoutError, ValueError) as error:  # ValueError: invalid host name
            raise ClusterUnreachable(f"{host}:{port} cannot be reached: {_why(error)}") from error
        return cls(address, reader, writer, response_bytes_max)

    async def exchange(self, payload: bytes) -> bytes:
        """Send a request frame, without its size, and return the response frame. Raises ClusterUnreachable."""
        host, port = self.address
        try:
            self._writer.write(_SIZE.pack(len(payload)) + payload)
            await self._writer.drain()
            (size,) = _SIZE.unpack(await self._reader.readexactly(4))
            if not 0 <= size <= self._response_bytes_max:
                raise ClusterUnreachable(
                    f"{host}:{port} announces a response of {size} bytes; the limit is {self._response_bytes_max}"
                )
            return await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ClusterUnreachable(f"{host}:{port} closed the connection: {_why(error)}") from error

    def close(self) -> None:
        with suppress(Exception):
            self._writer.transport.abort()

    @property
    def is_open(self) -> bool:
        """True until the broker closes the connection, or its session ends soon."""
        is_valid = self._ends_s is None or asyncio.get_running_loop().time() < self._ends_s
        return is_valid and not self._writer.is_closing() and not self._reader.at_eof()

    async def call(self, api_key: int, version: int, request: Message, answer: type[M]) -> M:
        """Send a message and return the response. Raises ClusterUnreachable."""
        frame = encode_request(api_key, version, CORRELATION_ID, CLIENT_ID, request)
        return decode_message(api_key, version, await self.exchange(frame[4:]), answer, self.address)

    async def authenticate(self, mechanism: str, log_in: Callable[[Exchange], Awaitable[T]]) -> T:
        """Log in with the SASL tokens that `log_in` exchanges, and return its result. On any error the connection is
        closed. Raises ClusterUnreachable and NotAuthenticated."""
        host, port = self.address
        try:
            async with asyncio.timeout(RESPONSE_S):
                handshake = access.SaslHandshakeRequest(mechanism=mechanism)
                agreed = await self.call(ApiKey.SASL_HANDSHAKE, SASL_VERSION, handshake, access.SaslHandshakeResponse)
                if agreed.error_code:
                    offered = ", ".join(agreed.mechanisms)
                    raise NotAuthenticated(f"{host}:{port} does not offer {mechanism}; offered: {offered}")
                return await log_in(self.exchange_token)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise ClusterUnreachable(f"{host}:{port} does not answer during SASL authentication") from None
            raise

    async def exchange_token(self, token: bytes) -> bytes:
        """Send a SASL token and return the broker's. Raises ClusterUnreachable and NotAuthenticated."""
        host, port = self.address
        request = access.SaslAuthenticateRequest(auth_bytes=token)
        answer = await self.call(ApiKey.SASL_AUTHENTICATE, SASL_VERSION, request, access.SaslAuthenticateResponse)
        if answer.error_code:
            why = answer.error_message or f"error {answer.error_code}"
            raise NotAuthenticated(f"{host}:{port} rejects the credentials: {why}")
        self.session_ms = answer.session_lifetime_ms
        if self.session_ms:
            self._ends_s = asyncio.get_running_loop().time() + self.session_ms / 1000 * SESSION_USED
        return answer.auth_bytes


class Connections:
    """A connection pool for the brokers of one cluster."""

    def __init__(self, security: Security, response_bytes_max: int = RESPONSE_BYTES_MAX) -> None:
        self._security, self._response_bytes_max = security, response_bytes_max
        self._idle: dict[Address, list[BrokerConnection]] = {}
        self._closed = False

    @asynccontextmanager
    async def borrowed(self, address: Address) -> AsyncIterator[BrokerConnection]:
        """An idle or new connection for one request. On any error it is closed."""
        idle = self._idle.setdefault(address, [])
        while idle and not idle[-1].is_open:
            idle.pop().close()
        connection = idle.pop() if idle else await self._open(address)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if self._closed or len(idle) >= IDLE_MAX:
            connection.close()
        else:
            idle.append(connection)

    async def _open(self, address: Address) -> BrokerConnection:
        return await BrokerConnection.open(address, self._security, self._response_bytes_max)

    async def exchange(self, address: Address, payload: bytes, within_s: float = RESPONSE_S) -> bytes:
        """Send a request frame to a broker and return the response frame. Raises ClusterUnreachable."""
        try:
            async with asyncio.timeout(within_s), self.borrowed(address) as connection:
                return await connection.exchange(payload)
        except TimeoutError:
            host, port = address
            raise ClusterUnreachable(f"{host}:{port} did not answer within {within_s:g} s") from None

    async def call(
        self, to: Address, api_key: int, version: int, request: Message, answer: type[M], within_s: float = RESPONSE_S
    ) -> M:
        """Send a message to a broker and return the response. Raises ClusterUnreachable."""
        frame = encode_request(api_key, version, CORRELATION_ID, CLIENT_ID, request)
        return decode_message(api_key, version, await self.exchange(to, frame[4:], within_s), answer, to)

    def close(self) -> None:
        """Close idle connections now, borrowed ones when they are returned."""
        self._closed = True
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()


def decode_message(api_key: int, version: int, payload: bytes, answer: type[M], address: Address) -> M:
    """Decode a response. Raises ClusterUnreachable for invalid bytes."""
    try:
        number, message = decode_response(api_key, version, payload)
    except MalformedRequest as malformed:
        raise ClusterUnreachable(f"{address[0]}:{address[1]} sent an invalid response: {malformed}") from malformed
    if number != CORRELATION_ID:
        raise ClusterUnreachable(f"{address[0]}:{address[1]} answered request {number} instead of {CORRELATION_ID}")
    assert isinstance(message, answer), "the codec gives the message of the API"
    return message


def _why(error: BaseException) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
