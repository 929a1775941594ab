"""Answers that clients can keep, and short ones: ETag, Cache-Control, gzip (RFC 9110, RFC 9111).

What is done to a body takes time in proportion to its size, so it is done in the thread that wrote the body. What the
client sent for it (its validators, what it can unpack) comes along in the context.

A client may store an answer, but must validate it before each use, also one as of an offset: the events before an
offset never change, but permissions do. A client that has the current answer gets 304.
"""

from __future__ import annotations

import gzip
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, Final

import msgspec
from litestar import Response
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from events.logs.archive.store import visits

JSON: Final = "application/json"
GZIP_BYTES_MIN: Final = 1000
"""Shorter ones would hardly be any shorter."""
GZIP_LEVEL: Final = 1
"""A third of the time of the default, for a tenth more bytes."""
ARCHIVE: Final = "topicwright-archive"
"""The header that says how many files of the log's archive were fetched for an answer; without it none was."""
CACHE_CONTROL: Final = "private, no-cache"


class Wish(msgspec.Struct, frozen=True):
    """What a client sent about the form of its answer."""

    takes_gzip: bool = False
    has: tuple[str, ...] = ()
    """The ETags of what it has, or `*`."""


_NONE: Final = Wish()
wish: ContextVar[Wish] = ContextVar("wish", default=_NONE)


async def note_wish(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Remember, for the request that is worked on, what its client sent about the form of its answer."""
    codings = [one.strip() for one in connection.headers.get("accept-encoding", "").lower().split(",")]
    given = connection.headers.get("if-none-match", "")
    has = tuple(one.strip().removeprefix("W/") for one in given.split(",")) if given else ()
    wish.set(Wish("gzip" in codings or "gzip;q=1.0" in codings, has))


def packed(body: bytes, media_type: str = JSON, status: int = 200) -> Response[bytes]:
    """The answer with this body as the client wants it."""
    wanted = wish.get()
    is_zipped = wanted.takes_gzip and len(body) >= GZIP_BYTES_MIN
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}{"-gzip" if is_zipped else ""}"'
    headers = {
        "etag": tag,
        "cache-control": CACHE_CONTROL,
        "vary": "accept, accept-encoding, authorization",
    }
    visited = visits.get()
    if visited is not None and visited.count:
        headers[ARCHIVE] = str(visited.count)
    if status == 200 and (tag in wanted.has or "*" in wanted.has):
        return Response(b"", status_code=304, headers=headers, media_type=media_type)
    if is_zipped:
        body = gzip.compress(body, GZIP_LEVEL, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, status_code=status, headers=headers, media_type=media_type)
