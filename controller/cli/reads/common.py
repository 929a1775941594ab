"""What the commands that read have in common: where answers come from, and how a command ends.

They query a running service over HTTP, or with `--data` read the folder of a stopped one. Answers go to standard
output; errors go to standard error.

Exit codes: 0 answered; 1 what was named does not exist, or was refused; 2 wrong usage, or no service reached.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from controller.cli.reads.completing import completed_by, context_names
from controller.cli.sources.chosen import a_source
from controller.cli.terminal.contexts import DEFAULT_HTTP, HTTP
from controller.cli.terminal.moments import AGO, moment
from controller.cli.terminal.printing import FORMATS, add_output
from controller.cli.terminal.usage import WRONG, complain

if TYPE_CHECKING:
    from controller.cli.sources.http import Source
    from projections.views.json_types import ErrorView

DONE, FOUND = 0, 1
PAGE = 1000
"""Topics or events a request: the most that a service gives."""

Read = Callable[[argparse.Namespace, "Source"], int]


def add_at(parser: argparse.ArgumentParser) -> None:
    """Add `--at`."""
    what = f"show the past: an offset, an ISO-8601 time, {AGO}; default: now"
    parser.add_argument("--at", metavar="OFFSET|TIME", type=moment, help=what)


def add_span(parser: argparse.ArgumentParser) -> None:
    """Add `--since` and `--until`."""
    parser.add_argument("--since", type=moment, metavar="OFFSET|TIME", help=f"only from then on: {AGO}")
    parser.add_argument("--until", type=moment, metavar="OFFSET|TIME", help="only up to then")


def add_source(
    parser: argparse.ArgumentParser, run: Read, *, formats: Sequence[str] = FORMATS, may_be_stopped: bool = True
) -> None:
    """Add where to read, how to log in, and how to print, where there is a choice; `run` gives the exit code."""
    if formats:
        add_output(parser, formats)
    group = parser.add_argument_group("where")
    source = group.add_mutually_exclusive_group()
    default = f"a running service; default: {HTTP}, the context in use, or {DEFAULT_HTTP}"
    source.add_argument("--http", type=_address, metavar="HOST:PORT", help=default)
    named = source.add_argument("--context", metavar="NAME", help="a running service by its name (topicwright context)")
    completed_by(named, context_names)
    if may_be_stopped:
        source.add_argument("--data", type=Path, metavar="DIR", help="the folder of a stopped service, read instead")
    group.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="how to log in: username and password, or token; ssl.truststore.location; default: without a login",
    )
    parser.set_defaults(func=lambda options: _run(run, options, parser))


def _address(text: str) -> str:
    from controller.cli.sources.http_access import http_address

    http_address(text)
    return text


class Misuse(Exception):
    """Flags that do not go together; the message is shown with the usage."""


def _run(run: Read, options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from controller.cli.sources.http import Refusal, SourceError
    from controller.cli.sources.http_access import AccessError
    from controller.cli.terminal.contexts import ContextError

    try:
        with a_source(options) as source:
            code = run(options, source)
            if source.archive_files:
                print(f"read from the archive of the log: {source.archive_files} files", file=sys.stderr)
            return code
    except Misuse as misuse:
        parser.error(str(misuse))
    except (SourceError, AccessError, ContextError) as error:
        return complain(str(error))
    except Refusal as refusal:
        return complain(in_words(refusal.error), FOUND if refusal.status == 404 else WRONG)
    except KeyboardInterrupt:
        return DONE


def in_words(error: ErrorView) -> str:
    """A refusal, for people."""
    rule = f", by {error.rule}" if error.rule else ""
    return f"{error.message} ({error.error}{rule})"
