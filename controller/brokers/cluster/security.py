"""How to log in at a cluster: librdkafka's properties, for its client and for plain sockets alike.

Most requests to a cluster go through librdkafka. What has to reach one certain broker, or goes through byte
for byte, takes a socket of its own, which must prove the same identity: TLS, SASL PLAIN and SCRAM.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import re
import ssl
from collections.abc import Mapping
from typing import Protocol

import msgspec

from controller.machine.access.credentials import ITERATIONS_MAX, ITERATIONS_MIN

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CHARACTERS_SHOWN = 200  # of a broker's message, in an error
_CHALLENGE = re.compile(
    r"r=([\x21-\x2b\x2d-\x7e]+),s=((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?),i=([0-9]{1,10})(?:,.*)?"
)
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class BadCredentials(Exception):
    """Invalid connection properties; the message names the error and what is allowed."""


class NotAuthenticated(Exception):
    """The cluster rejected the credentials."""


class Exchange(Protocol):
    """Sends one SASL token and returns the answer."""

    async def __call__(self, token: bytes, /) -> bytes: ...


class Security(msgspec.Struct, frozen=True):
    """How Topicwright connects and authenticates. `mechanism` is empty without SASL."""

    properties: Mapping[str, str] = {}
    tls: bool = False
    mechanism: str = ""

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
        """Authenticate on a connection after the SASL handshake. Raises NotAuthenticated."""
        user, password = self.properties["sasl.username"], self.properties["sasl.password"]
        if self.mechanism == "PLAIN":
            await exchange(b"\0" + user.encode() + b"\0" + password.encode())
        else:
            await _scram(exchange, _HASHES[self.mechanism], user, password)


def security_of(properties: Mapping[str, str]) -> Security:
    """Parse librdkafka properties. Raises BadCredentials."""
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise BadCredentials(f"security.protocol={protocol} is not allowed; allowed: {', '.join(PROTOCOLS)}")
    tls = protocol.endswith("ssl")
    if not protocol.startswith("sasl"):
        return Security(properties, tls)
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))
    if mechanism not in MECHANISMS:
        raise BadCredentials(f"sasl.mechanism={mechanism} is not supported; allowed: {', '.join(MECHANISMS)}")
    for key in ("sasl.username", "sasl.password"):
        if not properties.get(key):
            raise BadCredentials(f"{key} is missing; {mechanism} needs it")
    return Security(properties, tls, mechanism)


async def _scram(exchange: Exchange, hash_name: str, user: str, password: str) -> None:
    """The client's side of SCRAM (RFC 5802), without channel binding."""
    nonce = base64.b64encode(os.urandom(18)).decode()
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    server_first = _text(await exchange(f"n,,{first}".encode()))
    both, salt, iterations = _challenge(server_first, nonce)
    salted = await asyncio.to_thread(hashlib.pbkdf2_hmac, hash_name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    final = f"c=biws,r={both}"
    signed = ",".join((first, server_first, final)).encode()
    stored_key = hashlib.new(hash_name, client_key).digest()
    proof = bytes(a ^ b for a, b in zip(client_key, hmac.digest(stored_key, signed, hash_name), strict=True))
    last = _text(await exchange(f"{final},p={base64.b64encode(proof).decode()}".encode()))
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)
    if last.partition("v=")[2].split(",")[0] != base64.b64encode(expected).decode():
        raise NotAuthenticated("the broker does not know the password either: its SCRAM signature is wrong")


def _challenge(said: str, nonce: str) -> tuple[str, bytes, int]:
    """Both nonces, the salt and the iterations of a broker's first message. Raises NotAuthenticated.

    Whoever answers in a broker's place must not choose how long we hash, nor how little an eavesdropper has to: Kafka's
    bounds hold here too (ScramMechanism).
    """
    found = _CHALLENGE.fullmatch(said)
    if found is None or not found[1].startswith(nonce) or found[1] == nonce:
        raise NotAuthenticated(f"the broker answers SCRAM with {said[:CHARACTERS_SHOWN]!r}")
    iterations = int(found[3])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        allowed = f"allowed, as in Kafka: {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        raise NotAuthenticated(f"the broker wants {iterations} iterations of SCRAM; {allowed}")
    return found[1], base64.b64decode(found[2]), iterations


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise NotAuthenticated("the broker answers SCRAM with bytes that are no text") from None
