"""Allowed host names, trusted proxies, and logins over HTTP.

A page of evil.example can make a browser send requests here if that name resolves to our address (DNS rebinding). Such
requests carry the name in their Host header. IP addresses and `localhost` cannot be rebound, so they are always
allowed; other names must be configured. `X-Forwarded-For` is only believed from trusted proxies.
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
    """The allowed host names (`*` for any), and the proxies whose X-Forwarded-For is believed."""

    names: frozenset[str] = frozenset()
    proxies: tuple[Network, ...] = ()

    def named(self, host: str) -> Reach:
        """A copy that also allows the host that is listened on."""
        return msgspec.structs.replace(self, names=self.names | {host.lower()})

    def allows(self, host_header: str) -> bool:
        """True if a Host header names this service."""
        name = _without_port(host_header).lower().rstrip(".")
        return ANY_NAME in self.names or name in self.names or name in {"", "localhost"} or _is_address(name)

    def client_behind(self, peer: str, forwarded: Sequence[str]) -> str:
        """The client's address, given the address of the connection and the X-Forwarded-For headers: the last one that
        is not a trusted proxy's."""
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
    """Checks tokens and passwords."""

    def owner_of(self, token: str) -> str | None:
        """The user with this token."""
        ...

    async def knows(self, user: str, password: str, address: str) -> bool:
        """True if the password is the user's. Concurrent checks are scheduled fairly by client address."""
        ...


class Logins(msgspec.Struct, frozen=True):
    """How HTTP clients log in, and whether they must."""

    passwords: Passwords
    required: bool
    failed_delay_ms: int
    on_login: Callable[[str, str, str], None]
    """Called for each login with `HTTP`, `bearer` or `basic`, and `succeeded` or `failed`."""


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
