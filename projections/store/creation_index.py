"""Which names began to have a topic, and when: an index in the commit's own write, so that a list of the past does not
look at every name that there ever was.

    b                        the offset from which on the index is whole (eight bytes): 0, but in older logs
    b STRETCH SHARD_KEY      in this stretch of offsets (eight bytes, the offset divided by STRETCH) the key had a birth

A birth is an event that may make a topic where there was none. Which of them did, and which topics ended, the events
themselves say, and they are read anyhow.
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

BIRTHS = b"b"
STRETCH = 1 << 16
"""A page of a list looks once into each stretch between the snapshot and its moment."""

BIRTH_KINDS = (catalog.TopicCreated, catalog.TopicDiscovered)
BIRTH_TYPES = tuple(kind.__name__ for kind in BIRTH_KINDS)
"""Their types by name."""


def put_birth(puts: Puts, offset: int, key: ShardKey, event: Event) -> None:
    """Add what the index has of an event; nothing, of most."""
    if type(event) in BIRTH_KINDS:
        puts[_prefix(offset // STRETCH) + key.encode()] = b""


def put_beginning(puts: Puts, log: EventLog) -> None:
    """Note, with the first commit of a log that has no index, from where on it has one."""
    if log.get(BIRTHS) is None:
        puts[BIRTHS] = log.next_offset.to_bytes(8, "big")


def born(log: EventLog, start: int, end: int, after: str = "") -> Iterator[ShardKey]:
    """The shard keys after one of them, in order, that may have had a birth at the offsets from `start` on, below
    `end`: all that there were, where the index is not so old."""
    whole_from = log.get(BIRTHS)
    if start >= end:
        return iter(())
    if whole_from is None or int.from_bytes(whole_from, "big") > start:
        return map(ShardKey, log.shard_keys(after))
    stretches = range(start // STRETCH, (end - 1) // STRETCH + 1)
    return (key for key, _ in groupby(merge(*(_of_stretch(log, stretch, after) for stretch in stretches))))


def birth_offsets(log: EventLog, before: int) -> Iterator[int]:
    """The offsets below one at which there may have been births, the highest first: stretches without any are left
    out, where the index is not so old."""
    whole_from = log.get(BIRTHS)
    oldest = before if whole_from is None else int.from_bytes(whole_from, "big")
    while before > 0:
        stretch = (before - 1) // STRETCH
        start = stretch * STRETCH
        if oldest > start or next(_of_stretch(log, stretch, ""), None) is not None:
            yield from range(before - 1, start - 1, -1)
        before = start


def _of_stretch(log: EventLog, stretch: int, after: str) -> Iterator[ShardKey]:
    prefix = _prefix(stretch)
    keys = log.scan(prefix, prefix + after.encode("utf-8", "surrogatepass") if after else None)
    return (ShardKey(key[len(prefix) :].decode()) for key, _ in keys)


def _prefix(stretch: int) -> bytes:
    return BIRTHS + stretch.to_bytes(8, "big")
