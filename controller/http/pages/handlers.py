"""The HTML pages: each renders the response of a JSON handler at its path without `/v1`.

Pages with forms create, alter and delete topics with the same commands as the JSON API. A refused change is answered
with its form and the rule.
"""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Annotated, Any, Final
from urllib.parse import quote

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter
from litestar.response import Redirect

from controller.http import reads, writes
from controller.http import topics as topic_lists
from controller.http.errors import HttpRequest, Refused, invalid
from controller.http.pages.frame import AGO, PHASES, flags
from controller.http.pages.site import FOLLOW, Site, page
from controller.http.requests import At, Cursor, From, body_of, read_form
from controller.machine.configs.topic_configs import BY_NAME
from events.catalog import EVENT_TYPES
from events.logs.log import LogError
from events.logs.tree_heads import Head
from projections.queries.whatif import ALLOWED, InvalidChange
from projections.text.names import OUTCOMES, STATUSES
from projections.text.wording import changed
from projections.views.events import ExplanationView, RecordedChangesView, TimelineView
from projections.views.overviews import BrokerDetailView, ClusterHealthView, QuorumView
from projections.views.requests import RequestView
from projections.views.topics import AlteredView, CreatedView, PartitionView, TopicConfigsView, TopicView
from projections.views.view import ErrorView

TYPES = tuple(sorted(kind.__name__ for kind in EVENT_TYPES))
PARTITIONS_MAX, TOPICS_MAX, CHANGES_MAX, STEPS_MAX, UNFOLDED_MAX = 100, 100, 20, 200, 12
"""The most partitions, topics of a request, changes of a topic, steps of a request, and healthy partitions that are
not folded, on one page."""
CHART_SPANS: Final = 60


@get("/")
async def overview(
    request: HttpRequest, site: NamedDependency[Site], at: At = None, since: From = None
) -> Response[bytes]:
    if not site.allows(request, "Describe"):
        return await site.page(request, "overview.html", at=at, health=None, head=None)
    health: ClusterHealthView = await site.call(reads.cluster_health, request, at=at)
    begin = since or f"{max(0, (health.as_of.at_ms or 0) - AGO['1 h'])}ms"
    activity: TimelineView = await site.call(reads.timeline, request, since=begin, at=at, spans=CHART_SPANS)
    head: Head | None = None
    if at is None and site.partitions == (None,):
        with suppress(LogError):
            head = (await site.call(reads.log_head, request)).head
    return await site.page(
        request,
        "overview.html",
        at=at,
        as_of=health.as_of,
        follow=FOLLOW,
        command=("status",),
        health=health,
        head=head,
        partitions=site.partitions,
        spans=activity.spans,
    )


@page("/topics", topic_lists.topics, "topics.html")
async def topics(given: dict[str, Any]) -> dict[str, Any]:
    name, filters = given["name"], flags(**{each: given[each] for each in ("status", "principal", "label")})
    return {"command": ("topics", *((name,) if name else ()), *filters), "statuses": STATUSES}


@get(["/topics/{name:str}", "/topics/{name:str}/configs"])
async def topic(
    name: FromPath[str],
    request: HttpRequest,
    site: NamedDependency[Site],
    at: At = None,
    cursor: Cursor = None,
    partition: Annotated[int, QueryParameter(ge=0, le=2**31, description="The first partition to show")] = 0,
) -> Response[bytes]:
    return await topic_page(name, request, site, at, cursor, partition)


async def topic_page(
    name: str,
    request: HttpRequest,
    site: Site,
    at: str | None = None,
    cursor: str | None = None,
    partition: int = 0,
    *,
    status: int = 200,
    error: ErrorView | None = None,
    filled: Mapping[str, str] = MappingProxyType({}),
    preview: AlteredView | None = None,
) -> Response[bytes]:
    """The page of one topic. After a rejected change it shows the `error` and the form as it was `filled` in; with a
    `preview`, the configs before and after."""
    one: TopicView = await site.call(topic_lists.topic, request, name=name, at=at)
    configs: TopicConfigsView | None = None
    if site.allows(request, "DescribeConfigs", topic=name):
        configs = await site.call(topic_lists.topic_configs, request, name=name, at=at)
    history: RecordedChangesView = await site.call(
        reads.changes, request, topic=name, at=at, limit=CHANGES_MAX, cursor=cursor
    )
    first = min(partition, max(0, one.num_partitions - 1)) // PARTITIONS_MAX * PARTITIONS_MAX
    worst_first = sorted(one.partitions, key=_is_healthy)[first : first + PARTITIONS_MAX]
    healthy = [each for each in worst_first if _is_healthy(each)]
    folded = healthy if len(healthy) > UNFOLDED_MAX else []
    may = {each: site.allows(request, each, topic=name) for each in ("Alter", "AlterConfigs", "Delete")}
    return await site.page(
        request,
        "topic.html",
        at=at,
        as_of=one.as_of,
        status=status,
        follow=f"{FOLLOW}?topic={quote(name, safe='')}",
        command=("topics", name),
        one=one,
        first=first,
        shown=worst_first[: len(worst_first) - len(folded)],
        folded=folded,
        shown_max=PARTITIONS_MAX,
        configs=configs,
        documented=BY_NAME,
        history=history,
        may=may,
        deletable=may["Delete"] or site.allows(request, "Delete"),
        error=error,
        filled=filled,
        preview=None if preview is None else changed(one.configs.items(), preview.configs.items()),
    )


def _is_healthy(one: PartitionView) -> bool:
    return one.leader >= 0 and len(one.isr) == len(one.replicas)


@page("/requests", reads.requests, "requests.html", limit=50)
async def requests(given: dict[str, Any]) -> dict[str, Any]:
    filters = {name: given[name] for name in ("principal", "outcome", "rule", "api", "host", "label", "since", "until")}
    return {"command": ("requests", *flags(**filters, limit=str(given["limit"]))), "outcomes": OUTCOMES}


@page("/requests/{request_id:str}", reads.request_, "request.html")
async def request_(
    site: Site, request: HttpRequest, found: RequestView, request_id: str, at: str | None
) -> dict[str, Any]:
    chain: ExplanationView = await site.call(reads.explanation, request, subject=request_id, at=at, of="request")
    return {
        "command": ("requests", request_id),
        "follow": f"{FOLLOW}?topic={quote(found.topics[0].topic, safe='')}" if len(found.topics) == 1 else FOLLOW,
        "chain": chain,
        "steps": chain.steps[:STEPS_MAX],
        "phases": PHASES,
        "shown_max": TOPICS_MAX,
    }


@page("/explain/{subject:str}", reads.explanation, "explain.html")
async def explanation(subject: str) -> dict[str, Any]:
    return {"command": ("explain", subject), "follow": ""}


@page("/events", reads.events, "events.html", order="newest")
async def events(topic: str | None, given: dict[str, Any]) -> dict[str, Any]:
    names = {"principal": given["principal"], "since": given["since"], "tail": str(given["limit"])}
    filters = flags(topic=topic, request=given["request_id"], type=given["kind"], **names)
    is_static = {} if given["order"] == "newest" and topic is None else {"follow": ""}
    return {"command": ("events", *filters), "types": TYPES, **is_static}


@page("/changes", reads.changes, "changes.html", limit=50)
async def changes(given: dict[str, Any]) -> dict[str, Any]:
    topic, filters = given["topic"], {name: given[name] for name in ("principal", "label", "since", "until")}
    return {"command": ("changes", *((topic,) if topic else ()), *flags(**filters))}


@page("/brokers", reads.brokers, "brokers.html")
async def brokers(site: Site, at: str | None) -> dict[str, Any]:
    return {"command": ("brokers",), "loads": site.api.store.durable_tallies.brokers if at is None else {}}


@page("/brokers/{broker_id:int}", reads.broker, "broker.html")
async def broker(site: Site, request: HttpRequest, found: BrokerDetailView, at: str | None) -> dict[str, Any]:
    health: ClusterHealthView = await site.call(reads.cluster_health, request, at=at)
    issues = [one for one in health.issues if found.broker_id in one.waits_for]
    return {"command": ("brokers", str(found.broker_id)), "issues": issues}


@page("/quorum", reads.quorum, "quorum.html")
async def quorum(found: QuorumView) -> dict[str, Any]:
    here = next((one for one in found.voters if one.node_id == found.node_id), None)
    return {"command": () if here is None else ("quorum", "--bootstrap-controller", f"{here.host}:{here.port}")}


@page("/access", reads.access, "access.html")
async def access() -> dict[str, Any]:
    return {"command": ("acls", "list")}


@page("/diff", reads.diff, "diff.html", limit=25, since="")
async def diff(since: str, until: str | None) -> dict[str, Any]:
    return {"command": ("diff", since, *((until,) if until else ())) if since else (), "follow": ""}


@page("/whatif", topic_lists.whatif, "whatif.html", refusals=(InvalidChange,), change="")
async def whatif(change: str) -> dict[str, Any]:
    return {"command": ("whatif", *change.split()), "follow": "", "change": change, "allowed": ALLOWED}


EMPTY_FORM: Final = {"name": "", "num_partitions": "", "replication_factor": "", "configs": "", "do": ""}
_COUNTS: Final = ("num_partitions", "replication_factor")


@post("/topics")
async def create(request: HttpRequest, site: NamedDependency[Site]) -> Response[bytes] | Redirect:
    filled = await read_form(request)
    is_dry = filled.get("do") != "create"
    result: CreatedView | None = None
    error: ErrorView | None = None
    status = 200  # also if the dry run is refused: the refusal is its result
    try:
        counts = {name: filled[name].strip() for name in _COUNTS if filled.get(name, "").strip()}
        fields = {"name": filled.get("name", "").strip(), "configs": _configs(filled), **counts}
        body = body_of(fields, writes.CreateBody)
        result = await site.call(writes.create_topic, request, content=body, validate_only=is_dry)
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
    filled = await read_form(request)
    do, fields = filled.get("do"), dict[str, object]()
    try:
        match do:
            case "grow":
                fields["num_partitions"] = filled.get("num_partitions", "").strip()
            case "configs" | "preview":
                fields["configs"] = {key: value or None for key, value in _configs(filled).items()}
            case "delete" if filled.get("typed") == name:
                done = await site.call(writes.delete_topic, request, name=name)
                return Redirect(f"/requests/{quote(done.request_id, safe='')}", status_code=303)
            case "delete":
                raise invalid(f"typed: to delete the topic, type its name {name!r}")
            case _:
                raise invalid(f"do: {do!r} is not grow, preview, configs or delete")
        given = {"name": name, "content": body_of(fields, writes.AlterBody), "validate_only": do == "preview"}
        altered: AlteredView = await site.call(writes.alter_topic, request, **given)
        if do == "preview":
            return await topic_page(name, request, site, filled=filled, preview=altered)
        return Redirect(f"/topics/{quote(name, safe='')}", status_code=303)
    except Refused as refusal:
        if not site.allows(request, "Describe", topic=name):
            raise
        return await topic_page(name, request, site, status=refusal.status, error=refusal.error, filled=filled)


def _command(filled: dict[str, str]) -> tuple[str, ...]:
    counts = {each.replace("_", "-").removeprefix("num-"): filled.get(each) for each in _COUNTS}
    lines = [line.partition("=") for line in filled.get("configs", "").splitlines() if line.strip()]
    configs = [word for name, _, value in lines for word in ("--config", f"{name.strip()}={value.strip()}")]
    return ("topic", "create", filled.get("name", ""), *flags(**counts), *configs)


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
