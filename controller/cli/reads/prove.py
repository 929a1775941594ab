"""`topicwright prove`: what of it is needed to show its help. `work.prove` does it."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.commands import COMMANDS, Parsers
from controller.cli.reads import common
from controller.cli.terminal.usage import count

if TYPE_CHECKING:
    from controller.cli.sources.http import Source


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("prove", description=f"{COMMANDS['prove'].headline}.")
    parser.add_argument(
        "subject", metavar="REQUEST|TOPIC|OFFSET", help="the events of a request or a topic, or the one at an offset"
    )
    parser.add_argument("--from", dest="start", type=count, default=0, metavar="OFFSET", help="the first to prove")
    parser.add_argument(
        "--limit",
        type=count,
        default=100,
        metavar="N",
        help="how many events at most, up to 1000; %(default)s",
    )
    parser.add_argument("--partition", type=count, metavar="N", help="of a log in partitions: which one")
    parser.add_argument(
        "--head", type=Path, metavar="FILE", help="prove it to who kept this head; default: by the newest one"
    )
    common.add_source(parser, _prove, formats=())


def _prove(options: argparse.Namespace, source: Source) -> int:
    code: int = import_module("controller.cli.work.prove").prove(options, source)
    return code
