"""Errors over HTTP, all in one format (RFC 9457): Kafka's name and number of the error, and a message.

Handlers raise `Refused`; `answer_error` answers it. The table below maps Kafka's error codes to HTTP statuses;
`docs/queries.md` lists it. A create that timed out after its topic was created is no error but answered 202, because a
retry would fail.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import structlog
from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, ValidationException
from litestar.params import QueryParameter
from litestar.types import Send

from controller.brokers.simulated import UnknownBroker
from controller.http.query_threads import TooBusy
from controller.kafka.connections import ClusterUnreachable, NotAuthenticated
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.logs.log import LogError
from projections.queries.events import BadPlace
from projections.queries.past import QueryClosed
from projections.queries.query import NotFound, NoTopic
from projections.queries.whatif import InvalidChange
from projections.text.points_in_time import TEXT_SHOWN_MAX, InvalidPointInTime
from projections.views.topics import refusal
from projections.views.view import ErrorView, ProblemView, problem

HttpRequest = Request[Any, Any, Any]
Connection = ASGIConnection[Any, Any, Any, Any]
"""The type parameters (user, credentials, state) belong to features of Litestar that are not used here."""

_CODES: Final = {
    200: "NONE",
    400: "INVALID_TOPIC_EXCEPTION INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT "
    "INVALID_CONFIG INVALID_REQUEST",
    403: "TOPIC_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED POLICY_VIOLATION "
    "TOPIC_DELETION_DISABLED",
    404: "UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID BROKER_ID_NOT_REGISTERED RESOURCE_NOT_FOUND",
    409: "TOPIC_ALREADY_EXISTS INVALID_UPDATE_VERSION",
    429: "THROTTLING_QUOTA_EXCEEDED",
    500: "UNKNOWN_SERVER_ERROR",
    503: "NOT_CONTROLLER KAFKA_STORAGE_ERROR",
    504: "REQUEST_TIMED_OUT",
}
STATUS_OF: Final[Mapping[int, int]] = {ErrorCode[name]: status for status in _CODES for name in _CODES[status].split()}

PROBLEM = "application/problem+json"
"""The media type of errors (RFC 9457)."""
NO_STORE = {"cache-control": "no-store"}

_logger = structlog.get_logger("topicwright.http")


class Refused(Exception):
    """Raised by handlers to end a request with this error response."""

    def __init__(self, status: int, error: ErrorView) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error


def refused(status: int, code: ErrorCode, message: str) -> Refused:
    """A `Refused` with one of Kafka's errors."""
    return Refused(status, _error_view(code, message))


def invalid(message: str) -> Refused:
    """A `Refused` for a request that is not valid."""
    return refused(400, ErrorCode.INVALID_REQUEST, message)


def refusal_of(answer: Answer) -> Refused:
    """A `Refused` with the error in the answer to a command; the status is 500 for error codes missing in the table."""
    return Refused(STATUS_OF.get(answer.code, 500), refusal(answer))


def answer_error(request: HttpRequest, error: Exception) -> Response[ProblemView]:
    """The response to a request that raised. Unexpected errors are logged; the client sees only that one occurred."""
    status, view = _classify(request, error)
    if status == 500 and not isinstance(error, Refused):  # that one is logged where it was caused
        _logger.error("http request failed", method=request.method, path=request.url.path, exc_info=error)
    headers = error.headers if isinstance(error, HTTPException) else None
    return Response(
        problem(view, status), status_code=status, media_type=PROBLEM, headers={**(headers or {}), **NO_STORE}
    )


async def answer_early(
    send: Send, status: int, code: ErrorCode, message: str, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send an error response from a middleware, before the request is routed."""
    body = msgspec.json.encode(problem(_error_view(code, message), status))
    await respond(send, status, body, (b"content-type", PROBLEM.encode()), *headers)


async def respond(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    fields = [(b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def redirect(send: Send, location: str, *headers: tuple[bytes, bytes]) -> None:
    await respond(send, 303, b"", (b"location", location.encode()), (b"cache-control", b"no-store"), *headers)


def _classify(request: HttpRequest, error: Exception) -> tuple[int, ErrorView]:
    match error:
        case Refused():
            return error.status, error.error
        case ValidationException():
            return 400, _error_view(ErrorCode.INVALID_REQUEST, _invalid_parameters(request, error))
        case HTTPException():
            return _http_error(request, error)
    for kind, status, code, message in KNOWN:
        if isinstance(error, kind):
            return status, _error_view(code, message.format(error))
    return _INTERNAL


def _error_view(code: ErrorCode, message: str) -> ErrorView:
    return ErrorView(error=code.name, code=int(code), message=message)


KNOWN: Final[tuple[tuple[type[Exception], int, ErrorCode, str], ...]] = (
    (InvalidPointInTime, 400, ErrorCode.INVALID_REQUEST, "{}"),
    (InvalidChange, 400, ErrorCode.INVALID_REQUEST, "change: {}"),
    (BadPlace, 400, ErrorCode.INVALID_REQUEST, "{}"),
    (NoTopic, 404, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "{}"),
    (NotFound, 404, ErrorCode.RESOURCE_NOT_FOUND, "{}"),
    (UnknownBroker, 404, ErrorCode.BROKER_ID_NOT_REGISTERED, "{}"),
    (TooBusy, 503, ErrorCode.REQUEST_TIMED_OUT, "{}"),
    (QueryClosed, 503, ErrorCode.REQUEST_TIMED_OUT, "{}"),
    (ClusterUnreachable, 503, ErrorCode.REQUEST_TIMED_OUT, "{}"),
    (NotAuthenticated, 503, ErrorCode.REQUEST_TIMED_OUT, "{}"),
    (LogError, 503, ErrorCode.KAFKA_STORAGE_ERROR, "the log cannot be read: {}"),
)
"""Exceptions of queries and clusters, with the status, Kafka's error code and the message of the response."""
_INTERNAL: Final = 500, _error_view(ErrorCode.UNKNOWN_SERVER_ERROR, "Internal error; the service's log has the cause.")


def _http_error(request: HttpRequest, error: HTTPException) -> tuple[int, ErrorView]:
    status = error.status_code
    if status == 404:
        message = "unknown path; /openapi.json lists the paths of the API"
        return status, _error_view(ErrorCode.RESOURCE_NOT_FOUND, message)
    if status >= 500:
        return _INTERNAL
    if status == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("allow", "").split(", ")))
        return status, _error_view(
            ErrorCode.INVALID_REQUEST, f"{request.method} is not allowed here; allowed: {allowed}"
        )
    return status, _error_view(ErrorCode.INVALID_REQUEST, error.detail)


_ONE_OF: Final = re.compile(r"matching regex '\^\(([A-Za-z|]+)\)\$'")


def _invalid_parameters(request: HttpRequest, error: ValidationException) -> str:
    """The invalid parameters, by the names that clients use, and what is allowed."""
    fields = request.route_handler.parsed_fn_signature.parameters
    reasons = []
    for one in error.extra if isinstance(error.extra, list) else ():
        key = one.get("key", "")
        known = fields[key].kwarg_definition if key in fields else None
        name = known.name if isinstance(known, QueryParameter) and known.name else key
        problem = re.sub("Expected `int`([^,]*).*", r"must be a whole number\1", one.get("message", ""))
        if (names := _ONE_OF.search(problem)) is not None:
            given = request.query_params.get(name, "")
            near = [known for known in names[1].split("|") if given and given.lower() in known.lower()]
            problem = f"{given[:TEXT_SHOWN_MAX]!r} is unknown; use {' or '.join(near or names[1].split('|'))}"
        reasons.append(f"{name}: {problem}")
    return "; ".join(reasons) or error.detail
