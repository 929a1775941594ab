"""Makes Merkle proofs of a log or a partition: tree heads, events with audit paths, and leaves.

The HTTP endpoints under `/v1/log` and `topicwright prove` use them; `topicwright verify` checks the results. All
functions read only durable events, so any thread may call them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.store.tree import TreeReader
from events.catalog import HeadSigned, Recorded
from events.codec import decode_event, without_secrets
from events.logs import merkle
from events.logs.log import read_one, shard_offsets
from events.logs.tree_heads import Head, Proof, ProvedEvent, log_name
from events.names import CLUSTER_SHARD
from projections.queries.events import EVERY_EVENT, BadPlace, EventFilter, Listing, listing
from projections.queries.query import NotFound, Queries, Query
from projections.views.view import view_of

LEAVES_MAX = 1000
HEADS_SCANNED_MAX = 100_000
"""The most cluster events to scan for a signed tree head."""

Sign = Callable[[Head], Head]
"""Signs a tree head if there is a key."""


def unsigned(head: Head) -> Head:
    return head


class Consistency(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tree head, and the proof that the events of an older head are its first events (RFC 9162, 2.1.4)."""

    head: Head
    consistency: tuple[bytes, ...] | None = None


class Leaf(msgspec.Struct, frozen=True, omit_defaults=True):
    """The canonical bytes of an event, or only their hash if it holds a secret."""

    value: bytes = b""
    leaf: Annotated[bytes, Meta(max_length=merkle.HASH_BYTES)] = b""

    @property
    def hash(self) -> bytes:
        return self.leaf or merkle.leaf_hash(self.value)


class Leaves(msgspec.Struct, frozen=True):
    """Events of a log in order; `next_offset` is the start of the next page, None at the durable end."""

    leaves: tuple[Leaf, ...]
    next_offset: int | None


def part_of(query: Queries, partition: int | None, topic: str | None = None) -> Query:
    """The log with the events to prove: the only log, a topic's partition, or a given partition. Raises BadPlace."""
    parts = listing(query, EventFilter(topic), partition).parts
    if len(parts) > 1:
        raise BadPlace(f"partition: each partition has its own tree: name one, 0 to {len(parts) - 1}")
    return parts[0]


def head_of(part: Query, at_ms: int, size: int | None = None) -> Head:
    """The tree head over the durable events, or over the first `size`. Raises BadPlace, LogError."""
    reader = TreeReader(part.log)
    size = _checked_size(size, reader.end)
    return Head(log=name_of(part), size=size, root=reader.root(size).hex(), at_ms=at_ms)


def head_since(part: Query, at_ms: int, since: int | None, sign: Sign = unsigned) -> Consistency:
    """The tree head, with a proof of consistency with the first `since` events. Raises BadPlace, LogError."""
    head = sign(head_of(part, at_ms))
    if since is None:
        return Consistency(head)
    return Consistency(head, tuple(TreeReader(part.log).consistency(_checked_size(since, head.size), head.size)))


def signed_head_covering(part: Query, past: int) -> Head | None:
    """The first signed tree head in the log over more than `past` events: it covers the event at offset `past`. None if
    there is none."""
    for offset in islice(shard_offsets(part.log, CLUSTER_SHARD, past + 1, part.end()), HEADS_SCANNED_MAX):
        event = decode_event(offset, read_one(part.log, offset)).event
        if isinstance(event, HeadSigned) and event.size > past:
            return signed_head(name_of(part), event)
    return None


def signed_head(log: str, event: HeadSigned) -> Head:
    """The tree head of an event of the log with this name."""
    return view_of(Head, event, log=log, root=event.root.hex(), at_ms=event.signed_at_ms)


def prove(
    query: Queries,
    which: EventFilter,
    start: int,
    limit: int,
    partition: int | None,
    size: int | None,
    head_for: Callable[[Query, int], Head],
) -> Proof:
    """Prove the events of a topic or a request from the offset `start` on; without either, the event at `start`. `size`
    is the number of events that the tree head covers; None: `head_for` returns a head that covers the event at an
    offset. Raises NotFound, BadPlace, LogError."""
    part = part_of(query, partition, which.topic)
    of_request = f"request {which.request_id}" if which.request_id is not None else f"offset {start}"
    about = of_request if which.topic is None else f"topic {which.topic}"
    if which != EVERY_EVENT:
        records, following = _page(part, which, start, limit)
    elif start < part.end():
        records, following = (decode_event(start, read_one(part.log, start)),), None
    else:
        raise NotFound(f"there is no event at offset {start}: the log ends at {part.end()}")
    if not records:
        raise NotFound(f"there is no event of {about} from offset {start} on")
    head = head_for(part, records[-1].offset) if size is None else head_of(part, records[-1].at_ms, size)
    if records[-1].offset >= head.size:
        raise BadPlace(f"size: event {records[-1].offset} is not among the first {head.size} events")
    reader = TreeReader(part.log)
    events = tuple(_proved(part, reader, record, head.size) for record in records)
    return Proof(about=about, head=head, events=events, next_offset=following)


def leaves(part: Query, start: int, limit: int) -> Leaves:
    """Up to `limit` events from an offset on; fewer if they are large. Raises LogError."""
    records, following = _page(part, EVERY_EVENT, start, min(limit, LEAVES_MAX))
    return Leaves(tuple(_leaf(part, record) for record in records), following)


def _page(part: Query, which: EventFilter, start: int, limit: int) -> tuple[Sequence[Recorded], int | None]:
    """A page of events, and the start of the next one."""
    page = Listing((part,), which).oldest((start,), limit, (part.end(),))
    return [record for _, record in page.events], None if page.next_place is None else page.next_place[0]


def _proved(part: Query, reader: TreeReader, record: Recorded, size: int) -> ProvedEvent:
    part.pause()
    leaf = _leaf(part, record)
    path = tuple(reader.inclusion(record.offset, size))
    return ProvedEvent(offset=record.offset, path=path, value=leaf.value, leaf=leaf.leaf or None)


def _leaf(part: Query, record: Recorded) -> Leaf:
    value = read_one(part.log, record.offset)
    return Leaf(value) if without_secrets(record.event) is record.event else Leaf(leaf=merkle.leaf_hash(value))


def _checked_size(size: int | None, end: int) -> int:
    if size is not None and not 0 <= size <= end:
        raise BadPlace(f"size: the log has {end} events, not {size}: it was truncated, or it is another log")
    return end if size is None else size


def name_of(part: Query) -> str:
    """The name of the log in tree heads."""
    return log_name(part.log.cluster_id, part.partition)
