"""Connections to the controller's listener for brokers: the product's own server code, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from controller.kafka.codec import codec
from controller.kafka.handling import ANONYMOUS, ApiHandler
from controller.kafka.messages import Message
from controller.kafka.server.connection import Connection
from controller.kafka.server.server import KafkaServer
from tests.simulation.virtual_time import context_of
from tests.simulation.world import ConnectionLost

SIZE_BYTES = 4


class Door(KafkaServer):
    """A listener without a socket. Tasks and timers of its connections belong to its process."""

    def __init__(self, process: int, name: str, handlers: Mapping[int, ApiHandler]) -> None:
        super().__init__("controller", 9093, handlers, listener=name)
        self.loop = asyncio.get_running_loop()
        self.clock = self.loop.time
        self._process = process
        self._ways: list[_Way] = []
        self.is_open = True

    def run(self, action: Callable[..., Any], *args: Any) -> Any:
        return context_of(self._process).run(action, *args)

    def enter(self, answered: Callable[[bytes | None], None]) -> _Way:
        """Open a connection. `answered` gets each response, and None when it is closed. Raises ConnectionLost."""
        if not self.is_open:
            raise ConnectionLost("nobody listens")
        way = _Way(self, Connection(self, ANONYMOUS), answered)
        self._ways.append(way)
        self.run(way.connection.connection_made, way)
        return way

    def left(self, way: _Way) -> None:
        if way in self._ways:
            self._ways.remove(way)

    def shut(self) -> None:
        """Close all connections, because the process has died or stops."""
        self.is_open = False
        for way in self._ways[:]:
            way.close()


class _Way(asyncio.Transport):
    """The server side of one connection."""

    def __init__(self, door: Door, connection: Connection, answered: Callable[[bytes | None], None]) -> None:
        super().__init__()
        self.connection = connection
        self._door = door
        self._answered = answered
        self._rest = b""
        self._closed = False

    def send(self, frame: bytes) -> None:
        if not self._closed:
            self._door.run(self.connection.data_received, frame)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 50_000) if name == "peername" else default

    def write(self, data: Any) -> None:
        self._rest += bytes(data)
        while len(self._rest) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(self._rest[:SIZE_BYTES], "big")
            if len(self._rest) < end:
                return
            frame, self._rest = self._rest[SIZE_BYTES:end], self._rest[end:]
            self._answered(frame)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closed

    def pause_reading(self) -> None:
        return None

    def resume_reading(self) -> None:
        return None

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._door.left(self)
            if self._door.is_open:
                self._door.run(self.connection.connection_lost, None)
            self._answered(None)

    def abort(self) -> None:
        self.close()


class Line:
    """A client's connection with one request in flight; a lost connection is opened again."""

    def __init__(self, door: Callable[[], Door | None], client_id: str) -> None:
        self._door = door
        self._client_id = client_id
        self._way: _Way | None = None
        self._number = 0
        self._answer: asyncio.Future[bytes] | None = None

    async def call(self, api_key: int, version: int, request: Message) -> Any:
        """Send a request and return its response. Raises ConnectionLost."""
        way = self._opened()
        self._number += 1
        frame = codec.encode_request(api_key, version, self._number, self._client_id, request)
        answer = self._answer = asyncio.get_running_loop().create_future()
        try:
            way.send(frame)
            given = await answer
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._answer = None
        number, response = codec.decode_response(api_key, version, given)
        assert number == self._number, f"response {number} to request {self._number}"
        return response

    def _opened(self) -> _Way:
        if self._way is None:
            door = self._door()
            if door is None:
                raise ConnectionLost("nobody listens")
            self._way = door.enter(self._answered)
        return self._way

    def _answered(self, frame: bytes | None) -> None:
        if frame is None:
            self._way = None
        waiting = self._answer
        if waiting is None:
            assert frame is None, "a response without a request"
        elif not waiting.done():
            if frame is None:
                waiting.set_exception(ConnectionLost("the connection was closed"))
            else:
                waiting.set_result(frame)
        else:
            assert frame is None or waiting.cancelled(), "a second response"

    def close(self) -> None:
        way, self._way = self._way, None
        if way is not None:
            way.close()
