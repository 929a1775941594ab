"""Validates the bearer tokens of an identity provider (JWT, RFC 7519), as Kafka's BrokerJwtValidator does (KIP-768).

A token is valid if a key of the provider signed it, it is from the expected issuer and for an expected audience, now
is between `nbf` and `exp` within the clock skew, and it names a user. The key alone decides which algorithms are
possible, so neither `alg: none` nor a public key as an HMAC secret passes.

Signatures are checked in the threads of `login_threads`, and valid tokens are cached until they expire or the keys
change. Non-goals: opaque tokens (introspection), encrypted tokens.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any, Final

import aiohttp
import jwt
import msgspec

from controller.access.jwks import Jwks, JwksError, Key, fetch
from controller.access.login_threads import FairThreadPool, network_of
from controller.kafka.connections import SESSION_USED, ClusterUnreachable
from controller.kafka.sasl import TOKEN_BYTES_MAX, AuthenticationFailed, Bearer

NAME_MAX: Final = 255
THREADS: Final = 1  # a signature takes about 0.1 ms
CACHED_MAX: Final = 1000
_FAR_S: Final = 1 << 40
"""A later expiry counts as this one, in seconds since 1970."""


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
            raise AuthenticationFailed(f"a token of {len(token)} bytes; {TOKEN_BYTES_MAX} are allowed")
        if self._cached_with is not self.keys.keys:
            self._cached, self._cached_with = {}, self.keys.keys
        digest = hashlib.sha256(token.encode()).digest()
        cached = self._cached.get(digest)
        if cached is not None and self._now() < cached.expires_at_s + self._rules.clock_skew_s:
            return cached
        header = _header(token)
        key = await self.keys.key(header.kid, header.alg)
        if key is None:
            raise AuthenticationFailed("no key of the identity provider has the token's key id and algorithm")
        keys = self.keys.keys
        found = await self._threads.run(network_of(address), partial(_validated, token, key, self._rules))
        if keys is self._cached_with:
            if len(self._cached) >= CACHED_MAX:
                self._cached.clear()
            self._cached[digest] = found
        return found


def _header(token: str) -> _Header:
    part = token.partition(".")[0]
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=_Header)
    except (ValueError, RecursionError):
        raise AuthenticationFailed("a token whose header is not that of a JWT") from None


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
        raise AuthenticationFailed(f"invalid token: {error}") from None
    user, scopes = claims[rules.sub_claim], claims.get(rules.scope_claim) or []
    if not isinstance(user, str) or not 1 <= len(user.strip()) <= NAME_MAX:
        raise AuthenticationFailed(f"invalid token: {rules.sub_claim} must be a text of 1 to {NAME_MAX} characters")
    listed = scopes.split() if isinstance(scopes, str) else scopes
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        why = f"invalid token: {rules.scope_claim} must be a text or a list of texts"
        raise AuthenticationFailed(why, user=user)
    roles = frozenset(rules.roles[each] for each in listed if each in rules.roles)
    return Bearer(user.strip(), float(min(int(claims["exp"]), _FAR_S)), roles)


class _TokenAnswer(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: float = 0


class ClientToken:
    """Gets tokens for this process from a provider, by librdkafka's properties for `sasl.oauthbearer.method=oidc`."""

    def __init__(self, properties: Mapping[str, str], now: Callable[[], float]) -> None:
        of = {key.removeprefix("sasl.oauthbearer."): value for key, value in properties.items()}
        self._url, self._login = of["token.endpoint.url"], (of["client.id"], of["client.secret"])
        self._form = {"grant_type": "client_credentials", "scope": of.get("scope", "")}
        self._now, self._until_s, self._token = now, 0.0, ""

    async def __call__(self) -> str:
        """A token, for most of its lifetime the same one. Raises ClusterUnreachable."""
        if self._now() >= self._until_s:
            try:
                answer = msgspec.json.decode(await fetch(self._url, self._form, self._login), type=_TokenAnswer)
            except (JwksError, OSError, TimeoutError, ValueError, aiohttp.ClientError) as failed:
                raise ClusterUnreachable(f"no token from {self._url}: {failed or type(failed).__name__}") from None
            self._token, self._until_s = answer.access_token, self._now() + answer.expires_in * SESSION_USED
        return self._token
