"""What the connections and the handlers of requests say to each other.

A handler is called with a context and a request, and gives the response, now or later. It knows nothing of sockets,
frames or the order of answers.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

import msgspec

from controller.kafka.codec.primitives import ELEMENTS_MAX
from controller.kafka.messages import APIS, Message
from controller.kafka.session import Session


class NoResponse(enum.Enum):
    """The one value NO_RESPONSE, as a type."""

    NO_RESPONSE = enum.auto()


NO_RESPONSE: Final = NoResponse.NO_RESPONSE
"""Given by a handler for a request that is not answered, such as a Produce with `acks=0`."""

Answer = Message | Literal[NoResponse.NO_RESPONSE]


class PassedRequest(Message, frozen=True, kw_only=True):
    """A request that is not read here: its frame, without the size."""

    frame: bytes


class PassedAnswer(Message, frozen=True, kw_only=True):
    """An answer that another server wrote: its frame, without the size."""

    frame: bytes


class Disconnect(Exception):
    """Raised by a handler: close this connection, after the answers to earlier requests, and log the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _ignore_seconds(_: float) -> None:
    return None


class ClientConnection(msgspec.Struct):
    """What is known of a client for as long as it is connected. `peer` is its host:port."""

    session: Session = Session()
    peer: str = ""
    software_name: str = "unknown"
    software_version: str = "unknown"
    wants_brokers: bool = False
    """True if the client produces or consumes: it has to know the brokers' own addresses, whatever it requests."""
    ends: bool = False
    """Whether to close as soon as what it has requested so far is answered."""
    mute: Callable[[float], None] = _ignore_seconds
    """Read nothing more from the client for so many seconds."""


class RequestContext(msgspec.Struct, frozen=True):
    """One request's header and the connection that it came by. A null client id is the empty one, as in Kafka."""

    api_key: int
    api_version: int
    correlation_id: int = 0
    client_id: str = ""
    connection: ClientConnection = msgspec.field(default_factory=ClientConnection)

    @property
    def principal(self) -> str:
        """Who sent it, as Kafka writes principals: `User:name`."""
        return self.connection.session.principal

    @property
    def host(self) -> str:
        """The client's IP address, as ACLs name hosts."""
        return self.connection.session.host

    @property
    def api(self) -> str:
        """The request by Kafka's name; its number where it is only passed on."""
        api = APIS.get(self.api_key)
        return str(self.api_key) if api is None else api.name

    @property
    def session(self) -> Session:
        """Who sent it, from where, and how it came in."""
        return self.connection.session

    @property
    def listener(self) -> str:
        """The name of the listener that the request came to."""
        return self.connection.session.listener

    @property
    def peer(self) -> str:
        """The client's host:port."""
        return self.connection.peer

    def throttle(self, left_ms: int) -> int:
        """What to answer as `throttle_time_ms`. Until that is over, nothing more is read from the client (KIP-219)."""
        if left_ms > 0:
            self.connection.mute(left_ms / 1000)
        return max(0, left_ms)

    @property
    def software(self) -> str:
        """The client's name and version as it gave them in ApiVersions (KIP-511)."""
        return f"{self.connection.software_name} {self.connection.software_version}"


Handler = Callable[[RequestContext, Any], Answer | Awaitable[Answer]]
"""Called as soon as the request is read, in the order of arrival on a connection.

An `async` handler runs at once up to its first wait, so what is pipelined is begun in order and together; until then it
has no task of its own (`asyncio.timeout` must come after). A future may be returned as well, which spares a task.
When the connection is lost, what a handler is waiting for is cancelled: it should shield what must be finished.
"""


class ApiHandler(msgspec.Struct, frozen=True):
    """The versions of an API that a listener takes, both ends included, and who handles them.

    `min_version_advertised` differs only where Kafka advertises what it refuses (Produce, see KAFKA-18659).
    """

    min_version: int
    max_version: int
    handle: Handler
    min_version_advertised: int | None = None
    elements_max: int = ELEMENTS_MAX
    """Of a request, in all its arrays; one with more is malformed."""
    passes: bool = False
    """Requests come to the handler as `PassedRequest`, whatever they say."""
    alone: bool = False
    """Nothing else of a connection is begun while such a request is worked on, as Kafka does with all requests: a list
    of everything takes few bytes to request, and many to answer."""
