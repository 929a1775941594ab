"""Events from the newest to the oldest. Indexes go forward only, so they are read in stretches, the last first."""

from __future__ import annotations

from collections.abc import Iterator

from events.catalog import Recorded
from events.codec import decode_event
from events.logs.log import EventLog
from events.names import CLUSTER_SHARD, shard_key
from projections.queries.query import EVENTS_PER_STRETCH, Query

STRETCH_FIRST, STRETCH_MAX = 1 << 10, 1 << 18
"""Offsets that are looked through at once: few at first, as the newest are wanted, then twice as many each time."""


def offsets_before(log: EventLog, key: str, before: int) -> Iterator[int]:
    """The offsets of the events under a shard key below an offset, the highest first."""
    stretch = STRETCH_FIRST
    while before > 0:
        start = max(0, before - stretch)
        yield from reversed(list(log.shard_offsets(key, start, before)))
        before, stretch = start, min(2 * stretch, STRETCH_MAX)


def newest_of_topic(part: Query, name: str, before: int) -> Iterator[Recorded]:
    """The events of a name below an offset, the newest first."""
    found = _decoded(part, offsets_before(part.log, shard_key(name), before))
    return (record for record in found if getattr(record.event, "topic", None) == name)


def newest_of_broker(part: Query, broker_id: int, before: int) -> Iterator[Recorded]:
    """The events of a broker's registration and life below an offset, the newest first."""
    found = _decoded(part, offsets_before(part.log, CLUSTER_SHARD, before))
    return (record for record in found if getattr(record.event, "broker_id", None) == broker_id)


def _decoded(part: Query, offsets: Iterator[int]) -> Iterator[Recorded]:
    for count, offset in enumerate(offsets, 1):
        if count % EVENTS_PER_STRETCH == 0:
            part.rest()
        yield decode_event(offset, part.log.read_one(offset))
