"""Figures for Prometheus: what the controller counts and measures, at `GET /metrics`.

The controller calls here for every commit, request and answered topic, so a call costs a few hundred nanoseconds: it
adds to plain numbers, and Prometheus' own types are built only when somebody looks. What is a state rather than a
count (the log's offset, topics, brokers) is read at that moment from the controller itself.

Every method but `policy_judged`, which has a thread of its own, is called on the controller's event loop. Only the text
is made in another thread, from numbers that go on changing: a figure there may be a moment newer than its neighbour.

What a client could make up is no label: how many series there are is bounded by what is spoken here.
"""

from __future__ import annotations

import asyncio
import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.release import RELEASE
from projections.text.names import error_word

CONTENT_TYPE = "text/plain; version=0.0.4"

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WAITS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
COUNTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)

_Key = TypeVar("_Key", bound=tuple[object, ...])

Gauges = Callable[[], Iterable[tuple[str, str, float]]]
"""Reads the states of the moment: name without prefix, what it says, value."""


class Distribution:
    """How often values fell into each bucket; `bounds` are the buckets' upper ends, which belong to them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts under each upper bound, as Prometheus wants them."""
        ends = [*(str(bound) for bound in self.bounds), "+Inf"]
        return [(end, float(count)) for end, count in zip(ends, accumulate(self.counts), strict=True)]


class Metrics(Collector):
    """Implements `controller.engine.reports.Figures`, and renders all figures for Prometheus."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)  # process_…: memory, files, cores; on Linux, from /proc
        self._commit_seconds = Distribution(SECONDS)
        self._commit_commands = Distribution(COUNTS)
        self._commit_events = Distribution(COUNTS)
        self._answers: dict[tuple[str, int], int] = {}
        self._waits: dict[str, Distribution] = {}
        self._policies: dict[tuple[str, str], Distribution] = {}
        self._requests: dict[tuple[str, int | str, str], Distribution] = {}
        self._http: dict[tuple[str, str, int], Distribution] = {}
        self._logins: dict[tuple[str, str, str], int] = {}
        self._failed: dict[str, int] = {}
        self._stood_still: dict[str, float] = {}
        self._clock_jumps = 0
        self._gauges: list[Gauges] = []
        self._states: list[tuple[str, str, float]] = []
        self._rendering: asyncio.Task[bytes] | None = None

    # --- what the controller reports

    def committed(self, commands: int, events: int, seconds: float) -> None:
        """A commit of so many commands and events became durable; `seconds` from its write to the end of its fsync."""
        self._commit_seconds.add(seconds)
        self._commit_commands.add(commands)
        self._commit_events.add(events)

    def answered(self, api: str, code: int, waited_ms: int) -> None:
        """A topic of a request was answered with Kafka's error code, after so long a wait."""
        key = (api, code)
        self._answers[key] = self._answers.get(key, 0) + 1
        waits = self._waits.get(api)
        if waits is None:
            waits = self._waits[api] = Distribution(WAITS_S)
        waits.add(waited_ms / 1000)

    def policy_judged(self, policy: str, outcome: str, seconds: float) -> None:
        """A policy judged one topic."""
        _of(self._policies, (policy, outcome)).add(seconds)

    def request(self, api: str, version: int | str, outcome: str, seconds: float) -> None:
        """A request of Kafka's wire was answered, or not; `seconds` from reading it to handing over the answer."""
        _of(self._requests, (api, version, outcome)).add(seconds)

    def command_failed(self, command: str) -> None:
        """Deciding on a command of this kind raised."""
        self._failed[command] = self._failed.get(command, 0) + 1

    def stood_still(self, cause: str, seconds: float) -> None:
        """The event loop stood still for so long, in a function of the project; see `controller.serving.loop_watch`."""
        self._stood_still[cause] = max(seconds, self._stood_still.get(cause, 0.0))

    def clock_jumped(self) -> None:
        """The wall clock was set."""
        self._clock_jumps += 1

    def login(self, listener: str, mechanism: str, outcome: str) -> None:
        """Somebody logged in, or could not."""
        key = (listener, mechanism, outcome)
        self._logins[key] = self._logins.get(key, 0) + 1

    def http_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request over HTTP was answered; `route` is the pattern of its path."""
        _of(self._http, (method, route, status)).add(seconds)

    def watch(self, gauges: Gauges) -> None:
        """Read these states too whenever somebody looks."""
        self._gauges.append(gauges)

    # --- what Prometheus reads

    async def rendered(self) -> bytes:
        """All figures in Prometheus' text format. Whoever comes while they are written gets the same ones."""
        if self._rendering is None:
            self._rendering = asyncio.create_task(self._render())
            self._rendering.add_done_callback(self._have_rendered)
        return await asyncio.shield(self._rendering)

    async def _render(self) -> bytes:
        self._states = [state for gauges in self._gauges for state in gauges()]
        return await asyncio.to_thread(self.render)

    def _have_rendered(self, _: object) -> None:
        self._rendering = None

    def render(self) -> bytes:
        """All figures in Prometheus' text format, with the states as they were last read."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All figures as Prometheus' own types."""
        yield from self._commits()
        yield from self._answered()
        yield _family("policy_seconds", "Time that a policy took for one topic.", ("policy", "outcome"), self._policies)
        yield _family(
            "request_seconds", "Requests of Kafka's wire, by outcome.", ("api", "version", "outcome"), self._requests
        )
        logins = CounterMetricFamily("topicwright_logins", "Logins.", labels=("listener", "mechanism", "outcome"))
        for labels, count in self._logins.copy().items():
            logins.add_metric(labels, count)
        yield logins
        yield _family("http_request_seconds", "Requests over HTTP.", ("method", "route", "status"), self._http)
        yield from self._troubles()
        build = GaugeMetricFamily("topicwright_build_info", "What runs; always 1.", labels=("release", "python"))
        build.add_metric((RELEASE, platform.python_version()), 1)
        yield build
        for name, says, value in self._states:
            yield GaugeMetricFamily(f"topicwright_{name}", says, value)

    def _commits(self) -> Iterator[Metric]:
        yield _single("commit_seconds", "From the write of a commit to the end of its fsync.", self._commit_seconds)
        yield _single("commit_commands", "Commands that shared one fsync.", self._commit_commands)
        yield _single("commit_events", "Events in one commit.", self._commit_events)

    def _troubles(self) -> Iterator[Metric]:
        failed = CounterMetricFamily("topicwright_commands_failed", "Commands that raised.", labels=("command",))
        for command, count in self._failed.copy().items():
            failed.add_metric((command,), count)
        yield failed
        longest = GaugeMetricFamily(
            "topicwright_loop_standstill_seconds_max", "Longest stand-still of the event loop.", labels=("cause",)
        )
        for cause, seconds in self._stood_still.copy().items():
            longest.add_metric((cause,), seconds)
        yield longest
        yield CounterMetricFamily("topicwright_clock_jumps", "Times that the wall clock was set.", self._clock_jumps)

    def _answered(self) -> Iterator[Metric]:
        answers = CounterMetricFamily("topicwright_answers", "Topics answered, by error.", labels=("api", "error"))
        for (api, code), count in self._answers.copy().items():
            answers.add_metric((api, error_word(code)), count)
        yield answers
        waits = {(api,): waits for api, waits in self._waits.copy().items()}
        yield _family("answer_wait_seconds", "From the request to the answer for a topic.", ("api",), waits)


def _of(distributions: dict[_Key, Distribution], key: _Key) -> Distribution:
    found = distributions.get(key)
    if found is None:
        found = distributions[key] = Distribution(SECONDS)
    return found


def _single(name: str, says: str, values: Distribution) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"topicwright_{name}", says, buckets=values.buckets(), sum_value=values.total)


def _family(
    name: str, says: str, labels: tuple[str, ...], distributions: dict[_Key, Distribution]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"topicwright_{name}", says, labels=labels)
    for key, values in distributions.copy().items():
        family.add_metric(tuple(map(str, key)), buckets=values.buckets(), sum_value=values.total)
    return family
