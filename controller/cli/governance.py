"""Flags of the commands for files of topics, approvals, risks, and notifications."""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.arguments import count, count_within, non_empty
from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.reads import common

NOTIFICATIONS = {
    "refused": ("CreateRejected", "ChangeRejected", "RequestsRefused", "CreationRefused"),
    "approval": ("ApprovalRequested", "ApprovalDecided"),
    "offline": ("PartitionChanged",),
    "discovered": ("TopicDiscovered", "TopicVanished"),
    "rules": ("RulesApplied",),
}
"""The kinds of notifications with the types of their events; a partition is offline when it loses its leader. `changes`
is another kind, of all that `topicwright changes` lists."""


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    _register_files(commands)
    for name in ("approve", "deny"):
        parser = _added(commands, name)
        parser.add_argument("id", metavar="REQUEST", help="the request, as `topicwright requests --pending` lists it")
        if name == "deny":
            what = "the reason, for the requester"
            parser.add_argument("--because", type=non_empty, required=True, metavar="TEXT", help=what)
        common.add_backend(parser, later("reads.governance", name), may_be_stopped=False)
    parser = _added(commands, "risks", "Exit code 1 if there are any.")
    what = "maximum number of topics; default %(default)s"
    parser.add_argument("--limit", type=count_within(1, 1000), default=100, metavar="N", help=what)
    common.add_label(parser)
    common.add_backend(parser, later("reads.governance", "risks"))
    parser = _added(commands, "notify", "It runs until it is ended.")
    _add_target(parser, required=True)
    what = "where the offset of the next event is stored, in Prometheus' text format"
    parser.add_argument("--state", required=True, type=Path, metavar="STATE", help=what)
    kinds = (*NOTIFICATIONS, "changes")
    what = f"the kinds of events to send: {' '.join(NOTIFICATIONS)} (default), changes"
    parser.add_argument("--events", nargs="+", choices=kinds, default=[*NOTIFICATIONS], metavar="KIND", help=what)
    what = "offset to begin with if the file does not exist; default: the end of the log"
    parser.add_argument("--from", dest="start", type=count, metavar="OFFSET", help=what)
    common.add_backend(parser, later("work.notify", "notify"), formats=(), may_be_stopped=False)


def _added(commands: Parsers[argparse.ArgumentParser], name: str, more: str = "") -> argparse.ArgumentParser:
    return commands.add_parser(name, description=f"{COMMANDS[name].description} {more}".strip())


def _register_files(commands: Parsers[argparse.ArgumentParser]) -> None:
    page = "docs/topics-as-code.md describes the files."
    refused = f"{page} Exit code 1 if a change is rejected."
    plan, apply = _added(commands, "plan", refused), _added(commands, "apply", refused)
    drift = _added(commands, "drift", f"{page} Exit code 1 if there are differences.")
    importing = _added(commands, "import", page)
    plan.add_argument("--save", type=Path, metavar="FILE", help="save the plan for `topicwright apply --plan FILE`")
    what = "apply exactly this saved plan; if its result has changed since, say how and apply nothing"
    apply.add_argument("--plan", type=Path, metavar="FILE", help=what)
    what = "only topics with this name or pattern, such as 'pay.*'; default: all topics"
    importing.add_argument("pattern", nargs="?", default="*", metavar="NAME|PATTERN", help=what)
    common.add_backend(importing, later("ascode.planning", "write_files"), formats=())
    what = "files or folders of YAML: Topicwright's format, topicctl, jikkou, Strimzi KafkaTopic, or Julie"
    for parser, number in ((plan, "+"), (apply, "*"), (drift, "+")):
        parser.add_argument("files", nargs=number, type=Path, metavar="PATH", help=what)
    what = "also delete topics that this set of files (`set: NAME`) created and no longer has"
    for parser in (plan, apply):
        parser.add_argument("--prune", action="store_true", help=what)
    _add_target(drift)
    for parser in (plan, apply, drift):
        common.add_backend(parser, later("ascode.planning", parser.prog.split()[-1]), may_be_stopped=False)


def _add_target(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the flags of a target of notifications."""
    group = parser.add_argument_group("target")
    what = "a webhook, https://HOST[:PORT]/PATH, or a Kafka topic, kafka://HOST:PORT[,…]/TOPIC"
    group.add_argument("--to", required=required, metavar="TARGET", help=what)
    formats = ("cloudevents", "slack", "ocsf")
    what = f"{', '.join(formats)} (API Activity); default: %(default)s"
    group.add_argument("--format", choices=formats, default=formats[0], metavar="FORMAT", help=what)
    group.add_argument("--key", type=Path, metavar="FILE", help="webhook: sign with the key in this file")
    what = "webhook: allow private addresses, and http://"
    group.add_argument("--allow-private", action="store_true", help=what)
    common.add_kafka_properties(group, "Kafka topic")
