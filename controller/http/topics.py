"""GET handlers of the JSON API for topics: lists, one topic, its configs, now or at any point in time; risks, what-if.

A page of a list examines a bounded number of topics. If the caller may not describe the last examined topic, the cursor
is encrypted, so that it does not reveal the name (`controller.http.permissions`).

Risks and what-if count all topics. With 100,000 topics that takes seconds, so a response has only those read so far. A
scan reads the topics in steps, in query threads. A response waits for a step, and a repeated request gets more until
the scan is complete. A complete one is reused until the next event.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import chain, islice
from typing import Annotated, Any, Final

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from controller.http.errors import invalid
from controller.http.permissions import Reader, SealedCursors
from controller.http.query_threads import QueryThreads, TooBusy
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
STEP: Final = 5
"""Slices of topics in a step, which takes some tens of milliseconds."""
SCANS_MAX: Final = 8
ABANDONED_S: Final = 10
"""A complete scan that nobody asked for within this time is as good as answered: its counts may be days old."""
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
    def __init__(self, queries: Queries, count: Risks | WhatIf, threads: QueryThreads) -> None:
        self._queries, self._count, self.end = queries, count, queries.end()
        self._slices = chain.from_iterable(count.slices(part.live()) for part in queries.parts)
        self.is_answered = False
        """True once a response had all topics."""
        self.ended_s = math.inf
        self.stepped = asyncio.Event()
        self.task = asyncio.create_task(self._run(threads))
        self.task.add_done_callback(self._ended)

    async def _run(self, threads: QueryThreads) -> None:
        while not await threads.run(self._step):
            self.stepped.set()
            self.stepped = asyncio.Event()

    def _step(self) -> bool:
        """Count some topics. Returns True at the end."""
        slices = list(islice(self._slices, STEP))
        for topics in slices:
            self._count.add(topics)
            self._queries.parts[0].pause()
        is_complete = len(slices) < STEP
        self.view = self._count.view(self._queries.as_of(self.end), is_complete=is_complete)
        if is_complete:
            del self._count, self._slices  # some MB
        return is_complete

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.ended_s = task.get_loop().time()
        if not task.cancelled():
            task.exception()  # asyncio logs one that nobody fetches, such as QueryClosed
        self.stepped.set()


class Scans:
    """The scans of one service. If `is_patient`, each response has all topics."""

    def __init__(self, *, is_patient: bool) -> None:
        self._is_patient = is_patient
        self._scans: dict[object, _Scan] = {}
        self._beginning = asyncio.Lock()

    async def answer(self, reader: Reader, key: object, count: Callable[[Queries], Risks | WhatIf]) -> Response[Any]:
        """Answer with the scan of this key, or begin it with a new `count`. Raises TooBusy, and the errors of `count`
        and the scan."""
        async with self._beginning:
            scan = self._scans.get(key)
            now_s = asyncio.get_running_loop().time()
            is_left = scan is not None and (scan.is_answered or scan.ended_s < now_s - ABANDONED_S)
            if scan is None or (is_left and scan.end != reader.queries.end()):
                if len(self._scans) >= SCANS_MAX:
                    self._scans = {known: each for known, each in self._scans.items() if not each.task.done()}
                if len(self._scans) >= SCANS_MAX:
                    raise TooBusy(f"{SCANS_MAX} counts of all topics are running already; try again later")
                scan = _Scan(reader.queries, await reader.threads.run(count, reader.queries), reader.threads)
                self._scans[key] = scan
        await (asyncio.wait({scan.task}) if self._is_patient else scan.stepped.wait())
        if scan.task.done() and scan.task.exception() is not None:
            self._scans.pop(key, None)
            scan.task.result()
        view = scan.view
        scan.is_answered = view.is_complete  # the task may end only after the step that completes the view
        return await reader.answer(lambda _: view)
