"""HTML pages with forms: create, alter and delete topics with the same commands as the JSON API.

A refused change is answered with its form and the rule. Each form carries a token
(`controller.http.requests.FormTokens`).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from litestar.response import Redirect

from controller.http.errors import HttpRequest, Refused, invalid
from controller.http.pages.frame import flags
from controller.http.pages.reads import topic_page
from controller.http.pages.site import FOLLOW, Site
from controller.http.paths import reads, writes
from controller.http.requests import At, body_of, caller_of, read_form
from projections.views.overviews import PoliciesView
from projections.views.topics import CreatedView
from projections.views.view import ErrorView

EMPTY_FORM: Final = {"name": "", "num_partitions": "", "replication_factor": "", "configs": "", "do": ""}
_COUNTS: Final = ("num_partitions", "replication_factor")


@get("/policies")
async def policies(request: HttpRequest, site: NamedDependency[Site], at: At = None) -> Response[bytes]:
    found: PoliciesView | None = None
    if site.allows(request, "Describe"):
        found = await site.call(reads.policies, request, at=at)
    return await site.page(
        request,
        "policies.html",
        at=at,
        as_of=None if found is None else found.as_of,
        follow=FOLLOW if found is not None else "",
        found=found,
        filled=EMPTY_FORM,
    )


@post("/topics")
async def create(request: HttpRequest, site: NamedDependency[Site]) -> Response[bytes] | Redirect:
    filled = await _checked(request, site)
    is_dry = filled.get("do") != "create"
    result: CreatedView | None = None
    error: ErrorView | None = None
    status = 200  # also if the dry run is refused: the refusal is its result
    try:
        body = body_of(_create_fields(filled), writes.CreateBody)
        answer = await writes.create(site.changes, request, body, is_dry)
        result = answer.content
    except Refused as refusal:
        error, status = refusal.error, 200 if is_dry else refusal.status
    if result is not None and not is_dry:
        return Redirect(f"/requests/{quote(result.request_id, safe='')}", status_code=303)
    return await site.page(
        request,
        "create.html",
        status=status,
        command=(*_command(filled), "--dry-run"),
        filled={**EMPTY_FORM, **filled},
        result=result,
        error=error,
        broken=() if error is None else error.message.split("; "),
    )


@post("/topics/{name:str}")
async def change(name: FromPath[str], request: HttpRequest, site: NamedDependency[Site]) -> Response[bytes] | Redirect:
    filled = await _checked(request, site)
    try:
        return Redirect(await _changed(name, request, site, filled), status_code=303)
    except Refused as refusal:
        if not site.allows(request, "Describe", topic=name):
            raise
        return await topic_page(name, request, site, status=refusal.status, error=refusal.error, filled=filled)


async def _changed(name: str, request: HttpRequest, site: Site, filled: dict[str, str]) -> str:
    """Make the change, and return the address of the page that shows it. Raises Refused."""
    here = f"/topics/{quote(name, safe='')}"
    match filled.get("do"):
        case "grow":
            grown = body_of({"num_partitions": _number(filled, "num_partitions")}, writes.AlterBody)
            await writes.alter(site.changes, request, name, grown)
        case "configs":
            configs = {key: value or None for key, value in _configs(filled).items()}
            await writes.alter(site.changes, request, name, body_of({"configs": configs}, writes.AlterBody))
        case "delete":
            if filled.get("typed") != name:
                raise invalid(f"typed: to delete the topic, type its name {name!r}")
            done = await site.call(writes.delete_topic, request, name=name)
            here = f"/requests/{quote(done.request_id, safe='')}"
        case other:
            raise invalid(f"do: {other!r} is not grow, configs or delete")
    return here


async def _checked(request: HttpRequest, site: Site) -> dict[str, str]:
    """The fields of a form with a valid token. Raises Refused."""
    filled = await read_form(request)
    site.tokens.check(filled.get("token", ""), caller_of(request).principal, site.api.controller.now_ms())
    return filled


def _create_fields(filled: dict[str, str]) -> dict[str, object]:
    fields: dict[str, object] = {"name": filled.get("name", "").strip(), "configs": _configs(filled)}
    for name in _COUNTS:
        if filled.get(name, "").strip():
            fields[name] = _number(filled, name)
    return fields


def _command(filled: dict[str, str]) -> tuple[str, ...]:
    counts = {each.replace("_", "-").removeprefix("num-"): filled.get(each) for each in _COUNTS}
    lines = [line.partition("=") for line in filled.get("configs", "").splitlines() if line.strip()]
    configs = [word for name, _, value in lines for word in ("--config", f"{name.strip()}={value.strip()}")]
    return ("topic", "create", filled.get("name", ""), *flags(**counts), *configs)


def _number(filled: dict[str, str], name: str) -> object:
    """The number in a field, or its text if it is not a number: validation then names the field."""
    text = filled.get(name, "").strip()
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 12 else text


def _configs(filled: dict[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(filled.get("configs", "").splitlines(), 1):
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip():
            raise invalid(f"configs: line {number} is not name=value")
        if name.strip() in found:
            raise invalid(f"configs: {name.strip()} is given twice, again in line {number}")
        found[name.strip()] = value.strip()
    return found
