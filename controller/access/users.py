"""Who can log in: the SCRAM credentials of the log, and the users of a file.

Checking a password is slow on purpose, so it is done in threads of its own, few at a time, for each address in turn: a
storm of logins costs those who are behind it, and nobody else. A password that was right is not checked again.

Constraint: nobody learns who is there. For every name the same work is done, where there is nothing to compare with on
what is made up: one password of the file if it has any, one of each SCRAM mechanism.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import AddressValueError, IPv6Network
from pathlib import Path
from typing import Any, Final, TypeVar

from controller.access.users_file import FileUsers, hash_token, matches, read_users
from controller.kafka.sasl.scram import DIGESTS, ITERATIONS, keys_of, salted_password
from controller.kafka.session import normal_host
from controller.machine.access.credentials import ITERATIONS_MAX
from controller.machine.state import Cluster, ScramCredential

_Form = tuple[int, int]
"""Iterations, and bytes of the salt; 0 for a salt of Kafka's own tools."""
_KAFKA_TOOLS: Final = 0
_KAFKA_SALT: Final = re.compile(rb"[0-9a-z]{20,26}")
_KAFKA_SALT_BITS: Final = 130  # ScramFormatter.secureRandomString
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

Credentials = Mapping[tuple[str, str], ScramCredential]


class FakeCredentials:
    """Makes up credentials. It keeps what forms there are until the credentials change."""

    def __init__(self) -> None:
        self._known: Credentials = {}
        self._forms: dict[str, Counter[_Form]] = {}

    def credential(self, secret: bytes, known: Credentials, user: str, mechanism: str) -> ScramCredential:
        """The credential of a user that is not among `known`."""
        if known is not self._known:
            self._known, self._forms = known, _forms(known)
        forms = self._forms.get(mechanism) or {(ITERATIONS, _KAFKA_TOOLS): 1}
        iterations, length = max(
            forms, key=lambda form: forms[form] / -math.log(_uniform(secret, user, mechanism, *map(str, form)))
        )
        words = (user, mechanism, str(iterations), str(length))
        salt = _derived(secret, length, *words) if length else _kafka_salt(_derived(secret, 17, *words))
        keys = bytes(hashlib.new(DIGESTS[mechanism]).digest_size)  # no password is known whose hash is all zeros
        return ScramCredential(iterations, salt, keys, keys)


def _forms(known: Credentials) -> dict[str, Counter[_Form]]:
    forms: dict[str, Counter[_Form]] = {}
    for (_, mechanism), each in known.items():
        length = _KAFKA_TOOLS if _KAFKA_SALT.fullmatch(each.salt) else len(each.salt)
        forms.setdefault(mechanism, Counter())[each.iterations, length] += 1
    return forms


def _derived(secret: bytes, length: int, *words: str) -> bytes:
    """Bytes that nobody can tell from random ones without the secret, the same for the same words."""
    return hashlib.shake_256(secret + "\0".join(words).encode()).digest(length)


def _uniform(secret: bytes, *words: str) -> float:
    """A number between 0 and 1, neither included, by the words."""
    return (int.from_bytes(_derived(secret, 6, "form", *words), "big") + 1) / (2**48 + 2)


def _kafka_salt(drawn: bytes) -> bytes:
    number, digits = int.from_bytes(drawn, "big") % 2**_KAFKA_SALT_BITS, ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.encode()


T = TypeVar("T")
NICENESS: Final = 10


class FairThreadPool:
    """A few threads; to be used from one event loop."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=_lower_priority)
        self._free = threads
        self._closed = False
        self._waiting: dict[str, dict[asyncio.Future[Any], Callable[[], Any]]] = {}
        """By party, in the order in which they have their turn; of each its work, oldest first."""

    async def run(self, network: str, work: Callable[[], T]) -> T:
        """What `work` returns, or raises, once it was this party's turn."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(network, {})[outcome] = work
        self._begin()
        try:
            return await outcome
        finally:
            queue = self._waiting.get(network, {})
            queue.pop(outcome, None)
            if not queue:
                self._waiting.pop(network, None)

    def close(self) -> None:
        """Let the threads end; nothing more is begun."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        while self._free > 0 and self._waiting and not self._closed:
            network = next(iter(self._waiting))
            queue = self._waiting.pop(network)
            outcome = next(iter(queue))
            work = queue.pop(outcome)
            if queue:
                self._waiting[network] = queue
            if not outcome.done():
                self._free -= 1
                running = asyncio.get_running_loop().run_in_executor(self._threads, work)
                running.add_done_callback(partial(self._ended, outcome))

    def _ended(self, outcome: asyncio.Future[Any], running: asyncio.Future[Any]) -> None:
        self._free += 1
        if running.cancelled():
            outcome.cancel()
        elif (error := running.exception()) is None and not outcome.done():
            outcome.set_result(running.result())
        elif error is not None and not outcome.done():
            outcome.set_exception(error)
        self._begin()


def _lower_priority() -> None:
    """Let the loop go first where there are fewer cores than threads. Linux alone has niceness for each thread, which
    those that it starts inherit."""
    if sys.platform == "linux":
        os.nice(NICENESS)


def network_of(address: str) -> str:
    """Who is behind an address: of IPv6 the first 64 bits, since one host has all addresses of such a network."""
    host = normal_host(address)
    try:
        return str(IPv6Network((host, 64), strict=False))
    except AddressValueError:
        return host


THREADS: Final = 2  # hashing passwords must leave cores to the rest
SALT_BYTES: Final = 32
SECRET_BYTES: Final = 32
REMEMBERED_MAX: Final = 1000  # logins that need no hashing again; bounds memory


class Users:
    """Implements `controller.kafka.sasl.conversation.Users`. Made with its file read: raises UsersFileError."""

    def __init__(self, cluster: Callable[[], Cluster], file: Path | None = None) -> None:
        """`cluster` gives what is durable."""
        self._cluster = cluster
        self._path = file
        self._file = FileUsers({}, {}) if file is None else read_users(file)
        self._threads = FairThreadPool(THREADS, "password")
        self._fake_credentials = FakeCredentials()
        self._key = os.urandom(SECRET_BYTES)
        """Hides what is remembered, and makes up credentials until the log has a secret for that."""
        self._remembered: dict[bytes, object] = {}

    def reload(self) -> None:
        """Read the file again. Raises UsersFileError, and then nothing changes."""
        if self._path is not None:
            self._file = read_users(self._path)
            self._remembered.clear()

    def close(self) -> None:
        """Let the threads end."""
        self._threads.close()

    def scram(self, user: str, mechanism: str) -> ScramCredential:
        """The credential of a user; for one that is not there one that no password fits, with the same salt and
        iterations each time."""
        cluster = self._cluster()
        fake_credential = self._fake_credentials.credential(
            cluster.login_secret or self._key, cluster.scram, user, mechanism
        )
        return cluster.scram.get((user, mechanism), fake_credential)

    def owner_of(self, token: str) -> str | None:
        """The user that a token belongs to."""
        return self._file.tokens.get(hash_token(token))

    async def has_password(self, user: str, password: str, address: str) -> bool:
        """Whether this is the password that the file has for a user; `address` is that of the client."""
        return await self._is_password(user, password, address, ())

    async def knows(self, user: str, password: str, address: str) -> bool:
        """Whether this is a password of a user, of the file or for SCRAM."""
        return await self._is_password(user, password, address, tuple(DIGESTS))

    async def _is_password(self, user: str, password: str, address: str, mechanisms: Sequence[str]) -> bool:
        """Each right password is looked at once, and then remembered for as long as it is in force."""
        known, hashed = self._cluster().scram, self._file.passwords.get(user)
        standing = (hashed, *(known.get((user, mechanism)) for mechanism in mechanisms))
        key = hmac.digest(self._key, "\0".join((user, password, *mechanisms)).encode(), "sha256")
        if self._remembered.get(key) == standing:
            return True
        compared = self._hash_for(user)
        shown = {mechanism: self.scram(user, mechanism) for mechanism in mechanisms}

        def fits() -> bool:
            of_file = compared is not None and matches(compared, password) and hashed is not None
            proven = [_scram_matches(mechanism, credential, password) for mechanism, credential in shown.items()]
            return of_file or any(proven)

        is_right = await self._threads.run(network_of(address), fits)
        if is_right:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[key] = standing
        return is_right

    def _hash_for(self, user: str) -> str | None:
        """The hash to compare a user's password with: somebody else's for one who has none, always the same, so that it
        takes as long. None where nobody has one."""
        passwords = self._file.passwords
        drawn = int.from_bytes(hmac.digest(self._key, user.encode(), "sha256"), "big")
        return passwords.get(user) or (list(passwords.values())[drawn % len(passwords)] if passwords else None)


def _scram_matches(mechanism: str, credential: ScramCredential, password: str) -> bool:
    """Whether a password is that of a credential; not of one with more iterations than Kafka allows, which only a
    cluster that was taken over can have: they would hold a thread for as long as they like."""
    if credential.iterations > ITERATIONS_MAX:
        return False
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(keys_of(mechanism, salted)[0], credential.stored_key)
