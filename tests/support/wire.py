"""A blocking Kafka wire client for tests, which encodes with kafka-python's message classes.

It is independent of the codec under test and supports every version of every API. It has no retries, no version
negotiation and no error handling. Requests and answers are plain dicts with kafka-python's (snake case) names.
"""

import importlib
import socket
import ssl
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Body = dict[str, Any]

_MODULES = (
    "kafka.protocol.admin",
    "kafka.protocol.metadata",
    "kafka.protocol.producer",
    "kafka.protocol.consumer",
    "kafka.protocol.sasl",
)


class ConnectionClosed(ConnectionError):
    """The server closed the connection instead of answering."""


class Wire:
    """One connection. `call` sends and waits; `send` and `receive` pipeline, with answers in the order of requests."""

    def __init__(
        self, address: str, *, client_id: str | None = "wire", timeout_s: float = 60, authority: Path | None = None
    ) -> None:
        """Connect, over TLS if there is an `authority` that signs the server's certificate."""
        host, _, port = address.rpartition(":")
        self.client_id = client_id
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if authority is not None:
            self._socket = ssl.create_default_context(cafile=authority).wrap_socket(self._socket, server_hostname=host)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def give_up_after(self, timeout_s: float) -> None:
        """Set the timeout of each answer from now on."""
        self._socket.settimeout(timeout_s)

    def log_in(self, user: str, password: str) -> None:
        shaken = self.call("SaslHandshake", 1, mechanism="PLAIN")
        assert shaken["error_code"] == 0, shaken
        answer = self.call("SaslAuthenticate", 1, auth_bytes=f"\0{user}\0{password}".encode())
        assert answer["error_code"] == 0, answer

    def call(self, api: str, version: int, /, **body: Any) -> Body:
        """Send one request and return its answer; raises ConnectionClosed when the server hangs up."""
        self.send(api, version, **body)
        return self.receive(api, version)

    def send(self, api: str, version: int, /, **body: Any) -> int:
        """Send one request without waiting; returns its correlation id."""
        self._correlation_id += 1
        self.send_frame(encode_request(api, version, body, self._correlation_id, self.client_id))
        return self._correlation_id

    def receive(self, api: str, version: int, *, correlation_id: int | None = None) -> Body:
        """The next answer on the connection, checked to belong to `correlation_id` (default: the last sent)."""
        wanted = self._correlation_id if correlation_id is None else correlation_id
        got, body = decode_response(api, version, self.receive_frame())
        assert got == wanted, f"got the answer to request {got} instead of {wanted}"
        return body

    def send_frame(self, payload: bytes) -> None:
        """Send arbitrary bytes as one frame."""
        self.send_bytes(struct.pack(">i", len(payload)) + payload)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._socket.recv(count - len(parts))
            except ConnectionResetError as reset:
                raise ConnectionClosed("connection reset") from reset
            if not part:
                raise ConnectionClosed(f"closed after {len(parts)} of {count} bytes")
            parts += part
        return bytes(parts)


def encode_request(
    api: str, version: int, body: Mapping[str, Any], correlation_id: int, client_id: str | None
) -> bytes:
    """The payload of a request frame, header included."""
    message = _build(_message_class(api + "Request"), body, version)
    message.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(message.encode(version=version, header=True))


def decode_response(api: str, version: int, payload: bytes) -> tuple[int, Body]:
    """Correlation id and body of a response frame's payload."""
    kind = _message_class(api + "Response")
    message = kind.decode(payload, version=version, header=True)
    return message.header.correlation_id, message.to_dict()


@cache
def _message_class(name: str) -> Any:
    for module in _MODULES:
        if found := getattr(importlib.import_module(module), name, None):
            return found
    raise LookupError(f"kafka-python has no class {name}")


def _build(kind: Any, body: Mapping[str, Any], version: int) -> Any:
    """A message object from nested dicts; kafka-python itself takes only its own objects for nested structs."""
    fields = kind._struct.fields
    if unknown := set(body) - set(fields):
        raise TypeError(f"{kind.__name__} has no fields {sorted(unknown)}; it has {sorted(fields)}")
    values = {name: _value(fields[name], value, version) for name, value in body.items()}
    return kind(version=version, **values)


def _value(field: Any, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_struct_array():
        return [_build(field.data_class, each, version) for each in value]
    if field.is_struct():
        return _build(field.data_class, value, version)
    return value
