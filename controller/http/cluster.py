"""GET handlers of the JSON API about the whole cluster: its health, and what-if questions."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from controller.http.metrics import process_issues
from controller.http.permissions import Reader
from controller.http.requests import At
from projections.queries import overviews
from projections.queries.overviews import Present
from projections.queries.topics import Counted
from projections.queries.whatif import ALLOWED, WhatIf
from projections.views.overviews import ClusterHealthView, WhatIfView

WAITING_CHECKED_MAX = 200
CHANGE_CHARACTERS_MAX = 1000
_Reader = NamedDependency[Reader]


@get("/health")
async def cluster_health(reader: _Reader, at: At = None) -> Response[ClusterHealthView]:
    """The state of the cluster: problems with their causes, brokers, counts, refusals of the last day by rule, and the
    newest requests. The status is 200 whatever the state; `/health/ready` is for supervisors."""
    reader.require()
    if at is not None:
        return await reader.answer(overviews.health, at)
    api, status, store = reader.api, reader.api.controller.status(), reader.api.store
    counts = store.durable_counts
    counted = Counted(counts.topics, counts.partitions, status.topics_waiting, store.durable_tallies)
    waiting = store.durable_waiting(WAITING_CHECKED_MAX)
    now_ms = api.controller.now_ms()
    present = Present(counted, api.cluster, now_ms, status.requests_open, waiting, tuple(process_issues(api)))
    return await reader.answer(overviews.health, at, present)


@get("/whatif")
async def whatif(
    reader: _Reader,
    change: Annotated[
        str, QueryParameter(max_length=CHANGE_CHARACTERS_MAX, description=f"One change or several, in order: {ALLOWED}")
    ],
) -> Response[WhatIfView]:
    """The health that the present state would have after a change. Nothing is changed."""
    reader.require()
    api, queries = reader.api, reader.queries
    now_ms, end = api.controller.now_ms(), queries.end()
    row = await reader.threads.run(queries.cluster_at, end)
    question = await reader.threads.run(WhatIf, change, api.cluster, row, api.store.durable_tallies, now_ms)
    for part in queries.parts:
        store = part.live()
        for topics in store.durable_topics(question.lost, store.durable_keys_unhealthy()):
            await reader.threads.run(question.add, topics)
    return await reader.answer(lambda _: question.view(queries.as_of(end)))
