"""TLS of Kafka and HTTP listeners from PEM files: contexts, principals of client certificates, reloads, and handshakes.

Every connection uses the current context, so a reload affects new connections only.
Sessions are not resumed, so that a client certificate is checked on every connection.

`TlsAccept` is the handshake on an accepted connection; the connection's protocol follows. Each handshake has a time
limit and counts as a connection. Failures are logged.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from asyncio.protocols import _feed_data_to_buffered_proto  # type: ignore[attr-defined]
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol, cast

import structlog
from cryptography import x509

from controller.kafka.handling import ANONYMOUS, address_of, host_of
from controller.kafka.server import eager
from controller.patterns import ALLOWED, Pattern, PatternError

ClientAuth = Literal["none", "requested", "required"]
VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsError(Exception):
    """Unusable PEM files; the message names the setting, the file and the error."""


@dataclass(kw_only=True, eq=False)
class Tls:
    """The `ssl.*` settings of one listener, and its TLS context. The constructor reads the PEM files and raises
    TlsError."""

    keystore: Path
    """A PEM file with the private key and the certificate, followed by its chain."""
    key_password: str | None = field(default=None, repr=False)
    truststore: Path | None = None
    """A PEM file with the CAs that sign client certificates."""
    client_auth: ClientAuth = "none"
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    principal_rules: str = "DEFAULT"

    def __post_init__(self) -> None:
        self._rules = PrincipalRules(self.principal_rules)
        self.reload()

    def principal(self, certificate: bytes | None) -> str:
        """The principal of a client certificate (DER); ANONYMOUS without one. Raises NoRuleApplies."""
        if certificate is None:
            return ANONYMOUS
        subject = x509.load_der_x509_certificate(certificate).subject
        return f"User:{self._rules.name_of(distinguished_name(subject))}"

    def reload(self) -> None:
        """Read the PEM files again. If this raises TlsError, the old context remains."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = min(VERSIONS[version] for version in self.versions)
        context.maximum_version = max(VERSIONS[version] for version in self.versions)
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION
        context.num_tickets = 0
        password = self.key_password or ""
        try:
            context.load_cert_chain(self.keystore, password=lambda: password)
        except OSError as error:
            raise TlsError(f"ssl.keystore.location={self.keystore}: {self._wrong_keystore(error)}") from None
        if self.client_auth != "none":
            self._verify_clients(context)
        self.context = context

    def _verify_clients(self, context: ssl.SSLContext) -> None:
        if self.truststore is None:
            raise TlsError(
                f"ssl.client.auth={self.client_auth} needs ssl.truststore.location, the CAs of client certificates"
            )
        try:
            context.load_verify_locations(self.truststore)
        except OSError as error:
            raise TlsError(f"ssl.truststore.location={self.truststore}: {_wrong_file(error)}") from None
        context.verify_mode = _VERIFY[self.client_auth]

    def _wrong_keystore(self, error: OSError) -> str:
        if not isinstance(error, ssl.SSLError):
            return _wrong_file(error)
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the private key is not that of the certificate"
        if b"ENCRYPTED" in self.keystore.read_bytes():
            return "the private key is encrypted, and ssl.key.password does not open it"
        return "it must hold a private key and its certificate, followed by the certificate's chain, in PEM"


def _wrong_file(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return "it must hold certificates in PEM"
    return f"cannot be read: {error.strerror or error}"


def distinguished_name(name: x509.Name) -> str:
    """A distinguished name as Java writes it (RFC 2253), to which Kafka's mapping rules apply."""
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[Any]) -> str:
    value = attribute.value
    if isinstance(value, str) and attribute.rfc4514_attribute_name != attribute.oid.dotted_string:
        return attribute.rfc4514_string()
    raw = value.encode() if isinstance(value, str) else value
    length = bytes((len(raw),)) if len(raw) < 0x80 else b"\x82" + len(raw).to_bytes(2, "big")
    return f"{attribute.oid.dotted_string}=#{(bytes((attribute._type.value,)) + length + raw).hex()}"


class NoRuleApplies(Exception):
    """No rule of `ssl.principal.mapping.rules` matches a certificate's name."""


_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)"
_RULES: Final = re.compile(rf"\s*(?:{_RULE})\s*(?:,\s*|$)")


class PrincipalRules:
    """The rules of `ssl.principal.mapping.rules` (KIP-371). The constructor raises ValueError for invalid rules."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[Pattern | None, str, str]] = []
        at, text = 0, text.strip()
        while at < len(text):
            found = _RULES.match(text, at)
            if found is None:
                raise ValueError(f"no rule at {text[at:]!r}")
            pattern = None if found[1] else _pattern(found[2])
            self._rules.append((pattern, found[3] or "", found[4] or ""))
            at = found.end()

    def name_of(self, distinguished: str) -> str:
        """The principal's name by the first rule that matches a distinguished name. Raises NoRuleApplies."""
        for pattern, replacement, case in self._rules:
            if pattern is None:
                return distinguished
            groups = pattern.groups_of(distinguished)
            if groups is not None:
                name = _replaced(groups, replacement)
                return name.lower() if case == "L" else name.upper() if case == "U" else name
        raise NoRuleApplies(f"no rule of ssl.principal.mapping.rules applies to {distinguished}")


def _pattern(text: str) -> Pattern:
    try:
        return Pattern(text)
    except PatternError as error:
        raise ValueError(f"the pattern {text!r} is not a regular expression: {error}; allowed: {ALLOWED}") from None


def _replaced(groups: tuple[str, ...], replacement: str) -> str:
    """A replacement text as in Java: `$1` is a group, if the pattern has that group, and `\\x` is x."""

    def part(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1]
        digits = match[2]
        while int(digits) >= len(groups) and len(digits) > 1:
            digits = digits[:-1]
        if int(digits) >= len(groups):
            return match[0]
        return groups[int(digits)] + match[2][len(digits) :]

    return re.sub(r"\\(.)|\$(\d+)", part, replacement)


_logger = structlog.get_logger(__name__)


class TlsService(Protocol):
    """The part of a listener (Kafka or HTTP) that TLS handshakes use."""

    tls: Tls | None
    listener: str
    loop: asyncio.AbstractEventLoop
    handshake_s_max: float
    """Time limit of a handshake."""
    turns: eager.Turns
    """Handshakes begin in turn: each takes about 0.4 ms of the event loop."""

    def connection_of(self, principal: str) -> asyncio.Protocol:
        """The protocol for a client after its handshake; `principal` is from its certificate."""

    def admit(self, connection: TlsAccept) -> bool: ...
    def remove(self, connection: TlsAccept) -> None: ...


HELLO_BYTES_MAX: Final = 16 << 10


class TlsAccept(asyncio.Protocol):
    """A connection until its handshake is done."""

    def __init__(self, service: TlsService) -> None:
        self._service = service
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._hello = bytearray()
        self._delay_s = 0.0
        self.peer = "unknown"
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.peer, self.host = address_of(peer), host_of(peer)
        if not self._service.admit(self):
            self.abort()
            return
        limit_s = self._service.handshake_s_max
        self._timer = self._service.loop.call_later(limit_s, self._end, f"no handshake within {limit_s:g} s")

    def data_received(self, data: bytes) -> None:
        if not self._hello:
            self._service.loop.call_later(self._delay_s, self._service.turns.add, self._begin)
        self._hello += data
        if len(self._hello) > HELLO_BYTES_MAX:
            self._end("a ClientHello that is too long")
        elif self._transport is not None:
            self._transport.pause_reading()

    def mute(self, seconds: float) -> None:
        """Begin the handshake after this time."""
        self._delay_s = seconds

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._end("the client disconnected")

    def _begin(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            started = eager.start(self._handshake(self._transport), self._service.loop)
            self._task = started if isinstance(started, asyncio.Task) else None

    def _end(self, why: str) -> None:
        self._failed(why)
        self.abort()

    def abort(self) -> None:
        self._service.remove(self)
        for each in (self._timer, self._task):
            if each is not None:
                each.cancel()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    async def _handshake(self, transport: asyncio.Transport) -> None:
        service = self._service
        assert service.tls is not None, "the listener speaks TLS"
        early = _Early()
        limit_s = service.handshake_s_max
        try:
            started = eager.start(
                service.loop.start_tls(
                    transport, early, service.tls.context, server_side=True, ssl_handshake_timeout=limit_s
                ),
                service.loop,
            )
            service.loop.call_soon(transport.pause_reading)  # `start_tls` resumes it
            service.loop.call_soon(service.turns.add, partial(_feed, transport, bytes(self._hello)))
            secure = await started if isinstance(started, asyncio.Task) else started
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
            if self._timer is not None:
                self._timer.cancel()
        connection = service.connection_of(principal)
        secure.set_protocol(connection)
        connection.connection_made(secure)
        early.hand_over(connection)

    def _failed(self, why: str) -> None:
        _logger.warning("tls_handshake_failed", reason=why, peer=self.peer, listener=self._service.listener)


def _feed(transport: asyncio.Transport, hello: bytes) -> None:
    """Give TLS what has arrived before it was set up."""
    if not transport.is_closing():
        _feed_data_to_buffered_proto(transport.get_protocol(), hello)
        transport.resume_reading()


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
