"""The HTTP application: JSON for programs under `/v1`, pages for people at every other path.

Health, metrics and `/openapi.json` describe the process, so they have no version. The path alone decides whether a
client gets JSON or HTML. `server` serves the application; `cli.folder` calls it for a stopped service.

Litestar generates the OpenAPI document from the handlers. `completed` adds the parts that their signatures lack: all
statuses with the error format, logins, response headers, idempotency keys, and examples.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import cache
from http import HTTPStatus
from types import ModuleType
from typing import Any, Final, cast

import msgspec
from litestar import Litestar, Response, Router, get
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from litestar.utils import normalize_path

from controller.brokers.simulated import SimulatedBrokers
from controller.http import metrics as health
from controller.http import reads, rules, topics, writes
from controller.http.changes import IN_PROGRESS, KEY, KEY_CHARACTERS_MAX, KEY_REUSED, Changes
from controller.http.errors import PROBLEM, Connection, HttpRequest, answer_early, answer_error
from controller.http.following import Followers
from controller.http.gate import Hosts, Logins, host_check
from controller.http.metrics import OPEN_PATHS, Metrics
from controller.http.pages import frame
from controller.http.pages import handlers as page_handlers
from controller.http.pages import rules as rules_page
from controller.http.pages.site import Site, clean_queries, is_page
from controller.http.permissions import Reader, SealedCursors
from controller.http.query_threads import remember_accepted
from controller.http.reads import NewestHead
from controller.http.requests import refuse_other_sites, refuse_unknown_parameters, schemas_of
from controller.http.writes import ChangesBody
from controller.machine.errors import ErrorCode
from controller.release import RELEASE
from projections.queries.proving import Sign, head_of, unsigned
from projections.text.points_in_time import InvalidPointInTime, parse_point_in_time, refuse_future
from projections.views.view import ErrorView, ProblemView, problem

Operation = dict[str, Any]

_ALWAYS: Final[tuple[int, ...]] = (400, 401, 403, 421, 500, 503)
_OF_WRITES: Final = (404, 409, 429, 504)
_ONCE: Final = ("create_topic", "alter_topic", "delete_topic")
_KEY: Final = {
    "name": KEY,
    "in": "header",
    "required": False,
    "description": "Retry a change with its key: it is made only once, and gets the same answer. The status is "
    f"{KEY_REUSED} if the key was used for a different change, and {IN_PROGRESS} while the change is in progress",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX},
    "example": "7f3c9a52-0b1e-4c55-9d0e-5a2f1c3b8e11",
}
_PROBLEM_REF: Final = {"$ref": "#/components/schemas/ProblemView"}
_EXISTS: Final = ErrorView(
    error="TOPIC_ALREADY_EXISTS",
    code=36,
    message="Topic 'orders' already exists. It was created at 2026-07-17T10:00:00.000Z and is ready.",
    request_id="3f2a9c-12-9c1d02f47a",
    rule="validation:exists",
)
_PROBLEM: Final = msgspec.to_builtins(problem(_EXISTS, 409))
_LOGINS: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of a user"},
    "basic": {"type": "http", "scheme": "basic", "description": "User name and password, the same as for SASL"},
}
_BODIES: Final[dict[str, dict[str, object]]] = {
    "create_topic": {"name": "orders", "num_partitions": 3, "configs": {"retention.ms": 86400000}},
    "alter_topic": {"configs": {"retention.ms": 3600000, "cleanup.policy": None}},
}
_PARAMETERS: Final = {
    "at": "2026-07-17T10:00:00Z",
    "change": "lose-broker 3",
    "from": "2026-07-17",
    "name": "orders",
    "principal": "User:alice",
    "rule": "policy:rules/naming",
    "subject": "orders",
}
_CREATED: Final = {
    "200": "Dry run: the topic that would be created",
    "201": "Created and complete; `Location` is its path",
    "202": "Created, but not complete within the timeout; do not retry",
}
_CACHING: Final = {"ETag": "Version of the response", "Cache-Control": "Whether it may be cached"}


def completed(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the generated OpenAPI document, completed in place."""
    components = document["components"]
    components["securitySchemes"] = _LOGINS
    components["schemas"].update(schemas_of(ProblemView) | schemas_of(ChangesBody))
    document["security"] = [{"bearer": []}, {"basic": []}, {}]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if isinstance(operation, dict) and "responses" in operation:
                _complete(path, method, operation)
    return document


def _complete(path: str, method: str, operation: Operation) -> None:
    responses: dict[str, Any] = operation["responses"]
    is_read, statuses = method == "get", (*_ALWAYS, *_OF_WRITES)
    if path in OPEN_PATHS:
        operation["security"] = []
        statuses = (503,) if path.endswith("ready") else ()
    elif is_read:
        statuses = (*_ALWAYS, 404) if path.startswith("/v1") else _ALWAYS
    responses |= {str(status): _problem(status) for status in statuses}
    if is_read and path.startswith("/v1") and not path.endswith("/follow"):
        responses["304"] = {"description": "Not modified: the client has this version (If-None-Match)"}
        responses["200"]["headers"] = {name: _header(text) for name, text in _CACHING.items()}
    name = operation["operationId"]
    if name == "follow":
        responses["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    if name in _BODIES:
        operation["requestBody"]["content"]["application/json"]["example"] = _BODIES[name]
    if name in _ONCE:
        operation.setdefault("parameters", []).append(_KEY)
        responses[str(KEY_REUSED)] = _problem(KEY_REUSED)
    if name == "create_topic":
        content = responses["201"]["content"]
        for status_text, description in _CREATED.items():
            responses[status_text] = {"description": description, "content": content}
        responses["201"]["headers"] = {"Location": _header("Path of the topic")}
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        is_text = "string" in str(schema.get("type", schema.get("oneOf", schema.get("anyOf"))))
        if parameter["name"] in _PARAMETERS and is_text and "enum" not in schema:
            parameter["example"] = _PARAMETERS[parameter["name"]]


def _problem(status: int) -> dict[str, Any]:
    content = {PROBLEM: {"schema": _PROBLEM_REF, "example": _PROBLEM}}
    return {"description": HTTPStatus(status).phrase, "content": content}


def _header(description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string"}}


BODY_BYTES_MAX = 1 << 20
"""Room for a manual assignment of tens of thousands of partitions; parsing takes about 20 ms."""
OPENAPI = "application/vnd.oai.openapi+json"
DOCUMENT = "document"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
PARTS: Final = "topicwright.parts"
"""The key of the ASGI scope under which a service has the objects that its handlers use."""
OTHER = "other"
"""The label of unknown methods and paths in metrics, so that clients cannot create series."""


@get("/openapi.json", include_in_schema=False, media_type=OPENAPI)
async def describe(request: HttpRequest) -> Response[bytes]:
    app = request.app
    if DOCUMENT not in app.state:  # takes about 85 ms, so it is built once, in a thread
        app.state[DOCUMENT] = await asyncio.to_thread(
            lambda: msgspec.json.encode(completed(app.openapi_schema.to_schema()))
        )
    return Response(app.state[DOCUMENT], media_type=OPENAPI)


def _handlers(*modules: ModuleType) -> list[HTTPRouteHandler]:
    return [each for module in modules for each in vars(module).values() if isinstance(each, HTTPRouteHandler)]


def build_app(
    reader: Reader,
    brokers: SimulatedBrokers | None,
    metrics: Metrics,
    followers: Followers,
    sign: Sign,
    logins: Logins | None,
    hosts: Hosts,
) -> ASGIApp:
    """The application of a controller or gateway. Paths that control brokers exist only with simulated brokers."""
    app: ASGIApp = _head_as_get(clean_queries(build_routes(reader, brokers, metrics, followers, sign)))
    return _measured(host_check(app if logins is None else logins.protect(app), hosts), metrics)


def build_routes(
    reader: Reader,
    brokers: SimulatedBrokers | None,
    metrics: Metrics,
    followers: Followers,
    sign: Sign = unsigned,
    newest_head: NewestHead | None = None,
    *,
    with_pages: bool = True,
) -> ASGIApp:
    """The application without login, host check and metrics. `newest_head` returns the tree head for a proof; if None,
    a head over all durable events is made and signed."""
    parts: dict[str, object] = {
        "brokers": brokers,
        "why_not": lambda: health.why_not_ready(reader.api),
        "archive_error": reader.api.archive_error,
        "reader": reader,
        "metrics": metrics,
        "changes": Changes(reader),
        "followers": followers,
        "cursors": SealedCursors(),
        "trials": asyncio.Lock(),
        "scans": topics.Scans(is_patient=not with_pages),
        "sign": sign,
        "newest_head": newest_head or (lambda part, _, now_ms: sign(head_of(part, now_ms))),
    }
    if with_pages:
        parts["site"] = Site(parts)
    return _with_parts(_routes(brokers is not None, tuple(parts)), parts)


def build_worker_app(why_not: health.WhyNot, archive_error: health.WhyNot, metrics: Metrics, hosts: Hosts) -> ASGIApp:
    """The application of a worker: health and metrics. Clients send no requests to a worker."""
    dependencies: dict[str, object] = {"why_not": why_not, "archive_error": archive_error, "metrics": metrics}
    description = "Decides the commands that gateways write to the commands topic."
    app = _litestar((), tuple(dependencies), "Topicwright worker", description)
    return host_check(_head_as_get(_with_parts(app, dependencies)), hosts)


@cache
def _routes(has_simulated_brokers: bool, names: tuple[str, ...]) -> Litestar:
    """The routes of a controller or gateway, which all services of a process share: building them takes 0.1 s."""
    handlers = _handlers(writes, rules, topics, reads)
    if not has_simulated_brokers:
        handlers = [each for each in handlers if each not in writes.OF_SIMULATED_BROKERS]
    description = "Create topics, and see why every topic is as it is, now and in the past."
    return _litestar(handlers, names, "Topicwright", description)


def _with_parts(app: ASGIApp, parts: dict[str, object]) -> ASGIApp:
    """Adds the objects of one service to the ASGI scope of each request."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        cast(dict[str, Any], scope)[PARTS] = parts
        await app(scope, receive, send)

    return served


def _provided(name: str) -> Provide:
    def part(scope: Scope, request: HttpRequest) -> Any:
        found = cast(dict[str, Any], scope)[PARTS][name]
        return found.of(request) if isinstance(found, Reader) else found

    return Provide(part, sync_to_thread=False)


async def _refuse_future(connection: Connection, _: BaseRouteHandler) -> None:
    """Raise InvalidPointInTime for a time in the future. (The CLI refuses it for the folder of a stopped service, whose
    clock is its newest event.)"""
    parts, given = cast(dict[str, Any], connection.scope)[PARTS], connection.query_params
    for name in [one for one in ("at", "from", "to") if one in given] if "site" in parts else ():
        try:
            point_in_time = parse_point_in_time(given[name])
        except InvalidPointInTime:  # its handler refuses it, or takes something else
            continue
        refuse_future(given[name], point_in_time, parts["reader"].api.controller.now_ms(), f"{name}: ")


def _answer_error(request: HttpRequest, error: Exception) -> Response[Any]:
    site: Site | None = cast(dict[str, Any], request.scope)[PARTS].get("site")
    if site is not None and is_page(request.url.path):
        return site.error_page(request, error)
    return answer_error(request, error)


def _litestar(versioned: Sequence[HTTPRouteHandler], names: tuple[str, ...], title: str, description: str) -> Litestar:
    """The routes, given the names of the objects that `_with_parts` provides."""
    routes: list[HTTPRouteHandler | Router] = [describe, *_handlers(health), Router("/v1", route_handlers=versioned)]
    if "site" in names:
        pages = _handlers(frame, page_handlers, rules_page)
        routes.append(Router("/", route_handlers=pages, include_in_schema=False))
    return Litestar(
        route_handlers=routes,
        dependencies={name: _provided(name) for name in names},
        guards=[refuse_other_sites, refuse_unknown_parameters, _refuse_future, remember_accepted],
        exception_handlers={Exception: _answer_error},
        request_max_body_size=BODY_BYTES_MAX,
        logging_config=None,
        openapi_config=OpenAPIConfig(
            title=title,
            version=RELEASE,
            description=description,
            path="/openapi",
            render_plugins=[JsonRenderPlugin(path="/openapi.json")],
            use_handler_docstrings=True,
            operation_id_creator=lambda handler, *_: handler.handler_name.rstrip("_"),  # names in generated clients
        ),
    )


def _measured(app: ASGIApp, metrics: Metrics) -> ASGIApp:
    """Records the time from the request to the start of the response, per method, route and status."""

    async def measured(scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()

        async def measured_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                method, route = str(scope.get("method")), str(scope.get("path_template") or OTHER)
                seconds = time.perf_counter() - started
                metrics.http_request(method if method in METHODS else OTHER, route, message["status"], seconds)
            await send(message)

        await app(scope, receive, measured_send)

    return measured


ENDLESS = "/events/follow"


def _head_as_get(app: ASGIApp) -> ASGIApp:
    """Answers HEAD with the headers that GET would have (RFC 9110); uvicorn drops the body."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "HEAD":
            await app(scope, receive, send)
        elif normalize_path(scope["path"]).endswith(ENDLESS):  # its response never ends
            message = "HEAD is not allowed here; allowed: GET"
            await answer_early(send, 405, ErrorCode.INVALID_REQUEST, message, [(b"allow", b"GET")])
        else:
            await app(cast(Scope, {**scope, "method": "GET"}), receive, send)

    return answered
