"""`topicwright demo`: a story in a minute; `work.demo` has it."""

from __future__ import annotations

import argparse

from controller.cli.commands import COMMANDS, Parsers, later


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("demo", description=f"{COMMANDS['demo'].headline}.")
    parser.set_defaults(func=later("work.demo", "demo"))
