"""Who is at the other end of a connection: what authorization, quotas and events need to know of it."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Literal

import msgspec

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

ANONYMOUS = "User:ANONYMOUS"
"""Whoever came without having to say who it is, as Kafka calls it."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One client's identity. `principal` is `TYPE:NAME`; `host` its IP address without a port, as ACLs name hosts."""

    principal: str = ANONYMOUS
    host: str = ""
    listener: str = "PLAINTEXT"
    protocol: SecurityProtocol = "PLAINTEXT"
    expires_at_s: float | None = None
    """On the connection's clock, when the session has to be authenticated anew (KIP-368); None: never."""


@lru_cache(maxsize=4096)
def normal_host(text: str) -> str:
    """An address in the one form in which addresses are compared: IPv6 as RFC 5952 writes it, without a zone; IPv4 as
    IPv4, also where it is written as IPv6 (`::ffff:10.0.0.1`). What is no address stays as it is."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
