"""A controller with a listener in a thread, which measures how long its event loop is blocked."""

import asyncio
import gc
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

from controller.kafka.codec import codec
from controller.kafka.handling import ApiHandler
from controller.kafka.messages import ApiKey
from controller.kafka.messages.cluster import ApiVersionsRequest
from controller.kafka.server.server import KafkaServer, Limits
from events.catalog import Endpoint
from tests.apis.rig import rig

LIMITS = Limits()
BEAT_S = 0.002
HONEST = codec.encode_request(ApiKey.API_VERSIONS, 0, 77, "honest", ApiVersionsRequest())


class Target:
    """A listener, and its measurements."""

    port: int
    table: dict[int, ApiHandler]
    loop: asyncio.AbstractEventLoop
    server: KafkaServer

    def __init__(self) -> None:
        self.stood_still_s = 0.0
        self.worked_s = 0.0
        """The longest processor time of the loop's thread without a pause; other processes do not change it."""
        self.blocks_held = 0
        """The number of Python objects at the last count."""
        self.crash: BaseException | None = None
        self.ready = threading.Event()
        self.stopping: asyncio.Event

    def connect(self) -> socket.socket:
        """Open a client connection with a timeout of 30 s."""
        return socket.create_connection(("127.0.0.1", self.port), 30)

    def is_answering(self, client: socket.socket) -> bool:
        """True if a valid request gets its response."""
        client.sendall(HONEST)
        return receive(client)[:4] == (77).to_bytes(4, "big")

    def reset(self) -> None:
        """Reset the measured times."""
        self.stood_still_s = self.worked_s = 0.0

    def blocks(self) -> int:
        """The number of Python's allocated blocks, once other connections are closed."""
        deadline = time.monotonic() + 30
        while self.server.connections > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        gc.collect()
        return sys.getallocatedblocks()

    async def run(self) -> None:
        """Serve until `stopping` is set."""
        self.loop, self.stopping = asyncio.get_running_loop(), asyncio.Event()
        self.server = KafkaServer("127.0.0.1", 0, {}, limits=LIMITS)
        await self.server.start()
        self.port = self.server.port
        async with rig(endpoint=Endpoint("PLAINTEXT", "127.0.0.1", self.port)) as served:
            self.server.handlers = self.table = dict(served.listener)
            beating = asyncio.create_task(self._beat())
            self.ready.set()
            await self.stopping.wait()
            beating.cancel()
            await self.server.stop(1)

    async def _beat(self) -> None:
        last, last_worked = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(BEAT_S)
            now, worked = time.perf_counter(), time.thread_time()
            self.stood_still_s = max(self.stood_still_s, now - last - BEAT_S)
            self.worked_s = max(self.worked_s, worked - last_worked)
            last, last_worked = now, worked


def receive(client: socket.socket) -> bytes:
    """Receive one response without its size. Raises ConnectionError if the connection is closed."""
    size = int.from_bytes(_exactly(client, 4), "big")
    return _exactly(client, size)


def _exactly(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = client.recv(min(1 << 20, size - len(data)))
        if not piece:
            raise ConnectionError("closed")
        data += piece
    return bytes(data)


@contextmanager
def target() -> Iterator[Target]:
    """Yields a listening target, and stops it at the end."""
    served = Target()

    def serve() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(served.run())
        except BaseException as error:
            served.crash = error
        finally:
            served.ready.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.001)  # as `serve` does
    thread = threading.Thread(target=serve, name="target")
    thread.start()
    served.ready.wait()
    try:
        yield served
    finally:
        sys.setswitchinterval(before)
        if served.crash is None:
            served.loop.call_soon_threadsafe(served.stopping.set)
        thread.join()
        if served.crash is not None:
            raise served.crash
