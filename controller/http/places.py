"""Where a list goes on after names that its reader may not see.

A page of a list looks at so many names and no more, and may end among some that are hidden from its reader. Such a
place is given out sealed, so that no name is learned from it. It is good for the process that gave it out.
"""

from __future__ import annotations

from typing import Final

from cryptography.fernet import Fernet, InvalidToken

from controller.machine.validation import NAME_LENGTH_MAX
from projections.queries.listing import BadPlace

MARK: Final = "~"
"""No name of a topic begins so."""


class Places:
    """Seals and opens places, by a key that nobody knows."""

    def __init__(self) -> None:
        self._fernet = Fernet(Fernet.generate_key())

    def sealed(self, key: str) -> str:
        """A shard key as a place; its length does not show."""
        return MARK + self._fernet.encrypt(key.encode().ljust(NAME_LENGTH_MAX, b"\0")).decode()

    def opened(self, after: str | None) -> str | None:
        """The name or shard key that a list is to go on after. Raises BadPlace."""
        if after is None or not after.startswith(MARK):
            return after
        try:
            return self._fernet.decrypt(after.removeprefix(MARK).encode()).rstrip(b"\0").decode()
        except (InvalidToken, UnicodeError):
            raise BadPlace("after: it is not the next_after of a page of this process: begin anew without") from None
