"""HEAD (RFC 9110): the answer that GET would have, without its body."""

from __future__ import annotations

from typing import Any, Final, cast

from litestar.types import ASGIApp, Message, Receive, Scope, Send
from litestar.utils import normalize_path

from controller.http.errors import answer_early
from controller.machine.errors import ErrorCode

ENDLESS: Final = "/events/follow"


class Heads:
    """An application that answers HEAD as it answers GET."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go on; where it is HEAD, as GET, and leave out the body."""
        if scope.get("method") != "HEAD":
            await self._app(scope, receive, send)
            return
        if normalize_path(scope["path"]).endswith(ENDLESS):  # its answer never ends
            message = "HEAD is not possible here; allowed: GET"
            await answer_early(send, 405, ErrorCode.INVALID_REQUEST, message, [(b"allow", b"GET")])
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                cast(dict[str, Any], message)["body"] = b""
            await send(message)

        await self._app(cast(Scope, {**scope, "method": "GET"}), receive, without_body)
