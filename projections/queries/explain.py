"""Why is it so? The chain of events behind a topic or a request, in words, each with its time and its cause.

A topic's chain holds every event of its name, through all its lives, with the requests that were refused. A request's
chain holds its own events, and beside them what happened to its topics until each was answered. Where an event follows
from a change of brokers, the step names that change.

What it does not do: it judges nothing and adds nothing that is not in the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Literal

import msgspec

from events import catalog
from events.catalog import Cause, CreationRefused, Event, Partition, Recorded, TopicDeleted, TopicReady, TopicVanished
from events.followed import FOLLOW, followed
from events.names import BrokerId, TopicName
from projections.queries.query import Ends, NoTopic, NotThere, Query, Questions
from projections.text.moments import iso
from projections.text.names import error_name
from projections.text.wording import in_words, many, recorded_in_words
from projections.views.requests import RequestRow, RequestTopicRow, request_row
from projections.views.topics import TopicPast, fold_topic, standing

STEPS_FIRST, STEPS_LAST = 100, 400
"""Of a longer chain only this many steps at its beginning and at its end are shown."""


class Step(msgspec.Struct, frozen=True):
    """One event of a chain. `after_ms` counts from the chain's first event; `because` names the change of brokers that
    it follows from, "" where there is none; `command` and `request_id` are its cause."""

    offset: int
    at_ms: int
    after_ms: int
    event: str
    text: str
    command: str
    request_id: str
    because: str = ""
    partition: int | None = None
    """The partition that the offset belongs to; None in a log without partitions."""


class Explanation(msgspec.Struct, frozen=True):
    """The chain behind a topic or a request. `omitted` steps are left out after the first STEPS_FIRST of a long one."""

    subject: str
    kind: Literal["topic", "request"]
    summary: str
    steps: tuple[Step, ...]
    omitted: int = 0


def explain(query: Questions, subject: str, at: str | None = None) -> Explanation:
    """The chain behind the topic of this name or, if no event speaks of such a topic, the request of this id.

    Raises NotThere, BadMoment.
    """
    try:
        return explain_topic(query, subject, at)
    except NoTopic:
        pass
    try:
        return explain_request(query, subject, at)
    except NotThere:
        raise nothing_to_explain(subject) from None


def nothing_to_explain(subject: str) -> NotThere:
    """The error for what is neither a topic nor a request."""
    return NotThere(f"no topic and no request {subject!r} is in the log")


def explain_topic(query: Questions, name: str, at: str | None = None) -> Explanation:
    """The chain behind the topic of this name, now or as it was at a moment. Raises NoTopic, BadMoment."""
    part = query.of_topic(name)
    end = part.end(at)
    if next(part.topic_events(name, 0, end), None) is None:
        raise NoTopic(f"no event speaks of a topic {name!r}")
    return _explain_topic(part, name, end)


def explain_request(query: Questions, request_id: str, at: str | None = None) -> Explanation:
    """The chain behind the request of this id, now or as it was at a moment. Raises NotThere, BadMoment."""
    ends = query.end(at)
    return _explain_request(query, query.request(request_id, ends), ends)


def _explain_topic(query: Query, name: str, end: int) -> Explanation:
    past = TopicPast()
    chain = _Chain()
    because = Because(query, end)
    for record in query.topic_events(name, 0, end):
        past = fold_topic(past, record)
        chain.add(record, because)
    return chain.explanation(name, "topic", _topic_summary(query, name, past, end))


def _topic_summary(query: Query, name: str, past: TopicPast, end: int) -> str:
    row = past.row
    if row is not None:
        by = f" by {row.created_by.principal} over {row.created_by.api}" if row.created_by is not None else ""
        now = standing(row, query.live_at(end)).status
        return f"topic {name}: {now}, {many(len(row.partitions), 'partition')}, created {iso(row.created_at_ms)}{by}"
    if past.deletion is not None:
        return f"topic {name}: deleted {iso(past.deletion.at_ms)} by {past.deletion.principal}"
    return f"topic {name}: never created, only requested"


def _explain_request(query: Questions, request: RequestRow, ends: Ends) -> Explanation:
    chain = _Chain()
    found = [_events_with_causes(part, request.request_id, end) for part, end in zip(query.parts, ends, strict=True)]
    several = len(found) > 1  # then offsets of different partitions have no order, and times do
    for record, because in merge(*found, key=lambda one: (one[0].at_ms if several else 0, one[0].offset)):
        chain.add(record, because)
    decided = followed(Cause(request.api, request.request_id))
    if decided is not None:
        summary = f"{request.request_id}: {decided.words}, {decided.place}, at {iso(request.requested_at_ms)}"
        return chain.explanation(request.request_id, "request", summary)
    fared = ", ".join(
        f"{one.topic} {one.status}" + (f" {error_name(one.code)}" if one.code else "") for one in request.topics[:10]
    )
    more = f" and {len(request.topics) - 10} more" if len(request.topics) > 10 else ""
    who = request.principal + (f" ({request.client_id})" if request.client_id else "")
    fared = f": {fared}{more}" if fared else ""
    summary = f"request {request.request_id}: {request.api} by {who} at {iso(request.requested_at_ms)}{fared}"
    return chain.explanation(request.request_id, "request", summary)


def _events_with_causes(part: Query, request_id: str, end: int) -> Iterator[tuple[Recorded, Because]]:
    """The events of one part that explain a request, in order."""
    request = request_row(part.request_events(request_id, end))
    if request is None:
        return
    because = Because(part, end)
    if request.api == FOLLOW:
        yield from ((record, because) for record in part.request_events(request_id) if record.offset < end)
        return
    topics = [_during_request(part, request, topic, end) for topic in request.topics]
    of_cluster = (one for one in part.request_events(request_id, end) if not hasattr(one.event, "topic"))
    for record in merge(of_cluster, *topics, key=lambda record: record.offset):
        yield record, because


ENDS = TopicDeleted | TopicVanished | CreationRefused
"""What ends the life of a topic."""


def _during_request(query: Query, request: RequestRow, topic: RequestTopicRow, end: int) -> Iterator[Recorded]:
    """What happened to a topic from the first event of a request to its last, or until the topic was complete where the
    request did not live to see that; without what others requested."""
    unfinished = topic.status in ("waiting", "timed-out")
    last = end if unfinished else topic.offset + 1
    for record in query.topic_events(topic.topic, request.requested_offset, last):
        requested_by = getattr(record.event, "request_id", "")
        if requested_by in ("", request.request_id) or isinstance(record.event, ENDS):
            yield record
        if record.offset > topic.offset and isinstance(record.event, TopicReady | ENDS):
            return


class _Chain:
    """Collects the steps of an explanation, and no more of them than are shown."""

    def __init__(self) -> None:
        self._first: list[Step] = []
        self._last: deque[Step] = deque(maxlen=STEPS_LAST)
        self._count = 0
        self._started_ms = 0

    def add(self, record: Recorded, because: Because) -> None:
        """One more event of the chain, in order, with what it came of."""
        if self._count == 0:
            self._started_ms = record.at_ms
        step = Step(
            record.offset,
            record.at_ms,
            record.at_ms - self._started_ms,
            type(record.event).__name__,
            recorded_in_words(record),
            record.cause.command,
            record.cause.request_id,
            because.of(record),
            because.partition,
        )
        (self._first if self._count < STEPS_FIRST else self._last).append(step)
        self._count += 1

    def explanation(self, subject: str, kind: Literal["topic", "request"], summary: str) -> Explanation:
        steps = (*self._first, *self._last)
        return Explanation(subject, kind, summary, steps, self._count - len(steps))


_REVIEW = "ReviewTopics"
_REPORT = "AlterPartition"
"""What a leader reports may come of a change of brokers, or of a replica that is slow."""
_OUT = (
    catalog.BrokerFenced,
    catalog.BrokerUnregistered,
    catalog.BrokerLeaving,
    catalog.BrokerRegistered,
    catalog.LogDirsChanged,
)
_CHANGES = (*_OUT, catalog.BrokerUnfenced)
_OfPartition = catalog.LeaderElected | catalog.IsrChanged | catalog.PartitionChanged
_NOBODY: frozenset[BrokerId] = frozenset()


class _Stand(msgspec.Struct, frozen=True):
    """Who leads a partition (-1 for nobody), is in sync, and may lead if nobody is in sync."""

    leader: BrokerId
    isr: frozenset[BrokerId]
    eligible: frozenset[BrokerId] = _NOBODY


class Because:
    """Names the change of brokers that an event follows from. Events of a topic are given in order."""

    def __init__(self, part: Query, end: int) -> None:
        self.partition = part.partition
        self._all: list[Recorded] = []
        self._of_broker: dict[BrokerId, list[Recorded]] = {}
        self._stands: dict[tuple[TopicName, int], _Stand] = {}
        for record in part.broker_events(end):
            event = record.event
            if isinstance(event, _CHANGES) and _is_change(event):
                self._all.append(record)
                self._of_broker.setdefault(event.broker_id, []).append(record)

    def of(self, record: Recorded) -> str:
        """The change in words; "" where the event follows from none."""
        out, into = self._moved(record.event)
        if record.cause.command not in (_REVIEW, _REPORT):
            return ""
        before = record.offset
        if out or into:
            found = [*self._taking(out, before, record.cause.command), *self._bringing(into, before)]
            change = max(found, key=lambda one: one.offset, default=None)
        else:
            change = self._newest(None, before) if record.cause.command == _REVIEW else None
        return f"{in_words(change.event)} at offset {change.offset}" if change is not None else ""

    def _taking(self, brokers: Iterable[BrokerId], before: int, command: str) -> Iterator[Recorded]:
        """What took each of these out, the newest of each. A report of one that is back is of a slow replica."""
        for broker_id in brokers:
            newest = self._newest(broker_id, before)
            if command == _REPORT and newest is not None and isinstance(newest.event, catalog.BrokerUnfenced):
                continue
            yield from self._last(broker_id, before, _OUT)

    def _bringing(self, brokers: Iterable[BrokerId], before: int) -> Iterator[Recorded]:
        for broker_id in brokers:
            yield from self._last(broker_id, before, (catalog.BrokerUnfenced,))

    def _last(self, broker_id: BrokerId, before: int, kinds: tuple[type, ...]) -> Iterator[Recorded]:
        """The newest change of a broker that is of these kinds, if there is one."""
        changes = self._of_broker.get(broker_id, [])
        for number in range(_count(changes, before), 0, -1):
            if isinstance(changes[number - 1].event, kinds):
                yield changes[number - 1]
                return

    def _newest(self, broker_id: BrokerId | None, before: int) -> Recorded | None:
        """The newest change of a broker, or of any."""
        changes = self._all if broker_id is None else self._of_broker.get(broker_id, [])
        count = _count(changes, before)
        return changes[count - 1] if count else None

    def _moved(self, event: Event) -> tuple[frozenset[BrokerId], frozenset[BrokerId]]:
        """The brokers that the event takes out of a partition, and those that it brings in; it is kept how the
        partition stands after it."""
        match event:
            case catalog.TopicCreated() | catalog.TopicDiscovered():
                self._note(event.topic, 0, event.partitions)
            case catalog.PartitionsAdded():
                self._note(event.topic, event.first, event.partitions)
            case catalog.PlaceholderFilled():
                return _NOBODY, frozenset((event.broker_id,))
            case catalog.LeaderElected() | catalog.IsrChanged() | catalog.PartitionChanged():
                key = (event.topic, event.partition)
                stood = self._stands.get(key)
                after = self._stands[key] = _after(stood, event)
                return _difference(stood, after) if stood is not None else (_NOBODY, _NOBODY)
            case _:
                pass
        return _NOBODY, _NOBODY

    def _note(self, topic: TopicName, first: int, partitions: Iterable[Partition]) -> None:
        for index, one in enumerate(partitions, first):
            eligible = _NOBODY if one.upkeep is None else frozenset(one.upkeep.elr)
            self._stands[topic, index] = _Stand(one.leader, frozenset(one.isr), eligible)


def _is_change(event: Event) -> bool:
    """Whether partitions may stand otherwise for it; they do for a registration only after an unclean end."""
    return not isinstance(event, catalog.BrokerRegistered) or (event.details is not None and not event.details.clean)


def _count(changes: list[Recorded], before: int) -> int:
    """How many of these are before an offset."""
    return bisect_left(changes, before, key=lambda one: one.offset)


def _after(stood: _Stand | None, event: _OfPartition) -> _Stand:
    kept = stood or _Stand(BrokerId(-1), _NOBODY)
    return _Stand(
        kept.leader if event.leader is None else event.leader,
        kept.isr if event.isr is None else frozenset(event.isr),
        kept.eligible if not isinstance(event, catalog.PartitionChanged) or event.elr is None else frozenset(event.elr),
    )


def _difference(stood: _Stand, after: _Stand) -> tuple[frozenset[BrokerId], frozenset[BrokerId]]:
    """Who is out, and who is in. Where somebody comes into sync, others may cease to be eligible only for that."""
    out, into = stood.isr - after.isr, after.isr - stood.isr
    if after.leader != stood.leader:
        if stood.leader >= 0:
            out |= {stood.leader}
        elif after.leader >= 0:
            into |= {after.leader}
    if not into:
        out |= stood.eligible - after.eligible - after.isr
    return out, into
