"""`topicwright diff`: what is different between two moments."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from controller.cli.commands import COMMANDS, Parsers
from controller.cli.reads import common
from controller.cli.terminal.moments import AGO, moment
from controller.cli.terminal.printing import Look, show
from controller.cli.terminal.tables import Marked

if TYPE_CHECKING:
    from controller.cli.sources.http import Source
    from projections.views.overview_types import (
        ClusterDifferenceView,
        DifferenceView,
        TopicDifferenceView,
        ValueView,
    )

SAME, DIFFERENT = 0, 1
_MARKS = {"created": "good", "deleted": "bad"}


def register(commands: Parsers[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "diff",
        description=f"Say {COMMANDS['diff'].summary}. Exit codes: 0 nothing is, 1 something is, 2 trouble.",
    )
    what = f"an offset, an ISO-8601 time, {AGO}"
    parser.add_argument("before", type=moment, metavar="FROM", help=what)
    parser.add_argument("after", nargs="?", type=moment, metavar="TO", help="default: now")
    common.add_source(parser, _diff)


def _diff(options: argparse.Namespace, source: Source) -> int:
    page = first = source.diff(options.before, options.after, common.PAGE)
    topics = list(first.topics)
    while page.next_cursor is not None:
        page = source.diff(options.before, options.after, common.PAGE, page.next_cursor)
        topics.extend(page.topics)
    answer = {"topics": topics, "cluster": first.cluster, "before": first.before, "after": first.after}
    show(options, answer, lambda look: _lines(first, topics, look), lambda: (one.name for one in topics))
    return DIFFERENT if topics or _is_different(first.cluster) else SAME


def _is_different(cluster: ClusterDifferenceView | None) -> bool:
    return cluster is not None and any(
        (cluster.brokers, cluster.settings, cluster.release, cluster.acls_added, cluster.acls_removed, cluster.changes)
    )


def _lines(first: DifferenceView, topics: Sequence[TopicDifferenceView], look: Look) -> Iterator[str]:
    from projections.views.lines import when

    yield f"Between the state{when(first.before)} and that{when(first.after)}:"
    if topics:
        yield ""
        header = ("TOPIC", "CHANGE", "PARTITIONS", "OTHER REPLICAS", "OTHER LEADERS", "OTHER IN SYNC", "CONFIGS")
        yield from look.table(header, map(_topic_row, topics))
    if first.cluster is not None:
        yield from _cluster_lines(first.cluster, look)
    if not topics and not _is_different(first.cluster):
        yield "nothing is different."


def _topic_row(one: TopicDifferenceView) -> tuple[object, ...]:
    before, after = ("-" if count is None else str(count) for count in (one.partitions_before, one.partitions_after))
    partitions = before if before == after else f"{before} -> {after}"
    configs = ", ".join(map(_value, one.configs)) or "-"
    change = Marked(one.change, _MARKS.get(one.change, "warning"))
    return one.name, change, partitions, one.other_replicas, one.other_leaders, one.other_isr, configs


def _value(one: ValueView) -> str:
    before, after = ("(none)" if text is None else text for text in (one.before, one.after))
    return f"{one.name}: {before} -> {after}"


def _cluster_lines(cluster: ClusterDifferenceView, look: Look) -> Iterator[str]:
    if cluster.brokers:
        yield ""
        rows = ((one.broker_id, one.before or "-", one.after or "-", one.reason) for one in cluster.brokers)
        yield from look.table(("BROKER", "BEFORE", "AFTER", "WHY"), rows)
    values = [*cluster.settings, *([cluster.release] if cluster.release is not None else [])]
    if values:
        yield ""
        yield from look.table(
            ("SETTING", "BEFORE", "AFTER"), ((v.name, v.before or "-", v.after or "-") for v in values)
        )
    more = [
        *(f"added: {acl}" for acl in cluster.acls_added),
        *(f"taken away: {acl}" for acl in cluster.acls_removed),
        *(f"offset {event.offset}: {event.text}" for event in cluster.changes),
    ]
    if more:
        yield ""
        yield from more
    if cluster.more:
        yield "… and more changes of the cluster than were looked at"
