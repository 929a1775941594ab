"""Metrics for Prometheus at `GET /metrics`, and the liveness and readiness of the process at `/health/…`.

The engine, the Kafka listeners and the HTTP server call the methods of `Metrics` for every commit, request and answered
topic. A call costs less than a microsecond: the children of labelled metrics are cached, because looking one up costs
more than counting, and histograms count without locks. Gauges (log offset, topics, brokers)
are read from the controller on each scrape.

All methods but `policy_judged`, which policies call in their own thread, run on the controller's event loop. The text
is rendered in another thread while counting goes on, so two values may be some milliseconds apart.

No label takes a value that a client chooses freely, so the number of series is bounded.
"""

import asyncio
import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Final

import prometheus_client
from litestar import Response, get
from litestar.di import NamedDependency
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.controller_api import ControllerApi
from controller.release import RELEASE
from projections.queries.health import issue, kind_of
from projections.text.names import error_name
from projections.views.view import HealthView, IssueView

CONTENT_TYPE = "text/plain; version=0.0.4"

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WAITS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
COUNTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)

Gauges = Callable[[], Iterable[tuple[str, str, float]]]
"""Returns the current gauges: name without prefix, description, and value of each."""

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class OneThreadHistogram(prometheus_client.Histogram):
    """A histogram that only one thread counts into, such as the event loop's: without locks, in a fifth of the time."""

    def observe(self, amount: float, exemplar: object = None) -> None:
        del exemplar
        self._sum._value += amount
        self._buckets[bisect_left(self._upper_bounds, amount)]._value += 1.0


class Metrics(Collector):
    """Implements `controller.engine.reports.Figures`."""

    def __init__(self) -> None:
        self._registry = registry = prometheus_client.CollectorRegistry(auto_describe=False)
        registry.register(self)
        prometheus_client.ProcessCollector(registry=registry)  # process_…: memory, files, CPU; on Linux, from /proc

        def histogram(
            name: str, text: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS
        ) -> OneThreadHistogram:
            return OneThreadHistogram(f"topicwright_{name}", text, labels, buckets=buckets, registry=registry)

        def counter(name: str, text: str, labels: Sequence[str] = ()) -> prometheus_client.Counter:
            return prometheus_client.Counter(f"topicwright_{name}", text, labels, registry=registry)

        self._commit_seconds = histogram("commit_seconds", "Time to write a commit and fsync it.")
        self._commit_commands = histogram("commit_commands", "Commands in one commit.", buckets=COUNTS)
        self._commit_events = histogram("commit_events", "Events in one commit.", buckets=COUNTS)
        answers = counter("answers", "Topics answered, by error.", ("api", "error"))
        self._answers = cache(lambda api, code: answers.labels(api, error_name(code)))
        waits = histogram("answer_wait_seconds", "Time from a request to the answer for a topic.", ("api",), WAITS_S)
        self._waits = cache(waits.labels)
        policies = histogram("policy_seconds", "Time that a policy took for one topic.", ("policy", "outcome"))
        self._policies = cache(policies.labels)
        requests = histogram("request_seconds", "Duration of Kafka requests.", ("api", "version", "outcome"))
        self._requests = cache(requests.labels)
        self._logins = counter("logins", "Login attempts, by outcome.", ("listener", "mechanism", "outcome"))
        http = histogram("http_request_seconds", "Duration of HTTP requests.", ("method", "route", "status"))
        self._http = cache(http.labels)
        self._failed = counter("commands_failed", "Commands that raised an exception.", ("command",))
        self._rules_failed = counter("rules_failed", "Recorded failures of expressions in rules.")
        text = "Longest time that the event loop was blocked."
        self._blocked = prometheus_client.Gauge(
            "topicwright_loop_blocked_seconds_max", text, ("cause",), registry=registry
        )
        self._longest_s: dict[str, float] = {}
        self._clock_jumps = counter("clock_jumps", "Times that the wall clock was set.")
        build = prometheus_client.Gauge(
            "topicwright_build_info", "The running release; always 1.", ("release", "python"), registry=registry
        )
        build.labels(RELEASE, platform.python_version()).set(1)
        self._gauges: list[Gauges] = []
        self._states: list[tuple[str, str, float]] = []
        self._rendering: asyncio.Task[bytes] | None = None

    # --- called by the controller

    def committed(self, commands: int, events: int, seconds: float) -> None:
        """A commit became durable, `seconds` after its write began."""
        self._commit_seconds.observe(seconds)
        self._commit_commands.observe(commands)
        self._commit_events.observe(events)

    def answered(self, api: str, code: int, waited_ms: int) -> None:
        """A topic of a request was answered with Kafka's error code."""
        self._answers(api, code).inc()
        self._waits(api).observe(waited_ms / 1000)

    def policy_judged(self, policy: str, outcome: str, seconds: float) -> None:
        self._policies(policy, outcome).observe(seconds)

    def request(self, api: str, version: int | str, outcome: str, seconds: float) -> None:
        """A Kafka request ended; `seconds` from parsing it to queueing the response."""
        self._requests(api, version, outcome).observe(seconds)

    def command_failed(self, command: str) -> None:
        self._failed.labels(command).inc()

    def rules_failed(self, count: int) -> None:
        """Expressions of rules failed on changes, which the log has recorded."""
        self._rules_failed.inc(count)

    def loop_blocked(self, cause: str, seconds: float) -> None:
        """A function of the project blocked the event loop; see `controller.serving.process`."""
        self._longest_s[cause] = max(seconds, self._longest_s.get(cause, 0.0))
        self._blocked.labels(cause).set(self._longest_s[cause])

    def clock_jumped(self) -> None:
        self._clock_jumps.inc()

    def login(self, listener: str, mechanism: str, outcome: str) -> None:
        self._logins.labels(listener, mechanism, outcome).inc()

    def http_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """An HTTP request was answered; `route` is the pattern of its path."""
        self._http(method, route, status).observe(seconds)

    def watch(self, gauges: Gauges) -> None:
        """Read these gauges on every scrape."""
        self._gauges.append(gauges)

    # --- called for a scrape

    async def rendered(self) -> bytes:
        """All metrics as text. Concurrent scrapes share one rendering."""
        if self._rendering is None:
            self._rendering = asyncio.create_task(self._render())
        return await asyncio.shield(self._rendering)

    async def _render(self) -> bytes:
        try:
            self._states = [state for gauges in self._gauges for state in gauges()]
            return await asyncio.to_thread(self.render)
        finally:
            self._rendering = None

    def render(self) -> bytes:
        """All metrics as text, with the gauges as read for the last scrape."""
        return prometheus_client.generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        for name, text, value in self._states:
            yield GaugeMetricFamily(f"topicwright_{name}", text, value)


OPEN_PATHS: Final = frozenset({"/health/live", "/health/ready"})
"""Paths open without a login and beyond connection limits: supervisors have no password, and also probe busy ones."""

WhyNot = Callable[[], str | None]
"""Returns why the process is not ready, or what is wrong with the archive; None if nothing is."""


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


def process_issues(api: ControllerApi) -> Iterator[IssueView]:
    """The problems of this process alone, which no event tells: a failure, a full disk, an unreachable cluster or
    archive."""
    status, brokers_error, archive_error = api.controller.status(), api.brokers_error(), api.archive_error()
    if status.failure is not None:
        text = "this process has failed and decides nothing"
        yield issue("controller-failed", text, str(status.failure), "restart it; its log has the trace")
    if status.storage_error is not None and api.decides_here:
        text = "the log cannot be written: requests are answered KAFKA_STORAGE_ERROR"
        yield issue("log-not-writable", text, status.storage_error, "free or repair the disk; it then continues")
    elif status.storage_error is not None:
        text = "this gateway is stale: its answers may be old, and it accepts no requests"
        step = "check Kafka, and the network between Kafka and this gateway"
        yield issue("stale-gateway", text, status.storage_error, step)
    if brokers_error is not None and api.quorum is not None:
        text = "the controller quorum decides nothing here"
        step = "start or reconnect a majority of the voters, which GET /v1/quorum lists"
        yield issue("quorum-without-majority", text, brokers_error, step, evidence=("/quorum",))
    elif brokers_error is not None:
        text = "decisions are not carried out: the target cluster is unreachable"
        yield issue("cluster-unreachable", text, brokers_error, "check the cluster and the network to it")
    if archive_error is not None:
        text = "the log is not archived"
        yield issue("archive-lost", text, archive_error, "repair the archive; archiving then continues")
    if not api.cluster.release:
        yield issue("starting", "the settings are not recorded yet", "this process is starting", "wait")


def why_not_ready(api: ControllerApi) -> str | None:
    """Why requests cannot be decided now; None if they can."""
    return next((f"{one.text}: {one.cause}" for one in process_issues(api) if one.severity == "critical"), None)


def states(api: ControllerApi) -> Iterator[tuple[str, str, float]]:
    """Current states as gauges: name, description, value."""
    status, cluster, counts = api.controller.status(), api.cluster, api.store.durable_counts
    tallies = api.store.durable_tallies
    partitions = tallies.health
    yield "log_offset", "Offset of the next durable event.", status.events_durable
    yield "topics", "Topics that exist.", counts.topics
    yield "partitions", "Partitions that exist.", counts.partitions
    yield "partitions_under_replicated", "Partitions with a replica out of the ISR.", partitions.under_replicated
    yield "partitions_offline", "Partitions without a leader.", partitions.offline
    kinds = ((kind_of(one, cluster.settings), count) for one, (count, _) in tallies.situations.items())
    under = sum(count for kind, count in kinds if kind == "under-min-isr")
    yield "partitions_under_min_isr", "Partitions that refuse producers with acks=all.", under
    yield "placeholders", "Replicas that wait for a broker to join (KIP-409).", partitions.placeholders
    yield "topics_pending", "Topics that were never ready.", status.topics_waiting
    yield "requests_in_flight", "Requests that are not answered yet.", status.requests_open
    yield "brokers_registered", "Registered brokers.", len(cluster.brokers)
    yield "brokers_live", "Brokers that are not fenced.", len(cluster.live)
    yield "ready", "1 if requests can be decided and recorded.", float(why_not_ready(api) is None)
