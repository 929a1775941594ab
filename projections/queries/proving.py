"""Proofs from a log, or from one of several partitions: heads, events with their paths, and whole stretches of it.

All of it rests on durable events and reads the log alone, so it may run in any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from events.catalog import HeadSigned, Recorded
from events.codec import decode_event, without_secrets
from events.logs import merkle
from events.logs.tree_heads import Head, Proof, ProvedEvent, log_name
from events.names import CLUSTER_SHARD
from projections.queries.listing import BadPlace, listing
from projections.queries.query import NotThere, Query, Questions
from projections.store.tree import TreeReader

LEAVES_MAX = 1000
HEADS_LOOKED_THROUGH = 100_000
"""Events of the whole cluster among which a signed head is looked for."""

Sign = Callable[[Head], Head]
"""Signs a head, where there is a key to sign with."""


def unsigned(head: Head) -> Head:
    """The head as it is."""
    return head


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to prove: one at an offset, or those of a topic or of a request from an offset on; of which
    partition, where the log has several; and for how many events the head is to be, None for all that there are."""

    offset: int | None = None
    topic: str | None = None
    request_id: str | None = None
    start: int = 0
    limit: int = 100
    partition: int | None = None
    size: int | None = None

    @property
    def about(self) -> str:
        """The same in words."""
        if self.topic is not None:
            return f"topic {self.topic}"
        return f"request {self.request_id}" if self.request_id is not None else f"offset {self.offset}"


class Consistency(msgspec.Struct, frozen=True, omit_defaults=True):
    """A head of a log, and the hashes that prove an older one to be a beginning of it (RFC 9162, 2.1.4)."""

    head: Head
    consistency: tuple[bytes, ...] | None = None


class Leaf(msgspec.Struct, frozen=True, omit_defaults=True):
    """The canonical bytes of an event; where it holds a secret, their hash alone."""

    value: bytes = b""
    leaf: Annotated[bytes, Meta(max_length=merkle.HASH_BYTES)] = b""

    @property
    def hash(self) -> bytes:
        """The hash of the event."""
        return self.leaf or merkle.leaf_hash(self.value)


class Leaves(msgspec.Struct, frozen=True):
    """Events of a log in order; `next_offset` is where to go on, None at its durable end."""

    leaves: tuple[Leaf, ...]
    next_offset: int | None


def part_of(query: Questions, partition: int | None, topic: str | None = None) -> Query:
    """The log that is meant: the only one, that of a topic, or a partition. Raises BadPlace."""
    parts = listing(query, topic, None, partition).parts
    if len(parts) > 1:
        raise BadPlace(f"partition: each has a head of its own: give one, 0 to {len(parts) - 1}")
    return parts[0]


def head_of(part: Query, at_ms: int, size: int | None = None) -> Head:
    """The head of a log over its durable events, or over the first `size`. Raises BadPlace, TreeBehind, LogError."""
    reader = TreeReader(part.log)
    size = _size(size, reader.end)
    return Head(log=_name(part), size=size, root=reader.root(size).hex(), at_ms=at_ms)


def head_since(part: Query, at_ms: int, since: int | None, sign: Sign = unsigned) -> Consistency:
    """The head of a log, and that it goes on from its first `since` events. Raises BadPlace, TreeBehind, LogError."""
    head = sign(head_of(part, at_ms))
    if since is None:
        return Consistency(head)
    return Consistency(head, tuple(TreeReader(part.log).consistency(_size(since, head.size), head.size)))


def last_signed(part: Query, past: int) -> Head | None:
    """The first head that was signed of this log when it had more than `past` events; None without one."""
    for count, offset in enumerate(part.log.shard_offsets(CLUSTER_SHARD, past + 1, part.end())):
        event = decode_event(offset, part.log.read_one(offset)).event
        if isinstance(event, HeadSigned) and event.size > past:
            return kept_head(part, event)
        if count >= HEADS_LOOKED_THROUGH:
            break
    return None


def kept_head(part: Query, event: HeadSigned) -> Head:
    """The head that an event says was signed."""
    return signed_head(_name(part), event)


def signed_head(log: str, event: HeadSigned) -> Head:
    """The same, of the log of that name."""
    return Head(
        log=log,
        size=event.size,
        root=event.root.hex(),
        at_ms=event.signed_at_ms,
        public_key=event.public_key,
        signature=event.signature,
    )


def prove(query: Questions, wanted: Wanted, head_for: Callable[[Query, int], Head]) -> Proof:
    """The proof of the events that are wanted. `head_for` gives the head of a log that is to be over the event at an
    offset, where `wanted` names no size. Raises NotThere, BadPlace, TreeBehind, LogError."""
    part = part_of(query, wanted.partition, wanted.topic)
    records, following = _records(part, wanted)
    if not records:
        raise NotThere(f"no event of {wanted.about} is there, from offset {wanted.start} on")
    head = head_for(part, records[-1].offset) if wanted.size is None else head_of(part, records[-1].at_ms, wanted.size)
    if records[-1].offset >= head.size:
        raise BadPlace(f"size: event {records[-1].offset} came after the first {head.size}")
    reader = TreeReader(part.log)
    events = tuple(_proved(part, reader, record, head.size) for record in records)
    return Proof(about=wanted.about, head=head, events=events, next_offset=following)


def leaves(part: Query, start: int, limit: int) -> Leaves:
    """Up to `limit` events of a log from an offset on; fewer where they are large. Raises LogError."""
    page = part.events(start, min(limit, LEAVES_MAX), part.end())
    return Leaves(tuple(_leaf(part, record) for record in page.records), page.next_offset)


def _records(part: Query, wanted: Wanted) -> tuple[Sequence[Recorded], int | None]:
    end = part.end()
    if wanted.offset is not None:
        if wanted.offset >= end:
            raise NotThere(f"no event is at offset {wanted.offset}: the log ends at {end}")
        return (decode_event(wanted.offset, part.log.read_one(wanted.offset)),), None
    page = part.events(wanted.start, wanted.limit, end, topic=wanted.topic, request_id=wanted.request_id)
    return page.records, page.next_offset


def _proved(part: Query, reader: TreeReader, record: Recorded, size: int) -> ProvedEvent:
    part.rest()
    leaf = _leaf(part, record)
    path = tuple(reader.inclusion(record.offset, size))
    return ProvedEvent(offset=record.offset, path=path, value=leaf.value, leaf=leaf.leaf or None)


def _leaf(part: Query, record: Recorded) -> Leaf:
    value = part.log.read_one(record.offset)
    return Leaf(value) if without_secrets(record.event) is record.event else Leaf(leaf=merkle.leaf_hash(value))


def _size(size: int | None, end: int) -> int:
    if size is not None and not 0 <= size <= end:
        raise BadPlace(f"size: the log has {end} events and not {size}: it was cut, or it is another one")
    return end if size is None else size


def _name(part: Query) -> str:
    return log_name(part.log.cluster_id, part.partition)
