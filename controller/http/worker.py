"""A worker over HTTP: whether it lives, whether it is ready to decide, and its figures. It answers no asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litestar import Litestar, Response, get
from litestar.di import NamedDependency, Provide
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.types import ASGIApp

from controller.http import health
from controller.http.app import about, describe
from controller.http.errors import answer_error
from controller.http.guards import refuse_other_sites, refuse_unknown_parameters
from controller.http.metrics import Metrics
from controller.http.shapes import HealthShape

WhyNot = Callable[[], str | None]
"""Why the worker is not ready; None when it is."""


@get("/health/ready")
async def ready(why_not: NamedDependency[Any]) -> Response[HealthShape]:
    """200 when the worker decides what its partitions get; 503, with the reason, when it cannot."""
    reason = why_not()
    if reason is None:
        return Response(HealthShape(status="ready"))
    return Response(HealthShape(status="not ready", reason=reason), status_code=503)


def build_worker_app(why_not: WhyNot, metrics: Metrics, release: str) -> ASGIApp:
    """The application."""
    return Litestar(
        route_handlers=[describe, about, health.live, ready, health.metrics],
        dependencies={
            "why_not": Provide(lambda: why_not, sync_to_thread=False),
            "figures": Provide(lambda: metrics, sync_to_thread=False),
        },
        guards=[refuse_other_sites, refuse_unknown_parameters],
        exception_handlers={Exception: answer_error},
        logging_config=None,
        openapi_config=OpenAPIConfig(
            title="Topicwright worker",
            version=release,
            description="Decides what fronts put into the commands topic.",
            path="/openapi",
            render_plugins=[JsonRenderPlugin(path="/openapi.json")],
            use_handler_docstrings=True,
        ),
    )
