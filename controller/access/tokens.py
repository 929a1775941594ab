"""Validates the bearer tokens of an identity provider (JWT, RFC 7519), as Kafka's BrokerJwtValidator does (KIP-768).

A token is valid if a key of the provider signed it, it is from the expected issuer and for an expected audience, now
is between `nbf` and `exp` within the clock skew, and it names a user. The key alone decides which algorithms are
possible, so neither `alg: none` nor a public key as an HMAC secret passes.

Signatures are checked in the threads of `login_threads`, and valid tokens are cached until they expire or the keys
change. Non-goals: opaque tokens (introspection), encrypted tokens.

The keys are a JSON Web Key Set (RFC 7517) from a URL or a file. One task fetches them: at the start, every `refresh_s`
seconds, and when a token names an unknown key. A login with an unknown key waits for the next fetch, so no login fails
when the provider rotates its keys. The back-off between two fetches doubles while they fail or bring nothing new, so
tokens with invented key ids cannot cause more fetches.

A failed fetch changes nothing. It fails if the answer is late, too long, a redirect, or has no usable key. A key that
is missing in the newest set is no longer accepted. Symmetric and private keys are ignored.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

import aiohttp
import jwt
import msgspec
import structlog

from controller.access.login_threads import FairThreadPool, network_of
from controller.kafka.connections import SESSION_USED, ClusterUnreachable
from controller.kafka.sasl import TOKEN_BYTES_MAX, AuthenticationFailed, Bearer
from events.logs.log import read_bytes

T = TypeVar("T")
NAME_MAX: Final = 255
THREADS: Final = 1  # a signature takes about 0.1 ms
CACHED_MAX: Final = 1000


class InvalidToken(AuthenticationFailed):
    """Over HTTP the client gets the reason, so that its owner knows what to ask the provider for."""

    def __init__(self, why: str, user: str = "") -> None:
        super().__init__(why, why, user)


class TokenRules(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements of a token: `sasl.oauthbearer.*` of the settings."""

    issuer: str | None
    """None: any issuer."""
    audiences: tuple[str, ...] | None
    """None: any audience."""
    clock_skew_s: int
    sub_claim: str
    scope_claim: str
    roles: Mapping[str, str] = {}
    """The role that a scope gives."""


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str | None = None


class Tokens:
    """Validates tokens by the rules, with the keys of a provider. `now` returns the seconds since 1970."""

    def __init__(self, rules: TokenRules, keys: Jwks, now: Callable[[], float]) -> None:
        self._rules, self.keys, self._now = rules, keys, now
        self._threads = FairThreadPool(THREADS, "tokens")
        self._cached: dict[bytes, Bearer] = {}
        self._cached_with = keys.keys

    def close(self) -> None:
        self.keys.close()
        self._threads.close()

    def for_audience(self, audience: str) -> Tokens:
        """Validates tokens for another audience, with the same keys and threads."""
        other = copy(self)
        other._rules, other._cached = msgspec.structs.replace(self._rules, audiences=(audience,)), {}
        return other

    async def bearer(self, token: str, address: str) -> Bearer:
        """The user that the token names. `address` is the client's. Raises AuthenticationFailed."""
        if len(token) > TOKEN_BYTES_MAX:
            raise InvalidToken(f"a token of {len(token)} bytes; {TOKEN_BYTES_MAX} are allowed")
        if self._cached_with is not self.keys.keys:
            self._cached, self._cached_with = {}, self.keys.keys
        digest = hashlib.sha256(token.encode()).digest()
        cached = self._cached.get(digest)
        if cached is not None and self._now() < cached.expires_at_s + self._rules.clock_skew_s:
            return cached
        header = part_of(token, 0, _Header)
        key = await self.keys.key(header.kid, header.alg)
        if key is None:
            raise InvalidToken("no key of the identity provider has the token's key id and algorithm")
        keys = self.keys.keys
        found = await self._threads.run(network_of(address), partial(_validated, token, key, self._rules))
        if keys is self._cached_with:
            if len(self._cached) >= CACHED_MAX:
                self._cached.clear()
            self._cached[digest] = found
        return found


def part_of(token: str, number: int, kind: type[T]) -> T:
    """The header (0) or the claims (1) of a token, not verified. Raises AuthenticationFailed."""
    try:
        part = token.split(".", 2)[number]
        return msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=kind)
    except (ValueError, IndexError, RecursionError):
        raise InvalidToken("a token that is not a JWT") from None


def user_of(claims: Mapping[str, Any], claim: str) -> str:
    """Raises AuthenticationFailed."""
    user = claims.get(claim)
    if isinstance(user, str) and 1 <= len(user) <= NAME_MAX and user.isprintable() and user == user.strip():
        return user
    raise InvalidToken(f"invalid token: {claim} must be 1 to {NAME_MAX} printable characters, no space at its ends")


def _validated(token: str, key: Key, rules: TokenRules) -> Bearer:
    """Raises AuthenticationFailed."""
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key.public,
            algorithms=key.algorithms,
            audience=rules.audiences,
            issuer=rules.issuer,
            leeway=rules.clock_skew_s,
            options={
                "require": ["exp", "iat", rules.sub_claim],
                "verify_aud": rules.audiences is not None,
                "verify_sub": False,
                "verify_jti": False,
                "enforce_minimum_key_length": True,
            },
        )
    except jwt.PyJWTError as error:
        raise InvalidToken(f"invalid token: {error}") from None
    user, scopes = user_of(claims, rules.sub_claim), claims.get(rules.scope_claim) or []
    listed = scopes.split() if isinstance(scopes, str) else scopes
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        why = f"invalid token: {rules.scope_claim} must be a text or a list of texts"
        raise InvalidToken(why, user=user)
    roles = frozenset(rules.roles[each] for each in listed if each in rules.roles)
    return Bearer(user, float(min(int(claims["exp"]), 1 << 40)), roles)  # any integer is allowed there


# The keys of the provider.

FETCH_S: Final = 10.0
"""Time limit of a fetch."""
WOKEN_AT_ONCE: Final = 20
"""How many waiting logins continue in one iteration of the event loop after a fetch."""
BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS: Final[dict[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The algorithms that a key may verify, by its type and curve."""

_logger = structlog.get_logger("topicwright")


class JwksError(Exception):
    """The key set cannot be fetched or has no usable key."""


class _JwkSet(msgspec.Struct):
    keys: list[dict[str, Any]]


class Key(msgspec.Struct, frozen=True):
    """A public key, the algorithms that it may verify, and its id, if it has one."""

    public: Any
    algorithms: tuple[str, ...]
    kid: str | None


class Jwks:
    """The newest keys of a provider; `start` begins to fetch them from `url` (http, https or file)."""

    def __init__(self, url: str, *, refresh_s: float, backoff_s: float, backoff_max_s: float) -> None:
        self._url, self._refresh_s, self._backoff_s, self._backoff_max_s = url, refresh_s, backoff_s, backoff_max_s
        self.keys: tuple[Key, ...] = ()
        """Replaced when the provider's keys change."""
        self._wanted = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        """Logins that wait for the end of a fetch."""
        self._fetching = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_fresh())

    def refresh(self) -> None:
        """Fetches the keys again as soon as the back-off allows it."""
        self._wanted.set()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def key(self, kid: str | None, algorithm: str) -> Key | None:
        """Returns the key for a token, after a fetch if it is unknown. None if the provider does not have it."""
        found = self._known(kid, algorithm)
        for _ in range(1 + self._fetching):  # the current fetch may have begun before the provider had the key
            if found is None:
                self._wanted.set()
                fetched = asyncio.get_running_loop().create_future()
                self._waiting.append(fetched)
                await fetched  # not with a timeout, which needs a task; each fetch has one
                found = self._known(kid, algorithm)
        return found

    def _known(self, kid: str | None, algorithm: str) -> Key | None:
        return next((key for key in self.keys if kid in (None, key.kid) and algorithm in key.algorithms), None)

    async def _keep_fresh(self) -> None:
        backoff_s, failure = self._backoff_s, ""
        while True:
            before, was, self._fetching = self.keys, failure, True
            try:
                keys = await asyncio.to_thread(parsed, await fetch(self._url))
                if [(key.kid, key.public) for key in keys] != [(key.kid, key.public) for key in before]:
                    self.keys = keys
                    _logger.info("jwks_changed", url=self._url, keys=len(keys))
                failure = ""
            except Exception as error:  # also an unexpected one must not end this task
                failure = str(error) or type(error).__name__
                if failure != was:
                    _logger.error("jwks_failed", url=self._url, why=failure, keys=len(before))
            changed = self.keys is not before
            backoff_s = self._backoff_s if changed else min(2 * backoff_s, self._backoff_max_s)
            ended, self._waiting = self._waiting, []
            self._fetching = False
            self._wanted.clear()
            for number, fetched in enumerate(ended, start=1):
                if not fetched.done():  # else its client is gone
                    fetched.set_result(None)
                if number % WOKEN_AT_ONCE == 0:
                    await asyncio.sleep(0)
            await asyncio.sleep(backoff_s)
            if not failure:
                try:
                    await asyncio.wait_for(self._wanted.wait(), self._refresh_s)
                except TimeoutError:
                    backoff_s = self._backoff_s


async def fetch(url: str, form: dict[str, str] | None = None, login: tuple[str, str] | None = None) -> bytes:
    """Returns the document at `url`, or the answer to `form`, which is sent with `login` (name and password). Raises
    JwksError, OSError or TimeoutError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return await asyncio.to_thread(read_bytes, Path(url2pathname(parts.path)), BYTES_MAX)
    plain = {"accept": "application/json", "accept-encoding": "identity"}
    plain |= {} if login is None else {"authorization": aiohttp.encode_basic_auth(*login)}
    limit = aiohttp.ClientTimeout(total=FETCH_S)
    async with (
        aiohttp.ClientSession(auto_decompress=False, headers=plain, timeout=limit) as session,
        session.request("GET" if form is None else "POST", url, data=form, allow_redirects=False) as answer,
    ):
        if answer.status != 200:
            place = answer.headers.get("location")
            raise JwksError(
                f"status {answer.status}, expected 200" + (f"; redirects to {place[:200]}" if place else "")
            )
        body = bytearray()
        async for part in answer.content.iter_any():
            body += part
            if len(body) > BYTES_MAX:
                raise JwksError(f"more than {BYTES_MAX} bytes")
        return bytes(body)


def parsed(document: bytes) -> tuple[Key, ...]:
    """Returns the keys of a set that can verify signatures. Raises JwksError if there are none."""
    try:
        rows = msgspec.json.decode(document, type=_JwkSet).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JwksError(f"not a JSON Web Key Set: {error}") from None
    if len(rows) > KEYS_MAX:
        raise JwksError(f"{len(rows)} keys; at most {KEYS_MAX} are allowed")
    keys = tuple(key for key in map(_key, rows) if key is not None)
    if not keys:
        kinds = ", ".join(sorted({"-".join(filter(None, kind)) for kind in ALGORITHMS}))
        raise JwksError(f"no key for signatures among {len(rows)}; supported: {kinds}")
    return keys


_PUBLIC: Final = ("kty", "crv", "n", "e", "x", "y")
"""The fields of a public key."""


def _key(row: dict[str, Any]) -> Key | None:
    public: dict[str, Any] = {name: row[name] for name in _PUBLIC if name in row}
    try:
        allowed = ALGORITHMS.get((row["kty"], row.get("crv")), ())
        algorithms = tuple(each for each in allowed if row.get("alg") in (None, each))
        if not algorithms or row.get("use") not in (None, "sig"):
            return None
        return Key(jwt.PyJWK(public, algorithms[0]).key, algorithms, row.get("kid"))
    except (KeyError, TypeError, ValueError, jwt.PyJWTError):
        return None


class _TokenAnswer(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: float = 0


class ClientToken:
    """Gets tokens for this process, by the properties of `Security`: from their `oauth_cb`, or with
    `sasl.oauthbearer.method=oidc` from a provider."""

    def __init__(self, properties: Mapping[str, Any], now: Callable[[], float]) -> None:
        self._of = {key.removeprefix("sasl.oauthbearer."): value for key, value in properties.items()}
        self._now, self._until_s, self._token = now, 0.0, ""

    async def __call__(self) -> str:
        """A token, for most of its lifetime the same one. Raises ClusterUnreachable."""
        if self._now() >= self._until_s:
            source, began_s = self._of.get("oauth_cb"), self._now()
            try:
                token, expires_s = await (self._from_provider() if source is None else asyncio.to_thread(source, ""))
            except Exception as failed:  # also those of the signers of clouds
                place = self._of.get("token.endpoint.url", "the cloud")
                raise ClusterUnreachable(f"no token from {place}: {failed or type(failed).__name__}") from None
            self._token, self._until_s = token, began_s + (expires_s - began_s) * SESSION_USED
        return self._token

    async def _from_provider(self) -> tuple[str, float]:
        of, began_s = self._of, self._now()
        form = {"grant_type": "client_credentials", "scope": of.get("scope", "")}
        document = await fetch(of["token.endpoint.url"], form, (of["client.id"], of["client.secret"]))
        answer = msgspec.json.decode(document, type=_TokenAnswer)
        return answer.access_token, began_s + answer.expires_in
