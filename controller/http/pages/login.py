"""What a browser shows of a 401: how to log in. Nothing else is sent to whoever has not logged in, so this page has no
stylesheet and no script."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from litestar.types import Send

from controller.http.errors import NOT_KEPT
from controller.http.pages.security import SECURITY

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Log in · Topicwright</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
</head>
<body>
<main>
<h1>Log in to Topicwright</h1>
<p>401: {message}.</p>
<p>Load this page again: the browser then shows a form for a name and a password, those of a user of Kafka's wire or of
the users file. Bearer tokens are for programs, such as <code>topicwright</code> with <code>--command-config</code>.</p>
<p><a href="">Load again</a></p>
</main>
</body>
</html>
"""


async def answer_login(send: Send, message: str, challenges: Iterable[tuple[bytes, bytes]]) -> None:
    """Answer 401 to a browser; `message` says why."""
    body = _PAGE.format(message=escape(message)).encode()
    more = {"content-type": "text/html; charset=utf-8", "content-length": str(len(body)), **SECURITY, **NOT_KEPT}
    headers = [*((name.encode(), value.encode()) for name, value in more.items()), *challenges, (b"vary", b"accept")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
