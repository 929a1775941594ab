"""`topicwright status`, `whatif`, `brokers`, `settings` and `diff`: print the health of the cluster, now or after a
change, brokers, settings, and differences between two points in time.

Exit codes of `status` and `whatif`: 0 healthy, no topic gets worse; 1 problems; 2 error. Of `diff`: 0 no difference, 1
differences, 2 error.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace

from controller.cli.arguments import DONE, NEGATIVE, print_error
from controller.cli.backend import Backend
from controller.cli.output import Marked, Style, show
from controller.cli.reads import common, text
from projections.views.brokers import BrokersView
from projections.views.lines import mark, when
from projections.views.overviews import (
    ClusterDifferenceView,
    ClusterHealthView,
    DifferenceView,
    TopicDifferenceView,
    ValueView,
    WhatIfView,
)


def status(options: argparse.Namespace, backend: Backend) -> int:
    answer = backend.get(ClusterHealthView, "/health", at=options.at)
    show(options, answer, lambda style: text.health(answer, style), lambda: (one.kind for one in answer.issues))
    return DONE if answer.state == "healthy" else NEGATIVE


def whatif(options: argparse.Namespace, backend: Backend) -> int:
    answer = backend.get(WhatIfView, "/whatif", change=" ".join(options.change))
    names = (name for one in answer.topics if one.is_worse for name in one.examples)
    show(options, answer, lambda style: text.whatif(answer, style), lambda: names)
    return NEGATIVE if answer.creates or any(one.is_worse for one in answer.topics) else DONE


def brokers(options: argparse.Namespace, backend: Backend) -> int:
    answer = backend.get(BrokersView, "/brokers", at=options.at)
    if options.id is not None:
        found = tuple(one for one in answer.brokers if one.broker_id == options.id)
        if not found:
            known = text.ids([one.broker_id for one in answer.brokers])
            return print_error(f"broker {options.id} is not registered; registered are: {known}", NEGATIVE)
        answer = replace(answer, brokers=found)
    return show(
        options,
        {"brokers": answer.brokers, "live": answer.live, "as_of": answer.as_of},
        lambda style: text.brokers(answer, style),
        lambda: (one.broker_id for one in answer.brokers),
    )


def settings(options: argparse.Namespace, backend: Backend) -> int:
    answer = backend.get(BrokersView, "/brokers", at=options.at)
    chosen = {key: value for key, value in answer.settings.items() if fnmatchcase(key, options.key)}
    if not chosen:
        known = ", ".join(sorted(answer.settings)) or "none"
        return print_error(f"no setting matches {options.key!r}; there are: {known}", NEGATIVE)
    return show(
        options,
        {"settings": chosen, "release": answer.release, "as_of": answer.as_of},
        lambda style: text.settings(answer, chosen, style),
        lambda: sorted(chosen),
    )


def diff(options: argparse.Namespace, backend: Backend) -> int:
    span = {"from": options.before, "to": options.after, "limit": common.PAGE}
    found = list(common.pages(backend, DifferenceView, "/diff", **span))
    first, topics = found[0], [one for page in found for one in page.topics]
    answer = {"topics": topics, "cluster": first.cluster, "before": first.before, "after": first.after}
    show(options, answer, lambda style: _lines(first, topics, style), lambda: (one.name for one in topics))
    return NEGATIVE if topics or _is_different(first.cluster) else DONE


def _is_different(cluster: ClusterDifferenceView | None) -> bool:
    return cluster is not None and any(
        (cluster.brokers, cluster.settings, cluster.release, cluster.acls_added, cluster.acls_removed, cluster.changes)
    )


def _lines(first: DifferenceView, topics: Sequence[TopicDifferenceView], style: Style) -> Iterator[str]:
    yield f"Between the state{when(first.before)} and that{when(first.after)}:"
    if topics:
        yield ""
        header = ("TOPIC", "CHANGE", "PARTITIONS", "OTHER REPLICAS", "OTHER LEADERS", "OTHER IN SYNC", "CONFIGS")
        yield from style.table(header, map(_topic_row, topics))
    if first.cluster is not None:
        yield from _cluster_lines(first.cluster, style)
    if not topics and not _is_different(first.cluster):
        yield "no difference."


def _topic_row(one: TopicDifferenceView) -> tuple[object, ...]:
    before, after = ("-" if count is None else str(count) for count in (one.partitions_before, one.partitions_after))
    partitions = before if before == after else f"{before} -> {after}"
    configs = ", ".join(map(_value, one.configs)) or "-"
    change = Marked(one.change, mark(one.change))
    return one.name, change, partitions, one.other_replicas, one.other_leaders, one.other_isr, configs


def _value(one: ValueView) -> str:
    before, after = ("(none)" if text is None else text for text in (one.before, one.after))
    return f"{one.name}: {before} -> {after}"


def _cluster_lines(cluster: ClusterDifferenceView, style: Style) -> Iterator[str]:
    if cluster.brokers:
        yield ""
        rows = ((one.broker_id, one.before or "-", one.after or "-", one.reason) for one in cluster.brokers)
        yield from style.table(("BROKER", "BEFORE", "AFTER", "WHY"), rows)
    values = [*cluster.settings, *([cluster.release] if cluster.release is not None else [])]
    if values:
        yield ""
        yield from style.table(
            ("SETTING", "BEFORE", "AFTER"), ((v.name, v.before or "-", v.after or "-") for v in values)
        )
    more = [
        *(f"added: {acl}" for acl in cluster.acls_added),
        *(f"removed: {acl}" for acl in cluster.acls_removed),
        *(f"offset {event.offset}: {event.text}" for event in cluster.changes),
    ]
    if more:
        yield ""
        yield from more
    if cluster.more:
        yield "… and more changes of the cluster than are listed"
