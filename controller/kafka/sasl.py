"""The SASL mechanisms: PLAIN (RFC 4616), whose clear passwords need TLS, OAUTHBEARER (RFC 7628), SCRAM-SHA-256 and
SCRAM-SHA-512 (RFC 5802, RFC 7677, server and client). `SaslGate` calls the servers through one interface,
`Conversation`.

A SCRAM server never sees the password:

    client -> n,,n=USER,r=CLIENT_NONCE
    server -> r=CLIENT_NONCE SERVER_NONCE,s=SALT,i=ITERATIONS
    client -> c=biws,r=CLIENT_NONCE SERVER_NONCE,p=PROOF
    server -> v=SIGNATURE

An unknown user is rejected only after the proof, so that clients cannot find out which users exist. Non-goals: channel
binding and delegation tokens.
"""

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Generator
from typing import Final, Protocol

import msgspec

from controller.kafka.handling import ClientsConnection
from controller.machine.access.requests import ITERATIONS_MAX, ITERATIONS_MIN
from controller.machine.state import ScramCredential


class AuthenticationFailed(Exception):
    """The credentials or the SASL message are invalid.

    `message` is for the client; None means the generic message about invalid credentials. `why` is for the log. Both
    contain nothing that the client sent, except a user name. A `challenge` is sent before the message, which then
    answers the client's next token.
    """

    def __init__(self, why: str, message: str | None = None, user: str = "", challenge: bytes = b"") -> None:
        super().__init__(why)
        self.why = why
        self.message = message
        self.user = user
        self.challenge = challenge


class Step(msgspec.Struct, frozen=True):
    """The server's answer to a SASL token: the next challenge; `user` is set if the login succeeded. `expires_at_s` is
    the end of the client's credential in seconds since 1970; None if it has none. `roles` are those of its token;
    `at_cluster` is set if the target cluster checks the login."""

    challenge: bytes = b""
    user: str | None = None
    expires_at_s: float | None = None
    roles: frozenset[str] = frozenset()
    at_cluster: ClientsConnection | None = None


class Bearer(msgspec.Struct, frozen=True):
    """The user that a valid bearer token names, its expiry in seconds since 1970, and the user's roles."""

    user: str
    expires_at_s: float
    roles: frozenset[str] = frozenset()


Conversation = Callable[[bytes], Awaitable[Step]]
"""One login of a client by one SASL mechanism: processes a token of the client. Raises AuthenticationFailed."""


class Logins(Protocol):
    """Checks passwords and tokens; both methods may raise AuthenticationFailed."""

    async def has_password(self, user: str, password: str, address: str) -> bool:
        """True if this is the password of a PLAIN user. The check takes as long for an unknown user. Checks are
        scheduled fairly by client `address`."""

    async def bearer(self, token: str, address: str) -> Bearer:
        """The user that a bearer token of the identity provider names. Raises AuthenticationFailed."""


class Users(Logins, Protocol):
    """The users and credentials that SASL mechanisms check; implemented by `controller.access.users`."""

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        """The credential of a user. For an unknown user None, or a fake credential, the same each time."""


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


OAUTHBEARER = "OAUTHBEARER"
TOKEN_BYTES_MAX: Final = 16 * 1024
"""The longest accepted bearer token."""
_EXTENSIONS_BYTES_MAX: Final = 4096
_BEARER_MESSAGE: Final = re.compile(r"n,(?:a=([^,\x01]*))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([-_.A-Za-z0-9]+)")
_INVALID_TOKEN: Final = '{"status":"invalid_token"}'


def bearer_message(token: str) -> bytes:
    """The first message of a client that logs in by OAUTHBEARER."""
    return f"n,,\1auth=Bearer {token}\1\1".encode()


async def check_bearer(users: Users, address: str, token: bytes) -> Step:
    """Check the first message of a login by OAUTHBEARER (KIP-255), with Kafka's error messages. Its extensions are
    checked for their form and ignored. Raises AuthenticationFailed."""
    if len(token) > TOKEN_BYTES_MAX + _EXTENSIONS_BYTES_MAX:
        raise AuthenticationFailed(f"an OAUTHBEARER message of {len(token)} bytes")
    found = _BEARER_MESSAGE.fullmatch(token.decode("latin-1"))
    pairs = dict(pair.split("=", 1) for pair in found[2].split("\x01")[:-1]) if found else {}
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if found is None or bearer is None:
        raise AuthenticationFailed("a malformed OAUTHBEARER message")
    try:
        named = await users.bearer(bearer[1], address)
    except AuthenticationFailed as failure:
        raise AuthenticationFailed(failure.why, _INVALID_TOKEN, failure.user, _INVALID_TOKEN.encode()) from None
    authorization = _name(found[1] or "")
    if authorization not in ("", named.user):
        message = (
            f"Authentication failed: Client requested an authorization id ({authorization}) that is different from the "
            f"token's principal name ({named.user})"
        )
        raise AuthenticationFailed("the authorization id differs from the token's user", message, named.user)
    return Step(user=named.user, expires_at_s=named.expires_at_s, roles=named.roles)


DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS: Final = 4096
"""Kafka's default iteration count, also sent for unknown users."""
BYTES_MAX: Final = 4096
"""The longest accepted message of a client."""

_FIRST: Final = re.compile(
    r"([ny]),(?:a=([^,]*))?,((?:m=[^,]*,)?n=([^,]*),r=([\x21-\x2b\x2d-\x7e]+)((?:,[A-Za-z]+=[^,]*)*))"
)
_FINAL: Final = re.compile(r"(c=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,]*)*),p=([^,]+)")
_CHALLENGE: Final = re.compile(
    r"r=([\x21-\x2b\x2d-\x7e]+),s=((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?),i=([0-9]{1,10})(?:,.*)?"
)
CHARACTERS_SHOWN: Final = 200  # of a broker's message


def start_scram(users: Users, mechanism: str, nonce: str | None = None) -> Conversation:
    """The server's side of one SCRAM login (RFC 5802): two messages of the client, each with an answer. Without a
    `nonce` it draws one."""
    answers = _scram(users, mechanism, nonce or secrets.token_hex(16))
    next(answers)

    async def step(token: bytes) -> Step:
        return answers.send(token)

    return step


def _scram(users: Users, mechanism: str, own_nonce: str) -> Generator[Step, bytes, None]:
    """Yields the answer to each message that it is sent. Raises AuthenticationFailed."""
    text = _client_text((yield Step()))
    found = _FIRST.fullmatch(text)
    if found is None or (found[3].startswith("m=")):
        raise AuthenticationFailed("a malformed first SCRAM message")
    user = _name(found[4])
    if found[2] is not None and _name(found[2]) not in ("", user):
        message = "Authentication failed: Client requested an authorization id that is different from username"
        raise AuthenticationFailed("the authorization id differs from the user name", message, user)
    if re.search(r",tokenauth=true(,|$)", found[6]):
        raise AuthenticationFailed("delegation tokens are not supported", user=user)
    credential = users.scram(user, mechanism)
    if credential is None:
        raise AuthenticationFailed("no such user", user=user)
    header, first, nonce = text[: found.start(3)], found[3], found[5] + own_nonce
    challenge = f"r={nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"

    found = _FINAL.fullmatch(_client_text((yield Step(challenge.encode())), user))
    if found is None:
        raise AuthenticationFailed("a malformed final SCRAM message", user=user)
    if not hmac.compare_digest(found[3].encode(), nonce.encode()):
        raise AuthenticationFailed("the nonce is not the server's (librdkafka before 2.6.1)", user=user)
    if _decoded(found[2], user) != header.encode():
        raise AuthenticationFailed("the channel binding differs from the first message", user=user)
    digest, signed = DIGESTS[mechanism], f"{first},{challenge},{found[1]}".encode()
    signature, proof = hmac.digest(credential.stored_key, signed, digest), _decoded(found[4], user)
    if len(proof) != len(signature):
        raise AuthenticationFailed("the proof has the wrong length", user=user)
    client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    if not hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key):
        raise AuthenticationFailed("wrong user name or password", user=user)
    verified = base64.b64encode(hmac.digest(credential.server_key, signed, digest)).decode()
    yield Step(f"v={verified}".encode(), user)


def _client_text(token: bytes, user: str = "") -> str:
    if len(token) > BYTES_MAX:
        raise AuthenticationFailed(f"a SCRAM message of {len(token)} bytes; {BYTES_MAX} are allowed")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("a SCRAM message that is not UTF-8", user=user) from None


def _name(text: str) -> str:
    """Decode a SASL name: `=2C` is a comma, `=3D` an equals sign. Raises AuthenticationFailed."""
    if re.search(r"=(?!2C|3D)", text):
        raise AuthenticationFailed("a malformed user name in a SASL message")
    return text.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str, user: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # not base64, or not even ASCII
        raise AuthenticationFailed("a SCRAM message with invalid base64", user=user) from None


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """`Hi` in RFC 5802. Takes a few ms, so it must not run in the event loop."""
    return hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)


def keys_of(mechanism: str, salted: bytes) -> tuple[bytes, bytes]:
    """Returns the stored key and the server key of a salted password (RFC 5802)."""
    digest = DIGESTS[mechanism]
    client_key = hmac.digest(salted, b"Client Key", digest)
    return hashlib.new(digest, client_key).digest(), hmac.digest(salted, b"Server Key", digest)


class ScramFailed(Exception):
    """The server's messages are invalid, or the server does not know the password."""


Exchange = Callable[[bytes], Awaitable[bytes]]
"""Sends one SASL token and returns the server's token."""


async def prove_password(exchange: Exchange, mechanism: str, user: str, password: str) -> None:
    """The client's side: authenticate to a broker by SCRAM. Raises ScramFailed."""
    digest = DIGESTS[mechanism]
    nonce = base64.b64encode(secrets.token_bytes(18)).decode()
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    server_first = _text(await exchange(f"n,,{first}".encode()))
    both_nonces, salt, iterations = _challenge(server_first, nonce)
    salted = await asyncio.to_thread(salted_password, mechanism, password, salt, iterations)
    stored_key, server_key = keys_of(mechanism, salted)
    final = f"c=biws,r={both_nonces}"
    signed = ",".join((first, server_first, final)).encode()
    client_key, signature = hmac.digest(salted, b"Client Key", digest), hmac.digest(stored_key, signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = _text(await exchange(f"{final},p={base64.b64encode(proof).decode()}".encode()))
    verified = base64.b64encode(hmac.digest(server_key, signed, digest)).decode()
    if server_final.partition("v=")[2].split(",")[0] != verified:
        raise ScramFailed("the broker does not know the password: its SCRAM signature is wrong")


def _challenge(text: str, nonce: str) -> tuple[str, bytes, int]:
    """Both nonces, the salt and the iterations of the server's first message. Raises ScramFailed.

    Kafka's bounds on iterations (ScramMechanism) apply, so that an impostor can neither exhaust the CPU nor weaken the
    hash.
    """
    found = _CHALLENGE.fullmatch(text)
    if found is None or not found[1].startswith(nonce) or found[1] == nonce:
        raise ScramFailed(f"the broker's SCRAM message is {text[:CHARACTERS_SHOWN]!r}")
    iterations = int(found[3])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        allowed = f"allowed, as in Kafka: {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        raise ScramFailed(f"the broker requires {iterations} iterations of SCRAM; {allowed}")
    return found[1], base64.b64decode(found[2]), iterations


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise ScramFailed("the broker's SCRAM message is not UTF-8") from None
