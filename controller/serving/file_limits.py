"""How many connections the limit on open files leaves room for: the log, its indexes and sockets of our own come first.

A process that has spent its file descriptors on idle clients can no longer write its log.
"""

from __future__ import annotations

import resource
from typing import Final

import structlog

from controller.kafka.server.service import UNLIMITED, ConnectionCounts
from controller.settings.load import ServeSettings

KEPT_MAX: Final = 2048
"""File descriptors that are never given to connections: a RocksDB opens at most 512 tables; gateways have several."""


def raise_file_limit() -> int:
    """Raise the soft limit on open files to the hard one; the limit that holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # more than the system's own limit: what there is must do
            hard = soft
    return UNLIMITED if hard == resource.RLIM_INFINITY else hard


def connection_counts(settings: ServeSettings) -> ConnectionCounts:
    """The limits on connections of all doors together: those of the settings, within what open files allow."""
    limit = raise_file_limit()
    room = limit - min(KEPT_MAX, limit // 2)
    if settings.max_connections != UNLIMITED and settings.max_connections > room:
        structlog.get_logger("topicwright").warning(
            "max.connections is more than open files allow", max_connections=settings.max_connections, allowed=room,
            open_files=limit,
        )  # fmt: skip
    return ConnectionCounts(settings.max_connections_per_ip, settings.max_connections_per_ip_overrides, room)
