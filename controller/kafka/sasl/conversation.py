"""What every SASL mechanism has in common, as the gate and the mechanisms say it to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from controller.machine.state import ScramCredential


class LoginRefused(Exception):
    """The client is not who it says, or does not speak the mechanism.

    `message` is for the client, None where it only learns that its credentials are not valid; `why` is for our log.
    Neither ever holds what the client sent but for a user name.
    """

    def __init__(self, why: str, message: str | None = None, user: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.message = message
        self.user = user


class Step(msgspec.Struct, frozen=True):
    """What the server says next; `user` is set when the conversation ended with a login."""

    challenge: bytes = b""
    user: str | None = None


class Conversation(Protocol):
    """One login by one mechanism."""

    async def step(self, token: bytes) -> Step:
        """Take what the client says. Raises LoginRefused."""
        ...


class Users(Protocol):
    """Where the mechanisms look users up."""

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        """The credential of a user; for one that is not there a made-up one, the same each time, or None for none."""
        ...

    async def has_password(self, user: str, password: str, address: str) -> bool:
        """Whether this is the password of a PLAIN user; takes as long for a user that is not there. The client's
        `address` says who takes turns with whom."""
        ...


StartConversation = Callable[[Users, str], Conversation]
"""Begins a login of a client at an address."""
