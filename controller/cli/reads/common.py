"""Helpers of all commands that read: flags that choose a service or folder, error handling, completion of names.

Answers go to standard output, errors to standard error.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from time import sleep  # noqa: TID251 - how long somebody at a terminal waits
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from controller.cli.arguments import (
    AGO,
    DONE,
    http_address,
    http_address_text,
    non_empty,
    point_in_time,
    principal_pattern,
    rule_pattern,
)
from controller.cli.commands import add, later
from controller.cli.context import DEFAULT_HTTP, HTTP, chosen, context_names
from controller.cli.output import FORMATS, add_output
from events.errors import UserError

if TYPE_CHECKING:
    from controller.cli.backend import Backend

TOPIC_COLUMNS = ("topic", "partitions", "factor", "status", "created", "owner")
WATCH_S: Final = 2.0
PAGE = 1000
"""Results per request: the maximum of the API."""
COMPLETIONS_MAX: Final = 200
COMPLETE_WITHIN_S: Final = 2.0
_LEGAL: Final = re.compile(r"[A-Za-z0-9._-]+")
_NO_FLAGS: Final = {"http": None, "context": None, "data": None, "command_config": None}

Read = Callable[[argparse.Namespace, "Backend"], int | None]


def add_at(parser: argparse.ArgumentParser) -> None:
    what = f"show the past as of an offset, an ISO-8601 time, {AGO}; default: now"
    add(parser, "--at OFFSET|TIME", what, point_in_time)
    add(parser, "--watch", f"print again every {WATCH_S:g} s, until interrupted")


def add_filter(parser: argparse.ArgumentParser, flag: str, subject: str) -> None:
    """Add a filter by user or rule, whose value may be a pattern."""
    parse = principal_pattern if flag == "--principal" else rule_pattern
    add(parser, f"{flag} NAME|PATTERN", f"{subject}, such as alice or 'pay-*'", parse)


def add_label(parser: argparse.ArgumentParser) -> None:
    what = "only for topics with this label, such as owner=payments; NAME alone for any value"
    add(parser, "--label NAME[=VALUE]", what, non_empty)


def add_kafka_properties(parser: argparse._ActionsContainer, when: str) -> None:
    add(parser, "--kafka-properties FILE", f"{when}file with librdkafka properties for TLS and login")


def add_span(parser: argparse.ArgumentParser) -> None:
    add(parser, "--since OFFSET|TIME", f"only from this time on: {AGO}", point_in_time)
    add(parser, "--until OFFSET|TIME", "only up to this time", point_in_time)


def add_backend(
    parser: argparse.ArgumentParser, run: str, *, formats: Sequence[str] = FORMATS, may_be_stopped: bool = True
) -> None:
    """Add the flags that choose a service or folder and the output format. `run` is a `Read`, as in `later`."""
    if formats:
        add_output(parser, formats)
    group = parser.add_argument_group("service")
    backend = group.add_mutually_exclusive_group()
    what = f"address of a running service; default: {HTTP}, the context in use, or {DEFAULT_HTTP}"
    add(backend, "--http HOST:PORT", what, http_address_text)
    add(backend, "--context NAME", "a running service, by the name of its context", completer=context_names)
    if may_be_stopped:
        add(backend, "--data DIR", "read the data folder of a stopped service", Path)
    what = "properties for the login: username and password, or token; ssl.truststore.location; default: no login"
    add(group, "--command-config FILE", what, Path)
    parser.set_defaults(func=lambda options: _run(later(run), options, parser))


class Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


_Page = TypeVar("_Page", bound=Page)


def pages(backend: Backend, kind: type[_Page], path: str, **parameters: object) -> Iterator[_Page]:
    page = backend.get(kind, path, **parameters)
    yield page
    while page.next_cursor is not None:
        page = backend.get(kind, path, cursor=page.next_cursor, **parameters)
        yield page


def ids(numbers: Sequence[int]) -> str:
    """Broker ids, `-` for none."""
    return ",".join(map(str, numbers)) or "-"


class Misuse(Exception):
    """Flags that do not go together; printed with the usage."""


def _run(run: Read, options: argparse.Namespace, parser: argparse.ArgumentParser) -> int | None:
    try:
        if getattr(options, "watch", False):
            options.no_pager = True
            if options.at is not None:
                raise Misuse("--watch shows the present, so it cannot be used with --at")
        with closing(open_backend(options)) as backend:
            code = run(options, backend)
            while getattr(options, "watch", False):
                sleep(WATCH_S)
                print("\x1b[H\x1b[2J" if sys.stdout.isatty() else "", flush=True)
                code = run(options, backend)
            if backend.archive_files:
                print(f"{backend.archive_files} files were read from the archive of the log", file=sys.stderr)
            return code
    except Misuse as misuse:
        parser.error(str(misuse))
    except KeyboardInterrupt:
        return DONE


def open_backend(options: argparse.Namespace, timeout_s: float | None = None) -> Backend:
    """The folder or running service that the flags name. Raises UserError."""
    from controller.cli.backend import ANSWER_S, HttpBackend

    if getattr(options, "data", None) is not None:
        from controller.cli.folder import FolderBackend

        return FolderBackend(options.data)
    context = chosen(options.http, options.context)
    config = options.command_config
    if config is None and context.command_config is not None:
        config = Path(context.command_config)
    try:
        address = http_address(context.http)
    except argparse.ArgumentTypeError as error:  # from the environment, or a context
        raise UserError(f"the address in {HTTP} or in the context in use is invalid: {error}") from None
    return HttpBackend(address, config, timeout_s or ANSWER_S)


# --- shell completion: argcomplete calls these on Tab, and errors print nothing


def topic_names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> Iterable[str]:
    """The topics of the service or folder that the line names so far."""
    from projections.views.topics import TopicsView

    options = argparse.Namespace(**{**_NO_FLAGS, **vars(parsed_args)})
    try:
        with closing(open_backend(options, COMPLETE_WITHIN_S)) as backend:
            page = backend.get(TopicsView, "/topics", cursor=_just_before(prefix), limit=PAGE)
    except UserError:
        return ()
    names = (one.name for one in page.topics if _LEGAL.fullmatch(one.name))  # the service is not trusted
    return list(islice((name for name in names if name.startswith(prefix)), COMPLETIONS_MAX))


def _just_before(prefix: str) -> str | None:
    """A name before all topics with this prefix: topics are sorted by name, with `.` as `_`."""
    if not prefix:
        return None
    key = prefix.replace(".", "_")
    return f"{key[:-1]}{chr(max(ord(key[-1]), 1) - 1)}~"
