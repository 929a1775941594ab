"""`topicwright requests`: list the requests of clients, newest first, or show one with its outcome."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from controller.cli.arguments import count, named
from controller.cli.commands import COMMANDS, Parsers
from controller.cli.output import show
from controller.cli.reads import common
from projections.text.names import OUTCOMES

if TYPE_CHECKING:
    from controller.cli.backend import Backend

LIMIT = 100
LIMIT_MAX = 100_000


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("requests", description=f"{COMMANDS['requests'].headline}.")
    parser.add_argument("id", nargs="?", type=named, metavar="ID", help="show this request in full; default: list")
    parser.add_argument("--principal", metavar="NAME", help="only requests of this user, such as User:alice")
    parser.add_argument("--outcome", choices=OUTCOMES, help="only with this outcome of a topic: " + ", ".join(OUTCOMES))
    parser.add_argument("--rule", metavar="RULE", help="only with a topic that this rule refused")
    parser.add_argument("--api", metavar="NAME", help="only of this API, such as CreateTopics or HTTP")
    parser.add_argument("--host", metavar="ADDRESS", help="only from this client address")
    common.add_span(parser)
    common.add_at(parser)
    parser.add_argument(
        "--limit", type=_limit, default=LIMIT, metavar="N", help="maximum number of requests; default %(default)s"
    )
    common.add_backend(parser, _requests)


def _limit(text: str) -> int:
    number = count(text)
    if not 1 <= number <= LIMIT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {LIMIT_MAX}")
    return number


def _requests(options: argparse.Namespace, backend: Backend) -> int:
    from controller.cli.backend import part
    from controller.cli.reads import text
    from projections.views.requests import RequestsView, RequestView

    names = ("principal", "outcome", "rule", "api", "host")
    filters = {name: getattr(options, name) for name in names} | {"from": options.since, "to": options.until}
    if options.id is not None:
        if any(one is not None for one in filters.values()):
            raise common.Misuse("filters apply to the list: they do not go with the ID of a request")
        request = backend.get(RequestView, f"/requests/{part(options.id)}", at=options.at)
        show(options, request, lambda style: text.request(request, style), lambda: [request.request_id])
        return common.DONE
    filters |= {"at": options.at}
    page = backend.get(RequestsView, "/requests", limit=min(options.limit, common.PAGE), **filters)
    found = list(page.requests)
    while page.next_cursor is not None and len(found) < options.limit:
        limit = min(options.limit - len(found), common.PAGE)
        page = backend.get(RequestsView, "/requests", limit=limit, cursor=page.next_cursor, **filters)
        found.extend(page.requests)
    more = page.next_cursor is not None
    show(
        options,
        {"requests": found, "as_of": page.as_of},
        lambda style: text.requests(found, page.as_of, style, more),
        lambda: (one.request_id for one in found if not one.counted),
    )
    return common.DONE
