"""The view of a problem of the cluster, for health, what-if questions and explanations."""

from __future__ import annotations

from typing import Literal

import msgspec

IssueKind = Literal[
    "offline",
    "under-min-isr",
    "unclean-risk",
    "at-min-isr",
    "placeholders",
    "under-replicated",
    "waiting-creates",
    "slow-propagation",
    "no-live-broker",
    "broker-away",
    "log-not-writable",
    "controller-failed",
    "quorum-without-majority",
    "cluster-unreachable",
    "archive-lost",
    "stale-gateway",
    "starting",
]
Severity = Literal["critical", "warning"]


class IssueView(msgspec.Struct, frozen=True):
    """A problem of the cluster with its cause, as sentences.

    Each unhealthy partition counts in one problem, its worst. `waits_for` are the brokers that end it, `began_at` is
    null if unknown, `examples` are some of its topics, and `evidence` are paths of pages, and below `/v1` of the API.
    """

    kind: IssueKind
    severity: Severity
    text: str
    cause: str
    resolution: str
    began_at: str | None = None
    began_at_ms: int | None = None
    partitions: int = 0
    topics: int = 0
    waits_for: tuple[int, ...] = ()
    examples: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
