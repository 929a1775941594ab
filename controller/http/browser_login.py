"""Browser login by an identity provider: authorization code with PKCE (OpenID Connect Core, RFC 7636).

    GET /login?next=PATH --> the provider --> GET /login/callback?code=…&state=… --> PATH, with a session cookie
    POST /logout ends the session

State and PKCE verifier are in an encrypted cookie that is valid for ten minutes, so abandoned logins take no memory.
Sessions are in the memory of this process and end with the ID token. Other sites cannot use them: the cookies are
HttpOnly and SameSite=Lax, and forms are protected as with other logins. Non-goals: refresh tokens, and logging out at
the provider.
"""

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec
from cryptography.fernet import Fernet, InvalidToken
from litestar.connection import ASGIConnection
from litestar.types import Scope, Send

from controller.access.login_threads import FairTurns, network_of
from controller.access.tokens import JwksError, Tokens, fetch
from controller.http.errors import redirect
from controller.http.requests import other_sites
from controller.kafka.sasl import AuthenticationFailed, Bearer

_T = TypeVar("_T")
PENDING_S: Final = 600
SESSIONS_MAX: Final = 10_000
"""The oldest session ends if there are more."""
ENDPOINTS_S: Final = 300
EXCHANGES_MAX: Final = 8
_LOCAL: Final = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]{0,2000}")
"""A path on this host."""


class OAuthClient(msgspec.Struct, frozen=True):
    """This service at the provider: `http.oauth.*` of the settings."""

    issuer: str
    client_id: str
    secret: str | None
    redirect_url: str
    scope: str


class _Endpoints(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str


class _Pending(msgspec.Struct, frozen=True):
    state: str
    verifier: str
    next: str


class _TokenAnswer(msgspec.Struct, frozen=True):
    id_token: str


class BrowserLogin:
    """The logins and sessions of browsers. `tokens` validates ID tokens."""

    def __init__(self, client: OAuthClient, tokens: Tokens, now: Callable[[], float]) -> None:
        self._client, self._tokens, self._now = client, tokens, now
        self._secure = client.redirect_url.startswith("https:")
        self._name = ("__Host-" if self._secure else "") + "topicwright"
        self._fernet = Fernet(Fernet.generate_key())
        self._sessions: dict[str, Bearer] = {}
        self._endpoints: tuple[float, _Endpoints] | None = None
        self._asking = asyncio.Lock()
        self._exchanges = FairTurns(EXCHANGES_MAX)

    def session(self, scope: Scope) -> Bearer | None:
        """The user of the request's session cookie; None without a valid one."""
        found = self._sessions.get(_digest(self._cookie(scope, "session")))
        return found if found is not None and self._now() < found.expires_at_s else None

    async def answer(self, scope: Scope, send: Send, address: str) -> bool:
        """Answer a request for one of `gate.BROWSER_PATHS`; True if it logs in. Raises AuthenticationFailed."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        match scope.get("method"), scope["path"]:
            case "GET", "/login":
                await self._start(query.get("next", ["/"])[0], send)
            case "GET", "/login/callback":
                await self._finish(scope, {name: values[0] for name, values in query.items()}, send, address)
                return True
            case "POST", "/logout" if not other_sites(ASGIConnection(scope)):
                ended = self._sessions.pop(_digest(self._cookie(scope, "session")), None)
                await redirect(send, "/", *([] if ended is None else [self._set("session", "", 0)]))
            case _:
                raise AuthenticationFailed("", "log in with GET /login, log out with POST /logout on this page")
        return False

    async def _start(self, after: str, send: Send) -> None:
        endpoint = (await self._discovered()).authorization_endpoint
        after = after if _LOCAL.fullmatch(after) else "/"
        pending = _Pending(secrets.token_urlsafe(), secrets.token_urlsafe(48), after)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self._client.redirect_url,
            "scope": self._client.scope,
            "state": pending.state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        sealed = self._fernet.encrypt(msgspec.json.encode(pending)).decode()
        location = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"
        await redirect(send, location, self._set("login", sealed, PENDING_S))

    async def _finish(self, scope: Scope, query: dict[str, str], send: Send, address: str) -> None:
        try:
            sealed = self._fernet.decrypt(self._cookie(scope, "login").encode(), ttl=PENDING_S)
            pending = msgspec.json.decode(sealed, type=_Pending)
        except InvalidToken:
            raise AuthenticationFailed("a login that was not begun here", "begin the login again") from None
        if not hmac.compare_digest(query.get("state", "").encode(), pending.state.encode()):
            raise AuthenticationFailed("the state of the login differs", "begin the login again")
        if query.get("iss", self._client.issuer) != self._client.issuer or "code" not in query:
            raise AuthenticationFailed("the identity provider refused the login", "the identity provider refused it")
        form = {
            "grant_type": "authorization_code",
            "code": query["code"],
            "redirect_uri": self._client.redirect_url,
            "code_verifier": pending.verifier,
            "client_id": self._client.client_id,
        }
        login = None if self._client.secret is None else (quote(self._client.client_id), quote(self._client.secret))
        endpoint = (await self._discovered()).token_endpoint
        await self._exchanges.take(network_of(address))
        try:
            answer = await _fetched(_TokenAnswer, endpoint, form, login)
        finally:
            self._exchanges.leave()
        bearer = await self._tokens.bearer(answer.id_token, address)
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        session = secrets.token_urlsafe(32)
        self._sessions[_digest(session)] = bearer
        lifetime_s = max(0, int(bearer.expires_at_s - self._now()))
        cookies = self._set("session", session, lifetime_s), self._set("login", "", 0)
        await redirect(send, pending.next, *cookies)

    async def _discovered(self) -> _Endpoints:
        """The provider's endpoints, fetched at most every `ENDPOINTS_S` seconds. Raises AuthenticationFailed."""
        async with self._asking:
            if self._endpoints is None or self._now() - self._endpoints[0] > ENDPOINTS_S:
                url = self._client.issuer.rstrip("/") + "/.well-known/openid-configuration"
                found = await _fetched(_Endpoints, url)
                schemes = {urlsplit(each).scheme for each in (found.authorization_endpoint, found.token_endpoint)}
                if found.issuer != self._client.issuer or schemes != {urlsplit(self._client.issuer).scheme}:
                    raise _unavailable("its configuration has another issuer, or endpoints without TLS")
                self._endpoints = self._now(), found
            return self._endpoints[1]

    def _cookie(self, scope: Scope, kind: str) -> str:
        """The value of a cookie of the request; empty without one."""
        cookies = b";".join(value for name, value in scope["headers"] if name == b"cookie")
        found = re.search(rf"(?:^|;) *{self._name}-{kind}=([^;]*)".encode(), cookies)  # Litestar's parser takes 120 ms
        return "" if found is None else found[1].strip().decode("latin-1")

    def _set(self, kind: str, value: str, lifetime_s: int) -> tuple[bytes, bytes]:
        attributes = f"Path=/; Max-Age={lifetime_s}; HttpOnly; SameSite=Lax" + ("; Secure" if self._secure else "")
        return b"set-cookie", f"{self._name}-{kind}={value}; {attributes}".encode()


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()


def _unavailable(why: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"identity provider: {why}", "the identity provider cannot be reached; try again later")


async def _fetched(
    kind: type[_T], url: str, form: dict[str, str] | None = None, login: tuple[str, str] | None = None
) -> _T:
    try:
        return msgspec.json.decode(await fetch(url, form, login), type=kind)
    except (JwksError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError, TimeoutError) as error:
        raise _unavailable(str(error) or type(error).__name__) from None
