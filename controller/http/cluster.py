"""GET handlers of the JSON API about the whole cluster: its health, and what-if questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from controller.controller_api import ControllerApi
from controller.http.permissions import Reader
from controller.http.requests import At
from projections.queries import overviews
from projections.queries.health import issue
from projections.queries.overviews import Present
from projections.queries.topics import Counted
from projections.queries.whatif import ALLOWED, WhatIf
from projections.views.issues import IssueView
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
    present = Present(counted, api.cluster, now_ms, status.requests_open, waiting, tuple(_process_issues(api)))
    return await reader.answer(overviews.health, at, present)


def _process_issues(api: ControllerApi) -> Iterator[IssueView]:
    """The problems of this process: `why_not_ready` as issues, and the archive."""
    status, brokers_error, archive_error = api.controller.status(), api.brokers_error(), api.archive_error()
    if status.failure is not None:
        text = "this process has failed and decides nothing"
        yield issue("controller-failed", text, str(status.failure), "restart it; its log has the trace")
    if status.storage_error is not None and api.decides_here:
        text = "the log cannot be written: requests are answered KAFKA_STORAGE_ERROR"
        yield issue("log-not-writable", text, status.storage_error, "free or repair the disk; it then continues")
    elif status.storage_error is not None:
        text = "this gateway is stale: its answers may be old, and it accepts no requests"
        step = "check Kafka, and the network between Kafka and this gateway"
        yield issue("stale-gateway", text, status.storage_error, step)
    if brokers_error is not None and api.quorum is not None:
        voters = ", ".join(f"{one.node_id} at {one.host}:{one.port}" for one in api.quorum().voters)
        cause = f"{brokers_error}; voters: {voters}" if voters else brokers_error
        text, step = "the controller quorum decides nothing here", "start or reconnect a majority of the voters"
        yield issue("quorum-without-majority", text, cause, step, evidence=("/quorum",))
    elif brokers_error is not None:
        text = "decisions are not carried out: the target cluster is unreachable"
        yield issue("cluster-unreachable", text, brokers_error, "check the cluster and the network to it")
    if archive_error is not None:
        text = "the log is not archived"
        yield issue("archive-lost", text, archive_error, "repair the archive; archiving then continues")
    if not api.cluster.release:
        yield issue("starting", "the settings are not recorded yet", "this process is starting", "wait")


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
