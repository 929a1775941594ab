"""The first page: what an engineer on call looks at, of now or of any moment."""

from __future__ import annotations

from contextlib import suppress

from litestar import Response, get
from litestar.di import NamedDependency

from controller.http.errors import HttpRequest
from controller.http.pages.site import FOLLOW, Site
from controller.http.parameters import At
from controller.http.paths import log_heads, overviews, reads
from events.logs.heads import Head
from events.logs.log import LogError
from projections.store.tree import TreeBehind
from projections.views.json_types import BrokersView
from projections.views.overview_types import SummaryView

_NO_CLUSTER = "Brokers, what waits and all requests are for who may describe the cluster, and this login may not."


@get(["/", "/summary"])
async def overview(request: HttpRequest, site: NamedDependency[Site], at: At = None) -> Response[bytes]:
    """Brokers, topics, what waits and for whom, what was refused, and the newest decisions."""
    if not site.allows(request, "Describe"):
        return await site.page(request, "overview.html", at=at, summary=None, head=None, hidden=_NO_CLUSTER)
    summary: SummaryView = await site.shown(overviews.summary, request, at=at)
    brokers: BrokersView = await site.shown(reads.brokers, request, at=at)
    head: Head | None = None
    if at is None and site.partitions == (None,):
        with suppress(TreeBehind, LogError):  # of a long log of an earlier release it is being made
            head = (await site.shown(log_heads.log_head, request)).head
    return await site.page(
        request,
        "overview.html",
        at=at,
        as_of=summary.as_of,
        follow=FOLLOW,
        summary=summary,
        brokers=brokers,
        head=head,
        partitions=site.partitions,
        loads={one.broker_id: one for one in summary.loads},
    )
