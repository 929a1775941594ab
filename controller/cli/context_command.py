"""`topicwright context`: manage contexts, the names for services."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from controller.cli.arguments import complain, error_text
from controller.cli.commands import COMMANDS, Parsers
from controller.cli.context import CONTEXT, HTTP, NAME, Context, ContextError, Contexts, file, read, write
from controller.cli.output import add_output, show
from controller.cli.reads.common import completed_by, context_names, http_address_text

DONE, NOT_THERE = 0, 1


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "context",
        description=f"{COMMANDS['context'].headline}. The context in use replaces the default 127.0.0.1:8080; "
        f"--http, --context, {HTTP} and {CONTEXT} override it.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list contexts; * marks the one in use")
    add_output(listing)
    adding = actions.add_parser("add", help="add a context, or replace it")
    adding.add_argument("name", type=_name, metavar="NAME")
    adding.add_argument(
        "--http",
        type=http_address_text,
        required=True,
        metavar="HOST:PORT",
        help="or https://HOST:PORT",
    )
    adding.add_argument("--command-config", metavar="FILE", help="properties file for the login")
    using = actions.add_parser("use", help="use a context by default")
    completed_by(using.add_argument("name", metavar="NAME"), context_names)
    removing = actions.add_parser("remove", help="remove a context")
    completed_by(removing.add_argument("name", metavar="NAME"), context_names)
    for each, run in ((listing, _list), (adding, _add), (using, _use), (removing, _remove)):
        each.set_defaults(func=_guarded(run))


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to 100 letters, digits, '.', '_' or '-'")
    return text


def _guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def guarded(options: argparse.Namespace) -> int:
        try:
            return run(options)
        except ContextError as error:
            return complain(str(error), NOT_THERE)
        except OSError as error:
            return complain(error_text(error))

    return guarded


def _list(options: argparse.Namespace) -> int:
    contexts = read()
    rows = [
        ("*" if name == contexts.current else "", name, one.http, one.command_config or "-")
        for name, one in sorted(contexts.by_name.items())
    ]
    answer = {
        "current": contexts.current,
        "contexts": dict(sorted(contexts.by_name.items())),
    }
    header = ("", "NAME", "HTTP", "COMMAND-CONFIG")
    show(
        options,
        answer,
        lambda style: style.table(header, rows) if rows else [f"There are no contexts in {file()}."],
        lambda: sorted(contexts.by_name),
    )
    return DONE


def _add(options: argparse.Namespace) -> int:
    contexts = read()
    import os

    config = None if options.command_config is None else os.path.abspath(options.command_config)
    by_name = {**contexts.by_name, options.name: Context(options.http, config)}
    write(Contexts(by_name, contexts.current or options.name))
    print(f"context {options.name} is {options.http}" + ("" if contexts.current else ", and in use"))
    return DONE


def _use(options: argparse.Namespace) -> int:
    contexts = read()
    one = contexts.named(options.name)
    write(Contexts(contexts.by_name, options.name))
    print(f"context {options.name} is in use: {one.http}")
    return DONE


def _remove(options: argparse.Namespace) -> int:
    contexts = read()
    contexts.named(options.name)
    left = {name: one for name, one in contexts.by_name.items() if name != options.name}
    write(Contexts(left, None if contexts.current == options.name else contexts.current))
    print(f"context {options.name} is removed")
    return DONE
