"""Clients of the JSON API for commands: of a running service, or of a stopped service's data folder.

    --http HOST:PORT or https://HOST:PORT
    --command-config FILE    properties: username and password, or token; ssl.truststore.location for TLS
    --data DIR               answered in this process by the same handlers (`controller.cli.folder`)

Passwords and tokens come only from a file, because other users of a machine can see a command's arguments.
"""

import base64
import http.client
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from controller.cli.arguments import NEGATIVE, WRONG, HttpAddress
from controller.settings.properties import read_values
from events.errors import UserError
from projections.views.events import EventView
from projections.views.view import ErrorView

ANSWER_S: Final = 60.0
"""Timeout of the service. While events are followed, the service sends a heartbeat every 10 s."""
KEYS: Final = ("username", "password", "token", "ssl.truststore.location")
_ANSWER_BYTES_MAX = 256 << 20
"""Larger than a topic with a million partitions. The limit protects `verify`, which must not trust the service."""

_T = TypeVar("_T")


class Refusal(UserError):
    """An error response, with its HTTP status. A change that is refused is an answer; a read that is refused is not."""

    def __init__(self, status: int, error: ErrorView, *, is_change: bool = False) -> None:
        rule = f", by {error.rule}" if error.rule else ""
        super().__init__(f"{error.message} ({error.error}{rule})")
        self.status, self.error = status, error
        is_answer = status == 404 or (is_change and status < 500 and status != 401)
        self.exit_code = NEGATIVE if is_answer else WRONG


class Backend:
    """Sends requests to the JSON API. All methods raise UserErrors."""

    def __init__(self) -> None:
        self.archive_files = 0
        """Files of the log's archive that were fetched for the answers so far."""
        self.agent = "topicwright"
        """The User-Agent of requests, which the log has as the client id."""

    def close(self) -> None:
        """Close the connection or the data folder."""

    def get(self, kind: type[_T], path: str, name: str = "", /, **parameters: object) -> _T:
        """GET a path below `/v1`, and the name below it, until the answer is complete: each request lets the service
        count further. Parameters that are None are left out; `from_` is `from`."""
        while not getattr(found := self.send("GET", path, kind, name, **parameters), "is_complete", True):
            pass
        return found

    def send(
        self, method: str, path: str, kind: type[_T], name: str = "", /, body: object = None, **parameters: object
    ) -> _T:
        """Send a request with a JSON body and decode the answer."""
        content = b"" if body is None else msgspec.json.encode(body)
        path = f"{path}/{quote(name, safe='')}" if name else path
        return self._decoded(kind, method, address_of(path, parameters), content)

    def document(self) -> dict[str, Any]:
        return self._decoded(dict[str, Any], "GET", "/openapi.json", b"")

    def _decoded(self, kind: type[_T], method: str, path: str, body: bytes) -> _T:
        status, files, answer = self._answer(method, path, body)
        try:
            if status >= 400:
                is_change = method != "GET" and "/rules/" not in path  # there, rules are only tried
                raise Refusal(status, msgspec.json.decode(answer, type=ErrorView), is_change=is_change)
            self.archive_files += int(files)
            return msgspec.json.decode(answer, type=kind)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            raise UserError(f"the server {self} is not a Topicwright service: {error}") from error

    def follow(self, **parameters: object) -> Iterator[EventView]:
        """Stream events, from offset `from_` or from now. Ends only with an error."""
        raise UserError("--follow needs a running service: name it with --http HOST:PORT")

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        """The status, the number of archive files, and the body."""
        raise NotImplementedError


def address_of(path: str, parameters: Mapping[str, object]) -> str:
    """The path and query of a request."""
    given = {
        name.rstrip("_"): str(value).lower() if isinstance(value, bool) else value
        for name, value in parameters.items()
        if value is not None
    }
    return f"/v1{path}?{urlencode(given)}" if given else f"/v1{path}"


def _connection(address: HttpAddress, truststore: str | None, timeout_s: float) -> http.client.HTTPConnection:
    """A connection that is not open yet. Raises UserError."""
    if not address.is_secure:
        return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        context = ssl.create_default_context(cafile=truststore)
    except OSError as error:
        why = "it must contain certificates in PEM" if isinstance(error, ssl.SSLError) else error.strerror
        raise UserError(f"ssl.truststore.location={truststore}: {why}") from None
    return http.client.HTTPSConnection(address.host, address.port, timeout=timeout_s, context=context)


def _access(path: Path) -> dict[str, str]:
    """Read a --command-config file. Raises UserError."""
    given = read_values(path, f"--command-config {path}:")
    unknown = sorted(given.keys() - set(KEYS))
    if unknown:
        raise UserError(f"--command-config {path}: unknown key {unknown[0]}; allowed: {', '.join(KEYS)}")
    if "token" in given and not given.keys().isdisjoint(("username", "password")):
        raise UserError(f"--command-config {path}: give a token, or username and password, not both")
    if ("username" in given) != ("password" in given):
        raise UserError(f"--command-config {path}: username needs password, and password needs username")
    return given


class HttpBackend(Backend):
    """A running service, over one connection that opens with the first request."""

    def __init__(self, address: HttpAddress, config: Path | None = None, timeout_s: float = ANSWER_S) -> None:
        """`config` is the --command-config file. Raises UserError."""
        super().__init__()
        access = {} if config is None else _access(config)
        self._address = str(address)
        self._headers: dict[str, str] = {}
        if "token" in access:
            self._headers["Authorization"] = f"Bearer {access['token']}"
        elif "username" in access:
            login = f"{access['username']}:{access['password']}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        self._connection = _connection(address, access.get("ssl.truststore.location"), timeout_s)

    def __str__(self) -> str:
        return f"at {self._address}"

    def close(self) -> None:
        self._connection.close()

    def follow(self, **parameters: object) -> Iterator[EventView]:
        decode = msgspec.json.Decoder(EventView).decode
        with self._errors():
            answer = self._request("GET", address_of("/events/follow", parameters))
            if answer.status != 200:
                raise Refusal(answer.status, msgspec.json.decode(self._read(answer.read), type=ErrorView))
            while line := self._read(answer.readline):
                if line.strip():
                    yield decode(line)
        raise UserError(f"the service at {self._address} has stopped")

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        with self._errors():
            answer = self._request(method, path, body)
            content = self._read(answer.read)
            if answer.length:
                raise http.client.IncompleteRead(content, answer.length)
            return answer.status, answer.headers.get("topicwright-archive", "0"), content

    def _request(self, method: str, path: str, body: bytes = b"") -> http.client.HTTPResponse:
        headers = {**self._headers, "User-Agent": self.agent, **({"Content-Type": "application/json"} if body else {})}
        self._connection.request(method, path, body or None, headers)
        return self._connection.getresponse()

    def _read(self, read: Callable[[int], bytes]) -> bytes:
        found = read(_ANSWER_BYTES_MAX + 1)
        if len(found) > _ANSWER_BYTES_MAX:
            why = f"sends more than {_ANSWER_BYTES_MAX} bytes in an answer"
            raise UserError(f"the service at {self._address} {why}")
        return found

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raises UserError for an error of the connection, or an answer that is not a service's."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            raise UserError(f"the server {self} is not a Topicwright service: {error}") from error

    def _unreachable(self, error: Exception) -> UserError:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, http.client.RemoteDisconnected | http.client.BadStatusLine):
            why = "it does not speak HTTP; is this the port of Kafka clients?"
            if not self._address.startswith("https://"):
                why += f" If it speaks TLS, write https://{self._address}"
        return UserError(
            f"no answer from a service at {self._address} ({why}): name a running service with --http HOST:PORT, or "
            "the data folder of a stopped one with --data DIR"
        )
