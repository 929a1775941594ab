"""How the commands reach a service over HTTP: its address, TLS, and whom they log in as.

    --http HOST:PORT or https://HOST:PORT
    --command-config FILE    properties: username and password, or token; ssl.truststore.location for TLS

Passwords and tokens come from a file only, because other users of a machine can see a command's arguments.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import re
import ssl
from pathlib import Path
from typing import Final

import msgspec

from controller.settings.properties import PropertiesError, read_values

KEYS: Final = ("username", "password", "token", "ssl.truststore.location")
_ADDRESS: Final = re.compile(r"(?:(https?)://)?(\[[0-9a-fA-F:.]+\]|[^\s/\[\]]+):(\d{1,5})/?")


class AccessError(Exception):
    """A file of --command-config that cannot be used; the message names it and what is allowed."""


class HttpAddress(msgspec.Struct, frozen=True):
    """Where a service answers HTTP."""

    host: str
    port: int
    is_secure: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def http_address(text: str) -> HttpAddress:
    """The address that an argument names. Raises ArgumentTypeError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not 1 <= int(found[3]) <= 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not HOST:PORT with a port from 1 to 65535, nor https:// before it"
        )
    return HttpAddress(found[2].strip("[]"), int(found[3]), found[1] == "https")


class Access(msgspec.Struct, frozen=True):
    """What a file of --command-config says. Secrets: never shown."""

    authorization: str | None = None
    truststore: Path | None = None

    def __repr__(self) -> str:
        return f"Access({self.truststore})"

    @property
    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        return {} if self.authorization is None else {"Authorization": self.authorization}

    def connection(self, address: HttpAddress, timeout_s: float) -> http.client.HTTPConnection:
        """A connection, not open yet. Raises AccessError."""
        if not address.is_secure:
            return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
        try:
            context = ssl.create_default_context(cafile=self.truststore)
        except OSError as error:
            why = "it must hold certificates in PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise AccessError(f"ssl.truststore.location={self.truststore}: {why}") from None
        return http.client.HTTPSConnection(address.host, address.port, timeout=timeout_s, context=context)


def read_access(path: Path | None) -> Access:
    """What a file says; nothing without one. Raises AccessError."""
    if path is None:
        return Access()
    try:
        given = read_values(path)
    except PropertiesError as error:
        raise AccessError(f"--command-config {path}: {error}") from None
    unknown = sorted(given.keys() - set(KEYS))
    if unknown:
        raise AccessError(f"--command-config {path}: unknown key {unknown[0]}; allowed: {', '.join(KEYS)}")
    truststore = given.get("ssl.truststore.location")
    return Access(_authorization(path, given), None if truststore is None else Path(truststore))


def _authorization(path: Path, given: dict[str, str]) -> str | None:
    if "token" in given:
        if "username" in given or "password" in given:
            raise AccessError(f"--command-config {path}: give a token, or username and password, not both")
        return f"Bearer {given['token']}"
    if "username" not in given and "password" not in given:
        return None
    if "username" not in given or "password" not in given:
        raise AccessError(f"--command-config {path}: username and password go together")
    return "Basic " + base64.b64encode(f"{given['username']}:{given['password']}".encode()).decode()
