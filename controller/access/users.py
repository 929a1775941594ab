"""Who can log in: the SCRAM credentials of the log, and the users of a file.

Checking a password is slow on purpose, so it is done in threads of its own, few at a time: a storm of logins costs
those who log in, and nobody else.

An unknown user costs as much time and as many steps as a known one with a wrong password.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from controller.access.users_file import FileUsers, hash_password, hash_token, matches, read_users
from controller.kafka.sasl.scram import DIGESTS, ITERATIONS, keys_of, salted_password
from controller.machine.state import Cluster, ScramCredential

THREADS: Final = 2  # hashing passwords must leave cores to the rest
SALT_BYTES: Final = 32  # of a login that is made up too
REMEMBERED_MAX: Final = 1000  # logins that need no hashing again; bounds memory
_HTTP_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")


class Users:
    """Implements `controller.kafka.sasl.conversation.Users`. Made with its file read: raises UsersFileError."""

    def __init__(self, cluster: Callable[[], Cluster], file: Path | None = None) -> None:
        """`cluster` gives what is durable."""
        self._cluster = cluster
        self._path = file
        self._file = FileUsers({}, {}) if file is None else read_users(file)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="password")
        self._key = os.urandom(32)
        """Makes up credentials of users that are not there, and hides what is remembered."""
        self._remembered: dict[bytes, object] = {}

    def reload(self) -> None:
        """Read the file again. Raises UsersFileError, and then nothing changes."""
        if self._path is not None:
            self._file = read_users(self._path)
            self._remembered.clear()

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def scram(self, user: str, mechanism: str) -> ScramCredential | None:
        """The credential of a user; for one that is not there one that no password fits, the same each time."""
        known = self._cluster().scram.get((user, mechanism))
        if known is not None:
            return known
        made_up = hmac.digest(self._key, f"{mechanism}\0{user}".encode(), "sha512")
        length = 32 if DIGESTS[mechanism] == "sha256" else 64
        salt = made_up[:SALT_BYTES]
        return ScramCredential(ITERATIONS, salt, os.urandom(length), os.urandom(length))

    async def has_password(self, user: str, password: str) -> bool:
        """Whether this is the password that the file has for a user."""
        known = self._file.passwords.get(user)
        return await self._in_thread(_fits_file, known, password)

    def owner_of(self, token: str) -> str | None:
        """The user that a token belongs to."""
        return self._file.tokens.get(hash_token(token))

    async def knows(self, user: str, password: str) -> bool:
        """Whether this is a password of a user, of the file or for SCRAM; each is looked at once and then remembered
        for as long as it is in force."""
        key = hmac.digest(self._key, f"{user}\0{password}".encode(), "sha256")
        standing = self._standing(user)
        if self._remembered.get(key) == standing:
            return True
        fits = await self.has_password(user, password) if user in self._file.passwords else False
        fits = fits or await self._fits_scram(user, password)
        if fits:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[key] = standing
        return fits

    def _standing(self, user: str) -> object:
        """What the passwords of a user are checked by now."""
        scram = self._cluster().scram
        return self._file.passwords.get(user), *(scram.get((user, mechanism)) for mechanism in _HTTP_MECHANISMS)

    async def _fits_scram(self, user: str, password: str) -> bool:
        known = [(m, self._cluster().scram.get((user, m))) for m in _HTTP_MECHANISMS]
        there = [(mechanism, credential) for mechanism, credential in known if credential is not None]
        if not there:
            if user not in self._file.passwords:
                await self._in_thread(_fits_file, None, password)
            return False
        mechanism, credential = there[0]
        return await self._in_thread(_fits, mechanism, credential, password)

    async def _in_thread(self, work: Callable[..., bool], *arguments: object) -> bool:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: work(*arguments))


def _fits_file(hashed: str | None, password: str) -> bool:
    """Whether a password is the one that was hashed; it costs as much where there is none."""
    if hashed is None:
        hash_password(password)
        return False
    return matches(hashed, password)


def _fits(mechanism: str, credential: ScramCredential, password: str) -> bool:
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(keys_of(mechanism, salted)[0], credential.stored_key)
