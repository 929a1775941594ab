"""Who is sent a page: who accepts HTML, which browsers say and programs do not (RFC 9110, 12.5.1).

The address of a page is one that can be sent to others, so what a form leaves empty is taken out of it, and what its
slider chose (`at_ms`) becomes the moment that everything else understands (`at`).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from litestar.types import ASGIApp, Receive, Scope, Send

from projections.text.moments import iso

ASSETS: Final = "/assets/"
PROGRAMS_ONLY: Final = ("/openapi", "/health/", "/metrics", "/log/", "/simulated/", "/events/follow")
"""The paths, without their version, that have no page."""
SLIDER: Final = "at_ms"
_MS_DIGITS_MAX: Final = 14  # of times within five thousand years


class Negotiated:
    """The JSON and the pages as one application."""

    def __init__(self, api: ASGIApp, pages: ASGIApp) -> None:
        self._api = api
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go on with one of the two; or send a browser on to the address without what is empty."""
        if not is_for_pages(scope):
            await self._api(scope, receive, send)
            return
        query: bytes = scope["query_string"]
        tidy = tidied(query.decode("latin-1")) if scope.get("method") == "GET" else None
        if tidy is None:
            await self._pages(scope, receive, send)
            return
        here = "/" + quote(scope["path"].lstrip("/"))  # of this host, whatever the path is
        headers = [
            (b"location", f"{here}?{tidy}".rstrip("?").encode()),
            (b"content-length", b"0"),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def is_for_pages(scope: Scope) -> bool:
    """Whether a request is for a page, or what belongs to pages."""
    path: str = scope["path"]
    if path.startswith(ASSETS):
        return True
    if path.removeprefix("/v1").startswith(PROGRAMS_ONLY):
        return False
    accepted = [value.decode("latin-1") for name, value in scope["headers"] if name == b"accept"]
    return prefers_html(",".join(accepted))


def prefers_html(accept: str) -> bool:
    """Whether an Accept header names HTML, and nothing of ours before it; `*/*` alone is a program's."""
    weights: dict[str, float] = {}
    for one in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in one.split(";"))
        quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        try:
            weights[kind] = float(quality)
        except ValueError:
            weights[kind] = 0.0
    html = max(weights.get("text/html", 0.0), weights.get("application/xhtml+xml", 0.0))
    return html > 0.0 and html >= max(weights.get("application/json", 0.0), weights.get("text/event-stream", 0.0))


def tidied(query: str) -> str | None:
    """A query without what is empty, its slider's place as a moment; None where it is so already."""
    pairs = parse_qsl(query, keep_blank_values=True, encoding="utf-8", errors="replace")
    kept = [(name, value) for name, value in pairs if value and name != SLIDER]
    if len(kept) == len(pairs):
        return None
    chosen = next((value for name, value in pairs if name == SLIDER and value), None)
    if chosen is not None:
        is_time = chosen.isascii() and chosen.isdigit() and len(chosen) <= _MS_DIGITS_MAX
        kept = [(name, value) for name, value in kept if name != "at"]
        kept.append(("at", iso(int(chosen)) if is_time else f"{chosen}ms"))
    return urlencode(kept)
