"""`topicwright risks --unused`: topics without a new record since a point in time, by the offsets of their Kafka.

Kafka finds the first record from a time on (ListOffsets), so nothing has to be stored between two runs. Records count
by their timestamps, and only those that retention has left.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from datetime import datetime
from typing import Final

from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

from controller.cli.backend import Backend
from controller.cli.reads import common
from controller.serving.reach_cluster import client_properties
from controller.stream.log.topics import offsets_consumer
from events.errors import UserError
from events.logs.log import grouped
from projections.queries.risks import RisksView, RiskyTopicView
from projections.text.points_in_time import parse_point_in_time
from projections.text.wording import many
from projections.views.topics import TopicsView

BATCH: Final = 10_000
"""Partitions in a request."""
ANSWER_S: Final = 20.0


def unused(options: argparse.Namespace, backend: Backend) -> RisksView:
    """The topics that existed at `--unused` and have had no record since. Raises UserError."""
    since = parse_point_in_time(options.unused)
    if not isinstance(since, datetime):
        raise UserError(f"--unused {options.unused}: give a time, such as 30d")
    since_ms = round(since.timestamp() * 1000)
    pages = [*common.pages(backend, TopicsView, "/topics", limit=common.PAGE)]
    topics = [one for page in pages for one in page.topics if one.created_at_ms < since_ms]
    every = (TopicPartition(one.name, each, since_ms) for one in topics for each in range(one.num_partitions))
    properties = {**client_properties(options.kafka_properties, "--kafka-properties"), "log_level": 0}
    used, unknown = set[str](), set[str]()
    try:
        with closing(offsets_consumer({**properties, "bootstrap.servers": options.bootstrap})) as consumer:
            for batch in grouped(every, BATCH, lambda _: 1):
                for place in consumer.offsets_for_times(batch, timeout=ANSWER_S):
                    if place.error is not None or place.offset != OFFSET_END:
                        (used if place.error is None else unknown).add(place.topic)
    except KafkaException as error:
        raise UserError(f"no answer from the Kafka at {options.bootstrap}: {error.args[0].str()}") from None
    if unknown:
        print(f"Kafka does not answer for {many(len(unknown), 'topic')}, such as {min(unknown)}", file=sys.stderr)
    used, found = used | unknown, []
    for one in topics:
        if one.name not in used:
            by = "" if one.created_by is None else one.created_by.principal
            found.append(RiskyTopicView(one.name, ("unused",), one.labels.get("owner", ""), by))
    more = max(0, len(found) - options.limit)
    return RisksView({"unused": len(found)}, tuple(found[: options.limit]), more, pages[-1].as_of)
