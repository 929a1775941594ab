"""Answers that clients can keep, and short ones: ETag, Cache-Control, gzip (RFC 9110, RFC 9111).

What is done to a body takes time in proportion to its size, so it is done in the thread that wrote the body. What the
client sent for it (its validators, what it can unpack) comes along in the context.

An answer as of an offset never changes, so it may be kept without another look; every other one may be kept, and is to
be looked at again: a client that has it already is answered 304. One that has a sealed place is good for this process
alone. `private`, because what is shown depends on who asks.
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

from controller.http.places import MARK
from events.logs.archive.visits import visits

GZIP_BYTES_MIN: Final = 1000
"""Shorter ones would hardly be any shorter."""
GZIP_LEVEL: Final = 1
"""A third of the time of the default, for a tenth more bytes."""
ARCHIVE: Final = "topicwright-archive"
"""The header that says how many files of the log's archive were fetched for an answer; without it none was."""
KEPT: Final = "private, max-age=86400, immutable"
LOOKED_AT_AGAIN: Final = "private, no-cache"
_SEALED: Final = b':"' + MARK.encode()


class Wish(msgspec.Struct, frozen=True):
    """What a client sent about the form of its answer."""

    takes_gzip: bool = False
    has: tuple[str, ...] = ()
    """The ETags of what it has, or `*`."""
    of_offset: bool = False
    """Whether it wants an answer as of an offset."""


_NONE: Final = Wish()
wish: ContextVar[Wish] = ContextVar("wish", default=_NONE)


async def note_wish(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Remember, for the request that is worked on, what its client sent about the form of its answer."""
    codings = [one.strip() for one in connection.headers.get("accept-encoding", "").lower().split(",")]
    at: str = connection.query_params.get("at", "")
    given = connection.headers.get("if-none-match", "")
    has = tuple(one.strip().removeprefix("W/") for one in given.split(",")) if given else ()
    wish.set(Wish("gzip" in codings or "gzip;q=1.0" in codings, has, at.isascii() and at.isdigit()))


def packed(body: bytes) -> Response[bytes]:
    """The answer with this body, which is JSON, as the client wants it."""
    wanted = wish.get()
    is_zipped = wanted.takes_gzip and len(body) >= GZIP_BYTES_MIN
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}{"-gzip" if is_zipped else ""}"'
    headers = {
        "etag": tag,
        "cache-control": KEPT if wanted.of_offset and _SEALED not in body else LOOKED_AT_AGAIN,
        "vary": "accept, accept-encoding, authorization",
    }
    visited = visits.get()
    if visited is not None and visited.count:
        headers[ARCHIVE] = str(visited.count)
    if tag in wanted.has or "*" in wanted.has:
        return Response(b"", status_code=304, headers=headers, media_type="application/json")
    if is_zipped:
        body = gzip.compress(body, GZIP_LEVEL, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, headers=headers, media_type="application/json")
