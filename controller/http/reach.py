"""By which names the service may be reached over HTTP, who a client is behind a proxy, and how clients log in.

A browser that is shown a page of evil.example may be made to send that page's requests here, when that name comes to
resolve to our address (DNS rebinding). Such requests carry the name in their Host header. An address, or `localhost`,
cannot be made to point elsewhere, so these are always allowed; a name has to be known.

What a client says of where it comes from (`X-Forwarded-For`) is heard of trusted proxies alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final, Protocol

import msgspec

from controller.kafka.session import normal_host

ANY_NAME: Final = "*"
_WITH_PORT: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?")

Network = IPv4Network | IPv6Network


class Reach(msgspec.Struct, frozen=True):
    """The names that HTTP goes by (`*` for any), and the proxies that are trusted to say who their clients are."""

    names: frozenset[str] = frozenset()
    proxies: tuple[Network, ...] = ()

    def named(self, host: str) -> Reach:
        """The same, with the host that is listened on."""
        return msgspec.structs.replace(self, names=self.names | {host.lower()})

    def allows(self, host_header: str) -> bool:
        """Whether a Host header names this service."""
        name = _without_port(host_header).lower().rstrip(".")
        return ANY_NAME in self.names or name in self.names or name in {"", "localhost"} or _is_address(name)

    def client_behind(self, peer: str, forwarded: Sequence[str]) -> str:
        """The address of a client whose connection comes from `peer`, by the X-Forwarded-For headers of its request:
        the last address that no trusted proxy is at."""
        hops = [hop.strip() for line in forwarded for hop in line.split(",")]
        while hops and self._trusts(peer):
            hop = normal_host(_without_port(hops.pop()))
            if not _is_address(hop):
                break
            peer = hop
        return peer

    def _trusts(self, host: str) -> bool:
        return _is_address(host) and any(ip_address(host) in network for network in self.proxies)


class Passwords(Protocol):
    """Who knows tokens and passwords."""

    def owner_of(self, token: str) -> str | None:
        """The user that a token belongs to."""
        ...

    async def knows(self, user: str, password: str, address: str) -> bool:
        """Whether this is a password of a user; addresses take turns."""
        ...


class Logins(msgspec.Struct, frozen=True):
    """How clients of HTTP log in, and whether they must."""

    passwords: Passwords
    required: bool
    failed_delay_ms: int
    on_login: Callable[[str, str, str], None]
    """Called for each login: `HTTP`, `bearer` or `basic`, and `succeeded` or `failed`."""


def _without_port(text: str) -> str:
    """HOST, HOST:PORT, [IPV6], [IPV6]:PORT or IPV6 without its port."""
    match = _WITH_PORT.fullmatch(text)
    return text if match is None else match[1] or match[2]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
