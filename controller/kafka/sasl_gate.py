"""The SASL login of a Kafka connection, before its requests are handled, like Kafka's `SaslServerAuthenticator`.

    handshake --SaslHandshake--> tokens --login--> open --SaslHandshake (KIP-368)--> tokens --login--> open
        \\____________________________\\__ failed: the answer after a delay, then the end

Before a login only ApiVersions and SASL requests are read, and frames are small. While a SASL token is processed, no
other request of the connection starts. A session ends after `connections.max.reauth.ms`, or earlier with the client's
credential. After that, any request but SaslHandshake closes the connection.

A failed login causes a delay and one log line, with the user name but without the client's token.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal

import msgspec
import structlog
from msgspec.structs import replace

from controller.kafka.handling import Answer, ClientConnection, Disconnect, Handler, RawFrame, RequestContext
from controller.kafka.messages import APIS, ApiKey
from controller.kafka.messages.access import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from controller.kafka.sasl import AuthenticationFailed, Conversation, StartConversation, Step, Users
from controller.machine.errors import ErrorCode

REAUTHENTICATION_EVERY_S: Final = 1.0
"""The shortest time between re-authentications (KIP-368)."""
SESSION_MS_MIN: Final = 2000
"""The shortest session of a client whose credential is about to expire, so that the client may log in again. Without
it, a client that got its new token late could not."""
USER_CHARACTERS_LOGGED: Final = 100  # so that unauthenticated clients cannot fill the log

_logger = structlog.get_logger(__name__)

State = Literal["handshake", "tokens", "open", "failed"]
LoginOutcome = Literal["succeeded", "failed"]
OnLogin = Callable[[str, str, LoginOutcome], None]
"""Called for each login with the listener, the mechanism (or `none`), and the outcome."""


class SaslRules(msgspec.Struct, frozen=True, kw_only=True):
    """The SASL settings of a listener, with Kafka's names."""

    mechanisms: Mapping[str, StartConversation]
    """`sasl.enabled.mechanisms`."""
    users: Users
    now: Callable[[], float]
    """The seconds since 1970, by which credentials expire."""
    session_ms_max: int = 0
    """`connections.max.reauth.ms`; 0: sessions end only with the client's credential."""
    failed_delay_ms: int = 100
    """`connection.failed.authentication.delay.ms`."""
    frame_bytes_max: int = 512 * 1024
    """`sasl.server.max.receive.size`: limit of a frame before the login."""
    on_login: OnLogin = lambda *_: None


class SaslGate:
    """The login state of one connection; the callable `end` closes the connection after pending responses."""

    def __init__(
        self, rules: SaslRules, client: ClientConnection, *, clock: Callable[[], float], end: Callable[[], None]
    ) -> None:
        self._rules = rules
        self._client = client
        self._clock = clock
        self._end = end
        self._state: State = "handshake"
        self._mechanism = ""
        self._conversation: Conversation | None = None
        self._reauthenticating = False
        self._reauthentication_started_at = float("-inf")
        self._bad_mechanism = ""
        self._refusal: AuthenticationFailed | None = None
        """A recorded failure whose challenge was sent."""
        self._session_ms = 0
        self.busy = False
        """True while a SASL token is processed."""
        self.raw = False
        """True if the next frames are tokens without a header."""

    @property
    def open(self) -> bool:
        """True if the client is authenticated."""
        return self._state == "open" or self._reauthenticating

    @property
    def frame_bytes_max(self) -> int | None:
        """The current limit on the size of a frame; None after the login, when the listener's limit applies."""
        return None if self._state == "open" else self._rules.frame_bytes_max

    def rejection(self, api_key: int) -> str | None:
        """Returns why a request for this API is not allowed in the current state; None if it is allowed."""
        if self._state == "open":
            expires = self._client.session.expires_at_s
            if expires is None or api_key == ApiKey.SASL_HANDSHAKE or self._clock() < expires:
                return None
            return "the session has expired and was not re-authenticated"
        allowed = (
            (ApiKey.SASL_AUTHENTICATE,) if self._state == "tokens" else (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
        )
        if api_key in allowed and self._state != "failed":
            return None
        api = APIS.get(api_key)
        name = str(api_key) if api is None else api.name
        return f"unexpected request {name} before authentication; expected {' or '.join(APIS[a].name for a in allowed)}"

    def handler(self, api_key: int) -> Handler | None:
        """The gate's handler for a request; None if the listener's own handler applies."""
        if self.raw:
            return self._raw_token
        if api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake
        if api_key == ApiKey.SASL_AUTHENTICATE:
            return self._authenticate
        return None

    # --- SaslHandshake

    def _handshake(self, context: RequestContext, request: SaslHandshakeRequest) -> Answer | Awaitable[Answer]:
        if self._state == "open" and not self._may_reauthenticate():
            return _unexpected_handshake(context, request)
        enabled = tuple(self._rules.mechanisms)
        start = self._rules.mechanisms.get(request.mechanism)
        if start is None:
            why = f"SASL mechanism not enabled; enabled are {', '.join(enabled)}"
            response = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=enabled)
            return self._fail(AuthenticationFailed(why), response)
        if self._reauthenticating and request.mechanism != self._mechanism:
            self._bad_mechanism = (
                f"SASL mechanism '{request.mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._mechanism}'"
            )
        else:
            self._mechanism = request.mechanism
            self._conversation = start(self._rules.users, self._client.session.host)
        self._state = "tokens"
        self.raw = context.api_version == 0
        return SaslHandshakeResponse(mechanisms=enabled)

    def _may_reauthenticate(self) -> bool:
        now = self._clock()
        if now - self._reauthentication_started_at < REAUTHENTICATION_EVERY_S:
            return False
        self._reauthentication_started_at = now
        self._reauthenticating = True
        return True

    # --- tokens

    async def _authenticate(self, context: RequestContext, request: SaslAuthenticateRequest) -> Answer:
        if self._state != "tokens":
            return _unexpected_authenticate(context, request)
        try:
            if self._refusal is not None:
                raise self._refusal
            step = await self._step(request.auth_bytes)
        except AuthenticationFailed as failure:
            if failure.challenge and self._refusal is None:
                self._refusal = failure
                await self._record(failure)
                self.busy = False
                return SaslAuthenticateResponse(auth_bytes=failure.challenge)
            during = "re-authentication" if self._reauthenticating else "authentication"
            why = f"invalid credentials with SASL mechanism {self._mechanism}"
            message = failure.message or f"Authentication failed during {during} due to {why}"
            failed = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message)
            return await self._fail(failure, failed)
        lifetime_ms = self._session_ms if step.user is not None else 0
        return SaslAuthenticateResponse(auth_bytes=step.challenge, session_lifetime_ms=lifetime_ms)

    async def _raw_token(self, context: RequestContext, request: RawFrame) -> Answer:
        """Process a token without a header, as clients before KIP-152 send. A failure only closes the connection."""
        try:
            step = await self._step(request.frame)
        except AuthenticationFailed as failure:
            await self._fail(failure, None)
            raise Closed from None
        return RawFrame(frame=step.challenge)

    async def _step(self, token: bytes) -> Step:
        """Process one token of the login; the last one authenticates the client. Raises AuthenticationFailed."""
        if self._bad_mechanism:
            raise AuthenticationFailed(self._bad_mechanism, self._bad_mechanism)
        assert self._conversation is not None, "a mechanism was selected"
        self.busy = True
        try:
            step = await self._conversation(token)
        finally:
            self.busy = False
        session = self._client.session
        if step.at_cluster is not session.at_cluster:  # from the first step, so that it closes with the client's
            if session.at_cluster is not None:
                session.at_cluster.close()
            self._client.session = replace(session, at_cluster=step.at_cluster)
        if step.user is not None:
            self._open(step.user, step)
        return step

    def _open(self, user: str, step: Step) -> None:
        principal, session = f"User:{user}", self._client.session
        if self._reauthenticating and principal != session.principal:
            was, now = session.principal.replace(":", ".", 1), principal.replace(":", ".", 1)
            message = f"Cannot change principals during re-authentication from {was}: {now}"
            raise AuthenticationFailed("another principal than before", message, user)
        limits_ms = [self._rules.session_ms_max] if self._rules.session_ms_max > 0 else []
        if step.expires_at_s is not None:
            left_ms = round((step.expires_at_s - self._rules.now()) * 1000)
            limits_ms.append(max(SESSION_MS_MIN, left_ms))
        self._session_ms = min(limits_ms, default=0)
        expires = self._clock() + self._session_ms / 1000 if limits_ms else None
        self._client.session = replace(session, principal=principal, roles=step.roles, expires_at_s=expires)
        self._state, self._reauthenticating, self.raw, self._conversation = "open", False, False, None
        self._rules.on_login(session.listener, self._mechanism, "succeeded")
        _logger.debug("authenticated", principal=principal, mechanism=self._mechanism, **self._log_fields())

    async def _fail(self, failure: AuthenticationFailed, answer: Answer) -> Answer:
        """Record the failure, unless that is done, and close the connection after the response."""
        self._state, self._reauthenticating, self.busy = "failed", False, True
        if failure is not self._refusal:
            await self._record(failure)
        self._end()
        return answer

    async def _record(self, failure: AuthenticationFailed) -> None:
        self.busy = True
        self._rules.on_login(self._client.session.listener, self._mechanism or "none", "failed")
        user = failure.user[:USER_CHARACTERS_LOGGED]
        _logger.warning(
            "authentication_failed", reason=failure.why, user=user, mechanism=self._mechanism, **self._log_fields()
        )
        await asyncio.sleep(self._rules.failed_delay_ms / 1000)

    def _log_fields(self) -> dict[str, str]:
        return {"peer": self._client.peer, "listener": self._client.session.listener}


def _unexpected_handshake(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def _unexpected_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)


UNEXPECTED_SASL: Final[Mapping[int, Handler]] = {
    ApiKey.SASL_HANDSHAKE: _unexpected_handshake,
    ApiKey.SASL_AUTHENTICATE: _unexpected_authenticate,
}
"""Handlers that return Kafka's responses to SASL requests on a listener without SASL."""


class Closed(Disconnect):
    """Raised to close the connection without another log line."""
