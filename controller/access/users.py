"""Authenticates clients of Kafka listeners and HTTP, by the SCRAM credentials in the log, the users file, and the
bearer tokens of an identity provider (`tokens`).

The users file (`users.file`) has hashed passwords for PLAIN and HTTP, and hashed tokens for HTTP. One credential per
line: `NAME:$argon2id$…` for a password, `NAME:token:sha256:HEX` for a token. Empty lines and lines that begin with `#`
are ignored. A name ends at the first colon, so names contain none. `topicwright users` writes the file; `Users` reads
it at the start and on reload. Passwords are hashed by argon2id (RFC 9106), which is slow and takes memory on purpose.
Tokens are 32 random bytes that cannot be guessed, so SHA-256 is enough.

Hashing a password is slow, so it runs in the threads of `login_threads`. Correct passwords are cached.

Constraint: responses must not reveal which users exist. Every login does the same work, with a fake credential if there
is no real one: one password hash if the file has any, and one for each SCRAM mechanism. Kafka instead ends a SCRAM
login of an unknown user at its first message.

Clients see SCRAM salts and iterations, so fake credentials must be plausible. Fake credentials are derived from a
secret in the log (`LoginSecretDrawn`), so all gateways always give a name the same one. They have the form of real
credentials. Kafka's tools make salts of 130 random bits in base 36, librdkafka of 64 bytes, `topicwright users --data`
of 32, and iterations vary. A form is as frequent among unknown names as among real users. Rendezvous hashing leaves
most fake credentials unchanged when users are added or removed.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from controller.access.login_threads import FairThreadPool, network_of
from controller.kafka.sasl import DIGESTS, ITERATIONS, AuthenticationFailed, Bearer, Logins, keys_of, salted_password
from controller.machine.access.requests import ITERATIONS_MAX
from controller.machine.state import Cluster, ScramCredential
from events.errors import UserError
from events.files import replacing
from events.logs.log import read_text

if TYPE_CHECKING:
    from controller.access.tokens import Tokens

FILE_BYTES_MAX: Final = 8 << 20
TOKEN_PREFIX: Final = "tw_"
_NAME: Final = re.compile(r"[^:\s\x00-\x1f](?:[^:\x00-\x1f]*[^:\s\x00-\x1f])?")
_TOKEN: Final = re.compile(r"token:sha256:([0-9a-f]{64})")
_hasher: Final = PasswordHasher()


class UsersFileError(UserError):
    """The users file cannot be read or written; the message names the file, the line and what is allowed."""


class FileUsers(msgspec.Struct, frozen=True):
    """Password hashes by user, and users by token hash. These are secrets, so `repr` omits them."""

    passwords: dict[str, str]
    tokens: dict[str, str]

    def __repr__(self) -> str:
        return f"FileUsers({len(self.passwords)} passwords, {len(self.tokens)} tokens)"


def read_users(path: Path) -> FileUsers:
    """Reads the file. Raises UsersFileError."""
    users = FileUsers({}, {})
    for number, line in enumerate(_lines(path), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, _, credential = text.partition(":")
        token = _TOKEN.fullmatch(credential)
        if not _NAME.fullmatch(name) or not (token or _is_argon2(credential)):
            raise UsersFileError(
                f"the users file {path}, line {number}: must be NAME:$argon2id$… or NAME:token:sha256:HEX, "
                "as `topicwright users` writes it"
            )
        if token:
            users.tokens[token[1]] = name
        elif name in users.passwords:
            raise UsersFileError(f"the users file {path}, line {number}: {name} has two passwords")
        else:
            users.passwords[name] = credential
    return users


def _lines(path: Path) -> list[str]:
    try:
        return read_text(path, FILE_BYTES_MAX).splitlines()
    except OSError as error:
        raise UsersFileError(f"the users file {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsersFileError(f"the users file {path} is not UTF-8: byte {error.start}") from None


def _is_argon2(text: str) -> bool:
    try:
        _hasher.check_needs_rehash(text)
    except InvalidHashError:
        return False
    return text.startswith("$argon2id$")


def check_name(name: str) -> str:
    """Returns the name. Raises UsersFileError if the file cannot hold it."""
    if not _NAME.fullmatch(name) or name.startswith("#"):
        raise UsersFileError(
            f"the user name {name!r} is not allowed: it must not contain a colon or a line break, begin with #, or "
            "begin or end with a space"
        )
    return name


def matches(hashed: str, password: str) -> bool:
    """True if the password matches. Takes tens of ms and 64 MiB, so it must not run in the event loop."""
    try:
        return _hasher.verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def set_password(path: Path, name: str, password: str) -> bool:
    """Sets the password of a user. Returns True if the user had one before. Raises UsersFileError."""
    return _rewrite(path, name, f"{check_name(name)}:{_hasher.hash(password)}", tokens=False)


def add_token(path: Path, name: str) -> str:
    """Adds a new token for a user and returns it. Raises UsersFileError."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    _rewrite(path, None, f"{check_name(name)}:token:sha256:{hash_token(token)}")
    return token


def remove_user(path: Path, name: str) -> bool:
    """Removes the password and tokens of a user. Returns True if there were any. Raises UsersFileError."""
    read_users(path)
    return _rewrite(path, name)


def _rewrite(path: Path, removed: str | None, added: str = "", tokens: bool = True) -> bool:
    """Replaces the file, if it is valid, atomically and readable only by its owner: without the password of a user, and
    by default without the tokens, and with one more line. Returns True if there were any."""
    if path.exists():
        read_users(path)
    lines = _lines(path) if path.exists() else []
    parts = [line.strip().partition(":") for line in lines]
    gone = [name == removed and (tokens or not credential.startswith("token:")) for name, _, credential in parts]
    kept = [line for line, is_gone in zip(lines, gone, strict=True) if not is_gone]
    try:
        with replacing(path) as file:
            file.write("".join(f"{line}\n" for line in (*kept, added) if line).encode())
    except OSError as error:
        raise UsersFileError(f"the users file {path} cannot be written: {error.strerror or error}") from None
    return any(gone)


_Form = tuple[int, int]
"""The form of a credential: iterations, and the salt's length in bytes (0 for a salt by Kafka's own tools)."""
_KAFKA_TOOLS: Final = 0
_KAFKA_SALT: Final = re.compile(rb"[0-9a-z]{20,26}")
_KAFKA_SALT_BITS: Final = 130  # ScramFormatter.secureRandomString
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

Credentials = Mapping[tuple[str, str], ScramCredential]


class FakeCredentials:
    """Derives fake credentials. Caches the forms until the credentials change."""

    def __init__(self) -> None:
        self._known: Credentials = {}
        self._forms: dict[str, Counter[_Form]] = {}

    def credential(self, secret: bytes, known: Credentials, user: str, mechanism: str) -> ScramCredential:
        """Returns the credential of a user that is not in `known`."""
        if known is not self._known:
            self._known, self._forms = known, {}
            for (_, of), each in known.items():
                length = _KAFKA_TOOLS if _KAFKA_SALT.fullmatch(each.salt) else len(each.salt)
                self._forms.setdefault(of, Counter())[each.iterations, length] += 1
        forms = self._forms.get(mechanism) or {(ITERATIONS, _KAFKA_TOOLS): 1}
        iterations, length = max(
            forms, key=lambda form: forms[form] / -math.log(_uniform(secret, user, mechanism, *map(str, form)))
        )
        words = (user, mechanism, str(iterations), str(length))
        salt = _derived(secret, length, *words) if length else _kafka_salt(_derived(secret, 17, *words))
        keys = bytes(hashlib.new(DIGESTS[mechanism]).digest_size)  # no password is known whose hash is all zeros
        return ScramCredential(iterations, salt, keys, keys)


def _derived(secret: bytes, length: int, *words: str) -> bytes:
    """Returns pseudorandom bytes that depend on the secret and the words."""
    return hashlib.shake_256(secret + "\0".join(words).encode()).digest(length)


def _uniform(secret: bytes, *words: str) -> float:
    """Returns a pseudorandom number between 0 and 1, both excluded."""
    return (int.from_bytes(_derived(secret, 6, "form", *words), "big") + 1) / (2**48 + 2)


def _kafka_salt(drawn: bytes) -> bytes:
    number, digits = int.from_bytes(drawn, "big") % 2**_KAFKA_SALT_BITS, ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.encode()


THREADS: Final = 2  # hashing passwords must leave cores to the rest of the process
SALT_BYTES: Final = 32
SECRET_BYTES: Final = 32
REMEMBERED_MAX: Final = 1000  # logins that need no hashing again; bounds memory


class Users:
    """Checks logins of Kafka listeners (as `kafka.sasl.Users`) and HTTP. Raises UsersFileError."""

    def __init__(self, cluster: Callable[[], Cluster], file: Path | None = None, tokens: Tokens | None = None) -> None:
        """`cluster` returns the durable state. `tokens` validates tokens of an identity provider, if there is one."""
        self._cluster = cluster
        self.cluster_users: Logins | None = None
        """Checks passwords, and tokens of an identity provider, at the target cluster instead of here."""
        self._path = file
        self._file = FileUsers({}, {}) if file is None else read_users(file)
        self._threads = FairThreadPool(THREADS, "password")
        self.tokens = tokens
        self._fake_credentials = FakeCredentials()
        self._key = os.urandom(SECRET_BYTES)
        """Hides remembered passwords, and derives fake credentials until the log has a secret for them."""
        self._remembered: dict[bytes, object] = {}

    def start(self) -> None:
        """Begins to fetch the identity provider's keys."""
        if self.tokens is not None:
            self.tokens.keys.start()

    def reload(self) -> None:
        """Reads the file and the provider's keys again. Raises UsersFileError without any change."""
        if self.tokens is not None:
            self.tokens.keys.refresh()
        if self._path is not None:
            self._file = read_users(self._path)
            self._remembered.clear()

    def close(self) -> None:
        self._threads.close()
        if self.tokens is not None:
            self.tokens.close()

    def scram(self, user: str, mechanism: str) -> ScramCredential:
        """Returns the credential of a user. An unknown user always has the same fake one, which no password matches."""
        cluster = self._cluster()
        fake_credential = self._fake_credentials.credential(
            cluster.login_secret or self._key, cluster.scram, user, mechanism
        )
        return cluster.scram.get((user, mechanism), fake_credential)

    async def owner_of(self, token: str, address: str) -> Bearer:
        """The user of a token in the file, or of the identity provider. Raises AuthenticationFailed."""
        user = self._file.tokens.get(hash_token(token))
        return await self.bearer(token, address) if user is None else Bearer(user, math.inf)

    async def bearer(self, token: str, address: str) -> Bearer:
        """The user that a token of the identity provider names. Raises AuthenticationFailed."""
        if self.cluster_users is not None:
            return await self.cluster_users.bearer(token, address)
        if self.tokens is None:
            raise AuthenticationFailed("unknown token")
        return await self.tokens.bearer(token, address)

    async def knows(self, user: str, password: str, address: str) -> bool:
        """True if this is a password of the user, in the file or for SCRAM, or at the target cluster if that decides.
        Raises AuthenticationFailed."""
        if self.cluster_users is not None:
            return await self.cluster_users.has_password(user, password, address)
        return await self.has_password(user, password, address, tuple(DIGESTS))

    async def has_password(self, user: str, password: str, address: str, mechanisms: Sequence[str] = ()) -> bool:
        """True if the user has this password in the file or for one of these mechanisms of SCRAM. `address` is the
        client's. Each correct password is cached until the credentials change."""
        known, hashed = self._cluster().scram, self._file.passwords.get(user)
        current = (hashed, *(known.get((user, mechanism)) for mechanism in mechanisms))
        key = hmac.digest(self._key, "\0".join((user, password, *mechanisms)).encode(), "sha256")
        if self._remembered.get(key) == current:
            return True
        compared = self._hash_for(user)
        credentials = {mechanism: self.scram(user, mechanism) for mechanism in mechanisms}

        def fits() -> bool:
            of_file = compared is not None and matches(compared, password) and hashed is not None
            proven = [_scram_matches(mechanism, credential, password) for mechanism, credential in credentials.items()]
            return of_file or any(proven)

        is_right = await self._threads.run(network_of(address), fits)
        if is_right:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[key] = current
        return is_right

    def _hash_for(self, user: str) -> str | None:
        """Returns the user's password hash, or None if the file has no hashes at all. A user without a hash gets the
        hash of another user, always the same one, so that the check takes as long."""
        passwords = self._file.passwords
        drawn = int.from_bytes(hmac.digest(self._key, user.encode(), "sha256"), "big")
        return passwords.get(user) or (list(passwords.values())[drawn % len(passwords)] if passwords else None)


def _scram_matches(mechanism: str, credential: ScramCredential, password: str) -> bool:
    """True if the password matches. Credentials with more iterations than Kafka allows, which an imported metadata log
    may have, never match, because they would block a thread."""
    if credential.iterations > ITERATIONS_MAX:
        return False
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(keys_of(mechanism, salted)[0], credential.stored_key)
