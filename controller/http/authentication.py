"""Logins over HTTP: a bearer token, or a name and a password, for the principals that Kafka's wire knows.

It stands before everything else, so what is not authenticated is not even routed. Health is open to all, because
whoever restarts a service has no password. Credentials are looked at wherever they are sent, also where nobody has to:
a wrong one is refused. A failed login costs a delay and one log line, which never has what was sent but for the name.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

import msgspec
import structlog
from litestar.types import ASGIApp, Receive, Scope, Send

from controller.http.errors import answer_early
from controller.http.health import OPEN_PATHS
from controller.http.pages.login import answer_login
from controller.http.pages.negotiating import is_for_pages
from controller.http.requests import API, SCOPE_KEY
from controller.kafka.sasl.conversation import LoginRefused
from controller.kafka.sasl.gate import USER_CHARACTERS_LOGGED
from controller.kafka.session import ANONYMOUS, Session
from controller.machine.errors import ErrorCode

CREDENTIALS_BYTES_MAX: Final = 4096  # of the header, before anything is decoded
_CHALLENGES: Final = (
    (b"www-authenticate", b'Basic realm="topicwright", charset="UTF-8"'),
    (b"www-authenticate", b'Bearer realm="topicwright"'),
)
"""A header each: Chromium takes the first of a header for all of it, and would not show its form for a name."""

_logger = structlog.get_logger("topicwright.http")


class Passwords(Protocol):
    """Who knows tokens and passwords."""

    def owner_of(self, token: str) -> str | None:
        """The user that a token belongs to."""
        ...

    async def knows(self, user: str, password: str, address: str) -> bool:
        """Whether this is a password of a user; addresses take turns."""
        ...


class Logins(msgspec.Struct, frozen=True):
    """How clients of HTTP log in, and whether they must."""

    passwords: Passwords
    required: bool
    failed_delay_ms: int
    on_login: Callable[[str, str, str], None]
    """Called for each login: `HTTP`, `bearer` or `basic`, and `succeeded` or `failed`."""


class Authenticated:
    """An application behind logins."""

    def __init__(self, app: ASGIApp, logins: Logins) -> None:
        self._app = app
        self._logins = logins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Find out who sends the request, and go on; or answer 401."""
        if scope.get("path") in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        client = scope.get("client")
        host = client[0] if client else ""
        try:
            principal = await self._principal(given, host)
        except LoginRefused as refusal:
            await self._refuse(scope, send, refusal)
            return
        session = Session(principal=principal, host=host, listener=API)
        cast(dict[str, Any], scope)[SCOPE_KEY] = session
        await self._app(scope, receive, send)

    async def _principal(self, given: list[bytes], host: str) -> str:
        if not given:
            if self._logins.required:
                raise LoginRefused("", "log in with a bearer token, or with a user's name and password")
            return ANONYMOUS
        if len(given) > 1 or len(given[0]) > CREDENTIALS_BYTES_MAX:
            raise LoginRefused("more than one Authorization header, or a very long one")
        scheme, _, credentials = given[0].decode("latin-1").partition(" ")
        match scheme.lower():
            case "bearer":
                user = self._logins.passwords.owner_of(credentials.strip())
                if user is None:
                    raise LoginRefused("unknown token")
            case "basic":
                user = await self._basic(credentials.strip(), host)
            case _:
                raise LoginRefused("an Authorization that is neither Bearer nor Basic")
        self._logins.on_login(API, scheme.lower(), "succeeded")
        return f"User:{user}"

    async def _basic(self, credentials: str, host: str) -> str:
        try:
            user, colon, password = base64.b64decode(credentials, validate=True).decode().partition(":")
        except ValueError:  # not base64, not ASCII, or not UTF-8 inside
            raise LoginRefused("a Basic Authorization that cannot be read") from None
        if not colon or not user:
            raise LoginRefused("a Basic Authorization without a name or a password")
        if not await self._logins.passwords.knows(user, password, host):
            raise LoginRefused("wrong user name or password", user=user)
        return user

    async def _refuse(self, scope: Scope, send: Send, refusal: LoginRefused) -> None:
        if refusal.why:  # whoever just did not log in yet has failed at nothing
            client = scope.get("client")
            peer = f"{client[0]}:{client[1]}" if client else "unknown"
            user = refusal.user[:USER_CHARACTERS_LOGGED]
            _logger.warning("authentication_failed", reason=refusal.why, user=user, listener=API, peer=peer)
            self._logins.on_login(API, "http", "failed")
            await asyncio.sleep(self._logins.failed_delay_ms / 1000)
        message = refusal.message or "the credentials are not valid"
        if is_for_pages(scope):
            await answer_login(send, message, _CHALLENGES)
            return
        await answer_early(send, 401, ErrorCode.SASL_AUTHENTICATION_FAILED, message, _CHALLENGES)
