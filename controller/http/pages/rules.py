"""The page of rules and policies: versions and their changes, refusals, and a form that tests, backtests and applies a
text of rules, as `controller.http.rules` does. A refused text stays in the form, with the error next to it.
Also the pages of requests that wait for approval, and of risky topics.
"""

from collections.abc import Iterable, Mapping
from difflib import unified_diff
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import quote

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter
from litestar.response import Redirect

from controller.http import reads, rules, topics
from controller.http.errors import HttpRequest, Refused, answer_error, invalid
from controller.http.pages.handlers import EMPTY_FORM
from controller.http.pages.site import FOLLOW, Site, page
from controller.http.query_threads import TooBusy
from controller.http.requests import At, body_of, read_form
from projections.queries.risks import RISKS
from projections.views.backtests import RulesTestView, TrialView
from projections.views.events import EventsView, EventView
from projections.views.overviews import PoliciesView
from projections.views.view import ProblemView

_FORMS: dict[str, tuple[Any, Any]] = {
    "apply": (rules.apply_rules, rules.RulesBody),
    "test": (rules.test_rules, rules.TestBody),
    "backtest": (rules.backtest_rules, rules.BacktestBody),
    "redecide": (rules.redecide, rules.RedecideBody),
}
VERSIONS_MAX = 10
"""The most versions of the rules on the page."""


@get("/policies")
async def policies(
    request: HttpRequest,
    site: NamedDependency[Site],
    at: At = None,
    diff: Annotated[
        int | None, QueryParameter(ge=1, description="Show the changes of this version of the rules")
    ] = None,
) -> Response[bytes]:
    return await _page(request, site, at, diff)


async def _page(
    request: HttpRequest,
    site: Site,
    at: str | None = None,
    diff: int | None = None,
    *,
    filled: Mapping[str, str] = MappingProxyType({}),
    problem: ProblemView | None = None,
    result: RulesTestView | TrialView | None = None,
) -> Response[bytes]:
    """The page. After a form was sent it has what was `filled` in, with its `problem` or `result`."""
    found: PoliciesView | None = None
    versions: list[EventView] = []
    if site.allows(request, "Describe"):
        found = await site.call(reads.policies, request, at=at)
        versions = await _versions(request, site, at)
    current = None if found is None else found.version
    shown = {"text": current.text if current else "", "after": str(current.number if current else 0), "since": "30d"}
    return await site.page(
        request,
        "policies.html",
        at=at,
        as_of=None if found is None else found.as_of,
        status=200 if problem is None else problem.status,
        follow=FOLLOW if found is not None else "",
        command=("rules", "show"),
        found=found,
        versions=versions[:VERSIONS_MAX],
        changes=_changes(versions, diff),
        diff=diff,
        may_apply=site.allows(request, "Alter"),
        rules_form={**shown, **filled},
        error="" if problem is None else problem.message,
        result=result,
        filled=EMPTY_FORM,
    )


async def _versions(request: HttpRequest, site: Site, at: str | None) -> list[EventView]:
    """The newest versions of the rules, and one more, with which the oldest is compared. Each partition of a log has
    its own event about a version."""
    limit = (VERSIONS_MAX + 1) * len(site.partitions)
    page: EventsView = await site.call(reads.events, request, kind="RulesApplied", order="newest", limit=limit, at=at)
    return list({event.fields["number"]: event for event in reversed(page.events)}.values())[::-1]


@post("/policies")
async def change_rules(request: HttpRequest, site: NamedDependency[Site]) -> Response[bytes] | Redirect:
    filled = await read_form(request)
    filled["text"] = filled.get("text", "").replace("\r\n", "\n")
    problem: ProblemView | None = None
    result: RulesTestView | TrialView | None = None
    try:
        do = filled.get("do", "")
        if do not in _FORMS:
            raise invalid(f"do: {do!r} is not test, backtest, redecide or apply")
        handler, kind = _FORMS[do]
        body = body_of({name: filled.get(name, "") for name in kind.__struct_fields__}, kind)
        result = await site.call(handler, request, content=body)
        if do == "apply":
            return Redirect("/policies", status_code=303)
    except (Refused, TooBusy) as refusal:
        problem = answer_error(request, refusal).content
    return await _page(request, site, filled=filled, problem=problem, result=result)


def _changes(versions: list[EventView], number: int | None) -> Iterable[str] | None:
    """The lines of the difference between a version and the one before; None if they are not among `versions`. They
    are computed while the template is rendered, in a thread."""
    texts = {0: "", **{event.fields["number"]: event.fields["text"] for event in versions}}
    if number is None or number not in texts or number - 1 not in texts:
        return None
    before, after = texts[number - 1].splitlines(), texts[number].splitlines()
    return unified_diff(before, after, f"version {number - 1}", f"version {number}", lineterm="")


@page("/approvals", rules.approvals, "approvals.html")
async def waiting() -> dict[str, Any]:
    return {"command": ("requests", "--pending"), "follow": ""}


@post("/approvals/{request_id:str}")
async def decide(request_id: FromPath[str], request: HttpRequest, site: NamedDependency[Site]) -> Redirect:
    filled = await read_form(request)
    if filled.get("do") == "approve":
        request_id = (await site.call(rules.approve, request, request_id=request_id)).request_id
    else:
        body = body_of({"because": filled.get("because", "")}, rules.DenyBody)
        await site.call(rules.deny, request, request_id=request_id, content=body)
    return Redirect(f"/requests/{quote(request_id, safe='')}", status_code=303)


@page("/risks", topics.risks, "risks.html")
async def risks() -> dict[str, Any]:
    return {"command": ("risks",), "follow": "", "meanings": RISKS}
