"""Base of the views: points in time, errors, problems, and a function that creates a view from a row.

A view is a msgspec struct whose encoding is the JSON of the HTTP API and the command line. The OpenAPI document
describes the views, and the command line decodes them. Topic ids are Kafka's base64url text. A time appears twice:
ISO-8601 in UTC, and under `…_ms` in ms since the epoch.
"""

from typing import Any, Literal, TypeVar

import msgspec

from projections.text.points_in_time import iso

_View = TypeVar("_View", bound=msgspec.Struct)


def maybe_iso(at_ms: int | None) -> str | None:
    """A time as ISO-8601 text; None for None."""
    return None if at_ms is None else iso(at_ms)


def view_of(kind: type[_View], source: object, /, **given: object) -> _View:
    """A view with the given fields. It copies every other field from `source`, and formats `…_at` from `…_at_ms`.

    Types are not checked here, but by a test that decodes the JSON of every view.
    """
    for name in kind.__struct_fields__:
        if name not in given:
            is_time = name == "at" or name.endswith("_at")
            given[name] = maybe_iso(getattr(source, f"{name}_ms")) if is_time else getattr(source, name)
    return kind(**given)


def times(**at_ms: int | None) -> dict[str, Any]:
    """The fields of some times, given by their names without the ending: `…_at` as text, and `…_at_ms`."""
    texts = {f"{name}_at": maybe_iso(time) for name, time in at_ms.items()}
    return {**texts, **{f"{name}_at_ms": time for name, time in at_ms.items()}}


class AsOfView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The point in time that a response describes: the offset and time of its newest event, -1 and null before any.

    A response about one `partition` of a partitioned log has an offset of that partition. A response about all
    partitions has their number of events less one as `offset`, and `ends`: for each the offset after its newest event.
    """

    offset: int
    at: str | None
    at_ms: int | None
    partition: int | None = None
    ends: tuple[int, ...] = ()


class HealthView(msgspec.Struct, frozen=True, kw_only=True):
    """Liveness or readiness of the service. `reason` explains a failure, or names a problem that does not prevent
    deciding."""

    status: str
    reason: str = ""


class ErrorView(msgspec.Struct, frozen=True, kw_only=True):
    """The name and code of Kafka's error, and a message. A refused topic also has the `rule` and the `request_id`."""

    error: str
    code: int
    message: str
    request_id: str = ""
    rule: str = ""


class ProblemView(ErrorView, frozen=True, kw_only=True):
    """An HTTP error response (RFC 9457): `type` and `title` name Kafka's error, `detail` is its message, and `instance`
    the path of the recorded request, empty if there is none."""

    type: str
    title: str
    status: int
    detail: str
    instance: str


def problem(error: ErrorView, status: int) -> ProblemView:
    """An error as an HTTP response (RFC 9457) with this status."""
    return view_of(
        ProblemView,
        error,
        type=f"urn:kafka:error:{error.error}",
        title=error.error.replace("_", " ").capitalize(),
        status=status,
        detail=error.message,
        instance=f"/v1/requests/{error.request_id}" if error.request_id else "",
    )


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
