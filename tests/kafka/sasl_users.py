"""Users in memory, and an independent SCRAM client."""

import base64
import hashlib
import hmac
from functools import partial

from controller.kafka.sasl import (
    DIGESTS,
    ITERATIONS,
    AuthenticationFailed,
    Bearer,
    StartConversation,
    check_bearer,
    check_plain,
    keys_of,
    salted_password,
    start_scram,
)
from controller.kafka.sasl_gate import SaslRules
from controller.machine.state import ScramCredential

SALT = b"salt of the tests"
NOW_S = 1_700_000_000.0
MECHANISMS: dict[str, StartConversation] = {
    "OAUTHBEARER": lambda users, address: partial(check_bearer, users, address),
    "PLAIN": lambda users, address: partial(check_plain, users, address),
    "SCRAM-SHA-256": lambda users, _: start_scram(users, "SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda users, _: start_scram(users, "SCRAM-SHA-512"),
}


def credential_of(mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> ScramCredential:
    return ScramCredential(
        iterations, salt, *keys_of(mechanism, salted_password(mechanism, password, salt, iterations))
    )


class MemoryUsers:
    """Implements `controller.kafka.sasl.Users`."""

    def __init__(self, passwords: dict[str, str]) -> None:
        self._passwords = passwords
        self.addresses: list[str] = []
        """The client addresses of PLAIN logins."""

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        password = self._passwords.get(user)
        return None if password is None else credential_of(mechanism, password, SALT)

    async def has_password(self, user: str, password: str, address: str) -> bool:
        self.addresses.append(address)
        return self._passwords.get(user) == password

    async def bearer(self, token: str, address: str) -> Bearer:
        user, _, lifetime_s = token.partition(".")
        if user not in self._passwords:
            raise AuthenticationFailed("unknown token")
        return Bearer(user, NOW_S + float(lifetime_s))


def rules(session_ms_max: int = 0, failed_delay_ms: int = 0) -> SaslRules:
    """SASL rules for alice and bob with every mechanism."""
    users = MemoryUsers({"alice": "alice-secret", "bob": "bob-secret"})
    return SaslRules(
        mechanisms=MECHANISMS,
        users=users,
        now=lambda: NOW_S,
        session_ms_max=session_ms_max,
        failed_delay_ms=failed_delay_ms,
    )


class ScramClient:
    """A SCRAM client written from RFC 5802."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str = "client-nonce") -> None:
        self._digest = DIGESTS[mechanism]
        self._password = password
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return b"n,," + self._bare.encode()

    def final(self, challenge: bytes) -> bytes:
        said = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self._digest, self._password.encode(), base64.b64decode(said["s"]), int(said["i"]))
        without_proof = f"c=biws,r={said['r']}"
        message = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), message, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._digest), message, self._digest)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def trusts(self, verdict: bytes) -> bool:
        """True if the server's signature proves that it knows the password."""
        return verdict == b"v=" + base64.b64encode(self._signature)
