"""The users file (`users.file`): hashed passwords for PLAIN and HTTP, hashed tokens for HTTP.

One credential per line: `NAME:$argon2id$…` for a password, `NAME:token:sha256:HEX` for a token. Empty lines and lines
that begin with `#` are ignored. A name ends at the first colon, so names contain none. `topicwright users` writes the
file; `access.users` reads it at the start and on reload.

Passwords are hashed by argon2id (RFC 9106), which is slow and takes memory on purpose. Tokens are 32 random bytes that
cannot be guessed, so SHA-256 is enough.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from events.errors import UserError
from events.files import replacing
from events.logs.log import read_text

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
    users = _existing(path)
    _rewrite(path, _without(path, name, tokens=False), f"{check_name(name)}:{_hasher.hash(password)}")
    return name in users.passwords


def add_token(path: Path, name: str) -> str:
    """Adds a new token for a user and returns it. Raises UsersFileError."""
    _existing(path)
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    _rewrite(path, _without(path, None), f"{check_name(name)}:token:sha256:{hash_token(token)}")
    return token


def remove_user(path: Path, name: str) -> bool:
    """Removes the password and tokens of a user. Returns True if there were any. Raises UsersFileError."""
    users = read_users(path)
    _rewrite(path, _without(path, name))
    return name in users.passwords or name in users.tokens.values()


def _existing(path: Path) -> FileUsers:
    return read_users(path) if path.exists() else FileUsers({}, {})


def _without(path: Path, name: str | None, tokens: bool = True) -> Iterable[str]:
    """Returns the lines of the file without the password of a user, and by default without the tokens."""
    for line in _lines(path) if path.exists() else ():
        owner, _, credential = line.strip().partition(":")
        if owner != name or (not tokens and credential.startswith("token:")):
            yield line


def _rewrite(path: Path, lines: Iterable[str], last: str = "") -> None:
    """Replaces the file atomically, readable only by its owner."""
    text = "".join(f"{line}\n" for line in (*lines, last) if line)
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise UsersFileError(f"the users file {path} cannot be written: {error.strerror or error}") from None
