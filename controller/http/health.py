"""Liveness, readiness and metrics of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from litestar import Response, get
from litestar.di import NamedDependency

from controller.controller_api import ControllerApi
from controller.http.metrics import CONTENT_TYPE, Metrics
from projections.views.view import HealthView

OPEN_PATHS: Final = frozenset({"/health/live", "/health/ready"})
"""Open without a login and beyond connection limits: supervisors have no password, and ask when the service is busy."""

WhyNot = Callable[[], str | None]
"""Returns what is wrong; None if nothing is."""


@get("/health/live")
async def live() -> HealthView:
    """200 while the process answers."""
    return HealthView(status="live")


@get("/health/ready")
async def ready(why_not: NamedDependency[WhyNot], archive_error: NamedDependency[WhyNot]) -> Response[HealthView]:
    """200 if requests can be decided and recorded (`reason` then names other problems); else 503 with the reason."""
    reason = why_not()
    if reason is None:
        return Response(HealthView(status="ready", reason=archive_error() or ""))
    return Response(HealthView(status="not ready", reason=reason), status_code=503)


@get("/metrics", media_type=CONTENT_TYPE)
async def metrics(metrics: NamedDependency[Metrics]) -> Response[bytes]:
    """Metrics in Prometheus' text format."""
    return Response(await metrics.rendered(), media_type=CONTENT_TYPE)


def why_not_ready(api: ControllerApi) -> str | None:
    """Why requests cannot be decided now; None if they can."""
    status = api.controller.status()
    if status.failure is not None:
        return f"the controller has failed: {status.failure}"
    if status.storage_error is not None:
        return f"the log cannot be written: {status.storage_error}"
    brokers_error = api.brokers_error()
    if brokers_error is not None:
        return brokers_error
    if not api.cluster.release:
        return "starting: the settings are not recorded yet"
    return None


def states(api: ControllerApi) -> Iterator[tuple[str, str, float]]:
    """Current states as gauges: name, description, value."""
    status, cluster, counts = api.controller.status(), api.cluster, api.store.durable_counts
    partitions = api.store.durable_tallies.health
    yield "log_offset", "Offset of the next durable event.", status.events_durable
    yield "topics", "Topics that exist.", counts.topics
    yield "partitions", "Partitions that exist.", counts.partitions
    yield "partitions_under_replicated", "Partitions with a replica out of the ISR.", partitions.under_replicated
    yield "partitions_offline", "Partitions without a leader.", partitions.offline
    yield "placeholders", "Replicas that wait for a broker to join (KIP-409).", partitions.placeholders
    yield "topics_pending", "Topics that have not been complete yet.", status.topics_waiting
    yield "requests_in_flight", "Requests that are not answered yet.", status.requests_open
    yield "brokers_registered", "Registered brokers.", len(cluster.brokers)
    yield "brokers_live", "Brokers that are not fenced.", len(cluster.live)
    yield "ready", "1 if requests can be decided and recorded.", float(why_not_ready(api) is None)
