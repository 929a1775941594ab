"""`topicwright users`: who can log in.

    --data DIR                 SCRAM users in the log of a stopped service: how the first one gets in
    --bootstrap HOST:PORT      SCRAM users through the admin API of a running service, or of any Kafka
    --file FILE                passwords (for PLAIN and HTTP) and tokens (for HTTP) in the file of `users.file`

A password is asked for on the terminal, or is the first line of standard input; it is never an argument, because other
users of a machine can see those. Exit codes: 0 done, 1 refused or nobody there, 2 wrong usage or no service there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from controller.cli.commands import Parsers, later
from controller.cli.terminal.printing import add_output

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
"""As `controller.machine.access.credentials` has them, which the help does not load."""


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("users", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser("add", help="add a user, or set its password")
    add.add_argument("name", metavar="NAME")
    add.add_argument("--token", action="store_true", help="a token for HTTP instead of a password; with --file")
    add.add_argument(
        "--iterations",
        type=_iterations,
        default=ITERATIONS_MIN,
        help=f"how often SCRAM hashes the password, {ITERATIONS_MIN} to {ITERATIONS_MAX}; default %(default)s",
    )
    remove = actions.add_parser("remove", help="remove a user")
    remove.add_argument("name", metavar="NAME")
    listing = actions.add_parser("list", help="list users and how they log in, never with what")
    add_output(listing)
    for each, run in ((add, "add"), (remove, "remove"), (listing, "list_")):
        _register_where(each)
        each.set_defaults(func=later("work.users", run))
    for each in (add, remove):
        each.add_argument(
            "--mechanism",
            choices=MECHANISMS,
            default="SCRAM-SHA-512",
            help="how the user logs in; default %(default)s",
        )


def _register_where(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--data", type=Path, metavar="DIR", help="the data folder of a stopped service")
    where.add_argument("--bootstrap", metavar="HOST:PORT", help="a running service")
    where.add_argument("--file", type=Path, metavar="FILE", help="the users file")
    parser.add_argument("--config", type=Path, metavar="FILE", help="with --data: the settings of the service")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="with --data: one setting")
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="with --bootstrap: client properties, as librdkafka has them",
    )


def _iterations(text: str) -> int:
    """How often to hash. Raises ArgumentTypeError for more than is taken anywhere, which would only keep us busy."""
    if not text.isdecimal() or len(text) > 5 or int(text) > ITERATIONS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return int(text)
