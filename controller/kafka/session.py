"""Who is at the other end of a connection: what authorization, quotas and events need to know of it."""

from __future__ import annotations

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
