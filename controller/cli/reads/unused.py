"""`topicwright risks --unused`: topics without a new record since a point in time, by the offsets of their Kafka.

Kafka finds the first record from a time on (ListOffsets), so nothing has to be stored between two runs. Records count
by their timestamps, and only those that retention has left.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from contextlib import closing
from datetime import datetime
from typing import Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from controller.cli.arguments import DONE, NEGATIVE
from controller.cli.backend import Backend
from controller.cli.output import show
from controller.cli.reads import common
from controller.serving.reach_cluster import client_properties
from controller.stream.log.topics import offsets_consumer
from events.errors import UserError
from events.logs.log import grouped
from projections.text.points_in_time import parse_point_in_time
from projections.text.wording import many
from projections.views.topics import TopicsView

BATCH: Final = 10_000
"""Partitions in a request."""
ANSWER_S: Final = 20.0
_Place = tuple[str, int]


class UnusedTopicView(msgspec.Struct, frozen=True):
    """A topic without a new record. `written` counts the records that it ever had, `left` those that it still has."""

    name: str
    owner: str
    created_by: str
    written: int
    left: int


def unused(options: argparse.Namespace, backend: Backend) -> int:
    """List topics that existed at `--unused` and have had no record since. Raises UserError."""
    since = parse_point_in_time(options.unused)
    if not isinstance(since, datetime):
        raise UserError(f"--unused {options.unused}: give a time, such as 30d")
    since_ms = round(since.timestamp() * 1000)
    pages = common.pages(backend, TopicsView, "/topics", limit=common.PAGE)
    topics = [one for page in pages for one in page.topics if one.created_at_ms < since_ms]
    every = [(one.name, partition) for one in topics for partition in range(one.num_partitions)]
    properties = {**client_properties(options.kafka_properties, "--kafka-properties"), "log_level": 0}
    unknown, times = set[str](), (since_ms, OFFSET_END, OFFSET_BEGINNING)
    try:
        with closing(offsets_consumer({**properties, "bootstrap.servers": options.bootstrap})) as consumer:
            newer, ends, starts = (_offsets(consumer, every, each, unknown) for each in times)
    except KafkaException as error:
        raise UserError(f"no answer from the Kafka at {options.bootstrap}: {error.args[0].str()}") from None
    if unknown:
        print(f"Kafka does not answer for {many(len(unknown), 'topic')}, such as {min(unknown)}", file=sys.stderr)
    used = unknown.union(name for (name, _), offset in newer.items() if offset != OFFSET_END)
    found = []
    for one in topics:
        if one.name not in used:
            written, first = (sum(each[one.name, n] for n in range(one.num_partitions)) for each in (ends, starts))
            by = "" if one.created_by is None else one.created_by.principal
            found.append(UnusedTopicView(one.name, one.labels.get("owner", ""), by, written, written - first))
    header = ("TOPIC", "OWNER", "CREATED BY", "WRITTEN", "LEFT")
    rows = [(one.name, one.owner or "-", one.created_by or "-", one.written, one.left) for one in found]
    show(options, found, lambda style: style.table(header, rows), lambda: (one.name for one in found))
    return NEGATIVE if found else DONE


def _offsets(consumer: Consumer, every: Iterable[_Place], at: int, unknown: set[str]) -> dict[_Place, int]:
    """The offset of each partition at a time in milliseconds, or at its end or beginning. Adds topics with an error to
    `unknown`."""
    found = {}
    for batch in grouped(every, BATCH, lambda _: 1):
        places = [TopicPartition(*place, at) for place in batch]
        for one in consumer.offsets_for_times(places, timeout=ANSWER_S):
            found[one.topic, one.partition] = one.offset
            if one.error is not None:
                unknown.add(one.topic)
    return found
