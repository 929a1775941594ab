"""The HTTP application: which paths there are, what their handlers are given, and how requests are measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from litestar import Litestar, Response, Router, get
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from controller.brokers.port import Brokers
from controller.controller_api import ControllerApi
from controller.http import health
from controller.http.changes import Changes
from controller.http.errors import HttpRequest, answer_error
from controller.http.following import Followers
from controller.http.form.document import completed
from controller.http.form.heads import Heads
from controller.http.form.packing import note_wish
from controller.http.gate import Authenticated, Reached
from controller.http.metrics import Metrics
from controller.http.pages.app import pages_app
from controller.http.pages.negotiating import Negotiated
from controller.http.paths import altering, log_heads, overviews, reads, simulated, topics, writes
from controller.http.paths.simulated import BrokerControl
from controller.http.permissions import Reader
from controller.http.places import Places
from controller.http.query_threads import Reading, Stopping
from controller.http.reach import Logins, Reach
from controller.http.requests import refuse_other_sites, refuse_unknown_parameters
from projections.queries.proving import Sign, unsigned
from projections.queries.query import Questions

_T = TypeVar("_T")

BODY_BYTES_MAX = 1 << 20
"""Enough for a manual assignment of tens of thousands of partitions, and read in some 20 ms."""
OPENAPI = "application/vnd.oai.openapi+json"
DOCUMENT = "document"
PAGES = "pages"
VERSION = "/v1"
"""Before the paths that say what topics, requests and brokers are; without it they are as they were before there was
one. What the document, health and metrics say of the process has none."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
OTHER = "other"


@get("/openapi.json", include_in_schema=False, media_type=OPENAPI)
async def describe(request: HttpRequest) -> Response[bytes]:
    """What there is and how it is requested, as an OpenAPI document."""
    state = request.app.state
    if DOCUMENT not in state:  # it takes some 85 ms, so once, and beside the loop
        state[DOCUMENT] = await asyncio.to_thread(_document, request.app)
    return Response(state[DOCUMENT], media_type=OPENAPI)


def _document(app: Litestar) -> bytes:
    return msgspec.json.encode(completed(app.openapi_schema.to_schema(), app.state.get(PAGES, ())))


@get("/")
async def about(request: HttpRequest) -> dict[str, list[str]]:
    """The paths of this API, for `GET /`."""
    schema = await asyncio.to_thread(lambda: request.app.openapi_schema)
    return {"paths": sorted(schema.paths or ())}


_WRITES = (writes.create_topic, writes.delete_topic, altering.alter_topic)
_READS = (
    topics.topics,
    reads.topic,
    reads.topic_configs,
    reads.topic_events,
    reads.request_,
    reads.brokers,
    reads.events,
    reads.follow,
    reads.explanation,
    overviews.requests,
    overviews.summary,
    overviews.timeline,
    overviews.topic_timeline,
    overviews.broker,
    overviews.diff,
    overviews.policies,
    overviews.quorum,
)
_LOG_HEADS = (log_heads.log_head, log_heads.log_proof, log_heads.log_leaves)
_ABOUT = (describe, about)
_HEALTH = (health.live, health.ready, health.metrics)
_SIMULATED = (simulated.add, simulated.stop, simulated.start, simulated.delay)


class Parts(msgspec.Struct, frozen=True):
    """What the handlers work with."""

    api: ControllerApi
    brokers: Brokers | BrokerControl | None
    query: Questions
    metrics: Metrics
    reading: Reading
    stopping: Stopping
    followers: Followers
    sign: Sign = unsigned


def build_app(parts: Parts, release: str, reach: Reach, logins: Logins | None = None) -> ASGIApp:
    """The application, under the names that it goes by. Brokers can be added and stopped only where they are a
    simulated one."""
    given: dict[str, object] = {
        "controller_api": parts.api,
        "why_not": lambda: health.why_not_ready(parts.api),
        "trouble": parts.api.archive_error,
        "queries": parts.query,
        "reading": parts.reading,
        "reader": Reader(parts.api, parts.query, parts.reading),
        "figures": parts.metrics,
        "changes": Changes(parts.api, parts.query, parts.reading, parts.stopping),
        "followers": parts.followers,
        "places": Places(),
        "sign": parts.sign,
    }
    handlers = [*_WRITES, *_READS, *_LOG_HEADS]
    if isinstance(parts.brokers, BrokerControl):
        handlers += _SIMULATED
        given["brokers"] = parts.brokers
    description = "Create topics, and see why every topic is as it is, at any moment of the past."
    api = _litestar(handlers, given, "Topicwright", release, description)
    pages = pages_app(given, BODY_BYTES_MAX)
    api.state[PAGES] = frozenset(each.path_format for each in pages.routes)
    app: ASGIApp = Heads(Negotiated(api, pages))
    app = app if logins is None else Authenticated(app, logins)
    return _Measured(Reached(app, reach), parts.metrics)


def build_worker_app(
    why_not: health.WhyNot, trouble: health.WhyNot, metrics: Metrics, release: str, reach: Reach
) -> ASGIApp:
    """A worker's application: whether it lives, whether it is ready, and its figures. It takes no requests of
    clients."""
    given: dict[str, object] = {"why_not": why_not, "trouble": trouble, "figures": metrics}
    description = "Decides what gateways put into the commands topic."
    return Reached(Heads(_litestar([], given, "Topicwright worker", release, description)), reach)


def _litestar(
    versioned: Sequence[HTTPRouteHandler], given: dict[str, object], title: str, release: str, description: str
) -> Litestar:
    return Litestar(
        route_handlers=[
            *_ABOUT,
            *_HEALTH,
            Router(VERSION, route_handlers=versioned),
            Router("/", route_handlers=versioned, include_in_schema=False),
        ],
        dependencies={name: Provide(_giving(part), sync_to_thread=False) for name, part in given.items()},
        guards=[refuse_other_sites, refuse_unknown_parameters, note_wish],
        exception_handlers={Exception: answer_error},
        request_max_body_size=BODY_BYTES_MAX,
        logging_config=None,
        openapi_config=OpenAPIConfig(
            title=title,
            version=release,
            description=description,
            path="/openapi",
            render_plugins=[JsonRenderPlugin(path="/openapi.json")],
            use_handler_docstrings=True,
            operation_id_creator=_operation_id,
        ),
    )


def _operation_id(handler: HTTPRouteHandler, *_: object) -> str:
    """The name of the handler: what clients that are generated call their function."""
    return handler.handler_name.rstrip("_")


def _giving(part: _T) -> Callable[[], _T]:
    def give() -> _T:
        return part

    return give


class _Measured:
    """Measures of each request how long it took until the answer began. A client chooses neither the number nor the
    length of labels: a method that is not known and a path that is none of ours are `other`."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()

        async def measured_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                method, route = str(scope.get("method")), str(scope.get("path_template") or OTHER)
                seconds = time.perf_counter() - started
                self._metrics.http_request(method if method in METHODS else OTHER, route, message["status"], seconds)
            await send(message)

        await self._app(scope, receive, measured_send)
