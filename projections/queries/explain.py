"""Explains a topic or a request by the chain of events behind it, as sentences with times and causes (`/v1/explain`).

The chain of a topic has every event of its name, including earlier topics of that name and refused requests. The chain
of a request has its own events, and the events of its topics until each was answered.

Method. A step is one event of the chain. It names the broker change that led to the event, if there is one. Topics are
reconciled after brokers changed, and several brokers may have changed by then. So `Because` compares the partition
before and after the event. A broker that was removed points to the newest change that removes brokers (fencing,
controlled shutdown, an unclean restart, ...); a broker that was added points to its newest unfencing. The newest of
these is named.

Non-goals: repeating the rules by which partitions change, and naming causes that are not in the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import Any, Literal

from msgspec.structs import replace

from events import catalog
from events.catalog import Cause, CreationRefused, Event, Partition, Recorded, TopicDeleted, TopicReady, TopicVanished
from events.external_decision import FOLLOW, external_decision
from events.names import BrokerId, RequestId
from projections.queries.events import newest_of
from projections.queries.health import waiting_text, waits_for
from projections.queries.query import NotFound, NoTopic, Queries, Query
from projections.queries.topics import issues_of
from projections.text.names import error_name_and_code
from projections.text.points_in_time import iso
from projections.text.wording import client_text, event_text, many, recorded_text
from projections.views.events import STEPS_BEFORE_GAP, CauseView, ExplanationView, StepView
from projections.views.requests import RequestTopicView, RequestView, request_view
from projections.views.rows import TopicPast, deleted_by, fold_topic
from projections.views.topics import health
from projections.views.view import view_of

STEPS_AFTER_GAP = 400
"""A longer chain has the first STEPS_BEFORE_GAP and the last STEPS_AFTER_GAP steps."""


def nothing_to_explain(subject: str) -> NotFound:
    """The error for a name that is neither a topic nor a request."""
    return NotFound(f"no topic and no request {subject!r} is in the log")


def explain_topic(query: Queries, name: str, at: str | None = None) -> ExplanationView:
    """The chain of the topic of this name, now or at a point in time. Raises NoTopic, InvalidPointInTime."""
    part = query.of_topic(name)
    end = part.end(at)
    past, chain, because = TopicPast(), _Chain(), Because(part, end)
    for record in part.events_of(name, 0, end):
        past = fold_topic(past, record)
        if isinstance(record.event, catalog.MetadataPropagated) and past.row is not None:  # rows do not fold it
            past = replace(past, row=replace(past.row, propagated=past.row.propagated + record.event.brokers))
        chain.add(record, because)
    if not chain.count:
        raise NoTopic(f"there was never a topic {name!r}")
    return chain.explanation(name, "topic", _topic_summary(part, name, past, end))


def explain_request(query: Queries, request_id: str, at: str | None = None) -> ExplanationView:
    """The chain of the request with this id, now or at a point in time. Raises NotFound, InvalidPointInTime."""
    ends = query.end(at)
    request, chain, approvals = query.request(request_id, ends), _Chain(), dict[str, str]()
    found = [_events_with_causes(part, request.request_id, end) for part, end in zip(query.parts, ends, strict=True)]
    several = len(found) > 1  # then events are ordered by time: offsets are per partition
    for record, because in merge(*found, key=lambda one: (one[0].at_ms if several else 0, one[0].offset)):
        chain.add(record, because)
        event = record.event
        if (
            isinstance(event, catalog.ApprovalRequested | catalog.ApprovalDecided)
            and event.request_id == request.request_id
        ):
            approvals[event.name] = event_text(event)
    decided = external_decision(Cause(request.api, RequestId(request.request_id)))
    if decided is not None:
        summary = f"{request.request_id}: {decided.summary}, {decided.position}, at {request.requested_at}"
        return chain.explanation(request.request_id, "request", summary)
    who = client_text(request.principal, request.client_id)
    asked = f"request {request.request_id}: {request.api} by {who} at {request.requested_at}"
    summary = f"{_outcomes(request)}; {asked}" if request.topics else asked
    if approvals:
        summary = f"{'; '.join(islice(approvals.values(), 10))}; at first {summary}"
    return chain.explanation(request.request_id, "request", summary)


def _outcomes(request: RequestView) -> str:
    outcomes = ", ".join(
        f"{one.topic} {one.status}" + (f" {error_name_and_code(one.code)}" if one.code else "")
        for one in request.topics[:10]
    )
    if len(request.topics) > 10:
        return f"{outcomes} and {len(request.topics) - 10} more"
    (first, *others) = request.topics
    rule = f" by {first.rule}" if first.rule else ""
    return outcomes if others or not first.message else f"{outcomes}{rule}: {first.message.rstrip('.')}"


def _topic_summary(part: Query, name: str, past: TopicPast, end: int) -> str:
    """The conclusion first: the problems of the topic with their causes; then the facts of its creation or end."""
    row = past.row
    if row is not None:
        by = f" by {row.created_by.principal} over {row.created_by.api}" if row.created_by is not None else ""
        cluster = part.cluster_at(end)
        now = health(row, cluster.live).status
        facts = f"Topic {name}: {now}, {many(len(row.partitions), 'partition')}, created {iso(row.created_at_ms)}{by}"
        conclusions = [f"{one.text}: {one.cause}. To do: {one.resolution}" for one in issues_of(part, row, end)]
        if now == "pending":
            kind, brokers = waits_for(row, cluster.live)
            conclusions += [f"{name} is not ready: it waits for {waiting_text(kind, brokers)}"] if brokers else []
        return ". ".join((*conclusions, facts))
    if past.deletion is not None:
        return f"Topic {name}: deleted {iso(past.deletion.at_ms)} by {deleted_by(past.deletion)}"
    return str(part.no_topic(name, end))


def _events_with_causes(part: Query, request_id: str, end: int) -> Iterator[tuple[Recorded, Because]]:
    request = request_view(part.request_events(request_id, end))
    if request is None:
        return
    is_over = request.api != FOLLOW and not any(one.status in UNFINISHED for one in request.topics)
    last = max((one.offset + 1 for one in request.topics), default=end) if is_over else end
    because = Because(part, last)
    if request.api == FOLLOW:
        yield from ((record, because) for record in part.request_events(request_id) if record.offset < end)
        return
    topics = [_during_request(part, request, topic, end) for topic in request.topics]
    of_cluster = (one for one in part.request_events(request_id, end) if not hasattr(one.event, "topic"))
    for record in merge(of_cluster, *topics, key=lambda record: record.offset):
        yield record, because


UNFINISHED = ("waiting", "timed-out")
ENDS = TopicDeleted | TopicVanished | CreationRefused
"""Events that end a topic."""


def _during_request(query: Query, request: RequestView, topic: RequestTopicView, end: int) -> Iterator[Recorded]:
    """The events of a topic from the first of a request to its last, without those of other requests. If the request
    timed out, its events follow until the topic is ready."""
    last = end if topic.status in UNFINISHED else topic.offset + 1
    for record in query.events_of(topic.topic, request.requested_offset, last):
        requested_by = getattr(record.event, "request_id", "")
        if requested_by in ("", request.request_id) or isinstance(record.event, ENDS):
            yield record
        if record.offset > topic.offset and isinstance(record.event, TopicReady | ENDS):
            return


class _Chain:
    """Collects the first and the last steps of an explanation."""

    def __init__(self) -> None:
        self._first: list[tuple[Recorded, Because]] = []
        self._last: deque[tuple[Recorded, Because]] = deque(maxlen=STEPS_AFTER_GAP)
        self.count = 0

    def add(self, record: Recorded, because: Because) -> None:
        (self._first if self.count < STEPS_BEFORE_GAP else self._last).append((record, because))
        self.count += 1

    def explanation(self, subject: str, kind: Literal["topic", "request"], summary: str) -> ExplanationView:
        steps = tuple(self._step(record, because) for record, because in (*self._first, *self._last))
        omitted = self.count - len(steps)
        return ExplanationView(subject=subject, kind=kind, summary=summary, steps=steps, omitted=omitted)

    def _step(self, record: Recorded, because: Because) -> StepView:
        return view_of(
            StepView,
            record,
            after_ms=record.at_ms - self._first[0][0].at_ms,
            event=type(record.event).__name__,
            text=recorded_text(record),
            because=because.of(record),
            cause=view_of(CauseView, record.cause),
            partition=because.partition,
        )


_RECONCILE = "ReconcileTopics"
_REPORT = "AlterPartition"
"""The command by which a leader reports an ISR. A broker change or a slow replica causes it."""
_OUT = (
    catalog.BrokerFenced,
    catalog.BrokerUnregistered,
    catalog.BrokerLeaving,
    catalog.BrokerRegistered,
    catalog.LogDirsChanged,
)
_CHANGES = (*_OUT, catalog.BrokerUnfenced)
BY_RULES = "policy:rules/"
_NOBODY: frozenset[BrokerId] = frozenset()
CHANGES_BEFORE = 500
"""The cause of an event is seldom a change of a broker before so many other events of the cluster."""


class Because:
    """Finds the broker change or the version of the rules that led to an event below offset `end`."""

    def __init__(self, part: Query, end: int) -> None:
        self.partition, self._part, self._end = part.partition, part, end
        self._versions: list[Recorded] = []
        """The versions of the rules that were needed so far, the newest first."""
        self._before, self._changes, self._more = -1, list[Recorded](), iter(list[Recorded]())

    def of(self, record: Recorded) -> str:
        """The change as a sentence; "" if there is none."""
        if isinstance(record.event, catalog.RulesObserved) or getattr(record.event, "rule", "").startswith(BY_RULES):
            version = self._version(record.offset)
            return "" if version is None else f"{event_text(version.event)} at offset {version.offset}"
        if record.cause.command not in (_RECONCILE, _REPORT):
            return ""
        removed, added = _moved(record.event)
        before, is_report = record.offset, record.cause.command == _REPORT
        if removed or added:
            found = [self._newest(before, broker_id, (catalog.BrokerUnfenced,)) for broker_id in added]
            for broker_id in removed:
                newest = self._newest(before, broker_id)
                is_live = newest is not None and isinstance(newest.event, catalog.BrokerUnfenced)
                if not (is_report and is_live):  # a report about a broker that is live again is about a slow replica
                    found.append(self._newest(before, broker_id, _OUT))
            change = max(filter(None, found), key=lambda one: one.offset, default=None)
        else:
            change = None if is_report else self._newest(before)
        return f"{event_text(change.event)} at offset {change.offset}" if change is not None else ""

    def _newest(
        self, before: int, broker_id: BrokerId | None = None, kinds: tuple[type[Any], ...] = _CHANGES
    ) -> Recorded | None:
        """The newest change of a broker, or of any, that has one of these types."""
        changes = (one for one in self._changes_before(before) if isinstance(one.event, kinds))
        return next((one for one in changes if broker_id in (None, one.event.broker_id)), None)

    def _changes_before(self, before: int) -> Iterator[Any]:
        """The changes of brokers below an offset, the newest first. Those that were read are kept for a second call."""
        if before != self._before:
            records = islice(newest_of(self._part, None, before), CHANGES_BEFORE)
            more = (one for one in records if isinstance(one.event, _CHANGES) and _is_change(one.event))
            self._before, self._changes, self._more = before, [], more
        yield from self._changes
        for record in self._more:
            self._changes.append(record)
            yield record

    def _version(self, before: int) -> Recorded | None:
        """The version of the rules that applied to the event at an offset."""
        end = self._end
        for version in self._versions:
            if version.offset < before:
                return version
            end = version.offset
        while (rules := self._part.cluster_at(end).rules) is not None:
            end = rules.offset
            self._versions += self._part.events_of(None, end, end + 1)
            if end < before:
                return self._versions[-1]
        return None


def _is_change(event: Event) -> bool:
    """True if partitions may change because of it; a registration changes them only after an unclean shutdown."""
    return not isinstance(event, catalog.BrokerRegistered) or (event.details is not None and not event.details.clean)


def _moved(event: Event) -> tuple[frozenset[BrokerId], frozenset[BrokerId]]:
    """The brokers that the event removes from a partition, and those that it adds. When a broker joins the ISR, the ELR
    may shrink only because of that."""
    if not isinstance(event, catalog.PartitionChanged):
        return _NOBODY, _NOBODY
    before, after = event.before, event.after
    removed, added = frozenset(before.isr) - set(after.isr), frozenset(after.isr) - set(before.isr)
    if event.has_new_leader:
        if before.leader >= 0:
            removed |= {before.leader}
        elif after.leader >= 0:
            added |= {after.leader}
    if not added:
        removed |= _elr(before) - _elr(after) - set(after.isr)
    return removed, added | set(event.filled)


def _elr(partition: Partition) -> frozenset[BrokerId]:
    return frozenset(partition.replica_metadata.elr if partition.replica_metadata is not None else ())
