"""How to log in at a cluster: librdkafka's properties, for its client and for plain sockets alike.

Most requests to a cluster go through librdkafka. What has to reach one certain broker, or goes through byte
for byte, takes a socket of its own, which must prove the same identity: TLS, SASL PLAIN and SCRAM.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import ssl
from collections.abc import Mapping
from typing import Protocol

import msgspec

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class BadCredentials(Exception):
    """Properties that no connection can be made with; the message says what is wrong and what is allowed."""


class NotAuthenticated(Exception):
    """The cluster does not take these credentials."""


class Exchange(Protocol):
    """Sends one SASL token and gives the answer to it."""

    async def __call__(self, token: bytes, /) -> bytes: ...


class Security(msgspec.Struct, frozen=True):
    """The identity of Topicwright at the cluster. `mechanism` is empty where no SASL is spoken."""

    properties: Mapping[str, str] = {}
    tls: bool = False
    mechanism: str = ""

    def context(self) -> ssl.SSLContext | None:
        """The TLS context, None without TLS. Raises BadCredentials for files that cannot be read."""
        if not self.tls:
            return None
        given = self.properties
        try:
            context = ssl.create_default_context(cafile=given.get("ssl.ca.location"))
            if "ssl.certificate.location" in given:
                key = given.get("ssl.key.location")
                context.load_cert_chain(given["ssl.certificate.location"], key, given.get("ssl.key.password"))
        except (OSError, ssl.SSLError) as error:
            raise BadCredentials(f"the TLS files for the cluster cannot be used: {error}") from error
        if given.get("ssl.endpoint.identification.algorithm", "https") == "none":
            context.check_hostname = False
        if given.get("enable.ssl.certificate.verification", "true") == "false":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    async def authenticate(self, exchange: Exchange) -> None:
        """Prove who we are on a connection that has agreed on the mechanism. Raises NotAuthenticated."""
        user, password = self.properties["sasl.username"], self.properties["sasl.password"]
        if self.mechanism == "PLAIN":
            await exchange(b"\0" + user.encode() + b"\0" + password.encode())
        else:
            await _scram(exchange, _HASHES[self.mechanism], user, password)


def security_of(properties: Mapping[str, str]) -> Security:
    """The identity that librdkafka properties describe. Raises BadCredentials."""
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise BadCredentials(f"security.protocol={protocol} is not allowed; allowed: {', '.join(PROTOCOLS)}")
    tls = protocol.endswith("ssl")
    if not protocol.startswith("sasl"):
        return Security(properties, tls)
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))
    if mechanism not in MECHANISMS:
        raise BadCredentials(f"sasl.mechanism={mechanism} is not spoken; allowed: {', '.join(MECHANISMS)}")
    for key in ("sasl.username", "sasl.password"):
        if not properties.get(key):
            raise BadCredentials(f"{key} is missing, which {mechanism} needs")
    return Security(properties, tls, mechanism)


async def _scram(exchange: Exchange, hash_name: str, user: str, password: str) -> None:
    """The client's side of SCRAM (RFC 5802), without channel binding."""
    nonce = base64.b64encode(os.urandom(18)).decode()
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    server_first = (await exchange(f"n,,{first}".encode())).decode()
    said = dict(part.split("=", 1) for part in server_first.split(","))
    if not said.get("r", "").startswith(nonce) or "s" not in said or "i" not in said:
        raise NotAuthenticated(f"the broker answers SCRAM with {server_first!r}")
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), base64.b64decode(said["s"]), int(said["i"]))
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    final = f"c=biws,r={said['r']}"
    signed = ",".join((first, server_first, final)).encode()
    stored_key = hashlib.new(hash_name, client_key).digest()
    proof = bytes(a ^ b for a, b in zip(client_key, hmac.digest(stored_key, signed, hash_name), strict=True))
    last = (await exchange(f"{final},p={base64.b64encode(proof).decode()}".encode())).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)
    if last.partition("v=")[2].split(",")[0] != base64.b64encode(expected).decode():
        raise NotAuthenticated("the broker does not know the password either: its SCRAM signature is wrong")
