"""The interface of SASL mechanisms, which `SaslGate` calls; and PLAIN (RFC 4616), whose clear passwords need TLS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from controller.machine.state import ScramCredential


class AuthenticationFailed(Exception):
    """The credentials or the SASL message are invalid.

    `message` is for the client; None means the generic message about invalid credentials. `why` is for the log. Both
    contain nothing that the client sent, except a user name.
    """

    def __init__(self, why: str, message: str | None = None, user: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.message = message
        self.user = user


class Step(msgspec.Struct, frozen=True):
    """The server's answer to a SASL token: the next challenge; `user` is set if the login succeeded."""

    challenge: bytes = b""
    user: str | None = None


Conversation = Callable[[bytes], Awaitable[Step]]
"""One login of a client by one SASL mechanism: processes a token of the client. Raises AuthenticationFailed."""


class Users(Protocol):
    """The users and credentials that SASL mechanisms check; implemented by `controller.access.users`."""

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        """The credential of a user. For an unknown user None, or a fake credential, the same each time."""
        ...

    async def has_password(self, user: str, password: str, address: str) -> bool:
        """True if this is the password of a PLAIN user. The check takes as long for an unknown user. Checks are
        scheduled fairly by client `address`."""
        ...


StartConversation = Callable[[Users, str], Conversation]
"""Starts a login, given the users and the client's address."""


PLAIN = "PLAIN"
PLAIN_BYTES_MAX = 255 * 3 + 2
"""The longest token: authorization id, user name and password of at most 255 bytes each."""


async def check_plain(users: Users, address: str, token: bytes) -> Step:
    """Check the only token of a login by PLAIN, with Kafka's error messages. Raises AuthenticationFailed."""
    authorization, user, password = _parts(token)
    if not user:
        raise AuthenticationFailed("no user name", "Authentication failed: username not specified")
    if not password:
        raise AuthenticationFailed("no password", "Authentication failed: password not specified", user)
    if not await users.has_password(user, password, address):
        raise AuthenticationFailed(
            "wrong user name or password", "Authentication failed: Invalid username or password", user
        )
    if authorization not in ("", user):
        message = "Authentication failed: Client requested an authorization id that is different from username"
        raise AuthenticationFailed("the authorization id differs from the user name", message, user)
    return Step(user=user)


def _parts(token: bytes) -> list[str]:
    if len(token) > PLAIN_BYTES_MAX:
        raise AuthenticationFailed(f"a PLAIN message of {len(token)} bytes; {PLAIN_BYTES_MAX} are allowed")
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise AuthenticationFailed("a PLAIN message that is not UTF-8") from None
    if len(parts) != 3:
        message = f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}"
        raise AuthenticationFailed(message, message)
    return parts
