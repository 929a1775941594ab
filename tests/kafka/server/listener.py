"""A listener with configurable handlers, and clients that send and receive frames."""

import asyncio
import functools
import inspect
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import pytest
import uvloop

from controller.apis.cluster import with_api_versions
from controller.kafka.codec import codec
from controller.kafka.handling import Answer, ApiHandler, Disconnect, Handler, RequestContext
from controller.kafka.messages import APIS, ApiKey, Message
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.kafka.sasl_gate import UNEXPECTED_SASL, SaslRules
from controller.kafka.server.server import ConnectionCounts, KafkaServer, Limits, OnRequest
from controller.kafka.server.tls import Tls

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

P = ParamSpec("P")


def on_each_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an async test on each kind of event loop, with a limit of minutes."""

    def run(loop: str, *args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(asyncio.wait_for(test(*args, **kwargs), 240))

    functools.update_wrapper(run, test)
    parameters = inspect.signature(test).parameters.values()
    loop = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([loop, *parameters])  # type: ignore[attr-defined]
    marked: Callable[..., None] = pytest.mark.parametrize("loop", LOOPS)(run)
    return marked


def table(handlers: Mapping[ApiKey, Handler], *more: Mapping[int, Handler]) -> dict[int, ApiHandler]:
    """Returns an API table with every version of these APIs, and ApiVersions."""
    all_handlers = [*handlers.items(), *(item for each in more for item in each.items())]
    return with_api_versions(
        {key: ApiHandler(APIS[key].min_version, APIS[key].max_version, handle) for key, handle in all_handlers}
    )


@asynccontextmanager
async def serving(
    handlers: Mapping[ApiKey, Handler],
    *,
    limits: Limits | None = None,
    counts: ConnectionCounts | None = None,
    on_request: OnRequest | None = None,
    clock: Callable[[], float] | None = None,
    sasl: SaslRules | None = None,
    tls: Tls | None = None,
) -> AsyncIterator[KafkaServer]:
    """A listener on a free port; stopped at the end."""
    rows = table(handlers, *([UNEXPECTED_SASL] if sasl is not None else []))
    given = {"limits": limits, "counts": counts, "on_request": on_request, "clock": clock, "sasl": sasl, "tls": tls}
    more: dict[str, Any] = {name: one for name, one in given.items() if one is not None}
    server = KafkaServer("127.0.0.1", 0, rows, **more)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0.1)


class Seen:
    """A Metadata handler that records the principals of its requests."""

    def __init__(self) -> None:
        self.principals: list[str] = []

    def __call__(self, context: RequestContext, message: MetadataRequest) -> MetadataResponse:
        self.principals.append(context.principal)
        return MetadataResponse()


class Gates:
    """A Metadata handler that blocks each request until the test opens its topic's name."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self._gates: dict[str, asyncio.Future[None]] = {}
        self._changed = asyncio.Event()

    async def __call__(self, context: RequestContext, request: MetadataRequest) -> Answer:
        assert request.topics is not None
        name = request.topics[0].name or ""
        self.begun.append(name)
        self._changed.set()
        if name.startswith("gate"):
            try:
                await self._gates.setdefault(name, asyncio.get_running_loop().create_future())
            except asyncio.CancelledError:
                self.cancelled.append(name)
                self._changed.set()
                raise
        return answer_of(name)

    def open(self, name: str) -> None:
        self._gates[name].set_result(None)

    async def until(self, begun: int = 0, cancelled: int = 0) -> None:
        while len(self.begun) < begun or len(self.cancelled) < cancelled:
            self._changed.clear()
            await self._changed.wait()


def answer_of(name: str) -> Answer:
    """Returns the answer, or raises the error, that a topic name stands for."""
    match name:
        case "nothing":
            return None
        case "disconnect":
            raise Disconnect("because I say so")
        case "raise":
            raise ZeroDivisionError("a bug")
        case "unencodable":
            return MetadataResponse(controller_id="no number")  # type: ignore[arg-type]
        case "nonsense":
            return "no message"  # type: ignore[return-value]
        case _:
            return MetadataResponse(cluster_id="x" * 100)


def at_once(context: RequestContext, request: MetadataRequest) -> Answer:
    assert request.topics is not None
    return answer_of(request.topics[0].name or "")


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *frames: bytes) -> None:
        """Send frames in one write."""
        self.writer.write(b"".join(frames))

    async def receive(self) -> bytes:
        """Returns the next frame without its size."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size)

    async def answer_to(self, api_key: int, version: int) -> tuple[int, Any]:
        return codec.decode_response(api_key, version, await self.receive())

    async def correlation_ids(self, count: int) -> list[int]:
        return [int.from_bytes((await self.receive())[:4], "big", signed=True) for _ in range(count)]

    async def closed(self) -> bytes:
        """Returns the remaining bytes until the server closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


@asynccontextmanager
async def connected(server: KafkaServer) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def until(reached: Callable[[], bool]) -> None:
    """Wait for a condition of the server, which runs on this loop."""
    while not reached():  # noqa: ASYNC110 - the condition is in the server's state
        await asyncio.sleep(0.002)


async def settled() -> None:
    """Wait until the loop has done all pending work: a later client of another listener gets two responses."""
    async with serving({}) as elsewhere, connected(elsewhere) as late:
        for number in (1, 2):
            late.send(frame(header(ApiKey.API_VERSIONS, 0, number)))
            assert await late.correlation_ids(1) == [number]


def request(correlation_id: int, message: Message, version: int = 0, client_id: str | None = "test") -> bytes:
    key = next(api.key for api in APIS.values() if api.request is type(message))
    return codec.encode_request(key, version, correlation_id, client_id, message)


def metadata_request(correlation_id: int, name: str = "") -> bytes:
    """A Metadata request; handlers use its topic name."""
    return request(correlation_id, MetadataRequest(topics=(MetadataRequestTopic(name=name),)), version=1)


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(api_key: int, version: int, correlation_id: int = 1) -> bytes:
    """A request header of version 1."""
    return struct.pack(">hhih", api_key, version, correlation_id, 1) + b"x"
