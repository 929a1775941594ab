"""What a SCRAM login of a user that is not there is shown: a credential that no password fits, and that looks like
those of the users that are.

Kafka ends such a login at its first message, and so says who is there. Here salts and iterations are all that a client
sees, so they must not differ: a name has the same ones for ever and at all gateways, because they are made up from a
secret of the log (`LoginSecretDrawn`), and they have the form of a real user's. Forms are few: Kafka's own tools make
salts of 130 random bits written in base 36, librdkafka of 64 bytes, `topicwright users --data` of 32, and somebody has
chosen the iterations. A form is given to as large a share of the unknown names as of the real users; by rendezvous
hashing, so that a user who comes or goes changes what few unknown names are shown.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from controller.kafka.sasl.scram import DIGESTS, ITERATIONS
from controller.machine.state import ScramCredential

_Form = tuple[int, int]
"""Iterations, and bytes of the salt; 0 for a salt of Kafka's own tools."""
_BY_KAFKA: Final = 0
_KAFKA_SALT: Final = re.compile(rb"[0-9a-z]{20,26}")
_KAFKA_SALT_BITS: Final = 130  # ScramFormatter.secureRandomString
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

Credentials = Mapping[tuple[str, str], ScramCredential]


class MadeUp:
    """Makes up credentials. It keeps what forms there are until the credentials change."""

    def __init__(self) -> None:
        self._known: Credentials = {}
        self._forms: dict[str, Counter[_Form]] = {}

    def credential(self, secret: bytes, known: Credentials, user: str, mechanism: str) -> ScramCredential:
        """The credential of a user that is not among `known`."""
        if known is not self._known:
            self._known, self._forms = known, _forms(known)
        forms = self._forms.get(mechanism) or {(ITERATIONS, _BY_KAFKA): 1}
        iterations, length = max(
            forms, key=lambda form: forms[form] / -math.log(_share(secret, user, mechanism, *map(str, form)))
        )
        words = (user, mechanism, str(iterations), str(length))
        salt = _drawn(secret, length, *words) if length else _by_kafka(_drawn(secret, 17, *words))
        keys = bytes(hashlib.new(DIGESTS[mechanism]).digest_size)  # no password is known whose hash is all zeros
        return ScramCredential(iterations, salt, keys, keys)


def _forms(known: Credentials) -> dict[str, Counter[_Form]]:
    forms: dict[str, Counter[_Form]] = {}
    for (_, mechanism), each in known.items():
        length = _BY_KAFKA if _KAFKA_SALT.fullmatch(each.salt) else len(each.salt)
        forms.setdefault(mechanism, Counter())[each.iterations, length] += 1
    return forms


def _drawn(secret: bytes, length: int, *words: str) -> bytes:
    """Bytes that nobody can tell from random ones without the secret, the same for the same words."""
    return hashlib.shake_256(secret + "\0".join(words).encode()).digest(length)


def _share(secret: bytes, *words: str) -> float:
    """A number between 0 and 1, neither included, by the words."""
    return (int.from_bytes(_drawn(secret, 6, "form", *words), "big") + 1) / (2**48 + 2)


def _by_kafka(drawn: bytes) -> bytes:
    number, digits = int.from_bytes(drawn, "big") % 2**_KAFKA_SALT_BITS, ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.encode()
