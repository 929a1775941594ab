"""Audits a whole log by its Merkle tree: are the events unchanged, and do the indexes and copies match them?

`topicwright verify` runs the audit. It reads and hashes every event, and compares the result with
- the subtrees and the head stored with the log, which locate a change;
- the signed tree heads that are events of the log;
- tree heads stored elsewhere, the one input that an attacker who can write the disk cannot forge;
- the copies of archived events that stayed in the data folder;
- the indexes by topic and by request, as an order-independent sum over their entries. The sum has a key that an
  attacker does not know.

`wrong_snapshots` compares snapshots with snapshots rebuilt from all events.

Non-goals: the audit repeats no decision and rebuilds no state from the events; `replay redecide` and `replay compare`
do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice, zip_longest

import msgspec

from controller.store.snapshotting import StateRebuild
from controller.store.tree import STORED_LEVEL, TreeReader, stored_head, stored_subtree
from events.catalog import HeadSigned
from events.codec import EventDecodeError, decode_event
from events.external_decision import indexed_under
from events.logs.log import EventLog, LogCorrupted, read_one
from events.logs.merkle import EMPTY_ROOT, Frontier
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import SnapshotDamaged, open_snapshot, snapshot_offsets
from events.logs.tree_heads import Head
from projections.queries.proving import name_of, signed_head
from projections.queries.query import Query

FINDINGS_MAX = 100
NONE_SIGNED = "no signed tree head is in the log, so the public key checks nothing (see log.signing.key.location)"
_EVENTS_AT_ONCE = 1024


class Audit(msgspec.Struct, frozen=True):
    """The result of an audit: the root over all events, the number of signed tree heads, and the findings."""

    size: int
    root: str
    signed: int
    findings: tuple[str, ...]


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


def audit(
    log: RocksDbLog,
    part: Query,
    *,
    heads: Sequence[Head],
    public_key: bytes | None,
    index_key: bytes,
    progress: Callable[[int], object] = lambda _: None,
) -> Audit:
    """Audit a log. `heads` were stored elsewhere, `public_key` is the trusted signer, and `index_key` is random.
    `progress` receives the number of audited events. Raises LogError for errors other than damage."""
    auditor = _Auditor(log, part, public_key, index_key)
    auditor.read({head.size for head in heads}, progress)
    for head in heads:
        against_head(
            auditor.findings, head, name_of(part), auditor.frontier.size, lambda size: auditor.roots[size].hex()
        )
    root = auditor.frontier.root().hex()
    return Audit(auditor.frontier.size, root, auditor.signed, tuple(auditor.findings))


class _Auditor:
    def __init__(self, log: RocksDbLog, part: Query, public_key: bytes | None, index_key: bytes) -> None:
        self.findings = Findings()
        self.frontier = Frontier()
        self.roots = {0: EMPTY_ROOT}
        self.signed = 0
        self._log = log
        self._part = part
        self._public_key = public_key
        self._index_key = index_key
        self._sums = [0, 0]
        self._counts = [0, 0]
        self._end = log.durable_offset
        self._local_copies: dict[int, bytes] = {}

    def read(self, sizes: set[int], progress: Callable[[int], object]) -> None:
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
            self.findings.add(f"reading stopped after {self.frontier.size} events: {error}")
            return
        if self.roots[stored_size] != stored_root:
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
            events = self._log.read(self.frontier.size, stop)
            while batch := tuple(islice(events, _EVENTS_AT_ONCE)):
                for level, index, hash_ in self.frontier.extend([value for _, value in batch], STORED_LEVEL):
                    if (index + 1) << level <= in_tree:
                        self._check_subtree(level, index, hash_)
                for offset, value in batch:
                    self._check_event(offset, value)
                progress(self.frontier.size)
            self.roots[stop] = self.frontier.root()

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
