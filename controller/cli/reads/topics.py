"""`topicwright topics`, `explain` and `topic`: list, print and explain topics; create and delete topics, alter configs,
add partitions.

Exit codes of `topic`: 0 done; 1 refused, or no such topic; 2 wrong usage, or no service reached.
"""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from typing import Final

from controller.cli.arguments import NEGATIVE, suggestion
from controller.cli.backend import Backend, Refusal
from controller.cli.output import show
from controller.cli.reads import common, text
from projections.views import lines
from projections.views.events import ExplanationView
from projections.views.topics import CreatedView, DeletedView, TopicSummary, TopicsView, TopicView

GLOB = "*?["
_REFUSED = {
    "create": "is refused",
    "dry run": "would be refused",
    "delete": "is not deleted",
    "alter": "is not changed",
    "grow": "is not changed",
}


def topics(options: argparse.Namespace, backend: Backend) -> int:
    if options.name is not None and not any(sign in options.name for sign in GLOB):
        if options.status is not None or options.principal is not None:
            raise common.Misuse("--status and --principal filter a list, so they cannot be used with a topic NAME")
        return _show_topic(options, backend)
    pages = list(common.pages(backend, TopicsView, "/topics", limit=common.PAGE, at=options.at))
    found, as_of = [one for page in pages for one in page.topics], pages[-1].as_of
    matching = [one for one in found if _matches(options, one)]
    answer = {"topics": matching, "as_of": as_of}
    which = " that match" if found else ""
    return show(
        options,
        answer,
        lambda style: text.topics(matching, as_of, style, which),
        lambda: (one.name for one in matching),
    )


def _show_topic(options: argparse.Namespace, backend: Backend) -> int:
    topic = backend.get(TopicView, "/topics", options.name, at=getattr(options, "at", None))
    return show(options, topic, lambda style: text.topic(topic, style), lambda: [topic.name])


def _matches(options: argparse.Namespace, one: TopicSummary) -> bool:
    by = one.created_by.principal if one.created_by else ""
    return (
        (options.name is None or fnmatchcase(one.name, options.name))
        and options.status in (None, one.status, "not-ready" if one.status != "ready" else None)
        and (options.principal is None or fnmatchcase(by, options.principal))
    )


def explain(options: argparse.Namespace, backend: Backend) -> int:
    chain = backend.get(ExplanationView, "/explain", options.subject, at=options.at)
    return show(options, chain, lambda style: lines.explanation(chain, None if style.wide else style.width), tuple)


def _create(options: argparse.Namespace, backend: Backend) -> int:
    if not options.dry_run and options.data is not None:
        raise common.Misuse("--data reads a stopped service, which cannot create topics: add --dry-run")
    if options.dry_run and options.timeout_ms is not None:
        raise common.Misuse("--dry-run does not wait, so it cannot be used with --timeout-ms")
    body = {
        "name": options.name,
        "configs": dict(options.config),
        "num_partitions": options.partitions,
        "replication_factor": options.replication_factor,
        "timeout_ms": options.timeout_ms,
    }
    body = {name: value for name, value in body.items() if value is not None}
    dry = "true" if options.dry_run else None
    answer = backend.send("POST", "/topics", CreatedView, body=body, validate_only=dry)
    return show(options, answer, lambda style: text.created(answer, style), lambda: [answer.name])


def _delete(options: argparse.Namespace, backend: Backend) -> int:
    deleted = backend.send("DELETE", "/topics", DeletedView, options.name)
    line = f"{deleted.name} is deleted, in request {deleted.request_id}; `topicwright explain` shows its history"
    return show(options, deleted, lambda _: [line], lambda: [deleted.name])


def _alter(options: argparse.Namespace, backend: Backend) -> int:
    if not options.config and not options.delete_config:
        raise common.Misuse("nothing to change: give --config KEY=VALUE or --delete-config KEY")
    _check_known(options.delete_config, options, backend)
    configs = {**dict(options.config), **dict.fromkeys(options.delete_config)}
    return _change(options, backend, {"configs": configs})


def _check_known(names: list[str], options: argparse.Namespace, backend: Backend) -> None:
    """Raise Misuse for a config that is unknown to Kafka and not set on the topic. Kafka would silently accept it."""
    from controller.machine.configs.topic_configs import BY_NAME  # few commands need it

    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        of_topic = backend.get(TopicView, "/topics", options.name).configs
        for name in unknown:
            if name not in of_topic:
                raise common.Misuse(f"--delete-config {name}: there is no such topic config{suggestion(name, BY_NAME)}")


def _grow(options: argparse.Namespace, backend: Backend) -> int:
    return _change(options, backend, {"num_partitions": options.partitions})


def _change(options: argparse.Namespace, backend: Backend, change: dict[str, object]) -> int:
    backend.send("PATCH", "/topics", dict[str, object], options.name, change)
    return _show_topic(options, backend)


_CHANGES: Final = {"create": _create, "delete": _delete, "alter": _alter, "grow": _grow}


def change(options: argparse.Namespace, backend: Backend) -> int:
    """Run a change; if it is refused, print why and return 1."""
    try:
        return _CHANGES[options.action](options, backend)
    except Refusal as refusal:
        if refusal.status >= 500 or (refusal.status == 404 and not refusal.error.rule):
            raise
        what = _REFUSED["dry run" if getattr(options, "dry_run", False) else options.action]
        line = f"{options.name} {what}: {refusal}"
        show(options, refusal.error, lambda _: [line], lambda: [options.name])
        return NEGATIVE
