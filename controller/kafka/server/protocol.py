"""One Kafka connection without I/O, after h11's manner: bytes in, requests out; answers in, bytes out.

    bytes -> receive -> next_exchange -> (a handler) -> Exchange.answer -> next_answered -> bytes

Its rules: a frame is four bytes of size and then so many bytes, within a limit. An ApiVersions request of a version
that is not spoken is answered in version 0 with error 35 and the versions that are (KIP-511); any other unknown API or
version, and any frame that cannot be read, ends the conversation. Answers leave in the order of their requests,
however they are worked on. An end waits its turn too: what was requested before it is still answered.

It calls no handler, keeps no time and logs nothing.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol

from controller.kafka.codec import codec
from controller.kafka.codec.codec import RequestHeader
from controller.kafka.codec.primitives import MalformedRequest
from controller.kafka.handling import NO_RESPONSE, Answer, ApiHandler, PassedAnswer, PassedRequest
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.cluster import ApiVersion, ApiVersionsResponse

Outcome = Literal[
    "answered", "unanswered", "unsupported", "malformed", "disconnected", "failed", "cancelled", "unauthenticated"
]
"""What became of a request: `unanswered` wanted no answer, `disconnected` is a handler's wish, `failed` its fault,
`cancelled` means that the client had gone before its answer was ready, and `unauthenticated` that it came before, or
too long after, a login.
"""

ELEMENT_BYTES: Final = 100
"""What an element of an array takes once it is read; on the wire it may be a single byte."""
READ_AT_ONCE_BYTES_MAX: Final = 16 * 1024
"""Of a frame: whatever it says, it is read in some milliseconds. Larger ones are for another thread to read."""
_SIZE: Final = struct.Struct(">i")
_UNSUPPORTED_VERSION: Final = 35
_RAW: Final = RequestHeader(api_key=36, api_version=-1, correlation_id=-1, client_id=None, body_offset=0)
"""Stands for the header that a bare SASL token does not have."""
_UNREADABLE: Final = RequestHeader(api_key=-1, api_version=-1, correlation_id=-1, client_id=None, body_offset=0)


class Exchange:
    """One request and, in time, its answer or the end of the conversation."""

    __slots__ = ("answered", "bytes_taken", "ends", "frame", "header", "outcome", "request", "unread")

    def __init__(self, header: RequestHeader, request: Message | None, bytes_taken: int) -> None:
        self.header = header
        self.request = request
        self.unread: bytes | None = None
        """The frame of the request, while it is not read: it is so large that reading it would hold up others."""
        self.bytes_taken = bytes_taken
        self.answered = False
        self.frame = b""
        """The answer's; empty where there is none."""
        self.ends: str | None = None
        """Why the conversation ends here, if it does."""
        self.outcome: Outcome | None = None

    def read(self, frame: bytes, elements_max: int) -> int:
        """Make the request of its frame; the bytes that it takes from now on. Raises MalformedRequest."""
        header = self.header
        self.request, elements = codec.read_request(
            header.api_key, header.api_version, frame, header.body_offset, elements_max
        )
        return len(frame) + elements * ELEMENT_BYTES

    def answer(self, response: Answer, outcome: Outcome | None = None, version: int | None = None) -> None:
        """Give the answer, once; in another version than that of the request where one is given.

        It is encoded at once, because bytes take less memory than values while they wait for their turn. Raises what
        its values do not fit; then there is no answer yet.
        """
        assert not self.answered, "a request is answered once"
        self.frame = self._encoded(response, version)
        self.outcome = outcome or ("unanswered" if response is NO_RESPONSE else "answered")
        self.answered, self.request = True, None

    def end(self, reason: str, outcome: Outcome) -> None:
        """End the conversation here instead of answering."""
        self.ends = reason
        self.answer(NO_RESPONSE, outcome)

    def _encoded(self, response: Answer, version: int | None) -> bytes:
        if response is NO_RESPONSE:
            return b""
        header = self.header
        if isinstance(response, PassedAnswer):
            return _SIZE.pack(len(response.frame)) + response.frame
        if header is _RAW:
            token: bytes = response.token  # type: ignore[attr-defined]
            return _SIZE.pack(len(token)) + token
        version = header.api_version if version is None else version
        return codec.encode_response(header.api_key, version, header.correlation_id, response)


class Gate(Protocol):
    """Stands before the requests of a connection until somebody has logged in."""

    @property
    def raw(self) -> bool:
        """Whether the next frame is a bare SASL token (SaslHandshake v0)."""
        ...

    @property
    def frame_bytes_max(self) -> int | None:
        """How large a frame may be now, if the gate limits it."""
        ...

    def refuses(self, api_key: int) -> str | None:
        """Why a request for this API may not be read now; None if it may."""
        ...


class ServerProtocol:
    """The server's side of one conversation.

    `apis` are the APIs and versions taken, `request_bytes_max` is `socket.request.max.bytes`. `gate` is set where
    clients have to authenticate, and `raw_token` then makes a message of a bare token.
    """

    gate: Gate | None = None
    raw_token: Callable[[bytes], Message] | None = None

    def __init__(self, apis: Mapping[int, ApiHandler], request_bytes_max: int) -> None:
        self._apis = apis
        self._request_bytes_max = request_bytes_max
        self._buffer: bytes | bytearray = b""
        self._offset = 0
        self._wanted = 4
        self._exchanges: deque[Exchange] = deque()
        self.bytes_in_flight = 0
        """What the requests in flight, and their answers, take."""
        self.ended = False
        """Whether no more requests will be read."""

    @property
    def in_flight(self) -> int:
        """Requests read and not yet taken out by `next_answered`."""
        return len(self._exchanges)

    @property
    def bytes_held(self) -> int:
        """What is kept for the client: bytes of frames that are not whole yet, requests, and answers not taken out."""
        return len(self._buffer) - self._offset + self.bytes_in_flight

    def receive(self, data: bytes) -> None:
        """Take bytes from the client."""
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
        """Read no more requests; those read are still to be answered."""
        self.ended = True
        self._buffer, self._offset = b"", 0

    def has_frame(self) -> bool:
        """Whether enough bytes are here for `next_exchange` to look at."""
        return len(self._buffer) - self._offset >= self._wanted

    def next_exchange(self) -> Exchange | None:
        """The next request; already answered if the conversation ends with it or no handler is needed for it."""
        try:
            frame = self._next_frame()
        except MalformedRequest as malformed:
            return self._ending(_UNREADABLE, str(malformed), "malformed", 0)
        return None if frame is None else self._exchange(frame)

    def take(self, exchange: Exchange, bytes_taken: int) -> None:
        """Note what a request in flight takes from now on."""
        self.bytes_in_flight += bytes_taken - exchange.bytes_taken
        exchange.bytes_taken = bytes_taken

    def next_answered(self) -> Exchange | None:
        """The oldest request, taken out, once it is answered; None while it is not."""
        if not self._exchanges or not self._exchanges[0].answered:
            return None
        exchange = self._exchanges.popleft()
        self.bytes_in_flight -= exchange.bytes_taken
        return exchange

    def frames(self, bytes_max: int) -> tuple[list[bytes], bool]:
        """Answers to write now, about so many bytes of them, and whether the conversation ends after them."""
        found: list[bytes] = []
        while bytes_max > 0:
            exchange = self.next_answered()
            if exchange is None:
                break
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
            allowed = self._frame_bytes_max()
            if not 0 <= size <= allowed:
                raise MalformedRequest(f"frame: {size} bytes announced, 0 to {allowed} allowed")
            self._wanted = 4 + size
            if self.has_frame():
                start = self._offset + 4
                self._offset = start + size
                self._wanted = 4
                return self._buffer[start : start + size]
        return None

    def _frame_bytes_max(self) -> int:
        limit = None if self.gate is None else self.gate.frame_bytes_max
        return self._request_bytes_max if limit is None else min(limit, self._request_bytes_max)

    def _exchange(self, frame: bytes) -> Exchange:
        header, gate = _UNREADABLE, self.gate
        if gate is not None and gate.raw and self.raw_token is not None:
            return self._add(Exchange(_RAW, self.raw_token(frame), len(frame)))
        try:
            header = codec.parse_header(frame)
            refusal = None if gate is None else gate.refuses(header.api_key)
            if refusal is not None:
                return self._ending(header, refusal, "unauthenticated", len(frame))
            api = self._apis.get(header.api_key)
            if api is None or not api.min_version <= header.api_version <= api.max_version:
                return self._unsupported(header, api, len(frame))
            if api.passes:
                return self._add(Exchange(header, PassedRequest(frame=frame), len(frame)))
            exchange = Exchange(header, None, len(frame))
            if len(frame) > READ_AT_ONCE_BYTES_MAX:
                exchange.unread = frame
            else:
                exchange.bytes_taken = exchange.read(frame, api.elements_max)
        except MalformedRequest as malformed:
            return self._ending(header, str(malformed), "malformed", len(frame))
        return self._add(exchange)

    def _unsupported(self, header: RequestHeader, api: ApiHandler | None, size: int) -> Exchange:
        if api is None or header.api_key != ApiKey.API_VERSIONS:
            reason = "unsupported API" if api is None else "unsupported version"
            return self._ending(header, reason, "unsupported", size)
        exchange = self._add(Exchange(header, None, size))
        spoken = ApiVersion(api_key=header.api_key, min_version=api.min_version, max_version=api.max_version)
        exchange.answer(
            ApiVersionsResponse(error_code=_UNSUPPORTED_VERSION, api_keys=(spoken,)), "unsupported", version=0
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
