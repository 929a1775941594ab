"""Serves the alerts of `topicwright replay watch` over HTTP: `/alerts` (JSON), and `/metrics` for Prometheus."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from projections.replay.outcome import ReplayError

ALERTS_SHOWN_MAX = 1000
"""The number of newest alerts in a response; the metrics count all alerts."""
METRICS_TYPE = "text/plain; version=0.0.4"


class Alerts:
    """The alerts so far, and the offsets checked. Written by one thread, read by any."""

    def __init__(self, checks: Iterable[str]) -> None:
        self._newest: deque[Mapping[str, Any]] = deque(maxlen=ALERTS_SHOWN_MAX)
        self._reported: set[tuple[Any, ...]] = set()
        self._lock = threading.Lock()
        self.next_offsets: dict[int, int] = {}
        self.registry = CollectorRegistry()
        of_check = "topicwright_invariant_violations", "Violations of the invariants found in the log.", ("check",)
        self._violations = Counter(*of_check, registry=self.registry)
        self._events = Counter("topicwright_watched_events", "Events checked.", registry=self.registry)
        of_offset = "topicwright_watched_offset", "The offset up to which is checked."
        self._offset = Gauge(*of_offset, registry=self.registry)
        for check in checks:
            self._violations.labels(check)

    def add(self, violation: Mapping[str, Any]) -> bool:
        """Add a violation; False if it was added before."""
        key = tuple(violation[name] for name in ("check", "log_partition", "shard", "offset", "seen"))
        with self._lock:
            if key in self._reported:
                return False
            self._reported.add(key)
            self._newest.append(violation)
        self._violations.labels(violation["check"]).inc()
        return True

    def reached(self, events: int, next_offsets: Mapping[int, int]) -> None:
        """Record that so many more events were checked, up to these offsets by log partition."""
        with self._lock:
            self.next_offsets = dict(next_offsets)
        self._events.inc(events)
        self._offset.set(self.next_offset)

    @property
    def next_offset(self) -> int:
        """The offset up to which events were checked; for several partitions, the number of checked events."""
        return sum(self.next_offsets.values())

    @property
    def count(self) -> int:
        return len(self._reported)

    def as_json(self) -> bytes:
        """The newest alerts, oldest first, as JSON."""
        with self._lock:
            body = {
                "next_offset": self.next_offset,
                "next_offsets": {str(partition): offset for partition, offset in self.next_offsets.items()},
                "count": self.count,
                "alerts": list(self._newest),
            }
        return msgspec.json.encode(body)


@contextmanager
def serving(address: str | None, alerts: Alerts) -> Iterator[str | None]:
    """Serve the alerts on HOST:PORT during the `with` block; yields the address, with the actual port for 0. Raises
    ReplayError."""
    if not address:
        yield None
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ReplayError(f"--http {address} is not HOST:PORT")
    try:
        server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(alerts))
    except (OSError, OverflowError) as error:
        raise ReplayError(f"cannot listen on {address}: {error}") from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="alerts", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(alerts: Alerts) -> type[BaseHTTPRequestHandler]:
    pages: dict[str, tuple[str, Callable[[], bytes]]] = {
        "/alerts": ("application/json", alerts.as_json),
        "/metrics": (METRICS_TYPE, partial(generate_latest, alerts.registry)),
    }

    class Handler(BaseHTTPRequestHandler):
        """Serves GET requests for `/alerts` and `/metrics`."""

        timeout = 10

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            if page is None:
                self.send_error(HTTPStatus.NOT_FOUND, explain=f"there are {', '.join(pages)}")
                return
            content_type, body = page[0], page[1]()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Log nothing: stdout and stderr are for alerts."""

    return Handler
