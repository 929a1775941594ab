"""Flags of the commands that approve and deny requests."""

from __future__ import annotations

import argparse

from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.reads import common


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    for name in ("approve", "deny"):
        parser = commands.add_parser(name, description=COMMANDS[name].description)
        parser.add_argument("id", metavar="ID", help="the request, as `topicwright requests --pending` lists it")
        if name == "deny":
            parser.add_argument("--because", required=True, metavar="TEXT", help="the reason, for the requester")
        common.add_backend(parser, later("reads.governance", name), may_be_stopped=False)
