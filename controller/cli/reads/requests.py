"""`topicwright requests`: who requested what, the newest first, and how one of them went."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from controller.cli.commands import COMMANDS, Parsers
from controller.cli.reads import common
from controller.cli.terminal.printing import show
from controller.cli.terminal.usage import count, named

if TYPE_CHECKING:
    from controller.cli.sources.http import Source

OUTCOMES = (
    "requested", "waiting", "created", "timed-out", "failed", "rejected", "deleted", "partitions-added",
    "configs-changed", "done",
)  # fmt: skip
LIMIT = 100
LIMIT_MAX = 100_000


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("requests", description=f"Show {COMMANDS['requests'].summary}, the newest first.")
    parser.add_argument("id", nargs="?", type=named, metavar="ID", help="show this one in full; default: list")
    parser.add_argument("--principal", metavar="NAME", help="only of this user, as User:alice")
    parser.add_argument("--outcome", choices=OUTCOMES, help="only with a topic that fares so: " + ", ".join(OUTCOMES))
    parser.add_argument("--rule", metavar="RULE", help="only with a topic that this rule refused")
    parser.add_argument("--api", metavar="NAME", help="only of this API, as CreateTopics or HTTP")
    parser.add_argument("--host", metavar="ADDRESS", help="only from this address of a client")
    common.add_span(parser)
    common.add_at(parser)
    parser.add_argument("--limit", type=_limit, default=LIMIT, metavar="N", help="how many; default %(default)s")
    common.add_source(parser, _requests)


def _limit(text: str) -> int:
    number = count(text)
    if not 1 <= number <= LIMIT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {LIMIT_MAX}")
    return number


def _requests(options: argparse.Namespace, source: Source) -> int:
    from controller.cli.reads import request_words
    from controller.cli.sources.http import WhichRequests

    filters = (options.principal, options.outcome, options.rule, options.api, options.host)
    if options.id is not None:
        if any(one is not None for one in (*filters, options.since, options.until)):
            raise common.Misuse("filters choose from the list: they go without the ID of a request")
        request = source.request(options.id, options.at)
        show(options, request, lambda look: request_words.request(request, look), lambda: [request.request_id])
        return common.DONE
    which = WhichRequests(*filters, options.since, options.until, options.at)
    page = source.requests(which, min(options.limit, common.PAGE))
    found = list(page.requests)
    while page.next_cursor is not None and len(found) < options.limit:
        page = source.requests(which, min(options.limit - len(found), common.PAGE), page.next_cursor)
        found.extend(page.requests)
    more = page.next_cursor is not None
    show(
        options,
        {"requests": found, "as_of": page.as_of},
        lambda look: request_words.requests(found, page.as_of, look, more),
        lambda: (one.request_id for one in found if not one.counted),
    )
    return common.DONE
