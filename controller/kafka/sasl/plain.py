"""PLAIN (RFC 4616): the client sends its name and password in clear, so it belongs on TLS."""

from __future__ import annotations

from controller.kafka.sasl.conversation import LoginRefused, Step, Users

NAME = "PLAIN"
BYTES_MAX = 255 * 3 + 2
"""Name, name and password of at most 255 bytes each."""


class PlainConversation:
    """One login by PLAIN. The messages are Kafka's."""

    def __init__(self, users: Users, address: str) -> None:
        self._users = users
        self._address = address

    async def step(self, token: bytes) -> Step:
        """The one step: name and password. Raises LoginRefused."""
        authorization, user, password = self._parts(token)
        if not user:
            raise LoginRefused("no user name", "Authentication failed: username not specified")
        if not password:
            raise LoginRefused("no password", "Authentication failed: password not specified", user)
        if not await self._users.has_password(user, password, self._address):
            raise LoginRefused(
                "wrong user name or password", "Authentication failed: Invalid username or password", user
            )
        if authorization not in ("", user):
            message = "Authentication failed: Client requested an authorization id that is different from username"
            raise LoginRefused("another authorization id than the user name", message, user)
        return Step(user=user)

    @staticmethod
    def _parts(token: bytes) -> list[str]:
        if len(token) > BYTES_MAX:
            raise LoginRefused(f"a PLAIN message of {len(token)} bytes; {BYTES_MAX} are allowed")
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginRefused("a PLAIN message that is not UTF-8") from None
        if len(parts) != 3:
            message = f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}"
            raise LoginRefused(message, message)
        return parts
