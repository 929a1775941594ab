"""GET handlers of the JSON API: requests, events, explanations, brokers, health, what-if questions, differences and
tree heads, now or in the past.

A tree head (`/v1/log`) is the number of events and the root of the Merkle tree over them (RFC 9162), for auditors who
check that the log was not changed. Handlers return heads, inclusion proofs of events, and leaves. They need Describe on
the topic or the cluster, as for the events. An event with a secret appears only as its hash.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Annotated, Literal

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream
from msgspec.structs import replace

from controller.http import requests as parameters
from controller.http.errors import HttpRequest, invalid
from controller.http.following import Followers, ndjson, server_sent
from controller.http.metrics import process_issues
from controller.http.permissions import Reader, SealedCursors
from controller.http.requests import OFFSET_MAX
from controller.store.topic_indexes import unhealthy
from events.logs.log import LogError
from events.logs.tree_heads import EVENTS_MAX, Head, Proof
from projections.queries import overviews, proving
from projections.queries.activity import timeline_page
from projections.queries.differences import difference
from projections.queries.events import EventFilter, Window, changes_page, events_page, of_topics
from projections.queries.explain import explain_request, explain_topic, nothing_to_explain
from projections.queries.health import waiting_issues
from projections.queries.query import NotFound, NoTopic, Queries, Query
from projections.queries.requests import RequestFilter, requests_page
from projections.queries.topics import Counted, labelled
from projections.text.names import Outcome, is_pattern
from projections.views import overviews as cluster_views
from projections.views.brokers import BrokersView
from projections.views.events import EventsView, ExplanationView, RecordedChangesView, TimelineView
from projections.views.requests import RequestsView, RequestView

NDJSON, SERVER_SENT = "application/x-ndjson", "text/event-stream"
SPANS_MAX = 500
WAITING_CHECKED_MAX = 200
_Reader = NamedDependency[Reader]


@get("/requests")
async def requests(
    reader: _Reader,
    principal: parameters.Glob = None,
    outcome: Annotated[
        Outcome | None, QueryParameter(description="Outcome of a topic of the request; `done` without topics")
    ] = None,
    rule: parameters.Glob = None,
    api: parameters.Glob = None,
    host: parameters.Glob = None,
    label: parameters.Label = None,
    since: parameters.From = None,
    until: parameters.To = None,
    at: parameters.At = None,
    limit: parameters.Limit = 100,
    cursor: parameters.Cursor = None,
) -> Response[RequestsView]:
    """Requests of clients, newest first, in pages: all, or those by a principal, with an outcome of a topic (`done`
    without topics), rejected by a rule, of an API (CreateTopics, …, or HTTP), or from a client's address.

    Callers without Describe on the cluster see their own requests, and those for which they may describe every topic.
    A page examines a bounded number of requests, so it may have fewer results than `limit` and still a `next_cursor`.
    """
    wanted = labelled(reader.queries, label, reader.allows)
    which = RequestFilter(principal, outcome, rule, api, host, wanted)
    return await reader.answer(requests_page, which, Window(since, until, at, limit, cursor), reader.may_list)


@get("/requests/{request_id:str}")
async def request_(request_id: FromPath[str], reader: _Reader, at: parameters.At = None) -> Response[RequestView]:
    """One request with the outcome of each topic."""
    await reader.require_request(request_id)
    return await reader.answer(lambda queries: queries.request(request_id, queries.end(at)))


@get("/explain/{subject:str}")
async def explanation(
    subject: FromPath[str],
    reader: _Reader,
    at: parameters.At = None,
    of: Annotated[
        Literal["topic", "request"] | None,
        QueryParameter(description="Whether the subject is a topic or a request; default: a topic if there is one"),
    ] = None,
) -> Response[ExplanationView]:
    """Explain a topic or a request: its chain of events, as text."""
    if of == "topic":
        reader.require(subject)
    if of != "request" and reader.allows(subject):
        with suppress(NoTopic):
            return await reader.answer(explain_topic, subject, at)
        if of == "topic" or not await reader.may_see_request(subject):
            raise nothing_to_explain(subject)
    try:
        await reader.require_request(subject)
        return await reader.answer(explain_request, subject, at)
    except NotFound:
        raise nothing_to_explain(subject) from None


@get("/events")
async def events(
    reader: _Reader,
    since: parameters.From = None,
    limit: parameters.Limit = 100,
    topic: parameters.Glob = None,
    principal: parameters.Glob = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    kind: parameters.EventType = None,
    order: parameters.EventOrder = "oldest",
    partition: parameters.Partition = None,
    cursor: parameters.Cursor = None,
    at: parameters.At = None,
) -> Response[EventsView]:
    """Events in order: all, or those of topics, a principal, a request, or a type.

    If the log has partitions, events are ordered by time. `from` is then a time, or an offset in the given partition or
    in the partition of the topic.
    """
    which = _which(reader, topic, principal, request_id, kind)
    window = Window(since, None, at, limit, cursor)
    return await reader.answer(events_page, which, window, partition, newest=order == "newest")


def _which(
    reader: Reader, topic: str | None, principal: str | None, request_id: str | None, kind: str | None
) -> EventFilter:
    """The wanted events. Raises Refused if the caller may not read them."""
    types = () if kind is None else (kind,)
    which = replace(of_topics(topic), request_id=request_id, types=types, principal=principal)
    reader.require(which.topic)
    return which


@get("/events/follow", media_type=NDJSON)
async def follow(
    request: HttpRequest,
    reader: _Reader,
    followers: NamedDependency[Followers],
    since: parameters.From = None,
    topic: parameters.Glob = None,
    principal: parameters.Glob = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    kind: parameters.EventType = None,
    partition: parameters.Partition = None,
    cursor: parameters.Cursor = None,
) -> Stream:
    """Stream events as they become durable, from an offset, a time or now: one JSON object per line, and an empty line
    every few seconds as a heartbeat. With `Accept: text/event-stream` the response is server-sent events; send
    `Last-Event-ID` to resume."""
    which = _which(reader, topic, principal, request_id, kind)
    is_sse = SERVER_SENT in request.headers.get("accept", "")
    write, media_type = (server_sent, SERVER_SENT) if is_sse else (ndjson, NDJSON)
    place = request.headers.get("last-event-id", cursor) if is_sse else cursor
    may_see = partial(reader.allows, which.topic)
    lines = followers.follow(which, since, may_see, partition, place, write)
    return Stream(lines, headers={"content-type": media_type, "cache-control": "no-store"})


@get("/timeline")
async def timeline(
    reader: _Reader,
    since: parameters.From = None,
    until: parameters.To = None,
    at: parameters.At = None,
    spans: Annotated[int, QueryParameter(ge=1, le=SPANS_MAX, description="Number of equal time spans")] = 100,
) -> Response[TimelineView]:
    """Activity over time: the time from the first to the last event, in spans of equal length."""
    reader.require()
    health = reader.api.store.durable_tallies.health if until is None and at is None else None
    return await reader.answer(timeline_page, Window(since, until, at, spans), health)


@get("/brokers")
async def brokers(reader: _Reader, at: parameters.At = None) -> Response[BrokersView]:
    """All brokers, live and fenced, and the settings that decisions depend on."""
    reader.require()
    return await reader.answer(overviews.brokers, at)


@get("/brokers/{broker_id:int}")
async def broker(
    broker_id: FromPath[int], reader: _Reader, at: parameters.At = None
) -> Response[cluster_views.BrokerDetailView]:
    """One broker, with its newest events."""
    reader.require()
    load = None if at is not None else reader.api.store.durable_tallies.brokers.get(broker_id, (0, 0))
    return await reader.answer(overviews.broker, broker_id, at, load)


@get("/health")
async def cluster_health(reader: _Reader, at: parameters.At = None) -> Response[cluster_views.ClusterHealthView]:
    """The state of the cluster: problems with their causes, brokers, counts, refusals of the last day by rule, and the
    newest requests. The status is 200 whatever the state; `/health/ready` is for supervisors."""
    reader.require()
    if at is not None:
        return await reader.answer(overviews.health, at)
    api, status, store = reader.api, reader.api.controller.status(), reader.api.store
    counts, pending = store.durable_counts, status.topics_waiting
    found = chain.from_iterable(unhealthy(part.log) for part in reader.queries.parts)
    counted = Counted(counts.topics, counts.partitions, pending, store.durable_tallies, found)
    topics, now_ms = store.durable_waiting(WAITING_CHECKED_MAX), api.controller.now_ms()
    waiting = waiting_issues(topics, pending, api.cluster, now_ms)
    return await reader.answer(overviews.health, at, counted, tuple(process_issues(api)), waiting)


@get("/policies")
async def policies(reader: _Reader, at: parameters.At = None) -> Response[cluster_views.PoliciesView]:
    """The rules for changes of topics."""
    reader.require()
    return await reader.answer(overviews.policies, at, reader.api.controller.now_ms())


@get("/access")
async def access(
    reader: _Reader,
    text: Annotated[str, QueryParameter(name="filter", description="Only rows that contain this text.")] = "",
) -> Response[cluster_views.AccessView]:
    """The effective ACLs, users and quotas: at most 1000 of each."""
    reader.require()
    cluster, authorizer = reader.api.cluster, reader.api.authorizer
    if authorizer is not None and authorizer.of_cluster is not None:
        cluster = await authorizer.of_cluster(cluster)
    return await reader.answer(overviews.access, cluster, text)


@get("/diff")
async def diff(
    reader: _Reader,
    cursors: NamedDependency[SealedCursors],
    since: parameters.FromPointInTime,
    until: parameters.To = None,
    limit: parameters.Limit = 100,
    cursor: parameters.Cursor = None,
) -> Response[cluster_views.DifferenceView]:
    """The differences between two points in time: topics by name, in pages. The first page has brokers, settings and
    permissions too, if the caller may describe the cluster."""
    after = cursors.open(cursor)
    return await reader.answer(
        difference, since, until, after, limit, reader.allows, with_cluster=reader.allows(), place=cursors.seal
    )


@get("/changes")
async def changes(
    reader: _Reader,
    topic: parameters.Glob = None,
    principal: parameters.Glob = None,
    label: parameters.Label = None,
    since: parameters.From = None,
    until: parameters.To = None,
    at: parameters.At = None,
    limit: parameters.Limit = 100,
    cursor: parameters.Cursor = None,
) -> Response[RecordedChangesView]:
    """Changes of topics, configs, rules, permissions, quotas and users, newest first: who changed what, with the values
    before and after."""
    reader.require(None if is_pattern(topic) else topic)
    wanted = labelled(reader.queries, label, reader.allows)
    return await reader.answer(changes_page, Window(since, until, at, limit, cursor), topic, principal, wanted)


@get("/quorum")
async def quorum(reader: _Reader) -> cluster_views.QuorumView:
    """Voters, leader, and since when it leads, as this voter sees them; 404 if this service is not a voter."""
    reader.require()
    api = reader.api
    if api.quorum is None:
        raise NotFound("this service is not a voter of a controller quorum: that needs serve --brokers kraft, or join")
    return api.quorum()


NewestHead = Callable[[Query, int, int], Head]
"""Returns the tree head for the inclusion proof of an event, given the event's partition and offset, and the time. It
runs in a thread, and only the event loop's thread takes the time of stamps, so that they never go back."""
_Sign = NamedDependency[proving.Sign]


@get("/log/head")
async def log_head(reader: _Reader, sign: _Sign, partition: parameters.Partition = None) -> Response[proving.HeadView]:
    """The tree head: the number of events and the root of the Merkle tree over them (RFC 9162). It is signed if the
    service has a key."""
    reader.require()
    part, now_ms = proving.part_of(reader.queries, partition), reader.api.controller.now_ms()
    return await reader.threads.answer(lambda: proving.HeadView(sign(proving.head_of(part, now_ms))))


@get("/log/proof")
async def log_proof(
    reader: _Reader,
    newest_head: NamedDependency[NewestHead],
    offset: Annotated[int | None, QueryParameter(ge=0, le=OFFSET_MAX, description="Prove this event")] = None,
    topic: FromQuery[str | None] = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    start: parameters.FromOffset = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=EVENTS_MAX, description="Maximum number of results")] = 100,
    partition: parameters.Partition = None,
    size: Annotated[
        int | None, QueryParameter(ge=0, le=OFFSET_MAX, description="Prove against the head over the first N events")
    ] = None,
) -> Response[Proof]:
    """An inclusion proof for one event, or for those of a topic or a request. Check it with the public key of the
    service, or with a head of the log."""
    if [offset, topic, request_id].count(None) != 2:
        raise invalid("give exactly one of offset, topic and request")
    if request_id is not None:
        await reader.require_request(request_id)
    else:
        reader.require(topic)
    which, first = EventFilter(topic, request_id), start if offset is None else offset
    now_ms = reader.api.controller.now_ms()

    def head_for(part: Query, at: int) -> Head:
        return newest_head(part, at, now_ms)

    return await reader.answer(proving.prove, which, first, limit, partition, size, head_for)


@get("/log/leaves")
async def log_leaves(
    reader: _Reader,
    start: parameters.FromOffset = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=proving.LEAVES_MAX, description="Maximum number of results")] = 100,
    partition: parameters.Partition = None,
) -> Response[proving.Leaves]:
    """The leaves of the Merkle tree: the canonical bytes of the events in order, in pages."""
    reader.require()
    return await reader.threads.answer(proving.leaves, proving.part_of(reader.queries, partition), start, limit)


def head_gauges(queries: Queries) -> Iterator[tuple[str, str, float]]:
    """The tree head of the first partition as gauges for `/metrics`."""
    part = queries.parts[0]
    with suppress(LogError):
        head = proving.head_of(part, 0)
        yield "log_head_size", "Events that the head of the log covers.", head.size
        text = "The first six bytes of the root as a number; equal logs of equal size have equal roots."
        yield "log_head_root", text, int(head.root[:12], 16)
        at_ms = part.as_of(head.size).at_ms or 0
        yield "log_head_timestamp_seconds", "Time of the newest event that the head covers.", at_ms / 1000
