"""Who can log in: the SCRAM credentials of the log, and the users of a file.

Checking a password is slow on purpose, so it is done in threads of its own, few at a time, for each address in turn: a
storm of logins costs those who are behind it, and nobody else. A password that was right is not checked again.

Constraint: nobody learns who is there. For every name the same work is done, where there is nothing to compare with on
what is made up: one password of the file if it has any, one of each SCRAM mechanism.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from controller.access.fair_threads import FairThreads, party_of
from controller.access.made_up import MadeUp
from controller.access.users_file import FileUsers, hash_token, matches, read_users
from controller.kafka.sasl.scram import DIGESTS, keys_of, salted_password
from controller.machine.access.credentials import ITERATIONS_MAX
from controller.machine.state import Cluster, ScramCredential

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
        self._threads = FairThreads(THREADS, "password")
        self._made_up = MadeUp()
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
        made_up = self._made_up.credential(cluster.login_secret or self._key, cluster.scram, user, mechanism)
        return cluster.scram.get((user, mechanism), made_up)

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
            proven = [_proves(mechanism, credential, password) for mechanism, credential in shown.items()]
            return of_file or any(proven)

        is_right = await self._threads.run(party_of(address), fits)
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


def _proves(mechanism: str, credential: ScramCredential, password: str) -> bool:
    """Whether a password is that of a credential; not of one with more iterations than Kafka allows, which only a
    cluster that was taken over can have: they would hold a thread for as long as they like."""
    if credential.iterations > ITERATIONS_MAX:
        return False
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(keys_of(mechanism, salted)[0], credential.stored_key)
