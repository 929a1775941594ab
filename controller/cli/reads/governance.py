"""`topicwright requests --pending`, `approve` and `deny`: requests that wait for approval; `risks`; unused topics."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from typing import Final
from urllib.parse import quote

from controller.cli.arguments import DONE, NEGATIVE
from controller.cli.backend import Backend
from controller.cli.output import Marked, Style, show
from events.errors import UserError
from events.logs.log import grouped
from projections.queries.risks import RISKS, RisksView
from projections.text.points_in_time import parse_point_in_time
from projections.text.wording import many
from projections.views.requests import ApprovalView, HeldRequestsView, HeldRequestView
from projections.views.topics import TopicSummary

OFFSETS_PER_REQUEST: Final = 10_000
OFFSETS_WITHIN_S: Final = 20.0


def pending(options: argparse.Namespace, backend: Backend) -> int:
    found = backend.get(HeldRequestsView, "/approvals")
    ids = dict.fromkeys(one.request_id for one in found.requests)
    return show(options, found, lambda style: _held_lines(found.requests, style), lambda: ids)


def _held_lines(held: Sequence[HeldRequestView], style: Style) -> Iterator[str]:
    by = [Marked(" and ".join(map(" or ".join, one.rules.values())), "good" if one.may_approve else "") for one in held]
    rows = ((one.request_id, one.topic, one.change, one.principal, ",".join(one.rules), one.expires_at) for one in held)
    header = ("REQUEST", "TOPIC", "CHANGE", "BY", "RULES", "EXPIRES", "APPROVED BY")
    found = ((*row, each) for row, each in zip(rows, by, strict=True))
    return style.table(header, found, "No request waits for approval.")


def approve(options: argparse.Namespace, backend: Backend) -> int:
    done = backend.send("POST", f"/requests/{quote(options.id, safe='')}/approve", ApprovalView)
    lines = [f"request {done.held} is approved, as request {done.request_id}"]
    lines += [f"{topic}: {one.message or 'done'}" for topic, one in done.topics.items()]
    show(options, done, lambda _: lines, lambda: [done.request_id])
    return NEGATIVE if any(one.rule for one in done.topics.values()) else DONE


def deny(options: argparse.Namespace, backend: Backend) -> int:
    path, body = f"/requests/{quote(options.id, safe='')}/deny", {"because": options.because}
    done = backend.send("POST", path, ApprovalView, body=body)
    return show(options, done, lambda _: [f"request {done.held} is denied"], lambda: [done.held])


def risks(options: argparse.Namespace, backend: Backend) -> int:
    found = backend.get(RisksView, "/risks", limit=options.limit, label=options.label)
    show(options, found, lambda style: _risk_lines(found, style), lambda: (one.name for one in found.topics))
    return NEGATIVE if found.topics else DONE


def unused(options: argparse.Namespace, listed: Sequence[TopicSummary]) -> list[TopicSummary]:
    """The listed topics that existed at `--unused` and have had no record since. Kafka finds the first record from a
    time on (ListOffsets), so nothing is stored between two runs."""
    from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

    from controller.serving.reach_cluster import client_properties
    from controller.stream.log.topics import offsets_consumer

    since = parse_point_in_time(options.unused)
    if not isinstance(since, datetime):
        raise UserError(f"--unused {options.unused}: give a time, such as 30d")
    since_ms = round(since.timestamp() * 1000)
    topics = [one for one in listed if one.created_at_ms < since_ms]
    every = (TopicPartition(one.name, each, since_ms) for one in topics for each in range(one.num_partitions))
    properties = client_properties(options.kafka_properties, "--kafka-properties")
    used, unknown = set[str](), set[str]()
    try:
        with closing(offsets_consumer({**properties, "bootstrap.servers": options.bootstrap})) as consumer:
            for batch in grouped(every, OFFSETS_PER_REQUEST, lambda _: 1):
                for place in consumer.offsets_for_times(batch, timeout=OFFSETS_WITHIN_S):
                    if place.error is not None or place.offset != OFFSET_END:
                        (used if place.error is None else unknown).add(place.topic)
    except KafkaException as error:
        raise UserError(f"no answer from the Kafka at {options.bootstrap}: {error.args[0].str()}") from None
    if unknown:
        print(f"Kafka does not answer for {many(len(unknown), 'topic')}, such as {min(unknown)}", file=sys.stderr)
    return [one for one in topics if one.name not in used and one.name not in unknown]


def _risk_lines(found: RisksView, style: Style) -> Iterator[str]:
    counts = ((name, count, RISKS[name]) for name, count in found.counts.items())
    yield from style.table(("RISK", "TOPICS", "MEANING"), counts)
    yield ""
    rows = ((one.name, one.owner or "-", one.created_by or "-", ", ".join(one.risks)) for one in found.topics)
    yield from style.table(("TOPIC", "OWNER", "CREATED BY", "RISKS"), rows)
    if found.more:
        yield f"… and {found.more} more topics: --limit lists up to 1000"
