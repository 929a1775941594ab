"""`topicwright topics`, `explain`, `topic` and `requests`: list, print and explain topics and requests; create and
delete topics, alter configs, add partitions.
"""

import argparse
from collections.abc import Iterator, Sequence
from time import monotonic, sleep  # noqa: TID251 - how long somebody at a terminal waits
from typing import Any, Final

from controller.cli.arguments import DONE, NEGATIVE, Negative, print_error, suggestion
from controller.cli.backend import Backend, Refusal
from controller.cli.output import Marked, Style, show
from controller.cli.reads import common
from controller.cli.reads.common import TOPIC_COLUMNS
from controller.cli.reads.governance import pending, unused
from controller.machine.configs.topic_configs import LABEL
from events.errors import UserError
from projections.text.names import is_pattern
from projections.text.wording import changed, client_text, many, unset
from projections.views import lines
from projections.views.events import EventsView, ExplanationView
from projections.views.requests import RequestSummary, RequestsView, RequestTopicView, RequestView
from projections.views.topics import (
    AlteredView,
    CreatedView,
    DeletedView,
    PartitionView,
    TopicSummary,
    TopicsView,
    TopicView,
)

WAIT_S = 0.25
"""The interval of `topic wait`."""


def topics(options: argparse.Namespace, backend: Backend) -> int:
    if (options.unused is None) != (options.bootstrap is None):
        raise common.Misuse("--unused and --bootstrap need each other")
    if options.name is not None and not is_pattern(options.name):
        if any(one is not None for one in (options.status, options.principal, options.label, options.unused)):
            raise common.Misuse("a filter of a list, such as --status, cannot be used with the name of a topic")
        return _show_topic(options, backend)
    filters = {each: getattr(options, each) for each in ("name", "status", "principal", "label")}
    pages = list(common.pages(backend, TopicsView, "/topics", limit=common.PAGE, at=options.at, **filters))
    matching, as_of = [one for page in pages for one in page.topics], pages[-1].as_of
    if options.unused is not None:
        matching = unused(options, matching)
    if options.sort_by is not None:
        column = TOPIC_COLUMNS.index(options.sort_by)
        matching.sort(key=lambda one: _topic_row(one, Style())[column])
    which = " that match" if any((*filters.values(), options.unused)) else ""
    answer, names = {"topics": matching, "as_of": as_of}, (one.name for one in matching)
    return show(options, answer, lambda style: _topic_lines(matching, style, which), lambda: names, lines.when(as_of))


def _show_topic(options: argparse.Namespace, backend: Backend) -> int:
    try:
        topic = backend.get(TopicView, "/topics", options.name, at=getattr(options, "at", None))
    except Refusal as refusal:
        if refusal.status == 404 and (hint := suggestion(options.name, common.topic_names(options.name[:3], options))):
            raise Negative(f"{refusal}{hint}") from None
        raise
    return show(options, topic, lambda style: _one_topic(topic, style), lambda: [topic.name])


def explain(options: argparse.Namespace, backend: Backend) -> int:
    chain = backend.get(ExplanationView, "/explain", options.subject, at=options.at)

    def printed(style: Style) -> Iterator[str]:
        return lines.explanation(chain, None if style.wide else style.width, style.age)

    return show(options, chain, printed, tuple, _at(options))


def _at(options: argparse.Namespace) -> str:
    return f" as of {'offset ' if str(options.at).isdigit() else ''}{options.at}"


def _create(options: argparse.Namespace, backend: Backend) -> int:
    if options.dry_run and options.timeout_ms is not None:
        raise common.Misuse("--dry-run does not wait, so it cannot be used with --timeout-ms")
    counts = {"num_partitions": options.partitions, "replication_factor": options.replication_factor}
    given = {"name": options.name, "configs": dict(options.config), "timeout_ms": options.timeout_ms, **counts}
    body = {name: value for name, value in given.items() if value is not None}
    answer = backend.send("POST", "/topics", CreatedView, body=body, validate_only=options.dry_run)
    return show(options, answer, lambda style: _created_lines(answer, style), lambda: [answer.name])


def _recreate(options: argparse.Namespace, backend: Backend) -> int:
    """Create a deleted topic again, with what history has of it."""
    old = backend.get(TopicView, "/topics", options.name, at=options.at or _before_deletion(options.name, backend))
    shape: dict[str, object] = {"num_partitions": old.num_partitions, "replication_factor": old.replication_factor}
    if not options.new_replicas:
        shape = {"assignments": [one.replicas for one in old.partitions]}
    body = {"name": old.name, "configs": old.configs, **shape}
    answer = backend.send("POST", "/topics", CreatedView, body=body, validate_only=options.dry_run)

    def text(style: Style) -> Iterator[str]:
        yield from _created_lines(answer, style)
        yield ""
        yield f"Its partitions, replicas, configs and labels are those{lines.when(old.as_of)}."
        yield "Its records are gone: the deletion removed them, and the topic begins empty."

    return show(options, answer, text, lambda: [answer.name])


def _before_deletion(name: str, backend: Backend) -> str:
    """The point in time before the last deletion of a topic. Raises UserError if it was never deleted."""
    which = {"topic": name, "order": "newest", "limit": 1}
    answers = [backend.get(EventsView, "/events", type=kind, **which) for kind in ("TopicDeleted", "TopicVanished")]
    found = [event for answer in answers for event in answer.events]
    if not found:
        raise UserError(f"topic {name} was never deleted; name a time with --at to use another state of it")
    last = max(found, key=lambda event: event.at_ms)
    return f"{last.at_ms - 1}ms" if last.partition is not None else str(last.offset - 1)


def _delete(options: argparse.Namespace, backend: Backend) -> int:
    deleted = backend.send("DELETE", "/topics", DeletedView, options.name)
    line = f"{deleted.name} is deleted, in request {deleted.request_id}; `topicwright explain` shows its history"
    return _done(options, deleted, line)


def _done(options: argparse.Namespace, answer: object, *text: str) -> int:
    return show(options, answer, lambda _: text, lambda: [options.name])


def _alter(options: argparse.Namespace, backend: Backend) -> int:
    if options.action == "grow":
        body: dict[str, object] = {"num_partitions": options.partitions}
    elif options.action == "alter" and (options.config or options.delete_config):
        _check_known(options.delete_config, options, backend)
        body = {"configs": {**dict(options.config), **dict.fromkeys(options.delete_config)}}
    elif options.action == "label" and (options.labels or options.delete):
        labels = {**dict(options.labels), **dict.fromkeys(options.delete)}
        body = {"configs": {LABEL + name: value for name, value in labels.items()}}
    else:
        of_label = options.action == "label"
        flags = "LABEL=VALUE or --delete LABEL" if of_label else "--config KEY=VALUE or --delete-config KEY"
        raise common.Misuse(f"nothing to change: give {flags}")
    return _patch(options, backend, body)


def _check_known(names: list[str], options: argparse.Namespace, backend: Backend) -> None:
    """Raise Misuse for a config that is unknown to Kafka and not set on the topic. Kafka would silently accept it."""
    from controller.machine.configs.topic_configs import BY_NAME  # few commands need it

    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        of_topic = backend.get(TopicView, "/topics", options.name).configs
        for name in unknown:
            if name not in of_topic:
                raise common.Misuse(f"--delete-config {name}: there is no such topic config{suggestion(name, BY_NAME)}")


def _patch(options: argparse.Namespace, backend: Backend, body: dict[str, object]) -> int:
    """Change a topic, and print the values before and after; with --dry-run as they would be."""
    try:
        before: TopicView | None = backend.get(TopicView, "/topics", options.name)
    except Refusal:  # this login may change the topic, and not describe it
        before = None
    after = backend.send("PATCH", "/topics", AlteredView, options.name, body, validate_only=options.dry_run)
    changes: list[str] = []
    if before is not None:
        counts = [[("partitions", str(one.num_partitions))] for one in (before, after)]
        values = changed(before.configs.items(), after.configs.items()) + changed(*counts)
        changes = [f"  {name}: {unset(old)} -> {unset(new)}" for name, old, new in values] or ["  nothing"]
    heading = f"{after.name} {'would change' if after.validate_only else 'is changed'}:"
    return _done(options, after, heading, *changes)


def _wait(options: argparse.Namespace, backend: Backend) -> int:
    """Wait until a topic has a status, or is deleted. Returns 1 after the timeout, and prints the cause."""
    until_s = monotonic() + options.timeout_ms / 1000
    while True:
        try:
            status: str = backend.get(TopicView, "/topics", options.name).status
        except Refusal as refusal:
            if refusal.status != 404 or options.status != "deleted":
                raise
            status = "deleted"
        if status == options.status:
            return _done(options, {"status": status}, f"{options.name} is {status}")
        if monotonic() >= until_s:
            why = backend.get(ExplanationView, "/explain", options.name).summary
            return print_error(f"{options.name} is not {options.status} after {options.timeout_ms} ms: {why}", NEGATIVE)
        sleep(WAIT_S)


_CHANGES: Final = {
    "wait": (_wait, "", "Describe"),
    "create": (_create, "is rejected", "Create"),
    "recreate": (_recreate, "is not recreated", "Create"),
    "delete": (_delete, "is not deleted", "Delete"),
    "alter": (_alter, "is not changed", "AlterConfigs"),
    "grow": (_alter, "is not changed", "Alter"),
    "label": (_alter, "is not changed", "AlterConfigs"),
}
"""Each change, the verb if it is rejected, and the operation that it needs on the topic."""


def change(options: argparse.Namespace, backend: Backend) -> int:
    """Run a change; if it is rejected, print why and return 1."""
    run, what, operation = _CHANGES[options.action]
    try:
        return run(options, backend)
    except Refusal as refusal:
        if refusal.exit_code != NEGATIVE or (refusal.status == 404 and not refusal.error.rule):
            raise
        what = "would be rejected" if getattr(options, "dry_run", False) else what
        why: UserError = refusal
        if refusal.error.rule == "validation:unknown-topic":
            try:
                backend.get(TopicView, "/topics", options.name)
            except Refusal as known:  # tells when it was deleted
                why = known
        line = f"{options.name} {what}: {why}"
        if refusal.error.rule == "authorizer":
            line += f"; this login needs {operation} on Topic:{options.name}"
        _done(options, refusal.error, line)
        return NEGATIVE


def requests(options: argparse.Namespace, backend: Backend) -> int:
    names = ("principal", "outcome", "rule", "api", "host", "label")
    filters = {name: getattr(options, name) for name in names} | {"from": options.since, "to": options.until}
    if options.pending:
        if options.id is not None or any(one is not None for one in (*filters.values(), options.at)):
            raise common.Misuse("--pending lists all requests that wait now: give no ID, no filter and no --at")
        return pending(options, backend)
    if options.id is not None:
        if any(one is not None for one in filters.values()):
            raise common.Misuse("filters apply to the list, so they cannot be used with the ID of a request")
        request = backend.get(RequestView, "/requests", options.id, at=options.at)
        show(options, request, lambda style: _one_request(request, style), lambda: [request.request_id], _at(options))
        return DONE
    filters |= {"at": options.at}
    found: list[RequestSummary] = []
    for page in common.pages(backend, RequestsView, "/requests", limit=min(options.limit, common.PAGE), **filters):
        found += page.requests
        more = page.next_cursor is not None or len(found) > options.limit
        if len(found) >= options.limit:
            break
    del found[options.limit :]
    answer, ids = {"requests": found, "as_of": page.as_of}, (one.request_id for one in found if not one.counted)
    return show(options, answer, lambda style: _request_lines(found, style, more), lambda: ids, lines.when(page.as_of))


# --- text


def _topic_lines(summaries: Sequence[TopicSummary], style: Style, which: str = "") -> Iterator[str]:
    """A list of topics; `which` completes the sentence that is printed if there are none."""
    more, row = (("TOPIC ID", "READY", "REQUEST", "CONFIGS"), _wide_topic) if style.wide else ((), _topic_row)
    header = (*map(str.upper, TOPIC_COLUMNS), *more)
    return style.table(header, (row(one, style) for one in summaries), f"There are no topics{which}.")


def _user(principal: str, style: Style) -> str:
    return principal if style.now is None else principal.removeprefix("User:")


def _topic_row(one: TopicSummary, style: Style) -> tuple[Any, ...]:
    return (
        one.name,
        one.num_partitions,
        one.replication_factor,
        Marked(lines.status(one), lines.mark(one.status)),
        style.age(one.created_at),
        one.labels.get("owner") or (f"created by {_user(one.created_by.principal, style)}" if one.created_by else "?"),
    )


def _wide_topic(one: TopicSummary, style: Style) -> tuple[object, ...]:
    configs = ",".join(f"{name}={value}" for name, value in sorted(one.configs.items())) or "-"
    request = one.created_by.request_id if one.created_by else "?"
    return (*_topic_row(one, style), one.topic_id, one.ready_at or "-", request, configs)


def _one_topic(one: TopicView, style: Style) -> Iterator[str]:
    yield f"{one.name}: {lines.status(one)},{lines.when(one.as_of)}"
    for each in one.issues:
        yield from lines.wrapped("  cause       ", f"{each.text}: {each.cause}", style.width)
        yield from lines.wrapped("  to do       ", each.resolution, style.width)
    for name, value in lines.topic_facts(one):
        yield from lines.wrapped(f"  {name:<11} ", value, style.width)
    yield ""
    yield from _partition_lines(one.partitions, style)


def _created_lines(one: CreatedView, style: Style) -> Iterator[str]:
    what = "would be created" if one.validate_only else "is created"
    yield f"{one.name} {what}: {many(one.num_partitions, 'partition')}, factor {one.replication_factor}"
    if one.message:
        yield f"  ({one.message})"
    for name, value in sorted(one.configs.items()):
        yield f"  {name}={value}"
    yield ""
    yield from _partition_lines(one.partitions, style)


def _partition_lines(all_partitions: Sequence[PartitionView], style: Style) -> Iterator[str]:
    rows = (
        (
            one.partition,
            "none" if one.leader < 0 else one.leader,
            *map(common.ids, (one.replicas, one.isr, one.offline)),
        )
        for one in all_partitions
    )
    yield from style.table(("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "OFFLINE"), rows)


def _request_lines(found: Sequence[RequestSummary], style: Style, more: bool) -> Iterator[str]:
    """A list of requests; `more` means that older ones exist."""
    is_brief = style.now is not None

    def row(one: RequestSummary) -> tuple[object, ...]:
        by = (_user(one.principal, style),) if is_brief else (client_text(one.principal, one.client_id), one.api)
        outcome = Marked(lines.outcomes(one), lines.outcome_mark(one.outcomes))
        request, topics = "-" if one.counted else one.request_id, lines.topics_of(one, whole=style.wide)
        where = (one.host or "-", one.requested_offset) if style.wide else ()
        return request, style.age(one.requested_at), *by, topics, outcome, ",".join(one.rules) or "-", *where

    api, where = () if is_brief else ("API",), ("HOST", "OFFSET") if style.wide else ()
    header = ("REQUEST", "TIME", "BY", *api, "TOPICS", "OUTCOME", "RULE", *where)
    yield from style.table(header, map(row, found), "No request matches.")
    if more and style.width is not None:
        yield f"… older requests exist: use --limit {2 * len(found)} or --until {found[-1].requested_at}"


def _one_request(one: RequestView, style: Style) -> Iterator[str]:
    who = client_text(one.principal, one.client_id)
    yield f"request {one.request_id}: {lines.api(one)} by {who} at {one.requested_at}, offset {one.requested_offset}"
    if one.timeout_ms is not None:
        yield f"  timeout {lines.span(one.timeout_ms)}, at {one.deadline_at}"
    yield ""
    header = ("TOPIC", "OUTCOME", "ERROR", "RULE", "WAITED", "CHANGE", "MESSAGE")
    yield from style.table(header, map(_outcome_row, one.topics))
    yield ""
    yield f"`topicwright explain {one.request_id}` shows its events."


def _outcome_row(one: RequestTopicView) -> tuple[object, ...]:
    outcome = Marked(one.status, lines.outcome_mark((one.status,)))
    waited = "-" if one.waited_ms is None else lines.span(one.waited_ms)
    return one.topic, outcome, one.error or "-", one.rule or "-", waited, one.change, one.message or "-"
