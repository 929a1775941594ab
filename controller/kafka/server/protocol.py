"""One Kafka connection without I/O, for `connection` (as h11 does for HTTP): bytes to requests, responses to bytes.

    bytes -> receive -> next_exchange -> (a handler) -> Exchange.answer -> frames -> bytes

A frame is a size of four bytes and that many bytes, within a limit. An ApiVersions request of an unsupported version is
answered in version 0 with UNSUPPORTED_VERSION and the supported versions (KIP-511). Any other unsupported API or
version, and any malformed frame, ends the connection, after the responses to earlier requests. Responses are sent in
the order of requests.

Non-goals: calling handlers, reading a clock, logging.
"""

import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from controller.kafka.codec import codec
from controller.kafka.codec.codec import RequestHeader
from controller.kafka.codec.primitives import MalformedRequest
from controller.kafka.handling import Answer, ApiHandler, RawFrame
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.cluster import ApiVersion, ApiVersionsResponse
from controller.kafka.sasl_gate import SaslGate
from controller.machine.errors import ErrorCode

Outcome = Literal[
    "answered", "unanswered", "unsupported", "malformed", "disconnected", "failed", "cancelled", "unauthenticated"
]
"""The outcome of a request. `unanswered`: the request needs no response. `disconnected`: a handler raised Disconnect.
`failed`: a handler has a bug. `cancelled`: the client disconnected first. `unauthenticated`: the client sent the
request without a login, or after the session expired."""

OnRequest = Callable[[int, int, Outcome, float], None]
"""Called for each request: API key, version, outcome, and seconds until the response was ready.

Unsupported keys and versions are -1, so that unauthenticated clients cannot create any number of metric series.
"""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one listener, with Kafka's names and defaults."""

    request_bytes_max: int = 4 * 1024 * 1024
    """`socket.request.max.bytes`; also the limit of bytes in flight on one connection."""
    connections_max: int = 2**31 - 1
    """`max.connections`."""
    held_bytes_max: int = 256 * 1024 * 1024
    """`queued.max.request.bytes` of all connections together, including unsent responses."""
    idle_ms_max: int = 600_000
    """`connections.max.idle.ms`."""
    requests_in_flight_max: int = 1000
    """Concurrent requests of one connection. Kafka has one; clients send 5 or more."""
    authentication_ms_max: int = 30_000
    """Time for the TLS handshake and authentication."""


ELEMENT_BYTES: Final = 100
"""Memory of a decoded array element, which may be a single byte on the wire."""
DECODED_ON_LOOP_BYTES_MAX: Final = 16 * 1024
"""Frames up to this size are decoded on the event loop, in some milliseconds at most; larger ones in a thread."""
_SIZE: Final = struct.Struct(">i")
_RAW: Final = RequestHeader(api_key=36, api_version=-1, correlation_id=-1, client_id=None, body_offset=0)
"""Replaces the header of a bare SASL token, which has none."""
_UNREADABLE: Final = RequestHeader(api_key=-1, api_version=-1, correlation_id=-1, client_id=None, body_offset=0)


class Exchange(msgspec.Struct, eq=False):
    """One request and its response; the last one may instead have the reason why the connection ends."""

    header: RequestHeader
    request: Message | None
    bytes_taken: int
    unread: bytes | None = None
    """The frame of a large request that is not decoded yet."""
    answered: bool = False
    frame: bytes = b""
    """The frame of the response; empty without one."""
    ends: str | None = None
    """Why the connection ends after this request; None if it does not."""
    outcome: Outcome | None = None
    started_s: float = 0.0
    """The time at which the request started, by the connection's clock."""

    def read(self, frame: bytes, elements_max: int) -> int:
        """Decode the request; returns the bytes of memory that the message takes. Raises MalformedRequest."""
        header = self.header
        self.request, elements = codec.read_request(
            header.api_key, header.api_version, frame, header.body_offset, elements_max
        )
        return len(frame) + elements * ELEMENT_BYTES

    def answer(self, response: Answer, outcome: Outcome | None = None, version: int | None = None) -> None:
        """Set the response, in the version of the request unless `version` is given.

        The response is encoded immediately, because bytes take less memory than values. Raises struct.error,
        AttributeError or TypeError if a value does not fit its field; then there is no response yet.
        """
        assert not self.answered, "a request is answered once"
        self.frame = self._encoded(response, version)
        self.outcome = outcome or ("unanswered" if response is None else "answered")
        self.answered, self.request = True, None

    def end(self, reason: str, outcome: Outcome) -> None:
        """End the connection here, without a response."""
        self.ends = reason
        self.answer(None, outcome)

    def _encoded(self, response: Answer, version: int | None) -> bytes:
        if response is None:
            return b""
        header = self.header
        if isinstance(response, RawFrame):
            return _SIZE.pack(len(response.frame)) + response.frame
        version = header.api_version if version is None else version
        return codec.encode_response(header.api_key, version, header.correlation_id, response)


class ServerProtocol:
    """The server side of a connection.

    `apis` is the listener's table of APIs, `request_bytes_max` is `socket.request.max.bytes`. With SASL, `gate` is set.
    """

    gate: SaslGate | None = None

    def __init__(self, apis: Mapping[int, ApiHandler], request_bytes_max: int) -> None:
        self._apis = apis
        self._request_bytes_max = request_bytes_max
        self._buffer: bytes | bytearray = b""
        self._offset = 0
        self._wanted = 4
        self._exchanges: deque[Exchange] = deque()
        self.bytes_in_flight = 0
        """Memory of requests in flight and their responses."""
        self.ended = False
        """True if no more requests are read."""

    @property
    def in_flight(self) -> int:
        """Requests read whose responses were not taken by `frames` yet."""
        return len(self._exchanges)

    @property
    def bytes_held(self) -> int:
        """Bytes buffered for the client: partial frames, requests, and unsent responses."""
        return len(self._buffer) - self._offset + self.bytes_in_flight

    def receive(self, data: bytes) -> None:
        """Add bytes of the client. They are parsed later."""
        if self.ended:
            return
        if self._offset == len(self._buffer):
            self._buffer, self._offset = data, 0
            return
        if isinstance(self._buffer, bytes):
            # A bytearray grows without being copied for each piece of a large frame.
            self._buffer, self._offset = bytearray(memoryview(self._buffer)[self._offset :]), 0
        self._buffer += data

    def end(self) -> None:
        """Read no more requests; those in flight are still answered."""
        self.ended = True
        self._buffer, self._offset = b"", 0

    def has_frame(self) -> bool:
        """True if `next_exchange` has enough bytes to continue."""
        return len(self._buffer) - self._offset >= self._wanted

    def next_exchange(self) -> Exchange | None:
        """Returns the next request. If the connection ends with it or no handler is needed, it is already answered."""
        try:
            frame = self._next_frame()
        except MalformedRequest as malformed:
            return self._ending(_UNREADABLE, str(malformed), "malformed", 0)
        return None if frame is None else self._exchange(frame)

    def resize(self, exchange: Exchange, bytes_taken: int) -> None:
        """Update the memory of a request in flight."""
        self.bytes_in_flight += bytes_taken - exchange.bytes_taken
        exchange.bytes_taken = bytes_taken

    def frames(self, bytes_max: int) -> tuple[list[bytes], bool]:
        """Remove the oldest requests that are answered. Returns their responses, about `bytes_max` bytes, and True if
        the connection ends after them."""
        found: list[bytes] = []
        while bytes_max > 0 and self._exchanges and self._exchanges[0].answered:
            exchange = self._exchanges.popleft()
            self.bytes_in_flight -= exchange.bytes_taken
            if exchange.ends is not None:
                return found, True
            if exchange.frame:
                found.append(exchange.frame)
                bytes_max -= len(exchange.frame)
        return found, False

    def _next_frame(self) -> bytes | None:
        while self.has_frame():
            if isinstance(self._buffer, bytearray):
                self._buffer = bytes(self._buffer)
            (size,) = _SIZE.unpack_from(self._buffer, self._offset)
            allowed = self._request_bytes_max
            if self.gate is not None and self.gate.frame_bytes_max is not None:
                allowed = min(allowed, self.gate.frame_bytes_max)
            if not 0 <= size <= allowed:
                raise MalformedRequest(f"frame: {size} bytes announced, 0 to {allowed} allowed")
            self._wanted = 4 + size
            if self.has_frame():
                start = self._offset + 4
                self._offset = start + size
                self._wanted = 4
                return self._buffer[start : start + size]
        return None

    def _exchange(self, frame: bytes) -> Exchange:
        header, gate = _UNREADABLE, self.gate
        if gate is not None and gate.raw:
            return self._add(Exchange(_RAW, RawFrame(frame=frame), len(frame)))
        try:
            header = codec.parse_header(frame)
            rejection = None if gate is None else gate.rejection(header.api_key)
            if rejection is not None:
                return self._ending(header, rejection, "unauthenticated", len(frame))
            api = self._apis.get(header.api_key)
            if api is None or not api.min_version <= header.api_version <= api.max_version:
                return self._unsupported(header, api, len(frame))
            if api.is_undecoded:
                return self._add(Exchange(header, RawFrame(frame=frame), len(frame)))
            exchange = Exchange(header, None, len(frame))
            if len(frame) > DECODED_ON_LOOP_BYTES_MAX:
                exchange.unread = frame
            else:
                exchange.bytes_taken = exchange.read(frame, api.elements_max)
        except MalformedRequest as malformed:
            return self._ending(header, str(malformed), "malformed", len(frame))
        return self._add(exchange)

    def _unsupported(self, header: RequestHeader, api: ApiHandler | None, size: int) -> Exchange:
        if api is None or header.api_key != ApiKey.API_VERSIONS:
            reason = "unsupported version" if api else "unsupported API" if self._apis else "the service is starting"
            return self._ending(header, reason, "unsupported", size)
        exchange = self._add(Exchange(header, None, size))
        supported = ApiVersion(api_key=header.api_key, min_version=api.min_version, max_version=api.max_version)
        exchange.answer(
            ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=(supported,)),
            "unsupported",
            version=0,
        )
        return exchange

    def _ending(self, header: RequestHeader, reason: str, outcome: Outcome, size: int) -> Exchange:
        self.end()
        exchange = self._add(Exchange(header, None, size))
        exchange.end(reason, outcome)
        return exchange

    def _add(self, exchange: Exchange) -> Exchange:
        self._exchanges.append(exchange)
        self.bytes_in_flight += exchange.bytes_taken
        return exchange
