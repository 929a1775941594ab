"""How to log in at a cluster: librdkafka's properties, for its client and for plain sockets alike.

Most requests to a cluster go through librdkafka. What has to reach one certain broker, or goes through byte
for byte, takes a socket of its own, which must prove the same identity: TLS, SASL PLAIN and SCRAM.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import msgspec

from controller.kafka.sasl.scram import Exchange, ScramFailed, prove_password

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class BadCredentials(Exception):
    """Properties that no connection can be made with; the message says what is wrong and what is allowed."""


class NotAuthenticated(Exception):
    """The cluster does not take these credentials."""


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
            try:
                await prove_password(exchange, self.mechanism, user, password)
            except ScramFailed as failure:
                raise NotAuthenticated(str(failure)) from None


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
