"""What `topicwright requests` prints for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from controller.cli.terminal.printing import Look
from controller.cli.terminal.tables import Marked
from projections.views import json_types, lines, overview_types

MARKS = {"rejected": "bad", "failed": "bad", "timed-out": "warning", "waiting": "warning"}
"""How an outcome is shown in colour; any other is good."""
TOPICS_SHOWN = 3


def requests(
    found: Sequence[overview_types.RequestSummary], as_of: json_types.AsOfView, look: Look, more: bool
) -> Iterator[str]:
    """A list of requests; `more` says that there are older ones."""
    if not found:
        yield f"There are no such requests{lines.when(as_of)}."
        return
    rows = (
        (
            "-" if one.counted else one.request_id,
            one.requested_at,
            f"{one.principal} ({one.client_id})" if one.client_id else one.principal,
            one.api,
            _topics(one, look.wide),
            _outcomes(one),
            ",".join(one.rules) or "-",
            *((one.host or "-", one.requested_offset) if look.wide else ()),
        )
        for one in found
    )
    more_columns = ("HOST", "OFFSET") if look.wide else ()
    yield from look.table(("REQUEST", "TIME", "BY", "API", "TOPICS", "OUTCOME", "REFUSED BY", *more_columns), rows)
    if more and look.width is not None:
        yield f"… there are older ones: --limit {2 * len(found)} or --until {found[-1].requested_at} shows more"


def _topics(one: overview_types.RequestSummary, whole: bool) -> str:
    shown = one.topics if whole else one.topics[:TOPICS_SHOWN]
    left = one.num_topics - len(shown)
    return (",".join(shown) + (f" and {left} more" if left else "")) or "-"


def _outcomes(one: overview_types.RequestSummary) -> str:
    return Marked(lines.outcomes(one), mark_of(one.outcomes))


def mark_of(outcomes: Iterable[str]) -> str:
    """The mark of the worst of some outcomes."""
    marks = {MARKS.get(name, "good") for name in outcomes}
    return next((mark for mark in ("bad", "warning") if mark in marks), "good")


def request(one: json_types.RequestView, look: Look) -> Iterator[str]:
    """One request with how each of its topics fared."""
    how = one.api if one.api == "HTTP" else f"{one.api} v{one.api_version}"
    client = f" ({one.client_id})" if one.client_id else ""
    when = f"{one.requested_at}, offset {one.requested_offset}"
    yield f"request {one.request_id}: {how} by {one.principal}{client} at {when}"
    if one.timeout_ms is not None:
        yield f"  waits up to {lines.span(one.timeout_ms)}, until {one.deadline_at}"
    yield ""
    rows = (
        (
            each.topic,
            Marked(each.status, mark_of((each.status,))),
            "-" if each.error is None else each.error,
            each.rule or "-",
            "-" if each.waited_ms is None else lines.span(each.waited_ms),
            each.wanted,
            each.message or "-",
        )
        for each in one.topics
    )
    yield from look.table(("TOPIC", "OUTCOME", "ERROR", "RULE", "WAITED", "WANTED", "MESSAGE"), rows)
    yield ""
    yield f"`topicwright explain {one.request_id}` has its events."
