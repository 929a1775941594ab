"""The identity and address of a client connection (Kafka or HTTP), for authorization, quotas and events."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Protocol

import msgspec

ANONYMOUS = "User:ANONYMOUS"
"""Kafka's principal of clients that did not authenticate."""


class ClientsConnection(Protocol):
    """A connection to the target cluster on which a client of this process is logged in."""

    async def exchange(self, payload: bytes) -> bytes:
        """Send a request frame, without its size, and return the response frame. Raises ClusterUnreachable."""

    def close(self) -> None: ...


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a connected client. `principal` is `TYPE:NAME`; `host` is the IP address, as in ACLs. `roles` are
    those of its token."""

    principal: str = ANONYMOUS
    roles: frozenset[str] = frozenset()
    host: str = ""
    listener: str = "PLAINTEXT"
    expires_at_s: float | None = None
    """The deadline for re-authentication (KIP-368), in seconds of the connection's clock; None without a deadline."""
    at_cluster: ClientsConnection | None = None
    """Carries the client's forwarded requests if the target cluster has verified its login. It closes with the client's
    connection."""


@lru_cache(maxsize=4096)
def normal_host(text: str) -> str:
    """The canonical form of an address: IPv6 as in RFC 5952 without a zone, IPv4-mapped IPv6 (`::ffff:10.0.0.1`) as
    IPv4. Other text is returned unchanged."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


Peer = tuple[str, int] | tuple[str, int, int, int] | None
"""The peer of a socket, as `getpeername` returns it: host and port first; None if it is unknown."""


def host_of(peer: Peer) -> str:
    """The client's IP address, as in ACLs; "" if it is unknown."""
    return normal_host(str(peer[0])) if peer else ""


def address_of(peer: Peer) -> str:
    """The client's host:port, for logs; `unknown` if there is no peer."""
    if not peer:
        return "unknown"
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
