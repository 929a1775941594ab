"""`topicwright topics`, `events` and `explain`: what is, what was, and why.

They query a running service over HTTP, or with `--data` read the folder of a stopped one. Answers go to standard
output, for people or with `--json` for programs; errors go to standard error.

Exit codes: 0 answered; 1 the topic or request does not exist, or a dry run found that a create would be refused; 2
wrong usage, or no service reached.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from controller.cli import tables
from controller.cli.sources.http import DryRun, HttpSource, Refusal, Source, SourceError, Which
from controller.cli.sources.http_access import AccessError, http_address, read_access
from controller.cli.usage import WRONG, complain, count, moment, pair
from projections.queries.moments import SYNTAX
from projections.shown import lines
from projections.shown.json_types import AsOfShape, ErrorShape, EventShape, TopicSummary

if TYPE_CHECKING:
    from controller.cli.sources.folder import FolderSource

DONE, FOUND = 0, 1
DEFAULT_HTTP = "127.0.0.1:8080"
PAGE = 1000  # events a request: the most that the service gives

_Subparsers = argparse._SubParsersAction
_Command = Callable[[argparse.Namespace, Source], int]

NO_REQUEST: Final = (
    "no event belongs to request {!r}: only requests of clients, the takeover of a cluster and decisions of other "
    "controllers (controller-…, snapshot-…) can be looked up, not what the controller did by itself (kraft-…, review-…)"
)


def register(subparsers: _Subparsers[argparse.ArgumentParser]) -> None:
    """Add the commands; each sets `func`, which returns the exit code."""
    _register_topics(subparsers)
    _register_events(subparsers)
    _register_explain(subparsers)


def _register_topics(subparsers: _Subparsers[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("topics", help="list all topics, show one, or try out a create")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the topic to show in full; default: list all")
    parser.add_argument("--at", metavar="OFFSET|TIME", type=moment, help=f"show the past: {SYNTAX}; default: now")
    trial = parser.add_argument_group("try out a create of NAME, without creating it")
    trial.add_argument("--dry-run", action="store_true", help="run every check and show the replicas it would get")
    trial.add_argument("--partitions", type=int, metavar="N", help="how many partitions; default: the cluster's")
    trial.add_argument("--replication-factor", type=int, metavar="N", help="replicas of each; default: the cluster's")
    trial.add_argument("--config", action="append", type=pair, metavar="KEY=VALUE", help="a config; may be repeated")
    _add_common(parser, _topics)


def _register_events(subparsers: _Subparsers[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("events", help="show the log, event by event")
    parser.add_argument("--topic", metavar="NAME", help="only events of this topic")
    parser.add_argument("--request", metavar="ID", help="only events of this request")
    parser.add_argument("--partition", type=count, metavar="N", help="only events of this partition of the log")
    parser.add_argument(
        "--from", dest="start", type=count, metavar="OFFSET", default=0, help="the first offset to show; %(default)s"
    )
    parser.add_argument("--follow", action="store_true", help="keep showing new events, until interrupted")
    _add_common(parser, _events)


def _register_explain(subparsers: _Subparsers[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("explain", help="why a topic is as it is, or how a request went")
    parser.add_argument("subject", metavar="TOPIC|REQUEST", help="the name of a topic, or the id of a request")
    _add_common(parser, _explain)


def _add_common(parser: argparse.ArgumentParser, command: _Command) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_source(parser)
    parser.set_defaults(func=lambda options: _run(command, options, parser))


def add_source(parser: argparse.ArgumentParser) -> None:
    """The options that say which log is meant."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--http", type=http_address, default=DEFAULT_HTTP, metavar="HOST:PORT", help="a running service; %(default)s"
    )
    source.add_argument("--data", type=Path, metavar="DIR", help="the folder of a stopped service, read instead")
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="how to log in: username and password, or token; ssl.truststore.location; default: without a login",
    )


def _run(command: _Command, options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    misuse = _misuse(options)
    if misuse is not None:
        parser.error(misuse)
    try:
        with source_of(options) as source:
            code = command(options, source)
            sys.stdout.flush()
            return code
    except (SourceError, AccessError) as error:
        return complain(str(error))
    except Refusal as refusal:
        return complain(_in_words(refusal.error), FOUND if refusal.status == 404 else WRONG)
    except KeyboardInterrupt:
        return DONE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _misuse(options: argparse.Namespace) -> str | None:
    if "dry_run" not in options:
        return None
    if not options.dry_run:
        given = [options.partitions, options.replication_factor, options.config]
        unused = any(one is not None for one in given)
        return "--partitions, --replication-factor and --config go with --dry-run" if unused else None
    if options.name is None:
        return "--dry-run needs the NAME of the topic"
    return "--dry-run shows what would be created now: it goes without --at" if options.at is not None else None


def source_of(options: argparse.Namespace) -> AbstractContextManager[HttpSource | FolderSource]:
    """The log that the options of `add_source` mean. Raises SourceError, AccessError."""
    if options.data is None:
        return HttpSource(options.http, read_access(options.command_config))
    from controller.cli.sources.folder import FolderSource

    return FolderSource(options.data)


# --- the commands


def _topics(options: argparse.Namespace, source: Source) -> int:
    if options.dry_run:
        return _dry_run(options, source)
    if options.name is not None:
        topic = source.topic(options.name, options.at)
        return _print(options, topic, tables.topic(topic))
    summaries, as_of = _all_topics(source, options.at)
    return _print(options, {"topics": summaries, "as_of": as_of}, tables.topics(summaries, as_of))


def _all_topics(source: Source, at: str | None) -> tuple[list[TopicSummary], AsOfShape]:
    page = source.topics(None, PAGE, at)
    summaries = list(page.topics)
    if at is not None:
        at = str(page.as_of.offset) if page.as_of.offset >= 0 and not page.as_of.ends else at
    while page.next_after is not None:
        page = source.topics(page.next_after, PAGE, at)
        summaries.extend(page.topics)
    return summaries, page.as_of


def _dry_run(options: argparse.Namespace, source: Source) -> int:
    counts = {"num_partitions": options.partitions, "replication_factor": options.replication_factor}
    given = {name: count for name, count in counts.items() if count is not None}
    create = DryRun(options.name, dict(options.config or ()), **given)
    try:
        answer = source.dry_run(create)
    except Refusal as refusal:
        if refusal.status >= 500:
            raise
        _print(options, refusal.error, [f"{options.name} would be refused: {_in_words(refusal.error)}"])
        return FOUND
    return _print(options, answer, tables.dry_run(answer))


def _events(options: argparse.Namespace, source: Source) -> int:
    which = Which(options.topic, options.request, options.partition)
    found = source.follow(options.start, which) if options.follow else _recorded(options.start, which, source)
    event = None
    for event in found:
        print(_as_json(event) if options.json else tables.event(event), flush=options.follow)
    if event is None and options.request is not None:
        complain(NO_REQUEST.format(options.request))
    return DONE


def _recorded(start: int, which: Which, source: Source) -> Iterator[EventShape]:
    page = source.events(start, PAGE, which)
    yield from page.events
    while page.next is not None or page.next_cursor is not None:
        page = source.events(page.next or 0, PAGE, which, page.next_cursor)
        yield from page.events


def _explain(options: argparse.Namespace, source: Source) -> int:
    explanation = source.explain(options.subject)
    return _print(options, explanation, lines.explanation(explanation))


# --- words in and out


def _print(options: argparse.Namespace, answer: object, text: Iterable[str]) -> int:
    for line in [_as_json(answer)] if options.json else text:
        print(line)
    return DONE


def _as_json(answer: object) -> str:
    return msgspec.json.encode(answer).decode()


def _in_words(error: ErrorShape) -> str:
    rule = f", by {error.rule}" if error.rule else ""
    return f"{error.message} ({error.error}{rule})"
