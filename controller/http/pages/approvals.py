"""The page of requests that wait for approval, with the forms that approve and deny them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from litestar import post
from litestar.di import NamedDependency
from litestar.params import FromPath
from litestar.response import Redirect

from controller.http import approvals
from controller.http.errors import HttpRequest, invalid
from controller.http.pages.handlers import checked_form
from controller.http.pages.site import FOLLOW, Site, page
from controller.http.requests import body_of
from projections.views.approvals import HeldRequestsView


@page("/approvals", approvals.approvals, "approvals.html")
async def waiting(site: Site, request: HttpRequest, found: HeldRequestsView) -> dict[str, Any]:
    follow = FOLLOW if site.allows(request, "Describe") else ""
    return {"command": ("requests", "--pending"), "follow": follow, "held": found.requests}


@post("/approvals/{request_id:str}")
async def decide(request_id: FromPath[str], request: HttpRequest, site: NamedDependency[Site]) -> Redirect:
    filled = await checked_form(request, site)
    match filled.get("do"):
        case "approve":
            done = await site.call(approvals.approve, request, request_id=request_id)
            return Redirect(f"/requests/{quote(done.request_id, safe='')}", status_code=303)
        case "deny":
            body = body_of({"because": filled.get("because", "")}, approvals.DenyBody)
            await site.call(approvals.deny, request, request_id=request_id, content=body)
            return Redirect(f"/requests/{quote(request_id, safe='')}", status_code=303)
        case other:
            raise invalid(f"do: {other!r} is not approve or deny")
