"""By which names the service may be reached over HTTP, and who a client is behind a proxy.

A browser that is shown a page of evil.example may be made to send that page's requests here, when that name comes to
resolve to our address (DNS rebinding). Such requests carry the name in their Host header. An address, or `localhost`,
cannot be made to point elsewhere, so these are always allowed; a name has to be known.

What a client says of where it comes from (`X-Forwarded-For`) is heard of trusted proxies alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, Final, cast

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send

from controller.http.errors import answer_early
from controller.http.health import OPEN_PATHS
from controller.http.query_threads import client_host
from controller.kafka.session import normal_host
from controller.machine.errors import ErrorCode

ANY_NAME: Final = "*"
MISDIRECTED: Final = 421
_NAME_SHOWN_MAX: Final = 100
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


class Reached:
    """An application that is reached by its own names only, and that knows its clients' addresses."""

    def __init__(self, app: ASGIApp, reach: Reach) -> None:
        self._app = app
        self._reach = reach

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go on; or answer 421 where another service is meant."""
        reach, client = self._reach, scope.get("client")
        host = _header(scope, b"host")
        if scope.get("path") not in OPEN_PATHS and not all(map(reach.allows, host)):
            shown = host[0][:_NAME_SHOWN_MAX]
            message = f"Host {shown!r}: this service does not go by that name; http.allowed.hosts names more"
            await answer_early(send, MISDIRECTED, ErrorCode.INVALID_REQUEST, message)
            return
        if client is not None:
            behind = reach.client_behind(client[0], _header(scope, b"x-forwarded-for"))
            cast(dict[str, Any], scope)["client"] = (behind, client[1])
            client_host.set(behind)
        await self._app(scope, receive, send)


def _header(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


def _without_port(text: str) -> str:
    """HOST, HOST:PORT, [IPV6], [IPV6]:PORT or IPV6 without its port."""
    match = _WITH_PORT.fullmatch(text)
    return text if match is None else match[1] or match[2]


def _is_address(text: str) -> bool:
    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
