"""Lets the target cluster check the logins of clients (`authorizer.class.name=ClusterAcls`).

A client's login is repeated at a broker, and the connection on which the broker has accepted it carries the client's
forwarded requests: the cluster itself decides what it may do there. Neither passwords nor tokens are stored.
- PLAIN: with the mechanism of `cluster.client.properties.file`, so the cluster may have the user for SCRAM only;
- OAUTHBEARER: with the token alone. The user is its claim `sasl.oauthbearer.sub.claim.name`;
- SCRAM: the messages of client and broker are passed on, so this process never has the password.

A client must not appear as somebody else than the broker has accepted: messages of PLAIN and OAUTHBEARER are parsed and
written again, and those of SCRAM are parsed strictly.

At most `LOGINS_MAX` logins run at once. Networks wait in turn, as in `access.login_threads`.
"""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from controller.access.login_threads import network_of
from controller.brokers.cluster.link import ClusterLink
from controller.kafka.connections import (
    MECHANISMS,
    RESPONSE_S,
    Address,
    BrokerConnection,
    ClusterUnreachable,
    NotAuthenticated,
)
from controller.kafka.handling import Disconnect
from controller.kafka.sasl import (
    DIGESTS,
    OAUTHBEARER,
    PLAIN,
    AuthenticationFailed,
    Bearer,
    Exchange,
    StartConversation,
    Step,
    check_bearer,
    check_plain,
    scram_user,
)

T = TypeVar("T")
LOGINS_MAX: Final = 32
NAME_MAX: Final = 255


class ClusterLogins:
    """Checks logins at a cluster, after `reach`. `sub_claim` names the claim of a token that has the user; `now`
    returns the seconds since 1970."""

    def __init__(self, sub_claim: str, now: Callable[[], float]) -> None:
        self.sub_claim, self.now = sub_claim, now
        self.link: ClusterLink | None = None
        self._free = asyncio.Semaphore(LOGINS_MAX)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def reach(self, link: ClusterLink) -> None:
        self.link, self.tls = link, link.security.context()

    def start(self, mechanism: str, at: Callable[[], Address] | None = None) -> StartConversation:
        """Logins by a mechanism at the broker with the address `at`, or at any."""
        return lambda _, host: _Login(self, mechanism, host, at).step

    async def has_password(self, user: str, password: str, host: str) -> bool:
        """True if the cluster accepts the password. `host` is the client's address. Raises AuthenticationFailed."""
        with closing(_Login(self, PLAIN, host)) as login:
            return await _at_http(login.has_password(user, password, host))

    async def bearer(self, token: str, host: str) -> Bearer:
        """The user of a token that the cluster accepts. Raises AuthenticationFailed."""
        with closing(_Login(self, OAUTHBEARER, host)) as login:
            return await _at_http(login.bearer(token, host))

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        async with self._turns.setdefault(network_of(host), asyncio.Lock()):
            await self._free.acquire()
        try:
            yield
        finally:
            self._free.release()


class _Login:
    """One login of a client. It is the `Users` of `check_plain` and `check_bearer`."""

    def __init__(
        self, logins: ClusterLogins, mechanism: str, host: str, at: Callable[[], Address] | None = None
    ) -> None:
        self._logins, self._mechanism, self._host, self._at = logins, mechanism, host, at
        self._user = ""
        self._connection: BrokerConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def step(self, token: bytes) -> Step:
        """Process one token. Raises AuthenticationFailed, and Disconnect if the cluster cannot be reached."""
        try:
            if self._mechanism in DIGESTS:
                step = await self._pass_on(token)
            else:
                step = await (check_plain if self._mechanism == PLAIN else check_bearer)(self, self._host, token)
        except BaseException:
            self.close()
            raise
        if step.user is None or self._connection is None:
            return step
        lifetime_s = self._connection.session_ms / 1000
        expires_at_s = self._logins.now() + lifetime_s if lifetime_s else None
        return replace(step, expires_at_s=expires_at_s, at_cluster=self._connection)

    def scram(self, user: str, mechanism: str) -> None:
        """The cluster has the credentials."""

    async def has_password(self, user: str, password: str, _: str) -> bool:
        security = self._link().security
        mechanism = security.mechanism if security.mechanism in MECHANISMS else PLAIN
        named = {**security.properties, "sasl.username": user, "sasl.password": password}
        proof = replace(security, mechanism=mechanism, properties=named, token=None)
        try:
            await self._open(user, mechanism, proof.authenticate)
        except AuthenticationFailed as failed:
            message = "Authentication failed: Invalid username or password"
            raise AuthenticationFailed(failed.why, message, user) from None
        return True

    async def bearer(self, token: str, _: str) -> Bearer:
        async def given() -> str:
            return token

        user = _user_of(token, self._logins.sub_claim)
        await self._open(user, OAUTHBEARER, replace(self._link().security, token=given).authenticate)
        return Bearer(user, math.inf)

    async def _pass_on(self, token: bytes) -> Step:
        """Pass one of the two SCRAM messages of the client to the broker."""
        if self._connection is None:
            self._user = scram_user(token)
            return Step(await self._open(self._user, self._mechanism, lambda exchange: exchange(token)))
        final = self._connection.exchange_token(token)
        return Step(await self._checked(self._user, asyncio.wait_for(final, RESPONSE_S)), self._user)

    async def _open(self, user: str, mechanism: str, log_in: Callable[[Exchange], Awaitable[T]]) -> T:
        link = self._link()

        async def opened() -> T:
            async with self._logins.turn(self._host):
                at = link.address if self._at is None else self._at()
                self._connection = await BrokerConnection.connect(at, self._logins.tls)
                return await self._connection.authenticate(mechanism, log_in)

        return await self._checked(user, opened())

    async def _checked(self, user: str, answer: Coroutine[Any, Any, T]) -> T:
        try:
            return await asyncio.create_task(answer)  # handlers run without a task, and time limits need one
        except NotAuthenticated as refused:
            raise AuthenticationFailed(str(refused), user=user) from None
        except (ClusterUnreachable, TimeoutError) as unreachable:
            raise Disconnect(f"the cluster cannot check the login: {unreachable}") from None

    def _link(self) -> ClusterLink:
        if self._logins.link is None:
            raise Disconnect("the cluster, which checks the logins, is not reached yet")
        return self._logins.link


async def _at_http(checked: Awaitable[T]) -> T:
    try:
        return await checked
    except Disconnect as unreachable:
        raise AuthenticationFailed(str(unreachable), "the cluster cannot check the login now") from None


def _user_of(token: str, claim: str) -> str:
    """The user in a token, whose signature the cluster checks. Raises AuthenticationFailed."""
    try:
        part = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=dict[str, Any])
    except (ValueError, IndexError, RecursionError):
        raise AuthenticationFailed("a token that is not a JWT") from None
    user = claims.get(claim)
    if not isinstance(user, str) or not 1 <= len(user.strip()) <= NAME_MAX:
        raise AuthenticationFailed(f"invalid token: {claim} must be a text of 1 to {NAME_MAX} characters")
    return user.strip()
