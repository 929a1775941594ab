"""The interface between Kafka connections (`controller.kafka.server`) and request handlers (`controller.apis`).

A handler is called with a context and a request, and returns the response or an awaitable of the response. Handlers do
not depend on sockets, frames or the order of responses. `Session` is the identity and address of a client, of Kafka or
HTTP, for authorization, quotas and events.
"""

from collections.abc import Awaitable, Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, Protocol

import msgspec

from controller.kafka.codec.primitives import ELEMENTS_MAX
from controller.kafka.messages import APIS, Message

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
    """Carries the client's forwarded requests if the target cluster checks its login. It closes with the client's
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


Answer = Message | None
"""None for a request without a response, such as Produce with `acks=0`."""


class RawFrame(Message, frozen=True, kw_only=True):
    """A frame, without its size, in place of a message: a request or response that is forwarded, or a bare SASL token,
    which is secret."""

    frame: bytes

    def __repr__(self) -> str:
        return "RawFrame(hidden)"


class Disconnect(Exception):
    """Raised by a handler to close the connection, after the responses to earlier requests. The message is logged."""


class ClientConnection(msgspec.Struct):
    """The state of a connected client. `peer` is its host:port."""

    session: Session = Session()
    peer: str = ""
    software: str = "unknown unknown"
    """The client's software name and version (KIP-511)."""
    closes_after_responses: bool = False
    """True: close after the responses to the requests received so far."""
    mute: Callable[[float], None] = lambda _: None
    """Starts no requests of the client for this many seconds."""


class RequestContext(msgspec.Struct, frozen=True):
    """The header and the connection of a request. A null client id is empty, as in Kafka."""

    api_key: int
    api_version: int
    correlation_id: int = 0
    client_id: str = ""
    connection: ClientConnection = msgspec.field(default_factory=ClientConnection)

    @property
    def principal(self) -> str:
        """The principal in Kafka's form: `User:name`."""
        return self.connection.session.principal

    @property
    def roles(self) -> frozenset[str]:
        return self.connection.session.roles

    @property
    def host(self) -> str:
        """The client's IP address, as in ACLs."""
        return self.connection.session.host

    @property
    def api(self) -> str:
        """Kafka's name of the API; its number if requests are only forwarded."""
        api = APIS.get(self.api_key)
        return str(self.api_key) if api is None else api.name

    @property
    def peer(self) -> str:
        return self.connection.peer

    def throttle(self, throttle_ms: int) -> int:
        """The `throttle_time_ms` of the response. The connection is muted for that time (KIP-219)."""
        if throttle_ms > 0:
            self.connection.mute(throttle_ms / 1000)
        return max(0, throttle_ms)


JAVA: Final = "apache-kafka-java"
LIBRDKAFKA: Final = "rdkafka"
"""Names in `ClientConnection.software` of clients that need other responses: Java's, and those built on librdkafka."""


Handler = Callable[[RequestContext, Any], Answer | Awaitable[Answer]]
"""Called for each request, in order of arrival on a connection.

An `async` handler runs eagerly up to its first `await` that blocks, so pipelined requests start in order and together.
Until then it has no task, so it cannot use `asyncio.timeout`, which needs one. A handler that returns a future needs no
task. When the connection is lost, the handler is cancelled; it must shield work that has to finish.
"""


class ApiHandler(msgspec.Struct, frozen=True):
    """A row of a listener's table: the versions of an API, both ends included, and their handler."""

    min_version: int
    max_version: int
    handle: Handler
    is_advertised_from_0: bool = False
    """ApiVersions has versions that are rejected, as Kafka's response for Produce (KAFKA-18659)."""
    elements_max: int = ELEMENTS_MAX
    """The most elements in all arrays of a request together; a request with more is malformed."""
    is_undecoded: bool = False
    """Requests are not decoded: the handler gets a `RawFrame`."""
    is_exclusive: bool = False
    """The connection starts no other request until this one is answered, as Kafka does for all APIs. Set for APIs whose
    small requests have large responses."""
