"""Changes for `/v1/changes`, and for the differences between two points in time: who changed what, in which request."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from events import access, catalog
from events.catalog import Recorded
from events.codec import decode_event
from events.logs.log import read_one
from projections.queries.events import EventFilter, Listing, Window, next_cursor, of_topics, starts
from projections.queries.query import Queries, Query
from projections.views.events import RecordedChangesView, RecordedChangeView, change_view

KINDS: tuple[type, ...] = (
    catalog.TopicCreated, catalog.PartitionsAdded, catalog.TopicConfigsChanged, catalog.TopicDeleted,
    catalog.TopicDiscovered, catalog.TopicVanished, catalog.ResourceConfigsChanged, catalog.FeaturesChanged,
    catalog.SettingsChanged, catalog.RulesApplied, access.AclsCreated, access.AclsDeleted, access.QuotasChanged,
    access.ScramCredentialSet, access.ScramCredentialRemoved,
)  # fmt: skip
CHANGES = tuple(kind.__name__ for kind in KINDS)
"""The types of events that somebody caused. Changes of brokers, leaders and ISRs are not among them."""
AFTER_CHANGE = 3
"""The rules that a change breaks, and its approval, are in one of so many events after it, in the same decision."""


def changes_page(
    query: Queries,
    window: Window,
    topic: str | None = None,
    principal: str | None = None,
    is_wanted: Callable[[str], bool] | None = None,
) -> RecordedChangesView:
    """A page of changes, the newest first. `topic` and `principal` may be patterns; `is_wanted` is true for the names
    of topics. Raises InvalidPointInTime, BadPlace."""
    which = replace(of_topics(topic), types=CHANGES, principal=principal, is_wanted=is_wanted)
    if which.topic is not None:
        query = Queries((query.of_topic(which.topic),))
    end, until = window.ends(query)
    page = Listing(query.parts, which).newest(until, window.limit, starts(query, window.since))
    parts = {part.partition: part for part in query.parts}
    views = tuple(_change(parts[partition], record) for partition, record in page.events)
    return RecordedChangesView(views, next_cursor(page.next_place), query.as_of(end))


def newest_changes(part: Query, name: str, start: int, end: int, limit: int) -> tuple[RecordedChangeView, ...]:
    """The newest changes of a topic between two offsets."""
    page = Listing((part,), EventFilter(name, types=CHANGES)).newest((end,), limit, (start,))
    return tuple(_change(part, record) for _, record in page.events)


def _change(part: Query, record: Recorded) -> RecordedChangeView:
    after = range(record.offset + 1, min(record.offset + 1 + AFTER_CHANGE, part.end()))
    followed = [decode_event(offset, read_one(part.log, offset)).event for offset in after]
    observed = (one for one in followed if isinstance(one, catalog.RulesObserved))
    subject = [getattr(record.event, name, None) for name in ("request_id", "topic")]
    same = (one for one in observed if [one.request_id, one.topic] == subject)
    decided = (one for one in followed if isinstance(one, catalog.ApprovalDecided) and one.outcome == "approved")
    approvers = (one.principal for one in decided if [one.reason, one.name] == subject)
    return change_view(record, next(same, None), next(approvers, ""), part.partition)
