"""Flags of the commands that approve and deny requests, report risks, and send notifications."""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.arguments import count, count_within, point_in_time
from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.reads import common
from controller.cli.serve import bootstrap

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
            parser.add_argument("--because", required=True, metavar="TEXT", help="the reason, for the requester")
        common.add_backend(parser, later("reads.governance", name), may_be_stopped=False)
    parser = commands.add_parser("risks", description=f"{COMMANDS['risks'].description} Exit code 1 if there are any.")
    what = "maximum number of topics; default %(default)s"
    parser.add_argument("--limit", type=count_within(1, 1000), default=100, metavar="N", help=what)
    what = "instead list topics that have had no new record since, such as 30d: --bootstrap is then needed"
    parser.add_argument("--unused", type=point_in_time, metavar="TIME", help=what)
    what = "with --unused: the Kafka that has the records"
    parser.add_argument("--bootstrap", type=bootstrap, metavar="HOST:PORT[,…]", help=what)
    _add_properties(parser, "with --bootstrap")
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
    _add_properties(group, "Kafka topic")


def _add_properties(parser: argparse._ActionsContainer, when: str) -> None:
    what = f"{when}: file with librdkafka properties for TLS and login"
    parser.add_argument("--kafka-properties", metavar="FILE", help=what)
