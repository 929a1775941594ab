"""The log's own proof over HTTP: its head, proofs of events, and its events as they are hashed.

They show no more than the events do: what is of a topic or a request is for who may see that, all else for who may
describe the cluster. Secrets are not shown; of events that hold one there is the hash alone.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter

from controller.controller_api import ControllerApi
from controller.http.errors import HttpRequest, refused
from controller.http.permissions import Reader, need_cluster, need_topic
from controller.http.query_threads import Reading
from controller.machine.errors import ErrorCode
from events.logs.heads import OFFSET_MAX, Head
from events.logs.log import LogError
from events.logs.proofs import EVENTS_MAX, Proof
from projections.queries.proving import (
    LEAVES_MAX,
    Consistency,
    Leaves,
    ProofRequest,
    Sign,
    head_of,
    head_since,
    leaves,
    part_of,
    prove,
)
from projections.queries.query import Query, Questions
from projections.store.tree import TreeBehind

_Gateway = NamedDependency[ControllerApi]
_Queries = NamedDependency[Questions]
_Reading = NamedDependency[Reading]
_Sign = NamedDependency[Sign]
_Partition = Annotated[int | None, QueryParameter(ge=0, le=OFFSET_MAX, description="Of a log in partitions: which one")]
_From = Annotated[int, QueryParameter(name="from", ge=0, le=OFFSET_MAX, description="The offset to begin at")]


@get("/log/head")
async def log_head(
    request: HttpRequest,
    api: _Gateway,
    queries: _Queries,
    reading: _Reading,
    sign: _Sign,
    partition: _Partition = None,
    since: Annotated[
        int | None,
        QueryParameter(ge=0, le=OFFSET_MAX, description="Prove that it begins with the first so many events"),
    ] = None,
) -> Response[Consistency]:
    """How many events the log has, and the root of the Merkle tree over them (RFC 9162); signed where the service has a
    key."""
    need_cluster(api, request)
    return await reading.answer(head_since, part_of(queries, partition), api.controller.now_ms(), since, sign)


@get("/log/proof")
async def log_proof(
    request: HttpRequest,
    api: _Gateway,
    queries: _Queries,
    reading: _Reading,
    sign: _Sign,
    offset: Annotated[int | None, QueryParameter(ge=0, le=OFFSET_MAX, description="Prove this event")] = None,
    topic: FromQuery[str | None] = None,
    request_id: Annotated[str | None, QueryParameter(name="request")] = None,
    start: _From = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=EVENTS_MAX, description="How many at most")] = 100,
    partition: _Partition = None,
    size: Annotated[
        int | None,
        QueryParameter(ge=0, le=OFFSET_MAX, description="By the head over the first so many events"),
    ] = None,
) -> Response[Proof]:
    """That events are in the log, for who has a head of it or the public key: the event at an offset, or those of a
    topic or a request."""
    if [offset, topic, request_id].count(None) != 2:
        raise refused(400, ErrorCode.INVALID_REQUEST, "give one of offset, topic and request")
    if topic is not None:
        need_topic(api, request, topic)
    elif request_id is not None:
        await Reader(api, queries, reading).need_request(request, request_id)
    else:
        need_cluster(api, request)
    wanted = ProofRequest(
        offset=offset, topic=topic, request_id=request_id, start=start, limit=limit, partition=partition, size=size
    )
    return await reading.answer(prove, queries, wanted, partial(_newest_head, sign, api.controller.now_ms()))


@get("/log/leaves")
async def log_leaves(
    request: HttpRequest,
    api: _Gateway,
    queries: _Queries,
    reading: _Reading,
    start: _From = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=LEAVES_MAX, description="How many at most")] = 100,
    partition: _Partition = None,
) -> Response[Leaves]:
    """The events as their tree is made over them: their canonical bytes in order, a page at a time."""
    need_cluster(api, request)
    return await reading.answer(leaves, part_of(queries, partition), start, limit)


def _newest_head(sign: Sign, now_ms: int, part: Query, offset: int) -> Head:
    """A head made now is over every durable event."""
    return sign(head_of(part, now_ms))


def head_gauges(queries: Questions) -> list[tuple[str, str, float]]:
    """The head of the log as figures, of a log in partitions that of the first; none while its tree is being built."""
    part = queries.parts[0]
    try:
        head = head_of(part, 0)
    except (TreeBehind, LogError):
        return []
    return [
        ("log_head_size", "Events under the head of the log.", head.size),
        (
            "log_head_root",
            "The first six bytes of the root over them as a number: logs that agree have the same at the same size.",
            int(head.root[:12], 16),
        ),
        ("log_head_timestamp_seconds", "When the newest of them happened.", (part.as_of(head.size).at_ms or 0) / 1000),
    ]
