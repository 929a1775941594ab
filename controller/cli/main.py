"""The `topicwright` command.

Exit codes: 0 done, 1 the check found something, 2 wrong usage or settings.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from controller.release import RELEASE

OWNER_ALONE = 0o077
"""What nobody but its owner may do with files that a command writes: logs and their caches hold SCRAM keys, metadata
folders of Kafka too, exports and reports say who did what."""
COMMANDS = {
    "serve": "serve",
    "front": "front",
    "worker": "worker",
    "demo": "demo",
    "topics": "query",
    "events": "query",
    "explain": "query",
    "prove": "prove",
    "verify": "verify",
    "replay": "replay",
    "users": "users",
    "adopt": "adopt",
    "restore": "adopt",
    "handback": "adopt",
    "join": "quorum",
    "leave": "quorum",
    "quorum": "quorum",
}
"""The module of this package that has each command: only that of the one which runs is loaded."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser(given[0] if given else "").parse_args(given)
    run: Callable[[argparse.Namespace], int] = options.func
    before = os.umask(OWNER_ALONE)
    try:
        return run(options)
    finally:
        os.umask(before)


def parser(command: str = "") -> argparse.ArgumentParser:
    """What is understood on the command line where it begins with this command; of all of them where it names none."""
    parser = argparse.ArgumentParser(prog="topicwright", description="A Kafka controller you can replay.")
    parser.add_argument("--version", action="version", version=f"topicwright {RELEASE}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in dict.fromkeys([COMMANDS[command]] if command in COMMANDS else COMMANDS.values()):
        import_module(f"controller.cli.{module}").register(commands)
    return parser
