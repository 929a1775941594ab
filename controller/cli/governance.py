"""Flags of the commands that approve and deny requests, report risks, and send notifications."""

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
    for name in ("approve", "deny"):
        parser = commands.add_parser(name, description=COMMANDS[name].description)
        parser.add_argument("id", metavar="ID", help="the request, as `topicwright requests --pending` lists it")
        if name == "deny":
            what = "the reason, for the requester"
            parser.add_argument("--because", type=non_empty, required=True, metavar="TEXT", help=what)
        common.add_backend(parser, later("reads.governance", name), may_be_stopped=False)
    parser = commands.add_parser("risks", description=f"{COMMANDS['risks'].description} Exit code 1 if there are any.")
    what = "maximum number of topics; default %(default)s"
    parser.add_argument("--limit", type=count_within(1, 1000), default=100, metavar="N", help=what)
    common.add_label(parser)
    common.add_backend(parser, later("reads.governance", "risks"))
    parser = commands.add_parser("notify", description=f"{COMMANDS['notify'].description} It runs until it is ended.")
    add_target(parser, required=True)
    what = "where the offset of the next event is stored, in Prometheus' text format"
    parser.add_argument("--state", required=True, type=Path, metavar="FILE", help=what)
    kinds, what = (
        (*NOTIFICATIONS, "changes"),
        f"the kinds of events to send: {' '.join(NOTIFICATIONS)} (default), changes",
    )
    parser.add_argument("--events", nargs="+", choices=kinds, default=[*NOTIFICATIONS], metavar="KIND", help=what)
    what = "offset to begin with if the file does not exist; default: the end of the log"
    parser.add_argument("--from", dest="start", type=count, metavar="OFFSET", help=what)
    common.add_backend(parser, later("work.notify", "notify"), formats=(), may_be_stopped=False)


def add_target(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the flags of a target of notifications."""
    group = parser.add_argument_group("target")
    what = "a webhook, https://HOST[:PORT]/PATH, or a Kafka topic, kafka://HOST:PORT[,…]/TOPIC"
    group.add_argument("--to", required=required, metavar="URL", help=what)
    formats = ("cloudevents", "slack", "ocsf")
    what = f"{', '.join(formats)} (API Activity); default: %(default)s"
    group.add_argument("--format", choices=formats, default=formats[0], metavar="FORMAT", help=what)
    group.add_argument("--key", type=Path, metavar="FILE", help="webhook: sign with the key in this file")
    what = "webhook: allow private addresses, and http://"
    group.add_argument("--allow-private", action="store_true", help=what)
    common.add_kafka_properties(group, "Kafka topic")
