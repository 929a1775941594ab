"""`topicwright topics`, `explain` and `topic`: list, print and explain topics; create and delete topics, alter configs,
add partitions.

Exit codes of `topic`: 0 done; 1 refused, or no such topic; 2 wrong usage, or no service reached.
"""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from controller.cli.arguments import NEGATIVE, completed_by, count, key_value, non_empty, suggestion
from controller.cli.commands import COMMANDS, Parsers
from controller.cli.output import FORMATS, show
from controller.cli.reads import common
from controller.cli.reads.common import topic_names
from projections.text.names import STATUSES

if TYPE_CHECKING:
    from controller.cli.backend import Backend
    from projections.views.topics import TopicSummary

GLOB = "*?["
_REFUSED = {
    "create": "is refused",
    "dry run": "would be refused",
    "delete": "is not deleted",
    "alter": "is not changed",
    "grow": "is not changed",
}


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("topics", description=COMMANDS["topics"].description)
    what = "a topic to show in full, or a pattern such as 'pay.*' to list; default: list all topics"
    completed_by(parser.add_argument("name", nargs="?", type=non_empty, metavar="NAME|PATTERN", help=what), topic_names)
    common.add_at(parser)
    parser.add_argument("--status", choices=STATUSES, help="list only topics with this status: " + ", ".join(STATUSES))
    parser.add_argument(
        "--principal", metavar="PATTERN", help="list only topics that this user created, such as User:alice"
    )
    common.add_backend(parser, _topics)
    parser = commands.add_parser("explain", description=f"Explain {COMMANDS['explain'].summary.partition(' ')[2]}.")
    what = "name of a topic, or id of a request"
    completed_by(parser.add_argument("subject", type=non_empty, metavar="TOPIC|REQUEST", help=what), topic_names)
    common.add_at(parser)
    common.add_backend(parser, _explain, formats=[each for each in FORMATS if each != "name"])
    _register_topic(commands.add_parser("topic", description=COMMANDS["topic"].description))


def _register_topic(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = _action(actions, "create", "create a topic, and wait until it is ready")
    create.add_argument("--partitions", type=int, metavar="N", help="number of partitions; default: the cluster's")
    create.add_argument("--replication-factor", type=int, metavar="N", help="default: the cluster's")
    _add_configs(create)
    create.add_argument(
        "--timeout-ms", type=count, metavar="MS", help="how long to wait until it is ready; default: 30000"
    )
    create.add_argument("--dry-run", action="store_true", help="validate, and show the replicas that it would get")
    common.add_backend(create, partial(_run_change, _create))
    delete = _action(actions, "delete", "delete a topic; its history remains in the log")
    common.add_backend(delete, partial(_run_change, _delete), may_be_stopped=False)
    alter = _action(actions, "alter", "change configs of a topic")
    _add_configs(alter)
    alter.add_argument(
        "--delete-config",
        action="append",
        default=[],
        type=non_empty,
        metavar="KEY",
        help="reset to the cluster's default",
    )
    common.add_backend(alter, partial(_run_change, _alter), may_be_stopped=False)
    grow = _action(actions, "grow", "add partitions to a topic")
    grow.add_argument("--partitions", type=int, required=True, metavar="N", help="the new number of partitions")
    common.add_backend(grow, partial(_run_change, _grow), may_be_stopped=False)


def _action(actions: Parsers[argparse.ArgumentParser], name: str, summary: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.")
    topic = parser.add_argument("name", type=non_empty, metavar="NAME", help="the topic")
    if name != "create":
        completed_by(topic, topic_names)
    return parser


def _add_configs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", action="append", default=[], type=key_value, metavar="KEY=VALUE", help="a config; may be repeated"
    )


def _topics(options: argparse.Namespace, backend: Backend) -> int:
    from controller.cli.reads import text

    if options.name is not None and not any(sign in options.name for sign in GLOB):
        if options.status is not None or options.principal is not None:
            raise common.Misuse("--status and --principal filter a list, so they cannot be used with a topic NAME")
        return _show_topic(options, backend)
    from projections.views.topics import TopicsView

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
    from controller.cli.reads import text
    from projections.views.topics import TopicView

    topic = backend.get(TopicView, "/topics", options.name, at=getattr(options, "at", None))
    return show(options, topic, lambda style: text.topic(topic, style), lambda: [topic.name])


def _matches(options: argparse.Namespace, one: TopicSummary) -> bool:
    by = one.created_by.principal if one.created_by else ""
    return (
        (options.name is None or fnmatchcase(one.name, options.name))
        and options.status in (None, one.status, "not-ready" if one.status != "ready" else None)
        and (options.principal is None or fnmatchcase(by, options.principal))
    )


def _explain(options: argparse.Namespace, backend: Backend) -> int:
    from projections.views import lines
    from projections.views.events import ExplanationView

    chain = backend.get(ExplanationView, "/explain", options.subject, at=options.at)
    return show(options, chain, lambda style: lines.explanation(chain, None if style.wide else style.width), tuple)


def _create(options: argparse.Namespace, backend: Backend) -> int:
    from controller.cli.reads import text
    from projections.views.topics import CreatedView

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
    from projections.views.topics import DeletedView

    deleted = backend.send("DELETE", "/topics", DeletedView, options.name)
    lines = [f"{deleted.name} is deleted, in request {deleted.request_id}; `topicwright explain` shows its history"]
    return show(options, deleted, lambda _: lines, lambda: [deleted.name])


def _alter(options: argparse.Namespace, backend: Backend) -> int:
    if not options.config and not options.delete_config:
        raise common.Misuse("nothing to change: give --config KEY=VALUE or --delete-config KEY")
    _check_known(options.delete_config, options, backend)
    configs = {**dict(options.config), **dict.fromkeys(options.delete_config)}
    return _change(options, backend, {"configs": configs})


def _check_known(names: list[str], options: argparse.Namespace, backend: Backend) -> None:
    """Raise Misuse for a config that is unknown to Kafka and not set on the topic. Kafka would silently accept it."""
    from controller.machine.configs.table import BY_NAME
    from projections.views.topics import TopicView

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


def _run_change(run: common.Read, options: argparse.Namespace, backend: Backend) -> int:
    """Run a change; if it is refused, print why and return 1."""
    from controller.cli.backend import Refusal

    try:
        return run(options, backend)
    except Refusal as refusal:
        if refusal.status >= 500 or (refusal.status == 404 and not refusal.error.rule):
            raise
        what = _REFUSED["dry run" if getattr(options, "dry_run", False) else options.action]
        line = f"{options.name} {what}: {refusal}"
        show(options, refusal.error, lambda _: [line], lambda: [options.name])
        return NEGATIVE
