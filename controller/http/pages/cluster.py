"""The pages of brokers, the quorum, and ACLs, users and quotas."""

from __future__ import annotations

from typing import Any

from controller.http import reads
from controller.http.errors import HttpRequest
from controller.http.pages.site import FOLLOW, Site, page
from projections.views.brokers import BrokersView
from projections.views.overviews import AccessView, BrokerDetailView, ClusterHealthView, QuorumView


@page("/brokers", reads.brokers, "brokers.html")
async def brokers(site: Site, found: BrokersView, at: str | None) -> dict[str, Any]:
    loads = site.api.store.durable_tallies.brokers if at is None else {}
    return {"follow": FOLLOW, "command": ("brokers",), "found": found, "loads": loads}


@page("/brokers/{broker_id:int}", reads.broker, "broker.html")
async def broker(site: Site, request: HttpRequest, found: BrokerDetailView, at: str | None) -> dict[str, Any]:
    health: ClusterHealthView = await site.call(reads.cluster_health, request, at=at)
    issues = [one for one in health.issues if found.broker_id in one.waits_for]
    return {"follow": FOLLOW, "command": ("brokers", str(found.broker_id)), "one": found, "issues": issues}


@page("/quorum", reads.quorum, "quorum.html")
async def quorum(found: QuorumView) -> dict[str, Any]:
    here = next((one for one in found.voters if one.node_id == found.node_id), None)
    command = () if here is None else ("quorum", "--bootstrap-controller", f"{here.host}:{here.port}")
    return {"follow": FOLLOW, "command": command, "found": found}


@page("/access", reads.access, "access.html")
async def access(found: AccessView) -> dict[str, Any]:
    return {"follow": FOLLOW, "command": ("acls", "list"), "found": found}
