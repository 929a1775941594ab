"""`topicwright topics`, `events` and `explain`: what is, what was, and why.

They ask a running service over HTTP, or with `--data` read the folder of a stopped one. Answers go to standard
output, for people or with `--json` for programs; what went wrong goes to standard error.

Exit codes: 0 answered; 1 what was asked about is not there, or a dry run found that a create would be refused; 2 wrong
usage, or nobody to ask.
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

from controller import cli_tables
from controller.cli_access import AccessError, http_address, read_access
from controller.cli_sources import Ask, HttpSource, Refusal, Source, SourceError, Which
from controller.http.shapes import AsOfShape, ErrorShape, EventShape, TopicSummary
from projections.moments import SYNTAX, BadMoment, parse_moment

if TYPE_CHECKING:
    from controller.cli_folder import FolderSource

DONE, FOUND, WRONG = 0, 1, 2
DEFAULT_HTTP = "127.0.0.1:8080"
PAGE = 1000

_Subparsers = argparse._SubParsersAction
_Command = Callable[[argparse.Namespace, Source], int]

NO_REQUEST: Final = (
    "no event is found by request {!r}: found are those of what clients asked for and of a cluster that was taken "
    "over, not those of what the controller did by itself (kraft-…, review-…)"
)


def register(subparsers: _Subparsers[argparse.ArgumentParser]) -> None:
    """Add the commands; each sets `func`, which returns the exit code."""
    _register_topics(subparsers)
    _register_events(subparsers)
    _register_explain(subparsers)


def _register_topics(subparsers: _Subparsers[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("topics", help="list topics, show one, or try a create")
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this topic in full")
    parser.add_argument("--at", metavar="OFFSET|TIME", type=_moment, help=f"as it was: {SYNTAX}")
    trial = parser.add_argument_group("what a create of NAME would get, without creating it")
    trial.add_argument("--dry-run", action="store_true", help="run every check and show the replicas")
    trial.add_argument("--partitions", type=int, metavar="N", help="default: the cluster's")
    trial.add_argument("--replication-factor", type=int, metavar="N", help="default: the cluster's")
    trial.add_argument("--config", action="append", type=_config, metavar="KEY=VALUE", help="may be repeated")
    _add_common(parser, _topics)


def _register_events(subparsers: _Subparsers[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("events", help="show the log, event by event")
    parser.add_argument("--topic", metavar="NAME", help="only those of this topic")
    parser.add_argument("--request", metavar="ID", help="only those of this request")
    parser.add_argument("--partition", type=_offset, metavar="N", help="only those of this one, where the log has some")
    parser.add_argument("--from", dest="start", type=_offset, metavar="OFFSET", default=0, help="begin at this offset")
    parser.add_argument("--follow", action="store_true", help="go on with what happens next, until interrupted")
    _add_common(parser, _events)


def _register_explain(subparsers: _Subparsers[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("explain", help="why a topic is as it is, or how a request went")
    parser.add_argument("subject", metavar="TOPIC|REQUEST")
    _add_common(parser, _explain)


def _add_common(parser: argparse.ArgumentParser, command: _Command) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--http", type=http_address, default=DEFAULT_HTTP, metavar="HOST:PORT", help="%(default)s")
    source.add_argument("--data", type=Path, metavar="DIR", help="read the folder of a stopped service instead")
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="username and password, or token; ssl.truststore.location"
    )
    parser.set_defaults(func=lambda options: _run(command, options, parser))


def _run(command: _Command, options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    misuse = _misuse(options)
    if misuse is not None:
        parser.error(misuse)
    try:
        with _source(options) as source:
            code = command(options, source)
            sys.stdout.flush()
            return code
    except (SourceError, AccessError) as error:
        return _complain(str(error), WRONG)
    except Refusal as refusal:
        return _complain(_told(refusal.error), FOUND if refusal.status == 404 else WRONG)
    except KeyboardInterrupt:
        return DONE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _misuse(options: argparse.Namespace) -> str | None:
    if options.func is None or "dry_run" not in options:
        return None
    if not options.dry_run:
        given = [options.partitions, options.replication_factor, options.config]
        unused = any(one is not None for one in given)
        return "--partitions, --replication-factor and --config go with --dry-run" if unused else None
    if options.name is None:
        return "--dry-run needs the NAME of the topic"
    return "--dry-run shows what would be created now: it goes without --at" if options.at is not None else None


def _source(options: argparse.Namespace) -> AbstractContextManager[HttpSource | FolderSource]:
    if options.data is None:
        return HttpSource(options.http, read_access(options.command_config))
    from controller.cli_folder import FolderSource
    from controller.cli_partitions import PartitionsSource, is_partitioned

    return PartitionsSource(options.data) if is_partitioned(options.data) else FolderSource(options.data)


# --- the commands


def _topics(options: argparse.Namespace, source: Source) -> int:
    if options.dry_run:
        return _dry_run(options, source)
    if options.name is not None:
        topic = source.topic(options.name, options.at)
        return _print(options, topic, cli_tables.topic(topic))
    summaries, as_of = _all_topics(source, options.at)
    return _print(options, {"topics": summaries, "as_of": as_of}, cli_tables.topics(summaries, as_of))


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
    ask: Ask = {"name": options.name, "configs": dict(options.config or ())}
    if options.partitions is not None:
        ask["num_partitions"] = options.partitions
    if options.replication_factor is not None:
        ask["replication_factor"] = options.replication_factor
    try:
        answer = source.dry_run(ask)
    except Refusal as refusal:
        if refusal.status >= 500:
            raise
        _print(options, refusal.error, [f"{options.name} would be refused: {_told(refusal.error)}"])
        return FOUND
    return _print(options, answer, cli_tables.dry_run(answer))


def _events(options: argparse.Namespace, source: Source) -> int:
    found = _followed(options, source) if options.follow else _recorded(options, source)
    event = None
    for event in found:
        _write(_as_json(event) if options.json else cli_tables.event(event), flush=options.follow)
    if event is None and options.request is not None:
        print(f"topicwright: {NO_REQUEST.format(options.request)}", file=sys.stderr)
    return DONE


def _recorded(options: argparse.Namespace, source: Source) -> Iterator[EventShape]:
    page = source.events(options.start, PAGE, _which(options))
    yield from page.events
    while page.next is not None or page.next_cursor is not None:
        page = source.events(page.next or 0, PAGE, _which(options), page.next_cursor)
        yield from page.events


def _followed(options: argparse.Namespace, source: Source) -> Iterator[EventShape]:
    return source.follow(options.start, _which(options))


def _which(options: argparse.Namespace) -> Which:
    return Which(options.topic, options.request, options.partition)


def _explain(options: argparse.Namespace, source: Source) -> int:
    explanation = source.explain(options.subject)
    return _print(options, explanation, cli_tables.explanation(explanation))


# --- words in and out


def _print(options: argparse.Namespace, answer: object, lines: Iterable[str]) -> int:
    for line in [_as_json(answer)] if options.json else lines:
        _write(line)
    return DONE


def _write(line: str, flush: bool = False) -> None:
    print(line, flush=flush)


def _as_json(answer: object) -> str:
    return msgspec.json.encode(answer).decode()


def _told(error: ErrorShape) -> str:
    rule = f", by {error.rule}" if error.rule else ""
    return f"{error.message} ({error.error}{rule})"


def _complain(message: str, code: int) -> int:
    sys.stdout.flush()
    print(f"topicwright: {message}", file=sys.stderr)
    return code


def _moment(text: str) -> str:
    try:
        parse_moment(text)
    except BadMoment as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not an offset: a whole number, 0 or more")
    return int(text)


def _config(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return name, value
