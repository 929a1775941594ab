"""Tree heads and proofs over HTTP, for auditors who check that the log was not changed (RFC 9162).

A tree head is the number of events and the root of the Merkle tree over them. Handlers return heads, inclusion proofs
of events, and leaves. They need Describe on the topic or the cluster, as for the events. An event with a secret appears
only as its hash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter

from controller.http.errors import invalid
from controller.http.permissions import Reader
from controller.http.requests import OFFSET_MAX, FromOffset, Partition
from events.logs.log import LogError
from events.logs.tree_heads import EVENTS_MAX, Head, Proof
from projections.queries.events import EventFilter
from projections.queries.proving import (
    LEAVES_MAX,
    Consistency,
    Leaves,
    Sign,
    head_of,
    head_since,
    leaves,
    part_of,
    prove,
)
from projections.queries.query import Queries, Query

NewestHead = Callable[[Query, int], Head]
"""Returns the tree head for the inclusion proof of an event, given the event's partition and offset."""
_Reader = NamedDependency[Reader]
_Sign = NamedDependency[Sign]


@get("/log/head")
async def log_head(
    reader: _Reader,
    sign: _Sign,
    partition: Partition = None,
    since: Annotated[
        int | None, QueryParameter(ge=0, le=OFFSET_MAX, description="Prove consistency with the first N events")
    ] = None,
) -> Response[Consistency]:
    """The tree head: the number of events and the root of the Merkle tree over them (RFC 9162). It is signed if the
    service has a key."""
    reader.require()
    now_ms = reader.api.controller.now_ms()
    return await reader.threads.answer(head_since, part_of(reader.queries, partition), now_ms, since, sign)


@get("/log/proof")
async def log_proof(
    reader: _Reader,
    newest_head: NamedDependency[NewestHead],
    offset: Annotated[int | None, QueryParameter(ge=0, le=OFFSET_MAX, description="Prove this event")] = None,
    topic: FromQuery[str | None] = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    start: FromOffset = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=EVENTS_MAX, description="Maximum number of results")] = 100,
    partition: Partition = None,
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
    return await reader.answer(prove, which, first, limit, partition, size, newest_head)


@get("/log/leaves")
async def log_leaves(
    reader: _Reader,
    start: FromOffset = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=LEAVES_MAX, description="Maximum number of results")] = 100,
    partition: Partition = None,
) -> Response[Leaves]:
    """The leaves of the Merkle tree: the canonical bytes of the events in order, in pages."""
    reader.require()
    return await reader.threads.answer(leaves, part_of(reader.queries, partition), start, limit)


def head_gauges(queries: Queries) -> list[tuple[str, str, float]]:
    """The tree head of the first partition as gauges for `/metrics`."""
    part = queries.parts[0]
    try:
        head = head_of(part, 0)
    except LogError:
        return []
    return [
        ("log_head_size", "Events that the head of the log covers.", head.size),
        (
            "log_head_root",
            "The first six bytes of the root as a number; equal logs of equal size have equal roots.",
            int(head.root[:12], 16),
        ),
        (
            "log_head_timestamp_seconds",
            "Time of the newest event that the head covers.",
            (part.as_of(head.size).at_ms or 0) / 1000,
        ),
    ]
