"""Tokens of forms: who sends one back has been shown a page of this process, as the same principal.

A browser sends its login along with whatever another site makes it send. Such requests are refused by their Origin
already (`controller.http.requests`); a token stops those of a browser that sends none.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from cryptography.fernet import Fernet

from controller.http.errors import refused
from controller.machine.errors import ErrorCode

HALF_DAY_MS: Final = 43_200_000


class Tokens:
    """Makes and checks them, by a key that nobody knows and that ends with the process."""

    def __init__(self) -> None:
        self._key = Fernet.generate_key()

    def of(self, principal: str, now_ms: int) -> str:
        """The token of a principal: good for half a day to a day."""
        return self._made(principal, now_ms // HALF_DAY_MS)

    def check(self, token: str, principal: str, now_ms: int) -> None:
        """Raise Refused for one that is not the principal's, or is too old."""
        period = now_ms // HALF_DAY_MS
        known = (self._made(principal, each) for each in (period, period - 1))
        if not any(compare_digest(token.encode(), each.encode()) for each in known):
            message = "this form is not good any more: load the page again, and send it from there"
            raise refused(403, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, message)

    def _made(self, principal: str, period: int) -> str:
        return blake2b(f"{period} {principal}".encode(errors="replace"), key=self._key, digest_size=20).hexdigest()
