"""Authentication at a Kafka cluster, for librdkafka and for Topicwright's own sockets, from librdkafka's properties.

Most requests to a cluster go through librdkafka. Requests to a specific broker and forwarded requests use the sockets
of `controller.kafka.connections`, which authenticate as the same user, with TLS, SASL PLAIN or SCRAM.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import msgspec

from controller.kafka.sasl.scram import Exchange, ScramFailed, prove_password

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class BadCredentials(Exception):
    """Invalid connection properties; the message names the error and what is allowed."""


class NotAuthenticated(Exception):
    """The cluster rejected the credentials."""


class Security(msgspec.Struct, frozen=True):
    """Connection properties with librdkafka's names. `mechanism` is the SASL mechanism, empty without SASL."""

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
        """Send the SASL tokens of the login through `exchange`, after the SaslHandshake. Raises NotAuthenticated."""
        user, password = self.properties["sasl.username"], self.properties["sasl.password"]
        if self.mechanism == "PLAIN":
            await exchange(b"\0" + user.encode() + b"\0" + password.encode())
        else:
            try:
                await prove_password(exchange, self.mechanism, user, password)
            except ScramFailed as failure:
                raise NotAuthenticated(str(failure)) from None


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
