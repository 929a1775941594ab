"""Clients of the JSON API: of a running service, or of the data folder of a stopped one.

    --http HOST:PORT or https://HOST:PORT
    --command-config FILE    properties: username and password, or token; ssl.truststore.location for TLS
    --data DIR               answered in this process by the same handlers (`controller.cli.folder`)

Passwords and tokens come only from a file, because other users of a machine can see a command's arguments.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from controller.cli.context import HTTP, BackendError, chosen
from controller.settings.properties import PropertiesError, read_values
from projections.views.events import EventView
from projections.views.view import ErrorView

ANSWER_S: Final = 60.0
"""While events are followed, the service sends a heartbeat every 10 s."""
KEYS: Final = ("username", "password", "token", "ssl.truststore.location")
_ADDRESS: Final = re.compile(r"(?:(https?)://)?(\[[0-9a-fA-F:.]+\]|[^\s/\[\]]+):(\d{1,5})/?")
_ANSWER_BYTES_MAX = 256 << 20
"""More than a topic with a million partitions takes. `verify` must not trust the service that it checks."""
_PIECE_BYTES: Final = 1 << 20

_T = TypeVar("_T")


class Refusal(Exception):
    """An error response, with its HTTP status."""

    def __init__(self, status: int, error: ErrorView) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error


class Backend:
    """Sends requests to the JSON API. All methods raise Refusal and BackendError."""

    def __init__(self) -> None:
        self.archive_files = 0
        """Files of the log's archive that were fetched for the answers so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release what is open."""

    def get(self, kind: type[_T], path: str, name: str = "", /, **parameters: object) -> _T:
        """GET a path below `/v1`, and the name below it. Parameters that are None are left out; `from_` is `from`."""
        return self.send("GET", path, kind, name, **parameters)

    def send(
        self, method: str, path: str, kind: type[_T], name: str = "", /, body: object = None, **parameters: object
    ) -> _T:
        """Send a request with a JSON body and decode the answer."""
        content = b"" if body is None else msgspec.json.encode(body)
        path = f"{path}/{quote(name, safe='')}" if name else path
        status, files, answer = self._answer(method, address_of(path, parameters), content)
        try:
            if status >= 400:
                raise Refusal(status, msgspec.json.decode(answer, type=ErrorView))
            self.archive_files += int(files)
            return msgspec.json.decode(answer, type=kind)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            raise BackendError(f"the server {self} is not Topicwright's HTTP: {error}") from error

    def follow(self, **parameters: object) -> Iterator[EventView]:
        """Stream events, from offset `from_` or from now. Ends only with an error."""
        raise BackendError("--follow needs a running service: name it with --http HOST:PORT")

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        """The status, the number of archive files, and the body."""
        raise NotImplementedError


def address_of(path: str, parameters: Mapping[str, object]) -> str:
    """The path and query of a request."""
    given = {name.rstrip("_"): value for name, value in parameters.items() if value is not None}
    return f"/v1{path}?{urlencode(given)}" if given else f"/v1{path}"


class HttpAddress(msgspec.Struct, frozen=True):
    """The address of a service. `is_secure` means TLS."""

    host: str
    port: int
    is_secure: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def http_address(text: str) -> HttpAddress:
    """Parse an address. Raises ArgumentTypeError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not 1 <= int(found[3]) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not [https://]HOST:PORT with a port from 1 to 65535")
    return HttpAddress(found[2].strip("[]"), int(found[3]), found[1] == "https")


class Access(msgspec.Struct, frozen=True):
    """The contents of a --command-config file. Its repr has no secrets."""

    authorization: str | None = None
    truststore: Path | None = None

    def __repr__(self) -> str:
        return f"Access({self.truststore})"

    def connection(self, address: HttpAddress, timeout_s: float) -> http.client.HTTPConnection:
        """A connection that is not open yet. Raises BackendError."""
        if not address.is_secure:
            return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
        try:
            context = ssl.create_default_context(cafile=self.truststore)
        except OSError as error:
            why = "it must contain certificates in PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise BackendError(f"ssl.truststore.location={self.truststore}: {why}") from None
        return http.client.HTTPSConnection(address.host, address.port, timeout=timeout_s, context=context)


def read_access(path: Path | None) -> Access:
    """Read a --command-config file. Raises BackendError."""
    if path is None:
        return Access()
    try:
        given = read_values(path)
    except PropertiesError as error:
        raise BackendError(f"--command-config {path}: {error}") from None
    unknown = sorted(given.keys() - set(KEYS))
    if unknown:
        raise BackendError(f"--command-config {path}: unknown key {unknown[0]}; allowed: {', '.join(KEYS)}")
    truststore = given.get("ssl.truststore.location")
    return Access(_authorization(path, given), None if truststore is None else Path(truststore))


def _authorization(path: Path, given: dict[str, str]) -> str | None:
    if "token" in given:
        if "username" in given or "password" in given:
            raise BackendError(f"--command-config {path}: give a token, or username and password, not both")
        return f"Bearer {given['token']}"
    if "username" not in given and "password" not in given:
        return None
    if "username" not in given or "password" not in given:
        raise BackendError(f"--command-config {path}: username and password go together")
    return "Basic " + base64.b64encode(f"{given['username']}:{given['password']}".encode()).decode()


class HttpBackend(Backend):
    """A running service, over one connection that opens with the first request."""

    def __init__(self, address: HttpAddress, access: Access | None = None, timeout_s: float = ANSWER_S) -> None:
        super().__init__()
        access = access or Access()
        self._address = str(address)
        self._headers = {"User-Agent": "topicwright"}
        if access.authorization is not None:
            self._headers["Authorization"] = access.authorization
        self._connection = access.connection(address, timeout_s)

    def __str__(self) -> str:
        return f"at {self._address}"

    def close(self) -> None:
        self._connection.close()

    def follow(self, **parameters: object) -> Iterator[EventView]:
        answer = self._request("GET", address_of("/events/follow", parameters))
        if answer.status != 200:
            raise Refusal(answer.status, msgspec.json.decode(self._read(answer), type=ErrorView))
        decode = msgspec.json.Decoder(EventView).decode
        try:
            while line := answer.readline(_ANSWER_BYTES_MAX + 1):
                if len(line) > _ANSWER_BYTES_MAX:
                    raise self._too_long()
                if line.strip():
                    yield decode(line)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        except (ValueError, RecursionError) as error:
            raise BackendError(f"the server {self} is not Topicwright's HTTP: {error}") from error
        raise BackendError(f"the service at {self._address} has stopped")

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        answer = self._request(method, path, body)
        return answer.status, answer.headers.get("topicwright-archive", "0"), self._read(answer)

    def _request(self, method: str, path: str, body: bytes = b"") -> http.client.HTTPResponse:
        headers = {**self._headers, "Content-Type": "application/json"} if body else self._headers
        try:
            self._connection.request(method, path, body or None, headers)
            return self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        body = bytearray()
        try:
            while piece := answer.read(_PIECE_BYTES):
                body += piece
                if len(body) > _ANSWER_BYTES_MAX:
                    raise self._too_long()
            if answer.length:
                raise http.client.IncompleteRead(bytes(body), answer.length)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        return bytes(body)

    def _too_long(self) -> BackendError:
        return BackendError(f"the service at {self._address} sends more than {_ANSWER_BYTES_MAX} bytes in an answer")

    def _unreachable(self, error: Exception) -> BackendError:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return BackendError(
            f"no answer from a service at {self._address} ({why}): name a running service with --http HOST:PORT, or "
            "the data folder of a stopped one with --data DIR"
        )


def open_backend(options: argparse.Namespace, timeout_s: float = ANSWER_S) -> Backend:
    """The folder or running service that the flags name. Raises BackendError."""
    if getattr(options, "data", None) is not None:
        from controller.cli.folder import FolderBackend

        return FolderBackend(options.data)
    context = chosen(options.http, options.context)
    config = options.command_config
    if config is None and context.command_config is not None:
        config = Path(context.command_config)
    try:
        address = http_address(context.http)
    except argparse.ArgumentTypeError as error:  # from the environment, or a context
        raise BackendError(f"{HTTP} or the context in use: {error}") from None
    return HttpBackend(address, read_access(config), timeout_s)
