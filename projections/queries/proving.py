"""Makes Merkle proofs of a log or a partition (tree heads, events with audit paths, and leaves), and audits a log.

The HTTP endpoints under `/v1/log` and `topicwright prove` use them; `topicwright verify` checks the results. All
functions read only durable events, so any thread may call them.

An `Audit`, which `topicwright verify` makes, reads and hashes every event, and compares the result with
- the subtrees and the head stored with the log, which locate a change;
- the signed tree heads that are events of the log;
- tree heads stored elsewhere, the one input that an attacker who can write the disk cannot forge;
- the copies of archived events that stayed in the data folder;
- the indexes by topic and by request, as an order-independent sum over their entries. The sum has a key that an
  attacker does not know.

`wrong_snapshots` compares snapshots with snapshots rebuilt from all events. Non-goals: the audit repeats no decision
and rebuilds no state from the events; `replay redecide` and `replay compare` do.
"""

import secrets  # noqa: TID251 - the key of the sums over indexes
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice, zip_longest
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.store.snapshotting import StateRebuild
from controller.store.tree import STORED_LEVEL, TreeReader, stored_head, stored_subtree
from events.catalog import HeadSigned, Recorded
from events.codec import EventDecodeError, decode_event, without_secrets
from events.external_decision import indexed_under
from events.logs import merkle
from events.logs.log import EventLog, LogCorrupted, read_one
from events.logs.merkle import EMPTY_ROOT, Frontier
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import SnapshotDamaged, open_snapshot, snapshot_offsets
from events.logs.tree_heads import Head, Proof, ProvedEvent, log_name
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


class HeadView(msgspec.Struct, frozen=True):
    head: Head


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
    size = reader.end if size is None else size
    if not 0 <= size <= reader.end:
        raise BadPlace(f"size: the log has {reader.end} events, not {size}: it was truncated, or it is another log")
    return Head(log=name_of(part), size=size, root=reader.root(size).hex(), at_ms=at_ms)


def signed_head_covering(part: Query, past: int) -> Head | None:
    """The first signed tree head in the log over more than `past` events: it covers the event at offset `past`. None if
    there is none."""
    for record in islice(part.events_of(None, past + 1, part.end()), HEADS_SCANNED_MAX):
        if isinstance(record.event, HeadSigned) and record.event.size > past:
            return signed_head(name_of(part), record.event)
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


def name_of(part: Query) -> str:
    """The name of the log in tree heads."""
    return log_name(part.log.cluster_id, part.partition)


FINDINGS_MAX = 100
NONE_SIGNED = "no signed tree head is in the log, so the public key checks nothing (see log.signing.key.location)"
_EVENTS_AT_ONCE = 1024


class Findings(list[str]):
    """The first FINDINGS_MAX different findings."""

    def add(self, finding: str) -> None:
        if len(self) < FINDINGS_MAX and finding not in self:
            self.append(finding)


def against_head(findings: Findings, old: Head, log: str, size: int, root_at: Callable[[int], str]) -> None:
    """Compare an older tree head with a log of `size` events, whose root over fewer events `root_at` returns."""
    if old.log != log:
        findings.add(f"the tree head belongs to log {old.log}, and this is log {log}")
    elif old.size > size:
        findings.add(f"the log was truncated: it has {size} events, and the tree head covers {old.size}")
    elif root_at(old.size) != old.root:
        findings.add(f"the first {old.size} events were changed: their root is not that of the tree head")


class Audit:
    """An audit of a log: its size, the root over all events, the number of signed tree heads, and the findings."""

    def __init__(
        self,
        log: RocksDbLog,
        part: Query,
        *,
        heads: Sequence[Head],
        public_key: bytes | None,
        progress: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Audit the log. `heads` were stored elsewhere, and `public_key` is the trusted signer. `progress` receives the
        number of audited events. Raises LogError for errors other than damage."""
        self.findings = Findings()
        self.signed = 0
        self._frontier = Frontier()
        self._roots = {0: EMPTY_ROOT}
        self._log = log
        self._part = part
        self._public_key = public_key
        self._index_key = secrets.token_bytes(32)
        self._sums = [0, 0]
        self._counts = [0, 0]
        self._end = log.durable_offset
        self._local_copies: dict[int, bytes] = {}
        self._read({head.size for head in heads}, progress)
        self.size, self.root = self._frontier.size, self._frontier.root().hex()
        for head in heads:
            against_head(self.findings, head, name_of(part), self.size, lambda size: self._roots[size].hex())

    def _read(self, sizes: set[int], progress: Callable[[int], object]) -> None:
        stored_size, stored_root, in_tree = 0, EMPTY_ROOT, self._end
        try:
            stored_size, stored_root = stored_head(self._log)
            in_tree = stored_size
        except LogCorrupted as error:
            self.findings.add(str(error))
        stops = sorted({size for size in sizes if size <= self._end} | {stored_size, self._end})
        try:
            for offset, value in self._log.retained_events():
                if self._local_copies.setdefault(offset, value) != value:
                    self.findings.add(f"two local copies of event {offset} differ")
            self._read_events(stops, in_tree, progress)
        except LogCorrupted as error:
            self.findings.add(f"reading stopped after {self._frontier.size} events: {error}")
            return
        if self._roots[stored_size] != stored_root:
            self.findings.add(f"the tree head stored with the log is not that of its first {stored_size} events")
        for of_requests in (False, True):
            try:
                self._check_index(of_requests)
            except LogCorrupted as error:
                self.findings.add(str(error))
        if self._public_key is not None and not self.signed:
            self.findings.add(NONE_SIGNED)

    def _read_events(self, stops: Sequence[int], in_tree: int, progress: Callable[[int], object]) -> None:
        """Read and check the events, and compute the roots at some offsets. The stored tree covers `in_tree` events."""
        for stop in stops:
            events = self._log.read(self._frontier.size, stop)
            while batch := tuple(islice(events, _EVENTS_AT_ONCE)):
                for level, index, hash_ in self._frontier.extend([value for _, value in batch], STORED_LEVEL):
                    if (index + 1) << level <= in_tree:
                        self._check_subtree(level, index, hash_)
                for offset, value in batch:
                    self._check_event(offset, value)
                progress(self._frontier.size)
            self._roots[stop] = self._frontier.root()

    def _check_subtree(self, level: int, index: int, hash_: bytes) -> None:
        try:
            fits = stored_subtree(self._log, level, index) == hash_
        except LogCorrupted as error:
            self.findings.add(str(error))
            return
        if not fits:
            first, last = index << level, ((index + 1) << level) - 1
            self.findings.add(f"events {first} to {last} are not those of the tree")

    def _check_event(self, offset: int, value: bytes) -> None:
        if self._local_copies.get(offset, value) != value:
            self.findings.add(f"the local copy of event {offset} is not the event in the archive")
        try:
            record = decode_event(offset, value)
        except EventDecodeError as error:
            self.findings.add(str(error))
            return
        for of_requests in (False, True):
            name = indexed_under(record, of_requests)
            if name or not of_requests:
                self._sums[of_requests] += self._weight(name, offset)
                self._counts[of_requests] += 1
        if isinstance(record.event, HeadSigned):
            self.signed += 1
            self._check_signed(offset, record.event)

    def _check_signed(self, offset: int, event: HeadSigned) -> None:
        head = signed_head(name_of(self._part), event)
        if not head.is_signed_by(self._public_key or head.public_key):
            self.findings.add(f"event {offset}: its tree head was not signed by the expected key")
        if event.size > offset:
            self.findings.add(f"event {offset}: its tree head covers {event.size} events, some of them later")
            return
        try:
            root = TreeReader(self._log, self._end).root(event.size)
        except LogCorrupted:
            return  # already a finding
        if root != event.root:
            self.findings.add(f"the first {event.size} events are not those of the tree head in event {offset}")

    def _check_index(self, of_requests: bool) -> None:
        kind = "requests" if of_requests else "topics"
        total = count = 0
        for name, first, last in self._log.index_runs(of_requests):
            if not first <= last < self._end:
                self.findings.add(f"the index of {kind} has events {first} to {last} under {name[:100]!r}")
                return
            for offset in range(first, last + 1):
                total += self._weight(name, offset)
            count += last + 1 - first
            if count > self._counts[of_requests]:
                break
        if (total, count) != (self._sums[of_requests], self._counts[of_requests]):
            self._find_in_index(kind, of_requests, count)

    def _find_in_index(self, kind: str, of_requests: bool, count: int) -> None:
        """Report the index entries that do not belong to their event."""
        wrong = 0
        for name, first, last in self._log.index_runs(of_requests):
            for offset in range(first, last + 1):
                with suppress(EventDecodeError):
                    own = indexed_under(decode_event(offset, read_one(self._log, offset)), of_requests)
                    if own != name:
                        wrong += 1
                        under = f"under {name[:100]!r}, but it belongs to {own[:100]!r}"
                        self.findings.add(f"the index of {kind} has event {offset} {under}")
            if wrong >= FINDINGS_MAX:
                return
        if not wrong:
            self.findings.add(
                f"the index of {kind} does not match the events: it has {count} entries instead of "
                f"{self._counts[of_requests]}"
            )

    def _weight(self, name: str, offset: int) -> int:
        text = name.encode("utf-8", "replace")
        digest = blake2b(offset.to_bytes(8, "big") + text, digest_size=24, key=self._index_key).digest()
        return int.from_bytes(digest, "big")


def wrong_snapshots(log: EventLog, part: Query, refold: StateRebuild) -> Iterator[str]:
    """Yields a finding for each snapshot that differs from the state rebuilt by `refold`, from the first event on.
    Raises LogError."""
    for offset in snapshot_offsets(log):
        try:
            with open_snapshot(log, offset) as snapshot:
                at = refold.go_to(offset)
                expected = part.snapshot_pairs(offset, refold.pairs())
                if at != offset or any(one != other for one, other in zip_longest(snapshot.scan(), expected)):
                    yield f"{snapshot.path} does not match the events before it: delete it, and it is rebuilt"
        except SnapshotDamaged as error:
            yield f"{error}; it is rebuilt at the next start"
