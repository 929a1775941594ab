"""`topicwright topics`: the topics that there are, or one in full, now or as they were."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from controller.cli.commands import COMMANDS, Parsers
from controller.cli.reads import common
from controller.cli.reads.completing import completed_by, topic_names
from controller.cli.terminal.printing import show
from controller.cli.terminal.usage import named

if TYPE_CHECKING:
    from controller.cli.sources.http import Source
    from projections.views.json_types import AsOfView, TopicSummary

STATUSES = ("ready", "pending", "under-replicated", "offline", "not-ready")
GLOB = "*?["


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser("topics", description=f"{COMMANDS['topics'].headline}.")
    what = "the topic to show in full, or a pattern such as 'pay.*' of those to list; default: list all"
    completed_by(parser.add_argument("name", nargs="?", type=named, metavar="NAME|PATTERN", help=what), topic_names)
    common.add_at(parser)
    parser.add_argument("--status", choices=STATUSES, help="list those that are so: " + ", ".join(STATUSES))
    parser.add_argument("--principal", metavar="PATTERN", help="list those that were created by, as User:alice")
    common.add_source(parser, _topics)


def _topics(options: argparse.Namespace, source: Source) -> int:
    from controller.cli.reads import in_words

    if options.name is not None and not any(sign in options.name for sign in GLOB):
        if options.status is not None or options.principal is not None:
            raise common.Misuse("--status and --principal choose from a list: they go without the NAME of a topic")
        topic = source.topic(options.name, options.at)
        show(options, topic, lambda look: in_words.topic(topic, look), lambda: [topic.name])
        return common.DONE
    found, as_of = all_topics(source, options.at)
    chosen = [one for one in found if _is_wanted(options, one)]
    answer = {"topics": chosen, "as_of": as_of}
    nothing = "" if not found else " that match"
    show(
        options,
        answer,
        lambda look: in_words.topics(chosen, as_of, look, nothing),
        lambda: (one.name for one in chosen),
    )
    return common.DONE


def _is_wanted(options: argparse.Namespace, one: TopicSummary) -> bool:
    by = one.created_by.principal if one.created_by else ""
    return (
        (options.name is None or fnmatchcase(one.name, options.name))
        and options.status in (None, one.status, "not-ready" if one.status != "ready" else None)
        and (options.principal is None or fnmatchcase(by, options.principal))
    )


def all_topics(source: Source, at: str | None) -> tuple[list[TopicSummary], AsOfView]:
    """All topics as of a moment, page by page."""
    page = source.topics(None, common.PAGE, at)
    summaries = list(page.topics)
    if at is not None:
        at = str(page.as_of.offset) if page.as_of.offset >= 0 and not page.as_of.ends else at
    while page.next_after is not None:
        page = source.topics(page.next_after, common.PAGE, at)
        summaries.extend(page.topics)
    return summaries, page.as_of
