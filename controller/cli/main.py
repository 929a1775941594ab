"""The `topicwright` command.

`python -m controller.cli.main` is the same command.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from time import tzset  # noqa: TID251 - the zone of printed times

from controller.cli.arguments import EXIT_CODES, Parser, with_output
from controller.cli.commands import COMMANDS, add_examples, in_groups
from controller.release import RELEASE

OWNER_ALONE = 0o077
"""The umask: logs and metadata folders contain SCRAM keys, exports and reports contain user names."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        import argcomplete

        argcomplete.autocomplete(parser("", every=True))
    before, zone = os.umask(OWNER_ALONE), os.environ.get("TZ")
    try:
        if "--utc" in given:  # before the times among the flags are parsed
            _set_zone("UTC")
        options = parser(given[0] if given else "").parse_args(given)
        run: Callable[[argparse.Namespace], int | None] = options.func
        return with_output(lambda: run(options))
    finally:
        os.umask(before)
        _set_zone(zone)


def _set_zone(zone: str | None) -> None:
    if zone is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = zone
    tzset()


def parser(command: str = "", *, every: bool = False) -> Parser:
    """A parser with the flags of one command and the names of the others; with `every`, the flags of all commands."""
    parser = Parser(
        prog="topicwright",
        description="A Kafka controller you can replay.",
        usage="topicwright [-h] [--version] COMMAND …",
        epilog=f"{in_groups()}\n\n`topicwright COMMAND --help` shows the flags of a command.\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"topicwright {RELEASE}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="topicwright"
    )
    known = COMMANDS if every else {command: COMMANDS[command]} if command in COMMANDS else {}
    for module in dict.fromkeys(one.module for one in known.values()):
        import_module(f"controller.cli.{module}").register(commands)
    for name in known:
        add_examples(commands.choices[name])
    for name in COMMANDS:
        if name not in commands.choices:
            commands.add_parser(name)
    return parser


if __name__ == "__main__":
    sys.exit(main())
