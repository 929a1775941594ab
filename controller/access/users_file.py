"""The file of users (`users.file`): hashed passwords for PLAIN and for HTTP, hashed tokens for HTTP.

One line a credential, `NAME:$argon2id$…` for a password and `NAME:token:sha256:HEX` for a token; empty lines and those
that begin with `#` are nothing. A name ends at the first colon, so none has one. `topicwright users` writes it.

Passwords are hashed by argon2id (RFC 9106), which costs time and memory on purpose. Tokens are 32 random bytes, which
nobody guesses, so SHA-256 is enough and quick.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from events.logs.log import read_text

FILE_BYTES_MAX: Final = 8 << 20
TOKEN_PREFIX: Final = "tw_"
_NAME: Final = re.compile(r"[^:\s\x00-\x1f](?:[^:\x00-\x1f]*[^:\s\x00-\x1f])?")
_TOKEN: Final = re.compile(r"token:sha256:([0-9a-f]{64})")
_hasher: Final = PasswordHasher()


class UsersFileError(Exception):
    """A file of users that cannot be read or written; the message names the file, the line and what is allowed."""


class FileUsers(msgspec.Struct, frozen=True):
    """The users of a file: password hashes by name, names by the hash of a token. Secrets: never shown."""

    passwords: dict[str, str]
    tokens: dict[str, str]

    def __repr__(self) -> str:
        return f"FileUsers({len(self.passwords)} passwords, {len(self.tokens)} tokens)"


def read_users(path: Path) -> FileUsers:
    """The users of a file. Raises UsersFileError."""
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
            raise UsersFileError(f"the users file {path}, line {number}: a second password of {name}")
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
    """A user's name as it is. Raises UsersFileError for one that the file cannot hold."""
    if not _NAME.fullmatch(name) or name.startswith("#"):
        raise UsersFileError(
            f"the user name {name!r} is not allowed: no colon, no blanks around it, no line breaks, no # first"
        )
    return name


def matches(hashed: str, password: str) -> bool:
    """Whether this is the password. Takes tens of ms and 64 MiB: not for the event loop."""
    try:
        return _hasher.verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False


def hash_password(password: str) -> str:
    """A password as the file keeps it. Takes tens of ms."""
    return _hasher.hash(password)


def hash_token(token: str) -> str:
    """A token as the file keeps it."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_token() -> str:
    """A new token."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def set_password(path: Path, name: str, password: str) -> bool:
    """Keep a user's password, in place of the one before; whether there was one. Raises UsersFileError."""
    users = _existing(path)
    _rewrite(path, _without(path, name, tokens=False), f"{check_name(name)}:{hash_password(password)}")
    return name in users.passwords


def add_token(path: Path, name: str) -> str:
    """Give a user a new token, which is shown once and never again. Raises UsersFileError."""
    _existing(path)
    token = new_token()
    _rewrite(path, _without(path, None), f"{check_name(name)}:token:sha256:{hash_token(token)}")
    return token


def remove_user(path: Path, name: str) -> bool:
    """Forget a user's password and tokens; whether there were any. Raises UsersFileError."""
    users = read_users(path)
    _rewrite(path, _without(path, name))
    return name in users.passwords or name in users.tokens.values()


def _existing(path: Path) -> FileUsers:
    return read_users(path) if path.exists() else FileUsers({}, {})


def _without(path: Path, name: str | None, tokens: bool = True) -> Iterable[str]:
    """The lines of a file but for a user's password and, if wanted, tokens."""
    for line in _lines(path) if path.exists() else ():
        owner, _, credential = line.strip().partition(":")
        if owner != name or (not tokens and credential.startswith("token:")):
            yield line


def _rewrite(path: Path, lines: Iterable[str], last: str = "") -> None:
    """Put lines in place of a file in one step, for its owner's eyes only."""
    text = "".join(f"{line}\n" for line in (*lines, last) if line)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsersFileError(f"the users file {path} cannot be written: {error.strerror or error}") from None
