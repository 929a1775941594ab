"""Who asks over HTTP: what authorization, quotas and events need to know of it.

`controller.http.authentication` finds it out before a request is routed, and leaves it in the scope.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from litestar.connection import ASGIConnection

from controller.kafka.session import ANONYMOUS, Session

API: Final = "HTTP"
CLIENT_ID_CHARACTERS_MAX: Final = 200
SCOPE_KEY: Final = "topicwright.session"


class Caller(msgspec.Struct, frozen=True):
    """Who asks: `client_id` is what the client calls itself, null where it does not."""

    principal: str = ANONYMOUS
    host: str = ""
    client_id: str | None = None
    api: str = API


def caller_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Caller:
    """Who sent a request; anonymous where nobody had to say."""
    session: Session | None = connection.scope.get(SCOPE_KEY)  # type: ignore[assignment]
    agent: str | None = connection.headers.get("user-agent")
    client_id = None if agent is None else agent[:CLIENT_ID_CHARACTERS_MAX]
    if session is None:
        client = connection.client
        return Caller(host="" if client is None else client.host, client_id=client_id)
    return Caller(session.principal, session.host, client_id)
