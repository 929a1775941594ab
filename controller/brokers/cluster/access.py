"""The users, ACLs and quotas of the target cluster, for `authorizer.class.name=ClusterAcls`.

`ClusterAcls` polls the ACLs with DescribeAcls. While they cannot be read, the last ones apply for `STALE_S`; then
everything is denied, except to super users. Users and quotas are read when somebody looks at them.

`ClusterLogins` repeats the login of a client at a broker, and the connection that the broker has accepted carries the
client's forwarded requests: the cluster itself decides what they may do. Neither passwords nor tokens are stored.
- PLAIN: with the mechanism of `cluster.client.properties.file`, so the cluster may have only SCRAM users;
- OAUTHBEARER: with the token alone. The user is its claim `sasl.oauthbearer.sub.claim.name`;
- SCRAM: the messages of client and broker are passed on, so this process never has the password.

A client must not appear as somebody else than the broker has accepted. So messages of PLAIN and OAUTHBEARER are parsed
and written again, and those of SCRAM are parsed as for a login here. At most `LOGINS_MAX` logins run at once; networks
wait in turn (`access.login_threads`).
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing
from typing import Any, Final, TypeVar

import structlog
from msgspec.structs import replace

from controller.access.login_threads import FairTurns, network_of
from controller.access.tokens import part_of, user_of
from controller.brokers.cluster.link import ClusterLink
from controller.kafka import sasl
from controller.kafka.codec.codec import encode_request
from controller.kafka.connections import (
    CLIENT_ID,
    CORRELATION_ID,
    MECHANISMS,
    RESPONSE_S,
    Address,
    BrokerConnection,
    ClusterUnreachable,
    NotAuthenticated,
    decode_message,
)
from controller.kafka.handling import Disconnect
from controller.kafka.messages import APIS, ApiKey, Message
from controller.kafka.messages.access import (
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
)
from controller.kafka.sasl import AuthenticationFailed, Bearer, Step
from controller.machine.access.acls import ALL, ANY, CLUSTER, DENY, GROUP, LITERAL, TOPIC, Acls
from controller.machine.access.requests import MECHANISMS as SCRAM_MECHANISMS
from controller.machine.state import Cluster, ScramCredential
from events.access import Acl

T = TypeVar("T")
BYTES_MAX: Final = 64 << 20
"""The largest accepted response, about half a million ACLs."""
STALE_S: Final = 60.0
LOGINS_MAX: Final = 32
_EVERY: Final = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)
_NOTHING: Final = Acls().with_all(Acl(of, LITERAL, "*", "User:*", "*", ALL, DENY) for of in (TOPIC, GROUP, CLUSTER))
"""ACLs that deny everything to everybody."""


class ClusterAcls:
    """Follows the ACLs of the cluster at `link`, once it is set. `clock_s` is monotonic."""

    link: ClusterLink

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._acls, self._payload, self._read_s = _NOTHING, b"", -math.inf

    def current(self) -> Acls:
        """The cluster's ACLs, or those that deny everything if they were read too long ago."""
        return self._acls if self.age_s() <= STALE_S else _NOTHING

    def age_s(self) -> float:
        """The seconds since the cluster had these ACLs."""
        return self._clock_s() - self._read_s

    async def read(self) -> None:
        """Raises NotAuthenticated, and ClusterUnreachable, also if the cluster does not let us read them. Only a
        response that differs from the last one is decoded, in a thread."""
        began_s = self._clock_s()
        payload = await self._response(ApiKey.DESCRIBE_ACLS, _EVERY)
        if payload != self._payload:
            self._acls, self._payload = await asyncio.to_thread(_acls, payload, self.link.address), payload
        self._read_s = began_s

    async def applied_to(self, cluster: Cluster) -> Cluster:
        """The state with the ACLs, SCRAM users and quotas of the cluster in place of those of the log. Raises
        ClusterUnreachable and NotAuthenticated."""
        users = await self._response(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest())
        quotas = await self._response(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest())
        found = await asyncio.to_thread(_users_and_quotas, users, quotas, self.link.address)
        return replace(cluster, acls=self.current(), **found)

    async def _response(self, key: ApiKey, request: Message) -> bytes:
        frame = encode_request(key, APIS[key].max_version, CORRELATION_ID, CLIENT_ID, request)
        return await self.link.forward(frame[4:], RESPONSE_S)

    async def follow(self, every_s: float) -> None:
        """Read the ACLs until cancelled."""
        last = ""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.read()
                why = ""
            except (ClusterUnreachable, NotAuthenticated) as failed:
                why = str(failed)
            if bool(why) != bool(last):
                structlog.get_logger("topicwright").warning("cluster ACLs: " + ("lost" if why else "back"), why=why)
            last = why


def _decoded(what: str, key: ApiKey, payload: bytes, at: Address) -> Any:
    """Raises ClusterUnreachable."""
    if len(payload) > BYTES_MAX:
        raise ClusterUnreachable(f"the cluster's {what} have {len(payload)} bytes; the limit is {BYTES_MAX}")
    answer: Any = decode_message(key, APIS[key].max_version, payload, Message, at)
    if answer.error_code:
        why = answer.error_message or f"error {answer.error_code}"
        raise ClusterUnreachable(f"the cluster's {what} cannot be read: {why}")
    return answer


def _acls(payload: bytes, at: Address) -> Acls:
    return Acls().with_all(
        Acl(r.resource_type, r.pattern_type, r.resource_name, a.principal, a.host, a.operation, a.permission_type)
        for r in _decoded("ACLs", ApiKey.DESCRIBE_ACLS, payload, at).resources
        for a in r.acls
    )


def _users_and_quotas(users: bytes, quotas: bytes, at: Address) -> dict[str, Any]:
    scram = {
        (user.user, SCRAM_MECHANISMS.get(one.mechanism, "?")): ScramCredential(one.iterations, b"", b"", b"")
        for user in _decoded("users", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users, at).results
        for one in user.credential_infos
    }
    entries = _decoded("quotas", ApiKey.DESCRIBE_CLIENT_QUOTAS, quotas, at).entries or ()
    found = {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): [(q.key, q.value) for q in entry.values]
        for entry in entries
    }
    return {"scram": scram, "quotas": found}


class ClusterLogins:
    """Checks logins at a cluster, after `reach`. `sub_claim` names the claim of a token that has the user; `now`
    returns the seconds since 1970."""

    def __init__(self, sub_claim: str, now: Callable[[], float]) -> None:
        self.sub_claim, self.now = sub_claim, now
        self.link: ClusterLink | None = None
        self.turns = FairTurns(LOGINS_MAX)

    def reach(self, link: ClusterLink) -> None:
        self.link, self.tls = link, link.security.context()

    def start(self, mechanism: str, at: Callable[[], Address] | None = None) -> sasl.StartConversation:
        """Logins by a mechanism at the broker with the address `at`, or at any."""
        return lambda _, host: _Login(self, mechanism, host, at).step

    async def has_password(self, user: str, password: str, address: str) -> bool:
        """True if the cluster accepts the password. `address` is the client's. Raises AuthenticationFailed."""
        with closing(_Login(self, sasl.PLAIN, address)) as login:
            return await login.has_password(user, password, address)

    async def bearer(self, token: str, address: str) -> Bearer:
        """The user of a token that the cluster accepts. Raises AuthenticationFailed."""
        with closing(_Login(self, sasl.OAUTHBEARER, address)) as login:
            return await login.bearer(token, address)


class _Login:
    """One login of a client. It is the `Users` of the mechanisms in `sasl`."""

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
            if self._mechanism in sasl.DIGESTS:
                step = await self._pass_on(token)
            else:
                check = sasl.check_plain if self._mechanism == sasl.PLAIN else sasl.check_bearer
                step = await check(self, self._host, token)
        except BaseException:
            self.close()
            raise
        assert self._connection is not None, "a step needs a broker"
        lifetime_s = self._connection.session_ms / 1000
        expires_at_s = self._logins.now() + lifetime_s if lifetime_s else None
        return replace(step, expires_at_s=expires_at_s, at_cluster=self._connection)

    def scram(self, user: str, mechanism: str) -> ScramCredential:
        """Record the user whom a message names."""
        self._user = user
        return ScramCredential(sasl.ITERATIONS, b"", b"", b"")

    async def has_password(self, user: str, password: str, _: str) -> bool:
        security = self._link().security
        mechanism = security.mechanism if security.mechanism in MECHANISMS else sasl.PLAIN
        named = {**security.properties, "sasl.username": user, "sasl.password": password}
        proof = replace(security, mechanism=mechanism, properties=named, token=None)
        await self._open(user, mechanism, proof.authenticate, "Authentication failed: Invalid username or password")
        return True

    async def bearer(self, token: str, _: str) -> Bearer:
        async def given() -> str:
            return token

        user = user_of(part_of(token, 1, dict[str, Any]), self._logins.sub_claim)  # the cluster checks the signature
        await self._open(user, sasl.OAUTHBEARER, replace(self._link().security, token=given).authenticate)
        return Bearer(user, math.inf)

    async def _pass_on(self, token: bytes) -> Step:
        """Pass one of the two SCRAM messages of the client to the broker."""
        if self._connection is not None:
            final = self._connection.exchange_token(token)
            return Step(await self._checked(self._user, asyncio.wait_for(final, RESPONSE_S)), self._user)
        if b",tokenauth=" in token.lower():
            raise AuthenticationFailed("delegation tokens are not supported")  # their owner is somebody else
        await sasl.start_scram(self, self._mechanism)(token)
        return Step(await self._open(self._user, self._mechanism, lambda exchange: exchange(token)))

    async def _open(
        self, user: str, mechanism: str, log_in: Callable[[sasl.Exchange], Awaitable[T]], refusal: str | None = None
    ) -> T:
        link = self._link()

        async def opened() -> T:
            await self._logins.turns.take(network_of(self._host))
            try:
                at = link.address if self._at is None else self._at()
                self._connection = await BrokerConnection.connect(at, self._logins.tls)
                return await self._connection.authenticate(mechanism, log_in)
            finally:
                self._logins.turns.leave()

        return await self._checked(user, opened(), refusal)

    async def _checked(self, user: str, answer: Coroutine[Any, Any, T], refusal: str | None = None) -> T:
        try:
            return await asyncio.create_task(answer)  # handlers run without a task, and time limits need one
        except NotAuthenticated as refused:
            raise AuthenticationFailed(str(refused), refusal, user) from None
        except (ClusterUnreachable, TimeoutError) as unreachable:
            raise Disconnect(f"the cluster cannot check the login: {unreachable}") from None

    def _link(self) -> ClusterLink:
        if self._logins.link is None:
            raise Disconnect("the cluster, which checks the logins, is not reached yet")
        return self._logins.link
