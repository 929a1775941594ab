"""GET handlers of the JSON API for topics: lists, one topic, its configs, now or at any point in time; risks, what-if.

A page of a list examines a bounded number of topics. If the caller may not describe the last examined topic, the cursor
is encrypted, so that it does not reveal the name (`controller.http.permissions`).

Risks and what-if count all topics. With 100,000 topics that takes seconds, so a response has only those read so far:
each request continues the scan for a moment, in a query thread, until it is complete. A complete one is reused until
the next event.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from itertools import chain
from typing import Annotated, Any, Final

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from controller.http.errors import invalid
from controller.http.permissions import Reader, SealedCursors
from controller.http.query_threads import TooBusy
from controller.http.requests import At, Cursor, Glob, Label, Limit
from controller.machine.state import Topic
from controller.patterns import Pattern, PatternError
from events.names import shard_key
from projections.queries.query import Queries, Query
from projections.queries.risks import Risks, RisksView
from projections.queries.topics import Newest, TopicFilter, configs_at, glob, summaries, topic_at, topics_at
from projections.queries.whatif import ALLOWED, WhatIf
from projections.text.names import WantedStatus
from projections.views.overviews import WhatIfView
from projections.views.topics import TopicConfigsView, TopicSummary, TopicsView, TopicView

TOPICS_PER_SLICE = 100
"""Topics read from the live store before other tasks of the event loop run."""
SLICES_MAX = 40
"""Slices per page: a page examines some thousand topics, or some ten thousand partitions."""
MINUTE_MS = 60_000
CHANGE_CHARACTERS_MAX = 1000
STEP_S: Final = 0.1
"""The time for which a request continues a scan."""
SCANS_MAX: Final = 8
ABANDONED_S: Final = 10
"""A scan that no request continued within this time begins again: its counts may be days old."""
_Reader = NamedDependency[Reader]


@get("/topics")
async def topics(
    reader: _Reader,
    cursors: NamedDependency[SealedCursors],
    name: Glob = None,
    status: FromQuery[WantedStatus | None] = None,
    placeholders: Annotated[
        bool | None, QueryParameter(description="Only topics with placeholders (`true`) or without (`false`), KIP-409")
    ] = None,
    principal: Glob = None,
    label: Label = None,
    cursor: Cursor = None,
    limit: Limit = 100,
    at: At = None,
) -> Response[TopicsView]:
    """Topics by name (with `.` sorted as `_`), in pages.

    A page examines a bounded number of topics, so it may have fewer than `limit` and still a `next_cursor`.
    `cursor` may also be any name to continue after.
    """
    which = TopicFilter(_pattern(name), status, placeholders, _pattern(principal), label)
    authorizer = reader.api.authorizer
    if authorizer is not None and not authorizer.allows_any(reader.caller, "Describe", "Topic"):
        return await reader.answer(lambda queries: TopicsView((), queries.as_of(queries.end(at)), None))

    def is_visible(name: str) -> bool:
        return which.matches_name(name) and reader.allows(name)

    after = cursors.open(cursor)
    if at is not None:
        return await reader.answer(topics_at, at, after, limit, is_visible, cursors.seal, which)
    queries, end, live = reader.queries, reader.queries.end(), reader.api.cluster.live

    def summarized(some: list[Topic]) -> tuple[TopicSummary, ...]:
        return summaries(queries.rows(some), live, which)

    found: list[TopicSummary] = []
    for _ in range(SLICES_MAX):
        newest = queries.newest(after, TOPICS_PER_SLICE, only_unhealthy=which.is_unhealthy)
        after = newest[-1].name if newest else None
        if visible := [one for one in newest if is_visible(one.name)]:
            found += await reader.threads.run(summarized, visible)
        if after is None or len(found) > limit:
            break
        await asyncio.sleep(0)
    if len(found) > limit:
        after = found[limit - 1].name
    place = after if after is None or reader.allows(after) else cursors.seal(shard_key(after))
    return await reader.answer(lambda _: TopicsView(tuple(found[:limit]), queries.as_of(end), place))


@get("/risks")
async def risks(
    reader: _Reader, scans: NamedDependency[Scans], label: Label = None, limit: Limit = 100
) -> Response[RisksView]:
    """Topics that would lose records or stop producers, or that have no owner: those with the most risks first, and the
    number of topics with each risk. Until `is_complete`, only `topics_read` topics are counted: repeat the request."""
    reader.require()
    cluster, now_ms = reader.api.cluster, reader.api.controller.now_ms()
    key = (limit, label, now_ms // MINUTE_MS)
    return await scans.answer(reader, key, lambda _: Risks(cluster, now_ms, limit, label))


@get("/whatif")
async def whatif(
    reader: _Reader,
    scans: NamedDependency[Scans],
    change: Annotated[
        str, QueryParameter(max_length=CHANGE_CHARACTERS_MAX, description=f"One change or several, in order: {ALLOWED}")
    ],
) -> Response[WhatIfView]:
    """The health that the present state would have after a change. Nothing is changed. Until `is_complete`, only
    `topics_read` topics are counted: repeat the request."""
    reader.require()
    given = change, reader.api.cluster, reader.api.store.durable_tallies, reader.api.controller.now_ms()
    return await scans.answer(reader, change, lambda queries: WhatIf(queries, *given))


@get("/topics/{name:str}")
async def topic(name: FromPath[str], reader: _Reader, at: At = None) -> Response[TopicView]:
    """One topic with its partitions."""
    reader.require(name)
    part = reader.queries.of_topic(name)
    return await reader.threads.answer(topic_at, part, name, at, _newest(part, name, at))


@get("/topics/{name:str}/configs")
async def topic_configs(name: FromPath[str], reader: _Reader, at: At = None) -> Response[TopicConfigsView]:
    """The effective configs of a topic, with their sources. Needs DescribeConfigs."""
    reader.require(name, "DescribeConfigs")
    part = reader.queries.of_topic(name)
    return await reader.threads.answer(configs_at, part, name, at, _newest(part, name, at))


def _newest(part: Query, name: str, at: str | None) -> Newest | None:
    """The current topic; None for the past, and without such a topic."""
    topic = None if at is not None else part.live().durable_named(name)
    return None if topic is None else (topic, part.end())


def _pattern(name: str | None) -> Pattern | None:
    try:
        return None if name is None else glob(name)
    except PatternError as error:
        raise invalid(f"pattern: {error}") from None


class _Scan:
    def __init__(self, queries: Queries, begin: Callable[[Queries], Risks | WhatIf]) -> None:
        self._queries, self._begin, self._stepping = queries, begin, threading.Lock()
        self._count: Risks | WhatIf | None = None
        self.end, self.requested_s = queries.end(), math.inf
        self.view: RisksView | WhatIfView | None = None

    @property
    def is_complete(self) -> bool:
        return self.view is not None and self.view.is_complete

    def step(self, clock: Callable[[], float], end_s: float) -> RisksView | WhatIfView:
        """Count until `end_s` of a clock, unless all topics are counted. Returns the answer so far."""
        with self._stepping:
            if self.view is not None and self.view.is_complete:
                return self.view
            if self._count is None:
                self._count = count = self._begin(self._queries)
                self._slices = chain.from_iterable(count.slices(part.live()) for part in self._queries.parts)
            is_complete = True
            for topics in self._slices:
                self._count.add(topics)
                self._queries.parts[0].pause()
                if clock() >= end_s:
                    is_complete = False
                    break
            self.view = self._count.view(self._queries.as_of(self.end), is_complete=is_complete)
            if is_complete:
                del self._count, self._slices  # some MB
            return self.view


class Scans:
    """The scans of one service. If `is_patient`, each response has all topics."""

    def __init__(self, *, is_patient: bool) -> None:
        self._is_patient = is_patient
        self._scans: dict[object, _Scan] = {}

    async def answer(self, reader: Reader, key: object, begin: Callable[[Queries], Risks | WhatIf]) -> Response[Any]:
        """Answer with the scan of this key, or `begin` it. Raises TooBusy, and the errors of `begin` and the scan."""
        clock, end = asyncio.get_running_loop().time, reader.queries.end()
        now_s = clock()
        for known, each in tuple(self._scans.items()):
            if each.end != end if each.is_complete else each.requested_s < now_s - ABANDONED_S:
                del self._scans[known]
        scan = self._scans.get(key)
        if scan is None:
            if len(self._scans) >= SCANS_MAX:
                self._scans = {known: each for known, each in self._scans.items() if not each.is_complete}
            if len(self._scans) >= SCANS_MAX:
                raise TooBusy(f"{SCANS_MAX} counts of all topics are running already; try again later")
            scan = self._scans[key] = _Scan(reader.queries, begin)
        scan.requested_s = now_s
        try:
            return await reader.threads.answer(scan.step, clock, math.inf if self._is_patient else now_s + STEP_S)
        except Exception:
            self._scans.pop(key, None)
            raise
