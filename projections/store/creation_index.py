"""The names that got a topic in each range of offsets, so that a list of the past need not scan all names.

    b RANGE SHARD_KEY        an event under this key in this range of offsets created a topic

RANGE is the offset divided by RANGE_SIZE, of eight bytes. The index is written in the commit of the events. It does not
say which topics were deleted; queries read the events anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import groupby

from events import catalog
from events.catalog import Event
from events.logs.log import EventLog
from events.names import ShardKey
from projections.store.access_state import Puts

CREATED_IN = b"b"
RANGE_SIZE = 1 << 16
"""A page of a list reads one index entry or more of each range between the snapshot and its point in time."""

CREATION_KINDS = (catalog.TopicCreated, catalog.TopicDiscovered)
CREATION_TYPES = tuple(kind.__name__ for kind in CREATION_KINDS)


def put_creation(puts: Puts, offset: int, key: ShardKey, event: Event) -> None:
    """Add the index key of an event that creates a topic."""
    if type(event) in CREATION_KINDS:
        puts[_prefix(offset // RANGE_SIZE) + key.encode()] = b""


def created_keys(log: EventLog, start: int, end: int, after: str = "") -> Iterator[ShardKey]:
    """The shard keys, in order and after one of them, that may have got a topic from `start` until before `end`."""
    ranges = range(start // RANGE_SIZE, -(-end // RANGE_SIZE)) if start < end else range(0)
    return (key for key, _ in groupby(merge(*(_keys_in(log, number, after) for number in ranges))))


def creation_offsets(log: EventLog, before: int) -> Iterator[int]:
    """The offsets, the highest first, of all ranges in which a topic was created."""
    while before > 0:
        number = (before - 1) // RANGE_SIZE
        start = number * RANGE_SIZE
        if next(_keys_in(log, number, ""), None) is not None:
            yield from range(before - 1, start - 1, -1)
        before = start


def _keys_in(log: EventLog, number: int, after: str) -> Iterator[ShardKey]:
    prefix = _prefix(number)
    keys = log.scan(prefix, prefix + after.encode("utf-8", "surrogatepass") if after else None)
    return (ShardKey(key[len(prefix) :].decode()) for key, _ in keys)


def _prefix(number: int) -> bytes:
    return CREATED_IN + number.to_bytes(8, "big")
