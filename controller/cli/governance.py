"""Flags of the commands that approve and deny requests, report risks, and send notifications."""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.arguments import count, count_within
from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.reads import common

NOTIFICATIONS = ("refused", "approval", "offline", "discovered", "rules")
"""The kinds of notifications: the keys of `work.notify.KINDS`, which `--help` does not load."""


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
    common.add_backend(parser, later("reads.governance", "risks"))
    parser = commands.add_parser("notify", description=f"{COMMANDS['notify'].description} It runs until it is ended.")
    what = "the webhook: https://HOST[:PORT]/PATH"
    parser.add_argument("--to", required=True, metavar="URL", help=what)
    what = "where the offset of the next event is stored, in Prometheus' text format"
    parser.add_argument("--state", required=True, type=Path, metavar="FILE", help=what)
    what = f"kinds of events, separated by commas; default: {', '.join(NOTIFICATIONS)}"
    parser.add_argument("--events", type=_kinds, default=NOTIFICATIONS, metavar="KINDS", help=what)
    what = "offset to begin with if FILE does not exist; default: the end of the log"
    parser.add_argument("--from", dest="start", type=count, metavar="OFFSET", help=what)
    parser.add_argument("--key", type=Path, metavar="FILE", help="sign each notification with the key in this file")
    what = "allow webhooks at private addresses, and without TLS"
    parser.add_argument("--allow-private", action="store_true", help=what)
    common.add_backend(parser, later("work.notify", "notify"), formats=(), may_be_stopped=False)


def _kinds(text: str) -> tuple[str, ...]:
    unknown = set(text.split(",")) - set(NOTIFICATIONS)
    if unknown:
        raise argparse.ArgumentTypeError(f"{min(unknown)!r} is not one of {', '.join(NOTIFICATIONS)}")
    return tuple(text.split(","))
