"""Answers that count all topics. With 100,000 topics that takes seconds, so a response has only those read so far.

A scan reads the topics in steps, in query threads. A response waits for a step, and a repeated request gets more until
the scan is complete. A complete one is reused until the next event.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import chain, islice
from typing import Any, Final

from litestar import Response

from controller.http.permissions import Reader
from controller.http.query_threads import QueryThreads, TooBusy
from projections.queries.query import Queries
from projections.queries.risks import Risks
from projections.queries.whatif import WhatIf

STEP: Final = 5
"""Slices of topics in a step, which takes some tens of milliseconds."""
SCANS_MAX: Final = 8
ABANDONED_S: Final = 10
"""A complete scan that nobody asked for within this time is as good as answered: its counts may be days old."""


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
