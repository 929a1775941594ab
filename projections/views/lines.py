"""Formats views as text, the same for the command line and for the HTML pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from projections.text.wording import api_text
from projections.views.events import STEPS_BEFORE_GAP, ExplanationView
from projections.views.requests import RequestSummary, RequestView
from projections.views.rows import CreatedBy
from projections.views.topics import TopicSummary
from projections.views.view import AsOfView


def when(as_of: AsOfView) -> str:
    """The point in time of a response."""
    if as_of.at is None:
        return " before the first event"
    if as_of.ends:
        return f" as of {as_of.offset + 1} events in {len(as_of.ends)} partitions, {as_of.at}"
    return f" as of offset {place(as_of.partition, as_of.offset)}, {as_of.at}"


def status(one: TopicSummary) -> str:
    """The status of a topic, with the number of partitions that cause it."""
    counts = []
    if one.status == "offline":
        counts.append(f"{one.offline_partitions} of {one.num_partitions}")
    elif one.status == "under-replicated":
        counts.append(f"{one.under_replicated_partitions} of {one.num_partitions}")
    if one.placeholders:
        counts.append(f"{one.placeholders} placeholders")
    return f"{one.status} ({', '.join(counts)})" if counts else one.status


def outcomes(one: RequestSummary) -> str:
    """The number of topics by outcome."""
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in one.outcomes.items())


MARKS = {"ready": "good", "created": "good", "offline": "bad", "deleted": "bad"}
GOOD_OUTCOMES = frozenset(("created", "done", "deleted", "partitions-added", "configs-changed"))
BAD_OUTCOMES = frozenset(("rejected", "failed"))


def mark(status: str) -> str:
    """The mark of a topic's status or change: good, bad or warning."""
    return MARKS.get(status, "warning")


def outcome_mark(outcomes: Iterable[str]) -> str:
    """The mark of the worst outcome of a request."""
    each = set(outcomes)
    return "bad" if each & BAD_OUTCOMES else "good" if each <= GOOD_OUTCOMES else "warning"


def api(one: CreatedBy | RequestView) -> str:
    """The API of a request, with its version."""
    return api_text(one.api, one.api_version)


def place(partition: int | None, offset: int) -> str:
    """The offset of an event; PARTITION:OFFSET in a partitioned log."""
    return str(offset) if partition is None else f"{partition}:{offset}"


def explanation(chain: ExplanationView, terminal: int | None = None) -> Iterator[str]:
    """An explanation as a table, wrapped at the width of a terminal if one is given."""
    yield from wrapped("", chain.summary, terminal)
    yield ""
    width = max(len("OFFSET"), *(len(place(step.partition, step.offset)) for step in chain.steps))
    indent = " " * (width + 2 + 24 + 2 + 8 + 2)
    yield f"{'OFFSET':>{width}}  {'TIME':<24}  {'AFTER':>8}  WHAT"
    because = ""
    for number, step in enumerate(chain.steps):
        if chain.omitted and number == STEPS_BEFORE_GAP:
            yield f"{indent}… {chain.omitted} steps are left out; `topicwright events` shows all …"
        start = f"{place(step.partition, step.offset):>{width}}  {step.at}  {span(step.after_ms):>8}  "
        yield from wrapped(start, step.text, terminal)
        if step.because != because and step.because:
            yield from wrapped(indent, f"because {step.because}", terminal)
        because = step.because


TEXT_MIN = 30
"""The least width of wrapped text."""


def wrapped(start: str, text: str, terminal: int | None) -> Iterator[str]:
    """Text after `start`, wrapped at the width of a terminal if one is given."""
    if terminal is None:
        yield start + text
        return
    for number, part in enumerate(wrap(text, max(TEXT_MIN, terminal - len(start))) or [""]):
        yield (" " * len(start) if number else start) + part


def span(milliseconds: int) -> str:
    """A duration in a readable unit."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= size:
            return f"{milliseconds / size:.1f} {unit}"
    return f"{milliseconds} ms"
