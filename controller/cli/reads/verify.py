"""`topicwright verify`: what of it is needed to show its help. `work.verify` does it."""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.commands import COMMANDS, Parsers, later
from controller.cli.terminal.usage import count


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("verify", description=f"{COMMANDS['verify'].headline}.")
    parser.add_argument(
        "what",
        metavar="PROOF|DIR|URL|HOST:PORT",
        help="a proof that `prove` wrote, the folder of a stopped service, an archive or a backup, or where a running "
        "service answers HTTP",
    )
    parser.add_argument("--key", type=Path, metavar="PEM", help="the public key that heads must be signed by")
    parser.add_argument(
        "--head", type=Path, metavar="FILE", help="a head that was kept: a reply of GET /log/head, or a proof"
    )
    parser.add_argument("--partition", type=count, metavar="N", help="of a log in partitions: which one")
    parser.add_argument("--command-config", type=Path, metavar="FILE", help="how to log in; as for `topics`")
    parser.set_defaults(func=later("work.verify", "verify"))
