"""Query threads: the HTTP handlers read the log without blocking the event loop or the thread that fsyncs the log.

One client address may use all threads but one, so its long queries do not block those of other addresses. The number of
waiting queries is bounded, in total and per address. Beyond a limit a query is refused at once.

Responses are encoded in these threads too: JSON, ETag and gzip (RFC 9110, RFC 9111). A client may cache a response but
must revalidate it, even one as of an offset: events never change, but permissions do. If the client has the current
version, it gets 304.
"""

import asyncio
import gzip
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from hashlib import blake2b
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
from litestar import Response
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from events.logs.archive.store import fetched
from projections.queries.past import given_up

THREADS = 4  # queries read the disk; more threads would compete with the event loop for the GIL
WAITING_MAX = 128  # beyond them a query is refused at once instead of late
OF_ONE_MAX = WAITING_MAX // 2

client_host: ContextVar[str] = ContextVar("client_host", default="")
"""The client address of the current request."""

_encode = msgspec.json.Encoder().encode
_P = ParamSpec("_P")
_T = TypeVar("_T")


class TooBusy(Exception):
    """Too many queries are waiting."""


class QueryThreads:
    """Runs queries in threads, and encodes their results as HTTP responses."""

    def __init__(self, waiting_max: int = WAITING_MAX) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="query")
        self._waiting_max = waiting_max
        self._waiting = Counter[str]()
        self._of_host: dict[str, asyncio.Semaphore] = {}
        self.stopping = asyncio.Event()
        """Set when the service begins to stop: handlers that wait for an answer then respond immediately."""

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run `work` in a thread. If the caller is cancelled, the result is dropped. Raises TooBusy."""
        cancelled, context = threading.Event(), copy_context()
        context.run(given_up.set, cancelled)
        context.run(fetched.set, [])
        async with self._admitted():
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self._threads, lambda: context.run(work, *args, **kwargs)
                )
            finally:
                cancelled.set()

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        host = client_host.get()
        if self._waiting.total() >= self._waiting_max or self._waiting[host] >= OF_ONE_MAX:
            raise TooBusy(f"{self._waiting.total()} queries are waiting already; try again later")
        self._waiting[host] += 1
        try:
            async with self._of_host.setdefault(host, asyncio.Semaphore(THREADS - 1)):
                yield
        finally:
            self._waiting[host] -= 1
            if not self._waiting[host]:
                del self._waiting[host], self._of_host[host]

    async def answer(self, work: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs) -> Response[Any]:
        """Run `work` and encode its result as a JSON response. Raises TooBusy."""
        return await self.run(lambda: cacheable(_encode(work(*args, **kwargs))))

    def close(self) -> None:
        """Cancel waiting queries and wait for the running ones."""
        self._threads.shutdown(wait=True, cancel_futures=True)


JSON: Final = "application/json"
GZIP_BYTES_MIN: Final = 1000
"""Shorter bodies are not compressed: gzip would save almost nothing."""
GZIP_LEVEL: Final = 1
"""Compared with the default level: a third of the time, and a tenth more bytes."""
ARCHIVE: Final = "topicwright-archive"
"""The response header with the number of archive files that were fetched; absent if none."""
CACHE_CONTROL: Final = "private, no-cache"


class Accepted(msgspec.Struct, frozen=True):
    """The Accept-Encoding and If-None-Match headers of a request."""

    takes_gzip: bool = False
    etags: tuple[str, ...] = ()


accepted: ContextVar[Accepted] = ContextVar("accepted", default=Accepted())  # noqa: B039 - it is immutable


async def remember_accepted(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Store the request's headers for `cacheable`, which runs in a query thread without the request."""
    codings = [one.strip() for one in connection.headers.get("accept-encoding", "").lower().split(",")]
    given = connection.headers.get("if-none-match", "")
    etags = tuple(one.strip().removeprefix("W/") for one in given.split(",")) if given else ()
    accepted.set(Accepted("gzip" in codings or "gzip;q=1.0" in codings, etags))


def cacheable(body: bytes, media_type: str = JSON, status: int = 200) -> Response[bytes]:
    """A response with an ETag: compressed if the client accepts gzip, or 304 if it has this version."""
    client = accepted.get()
    is_zipped = client.takes_gzip and len(body) >= GZIP_BYTES_MIN
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}{"-gzip" if is_zipped else ""}"'
    headers = {"etag": tag, "cache-control": CACHE_CONTROL, "vary": "accept-encoding, authorization"}
    if names := fetched.get():
        headers[ARCHIVE] = str(len(names))
    if status == 200 and (tag in client.etags or "*" in client.etags):
        return Response(b"", status_code=304, headers=headers, media_type=media_type)
    if is_zipped:
        body = gzip.compress(body, GZIP_LEVEL, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, status_code=status, headers=headers, media_type=media_type)
