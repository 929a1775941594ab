"""The HTTP application: which paths there are, what their handlers are given, and how requests are measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
from litestar import Litestar, Request, get
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from controller.brokers.fleet import Fleet
from controller.http import asking, health, seeing, simulated
from controller.http.authentication import Authenticated, Logins
from controller.http.errors import answer_error
from controller.http.following import Followers
from controller.http.guards import refuse_other_sites, refuse_unknown_parameters
from controller.http.metrics import Metrics
from controller.http.reading import Reading
from controller.http.simulated import SimulatedBrokers
from controller.http.stopping import Stopping
from controller.runtime.front import Front
from projections.questions import Questions

BODY_BYTES_MAX = 4 << 20
"""Enough for a manual assignment of 100,000 partitions."""


@get("/openapi.json", include_in_schema=False, media_type="application/vnd.oai.openapi+json")
async def describe(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """What there is and how it is asked for, as an OpenAPI document."""
    return request.app.openapi_schema.to_schema()


@get("/")
async def about(request: Request[Any, Any, Any]) -> dict[str, list[str]]:
    """The paths that there are."""
    return {"paths": sorted(request.app.openapi_schema.paths or ())}


_ASKING = (asking.create_topic, asking.delete_topic)
_SEEING = (
    seeing.topics,
    seeing.topic,
    seeing.topic_events,
    seeing.request_,
    seeing.brokers,
    seeing.events,
    seeing.follow,
    seeing.explanation,
)
_ABOUT = (describe, about)
_HEALTH = (health.live, health.ready, health.metrics)
_SIMULATED = (simulated.add, simulated.stop, simulated.start, simulated.delay)


class Parts(msgspec.Struct, frozen=True):
    """What the handlers work with."""

    front: Front
    fleet: Fleet | SimulatedBrokers | None
    query: Questions
    metrics: Metrics
    reading: Reading
    stopping: Stopping
    followers: Followers


def build_app(parts: Parts, release: str, logins: Logins | None = None) -> ASGIApp:
    """The application. Brokers can be added and stopped only where the fleet is a simulated one."""
    given: dict[str, object] = {
        "front": parts.front,
        "queries": parts.query,
        "figures": parts.metrics,
        "reading": parts.reading,
        "stopping": parts.stopping,
        "followers": parts.followers,
    }
    handlers = [*_ABOUT, *_ASKING, *_SEEING, *_HEALTH]
    if isinstance(parts.fleet, SimulatedBrokers):
        handlers += _SIMULATED
        given["fleet"] = parts.fleet
    app = Litestar(
        route_handlers=handlers,
        dependencies={name: Provide(_giving(part), sync_to_thread=False) for name, part in given.items()},
        guards=[refuse_other_sites, refuse_unknown_parameters],
        exception_handlers={Exception: answer_error},
        request_max_body_size=BODY_BYTES_MAX,
        logging_config=None,
        openapi_config=OpenAPIConfig(
            title="Topicwright",
            version=release,
            description="Create topics, and see why every topic is as it is, at any moment of the past.",
            path="/openapi",
            render_plugins=[JsonRenderPlugin(path="/openapi.json")],
            use_handler_docstrings=True,
        ),
    )
    return _Measured(app if logins is None else Authenticated(app, logins), parts.metrics)


def _giving(part: object) -> Callable[[], Any]:
    def give() -> Any:
        return part

    return give


class _Measured:
    """Tells the figures of each request how long it took until the answer began."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()

        async def measured_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = scope.get("path_template") or "(none)"
                seconds = time.perf_counter() - started
                self._metrics.http_request(str(scope.get("method", "")), str(route), message["status"], seconds)
            await send(message)

        await self._app(scope, receive, measured_send)
