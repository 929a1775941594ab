"""Whether the service lives, whether it is ready to decide, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from litestar import Response, get
from litestar.di import NamedDependency

from controller.controller_api import ControllerApi
from controller.http.metrics import CONTENT_TYPE, Metrics
from projections.views.json_types import HealthView

OPEN_PATHS: Final = frozenset({"/health/live", "/health/ready"})
"""What is for everybody at any time: whoever restarts a service has no password, and comes when it is busy."""

WhyNot = Callable[[], str | None]
"""Why the process is not ready; None when it is."""


@get("/health/live")
async def live() -> HealthView:
    """200 for as long as the process answers at all."""
    return HealthView(status="live")


@get("/health/ready")
async def ready(why_not: NamedDependency[WhyNot], trouble: NamedDependency[WhyNot]) -> Response[HealthView]:
    """200 when requests are decided and recorded, with what else is not as it should be; 503, with the reason, when
    they cannot be."""
    reason = why_not()
    if reason is None:
        return Response(HealthView(status="ready", reason=trouble() or ""))
    return Response(HealthView(status="not ready", reason=reason), status_code=503)


@get("/metrics", media_type=CONTENT_TYPE)
async def metrics(figures: NamedDependency[Metrics]) -> Response[bytes]:
    """Figures for Prometheus, in its text format."""
    return Response(await figures.rendered(), media_type=CONTENT_TYPE)


def why_not_ready(api: ControllerApi) -> str | None:
    """Why requests cannot be decided now; None when they can."""
    standing = api.controller.standing()
    if standing.failure is not None:
        return f"deciding has ended: {standing.failure}"
    if standing.storage_error is not None:
        return f"the log cannot be written: {standing.storage_error}"
    trouble = api.fleet_trouble()
    if trouble is not None:
        return trouble
    if not api.cluster.release:
        return "not started: the settings are not recorded yet"
    return None


def states(api: ControllerApi) -> Iterator[tuple[str, str, float]]:
    """The states of the moment, as gauges: name, what it says, value."""
    standing, cluster, counts = api.controller.standing(), api.cluster, api.store.durable_counts
    trouble = api.store.durable_tallies.health
    yield "log_offset", "The offset that the next durable event will have.", standing.events_durable
    yield "topics", "Topics that exist.", counts.topics
    yield "partitions", "Partitions that exist.", counts.partitions
    yield "partitions_under_replicated", "Partitions with a replica out of sync.", trouble.under_replicated
    yield "partitions_offline", "Partitions without a leader.", trouble.offline
    yield "placeholders", "Replicas that wait for a broker (KIP-409).", trouble.placeholders
    yield "topics_pending", "Topics that were never complete yet.", standing.topics_waiting
    yield "requests_in_flight", "Requests that are not answered yet.", standing.requests_open
    yield "brokers_registered", "Brokers that are known.", len(cluster.brokers)
    yield "brokers_live", "Brokers that are not fenced.", len(cluster.live)
    yield "ready", "1 when requests are decided and recorded.", float(why_not_ready(api) is None)
