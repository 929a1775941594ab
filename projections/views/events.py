"""The views of events in the HTTP API: single events, pages, changes, activity over time, and explanations."""

from typing import Any, Literal

import msgspec

from events import catalog
from events.catalog import Recorded
from events.codec import HIDDEN, without_secrets
from projections.text.names import topic_id_text
from projections.text.wording import changed_values, recorded_text
from projections.views.view import AsOfView, view_of


class CauseView(msgspec.Struct, frozen=True):
    """The command that caused an event."""

    command: str
    request_id: str


class EventView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event; `fields` are those of its type in `events/catalog.py`. `partition` is present if the log is
    partitioned: each partition has offsets of its own."""

    offset: int
    at: str
    at_ms: int
    type: str
    text: str
    """The event as a sentence."""
    cause: CauseView
    fields: dict[str, Any]
    partition: int | None = None


class EventsView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page of events; `next_cursor` is the `cursor` of the next page, absent on the last. The events of several
    partitions are ordered by time."""

    events: tuple[EventView, ...]
    end: int
    """The offset of the next event to come; for several partitions the number of their events."""
    next_cursor: str | None = None


class ValueView(msgspec.Struct, frozen=True):
    """A value before and after; null if unset."""

    name: str
    before: str | None
    after: str | None


class RecordedChangeView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of a topic, a config, a rule or a permission, with its principal (empty if no client requested it) and
    request (empty if none is recorded). `values` are present if the event has the values before. `rules` are those
    that the change breaks in the modes `warn` and `observe`, and those that filled its defaults. `approved_by` is
    absent if the change did not wait for approval."""

    offset: int
    at: str
    at_ms: int
    type: str
    text: str
    """The change as a sentence; a create without its replicas."""
    topic: str | None
    principal: str
    client_id: str | None
    request_id: str
    values: tuple[ValueView, ...]
    rules: tuple[str, ...]
    approved_by: str = ""
    partition: int | None = None


class RecordedChangesView(msgspec.Struct, frozen=True):
    """A page of changes, the newest first; `next_cursor` is the `cursor` of the next page, null on the last."""

    changes: tuple[RecordedChangeView, ...]
    next_cursor: str | None
    as_of: AsOfView


class SpanView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The activity from `start_at` until before `end_at`: the numbers of events, of changes, and of refused requests;
    the highest numbers of offline and under-replicated partitions; the brokers that were fenced.

    The last five are absent in a span before the newest 2,000 events, the numbers of partitions also if the spans do
    not end now."""

    start_at: str
    start_at_ms: int
    end_at: str
    end_at_ms: int
    events: int
    changes: int | None = None
    refused: int | None = None
    offline: int | None = None
    under_replicated: int | None = None
    fenced: tuple[int, ...] | None = None


class TimelineView(msgspec.Struct, frozen=True):
    """The number of events over time; empty if there are no events."""

    spans: tuple[SpanView, ...]
    as_of: AsOfView


class StepView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of an explanation, `after_ms` after the first. `because` names the broker change, or the version of the
    rules, that led to it, if any."""

    offset: int
    at: str
    at_ms: int
    after_ms: int
    event: str
    text: str
    because: str
    cause: CauseView
    partition: int | None = None


STEPS_BEFORE_GAP = 100
"""The steps of a long explanation before the gap."""


class ExplanationView(msgspec.Struct, frozen=True, kw_only=True):
    """The chain of events behind a topic or a request. A long chain lacks `omitted` steps in its middle."""

    subject: str
    kind: Literal["topic", "request"]
    summary: str
    steps: tuple[StepView, ...]
    omitted: int


def change_view(
    record: Recorded, observed: catalog.RulesObserved | None, approved_by: str, partition: int | None = None
) -> RecordedChangeView:
    """A change; `observed` has the rules that were recorded with it."""
    event: Any = record.event
    verdict: catalog.Verdict | None = getattr(event, "verdict", None)
    noted: list[catalog.Observation | catalog.FilledDefault] = [*(() if verdict is None else verdict.observed)]
    if observed is not None:
        noted += (*observed.warned, *observed.observed, *observed.defaults)
    return view_of(
        RecordedChangeView,
        record,
        type=type(event).__name__,
        text=recorded_text(record).partition("; replicas ")[0],
        topic=getattr(event, "topic", None),
        principal=getattr(event, "principal", ""),
        client_id=getattr(event, "client_id", None),
        request_id=getattr(event, "request_id", ""),
        values=tuple(ValueView(*one) for one in changed_values(event)),
        rules=tuple(dict.fromkeys(one.rule for one in noted)),
        approved_by=approved_by,
        partition=partition,
    )


_PAIRS = frozenset(("configs", "settings", "before"))
"""Fields of events that hold pairs of names and values."""


def event_view(record: Recorded, partition: int | None = None) -> EventView:
    """An event with its fields; secrets are hidden."""
    return view_of(
        EventView,
        record,
        type=type(record.event).__name__,
        text=recorded_text(record),
        cause=view_of(CauseView, record.cause),
        fields=_fields(without_secrets(record.event)),
        partition=partition,
    )


def _fields(fact: msgspec.Struct) -> dict[str, object]:
    return {name: _plain(name, getattr(fact, name)) for name in fact.__struct_fields__}


def _nested(fact: msgspec.Struct) -> dict[str, object]:
    """A struct within an event; a tagged one has its tag as `kind`."""
    tag = fact.__struct_config__.tag
    return _fields(fact) if tag is None else {"kind": tag, **_fields(fact)}


def _plain(name: str, value: object) -> object:
    if isinstance(value, bytes):
        return HIDDEN.decode() if value == HIDDEN else topic_id_text(value)
    if not isinstance(value, tuple):
        return _nested(value) if isinstance(value, msgspec.Struct) else value
    if name in _PAIRS:
        return dict(value)
    return [_nested(one) if isinstance(one, msgspec.Struct) else one for one in value]
