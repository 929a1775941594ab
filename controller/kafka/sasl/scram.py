"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the server checks a password that it never sees.

    client -> n,,n=USER,r=CLIENT_NONCE
    server -> r=CLIENT_NONCE SERVER_NONCE,s=SALT,i=ITERATIONS
    client -> c=biws,r=CLIENT_NONCE SERVER_NONCE,p=PROOF
    server -> v=SIGNATURE

A user that is not there must give a proof like any other and is refused at the end, so that nobody learns who is there.
Channel binding and delegation tokens are not spoken.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final

from controller.kafka.sasl.conversation import LoginRefused, Step, Users
from controller.machine.state import ScramCredential

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS: Final = 4096
"""What Kafka's tools take where nothing is said, and what a login of an unknown user is answered."""
BYTES_MAX: Final = 4096
"""The longest message of a client that is read, in bytes."""

_FIRST: Final = re.compile(
    r"([ny]),(?:a=([^,]*))?,((?:m=[^,]*,)?n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)((?:,[A-Za-z]+=[^,]*)*))"
)
_FINAL: Final = re.compile(r"(c=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,]*)*),p=([^,]+)")


class ScramConversation:
    """One login by SCRAM."""

    def __init__(self, users: Users, mechanism: str, nonce: Callable[[], str] = lambda: secrets.token_hex(16)) -> None:
        self._users = users
        self._mechanism = mechanism
        self._digest = DIGESTS[mechanism]
        self._new_nonce = nonce
        self._user = ""
        self._credential: ScramCredential | None = None
        self._header = self._first = self._challenge = self._nonce = ""

    async def step(self, token: bytes) -> Step:
        """One of the two messages of a client. Raises LoginRefused."""
        if len(token) > BYTES_MAX:
            raise LoginRefused(f"a SCRAM message of {len(token)} bytes; {BYTES_MAX} are allowed")
        try:
            said = token.decode()
        except UnicodeDecodeError:
            raise LoginRefused("a SCRAM message that is not UTF-8", user=self._user) from None
        return self._answer_proof(said) if self._nonce else self._ask_for_proof(said)

    def _ask_for_proof(self, said: str) -> Step:
        found = _FIRST.fullmatch(said)
        if found is None or (found[3].startswith("m=")):
            raise LoginRefused("a malformed first SCRAM message")
        user = _name(found[4])
        self._user = user
        if found[2] is not None and _name(found[2]) not in ("", user):
            message = "Authentication failed: Client requested an authorization id that is different from username"
            raise LoginRefused("another authorization id than the user name", message, user)
        if re.search(r",tokenauth=true(,|$)", found[6]):
            raise LoginRefused("delegation tokens are not supported", user=user)
        credential = self._users.scram(user, self._mechanism)
        if credential is None:
            raise LoginRefused("no such user", user=user)
        self._credential = credential
        self._header = said[: found.start(3)]
        self._first = found[3]
        self._nonce = found[5] + self._new_nonce()
        salt = base64.b64encode(credential.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        return Step(self._challenge.encode())

    def _answer_proof(self, said: str) -> Step:
        found = _FINAL.fullmatch(said)
        if found is None:
            raise LoginRefused("a malformed final SCRAM message", user=self._user)
        credential = self._credential
        assert credential is not None, "the first message was taken"
        if not hmac.compare_digest(found[3].encode(), self._nonce.encode()):
            raise LoginRefused("not the server's nonce, as of librdkafka before 2.6.1", user=self._user)
        if _decoded(found[2], self._user) != self._header.encode():
            raise LoginRefused("another channel binding than in the first message", user=self._user)
        signed = f"{self._first},{self._challenge},{found[1]}".encode()
        signature = self._mac(credential.stored_key, signed)
        proof = _decoded(found[4], self._user)
        if len(proof) != len(signature):
            raise LoginRefused("a proof of another length", user=self._user)
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), credential.stored_key):
            raise LoginRefused("wrong user name or password", user=self._user)
        verified = base64.b64encode(self._mac(credential.server_key, signed)).decode()
        return Step(f"v={verified}".encode(), self._user)

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)


def _name(said: str) -> str:
    """A name as SCRAM writes it, with `=2C` for a comma and `=3D` for an equals sign. Raises LoginRefused."""
    if re.search(r"=(?!2C|3D)", said):
        raise LoginRefused("a malformed user name in a SCRAM message")
    return said.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str, user: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # not base64, or not even ASCII
        raise LoginRefused("a SCRAM message that is not base64 where it should be", user=user) from None


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """What SCRAM makes of a password before all else (`Hi` in RFC 5802). Takes a few ms: not for the event loop."""
    return hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)


def keys_of(mechanism: str, salted: bytes) -> tuple[bytes, bytes]:
    """The stored key and the server key of a salted password."""
    digest = DIGESTS[mechanism]
    client_key = hmac.digest(salted, b"Client Key", digest)
    return hashlib.new(digest, client_key).digest(), hmac.digest(salted, b"Server Key", digest)


def credential_of(mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> ScramCredential:
    """The credential of a password. Takes a few ms."""
    return ScramCredential(
        iterations, salt, *keys_of(mechanism, salted_password(mechanism, password, salt, iterations))
    )
