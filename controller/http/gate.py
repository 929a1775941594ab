"""ASGI middleware that checks the Host header and the login of an HTTP request before the request is routed.

A page of evil.example can make a browser send requests here if that name resolves to our address (DNS rebinding). Such
requests carry the name in their Host header. IP addresses and `localhost` cannot be rebound, so they are always
allowed; other names must be configured. `X-Forwarded-For` is used only if a trusted proxy sent it: the client is the
last hop that is not a trusted proxy.

A login is a bearer token, or a user name and password, as on the Kafka listeners with the same principals. Health paths
need no login, because a supervisor has no password. Credentials that a client sends are always checked, even if no
login is required. A failed login is answered after a delay and logged, without the password or token.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlencode

import msgspec
import structlog
from litestar.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from controller.http.errors import answer_early
from controller.http.metrics import OPEN_PATHS
from controller.http.pages.site import answer_login, is_page
from controller.http.query_threads import client_host
from controller.http.requests import API, SCOPE_KEY, SESSION_KEY
from controller.kafka.handling import ANONYMOUS, Disconnect, normal_host
from controller.kafka.sasl import TOKEN_BYTES_MAX, AuthenticationFailed
from controller.kafka.sasl_gate import USER_CHARACTERS_LOGGED
from controller.machine.errors import ErrorCode

if TYPE_CHECKING:
    from controller.access.users import Users
    from controller.http.browser_login import BrowserLogin

BROWSER_PATHS: Final = ("/login", "/login/callback", "/logout")
CREDENTIALS_BYTES_MAX: Final = TOKEN_BYTES_MAX + 100  # of the header, before anything is decoded
_CHALLENGES: Final = (
    (b"www-authenticate", b'Basic realm="topicwright", charset="UTF-8"'),
    (b"www-authenticate", b'Bearer realm="topicwright"'),
)
"""Two headers: of one header with both schemes Chromium reads only the first, and would not prompt for a password."""

_logger = structlog.get_logger("topicwright.http")


def host_check(app: ASGIApp, hosts: Hosts) -> ASGIApp:
    """Returns `app` behind a check that refuses other Host headers and sets the address of clients behind proxies."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        host = [value.decode("latin-1") for each, value in scope["headers"] if each == b"host"]
        if scope.get("path") not in OPEN_PATHS and not all(map(hosts.allows, host)):
            message = f"Host {host[0][:100]!r} is not a name of this service; allow it with http.allowed.hosts"
            await answer_early(send, 421, ErrorCode.INVALID_REQUEST, message)
            return
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
            message = "Content-Length and Transfer-Encoding are both given; allowed is one of them"  # see RFC 9112, 6.3
            await answer_early(send, 400, ErrorCode.INVALID_REQUEST, message, ((b"connection", b"close"),))
            return
        if client is not None:
            address = normal_host(client[0]) if _is_address(client[0]) else ""
            cast(dict[str, Any], scope)["client"] = (address, client[1])
            client_host.set(address)
        await app(scope, receive, send)

    return cast(ASGIApp, ProxyHeadersMiddleware(cast(Any, checked), list(hosts.proxies)))


ANY_NAME: Final = "*"
_WITH_PORT: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?")


class Hosts(msgspec.Struct, frozen=True):
    """The allowed host names (`*` for any), and the proxies whose X-Forwarded-For header is trusted."""

    names: frozenset[str] = frozenset()
    proxies: tuple[str, ...] = ()

    def named(self, host: str) -> Hosts:
        """A copy that also allows `host`, the address on which the service listens."""
        return msgspec.structs.replace(self, names=self.names | {host.lower()})

    def allows(self, host_header: str) -> bool:
        """True if a Host header names this service."""
        name = _without_port(host_header).lower().rstrip(".")
        return ANY_NAME in self.names or name in self.names or name in {"", "localhost"} or _is_address(name)


class Logins(msgspec.Struct, frozen=True):
    """The users and settings for the logins of HTTP clients; if `required`, clients without a login are refused."""

    users: Users
    required: bool
    failed_delay_ms: int
    on_login: Callable[[str, str, str], None]
    """Called for each login with `HTTP`, `bearer`, `basic` or `browser`, and `succeeded` or `failed`."""
    browser: BrowserLogin | None = None
    """Login of browsers by an identity provider; None without one."""

    def protect(self, app: ASGIApp) -> ASGIApp:
        """Refuses requests without a valid login, and stores the principal in the ASGI scope for the handlers."""

        async def protected(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                is_for_app = scope.get("path") in OPEN_PATHS or await self._admits(cast(dict[str, Any], scope), send)
            except (AuthenticationFailed, Disconnect) as refusal:
                await self._refuse(scope, send, refusal)
                return
            if is_for_app:
                await app(scope, receive, send)

        return protected

    async def _admits(self, scope: Any, send: Send) -> bool:
        """Store the principal. False if the login of browsers has answered. Raises AuthenticationFailed, Disconnect."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        host, session = scope["client"][0] if scope.get("client") else "", None
        if self.browser is not None and scope["path"] in BROWSER_PATHS:
            if await self.browser.answer(scope, send, host):
                self.on_login(API, "browser", "succeeded")
            return False
        if self.browser is not None and not given:
            session = self.browser.session(scope)
        login = await self._login(given, host) if session is None else (f"User:{session.user}", session.roles)
        scope[SCOPE_KEY], scope[SESSION_KEY] = login, session is not None
        return True

    async def _login(self, given: list[bytes], host: str) -> tuple[str, frozenset[str]]:
        """The principal and its roles. Raises AuthenticationFailed."""
        if not given:
            if self.required:
                raise AuthenticationFailed(
                    "", "log in with a bearer token, or with a user name and password (commands: --command-config)"
                )
            return ANONYMOUS, frozenset()
        if len(given) > 1 or len(given[0]) > CREDENTIALS_BYTES_MAX:
            raise AuthenticationFailed("more than one Authorization header, or one that is too long")
        roles = frozenset[str]()
        scheme, _, credentials = given[0].decode("latin-1").partition(" ")
        match scheme.lower():
            case "bearer":
                bearer = await self.users.owner_of(credentials.strip(), host)
                user, roles = bearer.user, bearer.roles
            case "basic":
                user = await self._basic(credentials.strip(), host)
            case _:
                raise AuthenticationFailed("the Authorization header is neither Bearer nor Basic")
        self.on_login(API, scheme.lower(), "succeeded")
        return f"User:{user}", roles

    async def _basic(self, credentials: str, host: str) -> str:
        try:
            user, colon, password = base64.b64decode(credentials, validate=True).decode().partition(":")
        except ValueError:  # not base64, not ASCII, or not UTF-8 inside
            raise AuthenticationFailed("malformed Basic Authorization") from None
        if not colon or not user:
            raise AuthenticationFailed("Basic Authorization without a user name or password")
        if not await self.users.knows(user, password, host):
            raise AuthenticationFailed("wrong user name or password", user=user)
        return user

    async def _refuse(self, scope: Scope, send: Send, refusal: AuthenticationFailed | Disconnect) -> None:
        if isinstance(refusal, Disconnect):  # the target cluster, which checks the logins, cannot be reached
            refusal = AuthenticationFailed(str(refusal), "the login cannot be checked now")
        if refusal.why:  # empty if the client sent no login: then no login has failed
            client = scope.get("client")
            peer = f"{client[0]}:{client[1]}" if client else "unknown"
            user = refusal.user[:USER_CHARACTERS_LOGGED]
            _logger.warning("authentication_failed", reason=refusal.why, user=user, listener=API, peer=peer)
            self.on_login(API, "http", "failed")
            await asyncio.sleep(self.failed_delay_ms / 1000)
        message = refusal.message or "invalid credentials"
        if is_page(scope["path"]):
            if self.browser is None:
                await answer_login(send, message, _CHALLENGES)
            else:  # without Basic, whose prompt would hide the page and its link
                query = scope["query_string"].decode("latin-1")
                here = "/" if scope["path"] in BROWSER_PATHS else quote(scope["path"]) + (f"?{query}" if query else "")
                await answer_login(send, message, _CHALLENGES[1:], "/login?" + urlencode({"next": here}))
            return
        await answer_early(send, 401, ErrorCode.SASL_AUTHENTICATION_FAILED, message, _CHALLENGES)


def _without_port(text: str) -> str:
    """HOST, HOST:PORT, [IPV6], [IPV6]:PORT or IPV6 without its port."""
    match = _WITH_PORT.fullmatch(text)
    return text if match is None else match[1] or match[2]


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
