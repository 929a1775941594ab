"""A minimal Kafka client for benchmarks: frames are encoded before the clock starts."""

import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from controller.kafka.codec.codec import decode_response, encode_request
from controller.kafka.messages import Message


class BenchClient:
    """One blocking connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def close(self) -> None:
        self._socket.close()

    def exchange(self, frame: bytes) -> bytes:
        """Send one frame and wait for its response; returns it without the size."""
        self._socket.sendall(frame)
        return self._frame()

    def call(self, api_key: int, version: int, request: Message) -> Any:
        """Send one request and return its decoded response."""
        return decode_response(api_key, version, self.exchange(frame_of(api_key, version, request)))[1]

    def pipeline(self, frames: Sequence[bytes]) -> list[bytes]:
        """Send all frames without waiting; returns the responses in order."""
        sender = threading.Thread(target=self._socket.sendall, args=(b"".join(frames),))
        sender.start()
        answers = [self._frame() for _ in frames]
        sender.join()
        return answers

    def timed(self, frames: Sequence[bytes]) -> tuple[list[bytes], list[float]]:
        """Send one frame after another; returns the responses and the seconds each took."""
        answers, seconds = [], []
        for frame in frames:
            started = time.perf_counter()
            answers.append(self.exchange(frame))
            seconds.append(time.perf_counter() - started)
        return answers, seconds

    def _frame(self) -> bytes:
        buffer = self._buffer
        while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
            received = self._socket.recv(1 << 20)
            if not received:
                raise ConnectionError("the server closed the connection")
            buffer += received
        end = 4 + int.from_bytes(buffer[:4], "big")
        frame = bytes(buffer[4:end])
        del buffer[:end]
        return frame


def frame_of(api_key: int, version: int, request: Message, correlation_id: int = 1) -> bytes:
    """Encodes a request frame with its size."""
    return encode_request(api_key, version, correlation_id, "bench", request)
