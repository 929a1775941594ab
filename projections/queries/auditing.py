"""An audit of a whole log by its tree: is every event what it was, and does whatever is kept beside them fit?

Every event is read and hashed. What comes of it is compared with
- the subtrees and the head that are kept with the log: they say where it was changed;
- the heads that were signed and are kept as events;
- heads that somebody kept elsewhere: who may write the disk may make all of the above anew, but not these;
- the few events that stayed beside the log where those around them went to the archive;
- the index by topic and by request, as a sum over its entries that is the same in any order. The sum is keyed with what
  whoever changed the log did not know.

What it does not do: it decides nothing again and folds no state, which `replay redecide` and `replay compare` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice, zip_longest
from typing import Protocol

import msgspec

from events.catalog import HeadSigned
from events.codec import EventDecodeError, decode_event
from events.followed import indexed_under
from events.logs.heads import Head
from events.logs.log import EventLog, LogCorrupted
from events.logs.merkle import EMPTY_ROOT, Frontier
from events.logs.snapshot_file import SnapshotDamaged
from events.logs.snapshots import open_snapshot, snapshot_offsets
from projections.queries.proving import kept_head as head_in_event
from projections.queries.query import Query
from projections.store.refolding import Refold
from projections.store.tree import BEHIND_MAX, KEPT_LEVEL, TreeBehind, TreeReader, kept_head, kept_subtree

FINDINGS_MAX = 100
NONE_SIGNED = "no event of it keeps a head that was signed, so a key shows nothing"
_STRETCH = 1024


class IndexedLog(EventLog, Protocol):
    """A log whose index can be read whole."""

    def index_runs(self, of_requests: bool) -> Iterator[tuple[str, int, int]]:
        """Names with the first and last offset of each run of events under them."""
        ...

    def stayed(self) -> Iterator[tuple[int, bytes]]:
        """The events that are here all the same though they are read from an archive."""
        ...


class Audit(msgspec.Struct, frozen=True):
    """What an audit came to: the root over all events, how many signed heads were among them, and what was wrong."""

    size: int
    root: str
    signed: int
    findings: tuple[str, ...]


class Findings(list[str]):
    """What is wrong, in words; no more of it than anybody reads."""

    def found(self, what: str) -> None:
        """Note something once, unless there is enough of it."""
        if len(self) < FINDINGS_MAX and what not in self:
            self.append(what)


def against_head(findings: Findings, old: Head, log: str, size: int, root_at: Callable[[int], str]) -> None:
    """Compare an older head with a log of `size` events. `root_at` gives its root at that head's size."""
    if old.log != log:
        findings.found(f"the head is one of log {old.log}, and this is log {log}")
    elif old.size > size:
        findings.found(f"the log was cut: it has {size} events, and had {old.size} when the head was made")
    elif root_at(old.size) != old.root:
        findings.found(f"the first {old.size} events are not those that the head was made over")


def audit(
    log: IndexedLog,
    log_name: str,
    part: Query,
    *,
    heads: Sequence[Head],
    public_key: bytes | None,
    index_key: bytes,
    progress: Callable[[int], object] = lambda _: None,
) -> Audit:
    """Read all of a log. `heads` were kept elsewhere, `public_key` is who is trusted to have signed, `index_key` some
    bytes that nobody knows; `progress` is given how many events are done. Raises LogError for what is no damage."""
    auditor = _Auditor(log, part, public_key, index_key)
    auditor.read({head.size for head in heads}, progress)
    for head in heads:
        against_head(auditor.findings, head, log_name, auditor.frontier.size, lambda size: auditor.roots[size].hex())
    root = auditor.frontier.root().hex()
    return Audit(auditor.frontier.size, root, auditor.signed, tuple(auditor.findings))


class _Auditor:
    def __init__(self, log: IndexedLog, part: Query, public_key: bytes | None, index_key: bytes) -> None:
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
        self._stayed: dict[int, bytes] = {}

    def read(self, sizes: set[int], progress: Callable[[int], object]) -> None:
        kept_size, kept_root = 0, EMPTY_ROOT
        try:
            kept_size, kept_root = kept_head(self._log)
        except LogCorrupted as error:
            self.findings.found(str(error))
        if self._end - kept_size > BEHIND_MAX:
            self.findings.found(f"the tree is over {kept_size} of {self._end} events only: it is not finished")
        try:
            self._take_stayed()
            self._read_events(sorted({size for size in sizes if size <= self._end} | {kept_size, self._end}), progress)
        except LogCorrupted as error:
            self.findings.found(f"after {self.frontier.size} events reading ends: {error}")
            return
        if self.roots[kept_size] != kept_root:
            self.findings.found(f"the head that is kept with the log is not that of its first {kept_size} events")
        for of_requests in (False, True):
            try:
                self._check_index(of_requests)
            except LogCorrupted as error:
                self.findings.found(str(error))
        if self._public_key is not None and not self.signed:
            self.findings.found(NONE_SIGNED)

    def _take_stayed(self) -> None:
        for offset, value in self._log.stayed():
            if self._stayed.setdefault(offset, value) != value:
                self.findings.found(f"event {offset} stayed here twice, and not as the same one")

    def _read_events(self, stops: Sequence[int], progress: Callable[[int], object]) -> None:
        kept_size = max((stop for stop in stops if stop <= self._end), default=0)
        with suppress(LogCorrupted):
            kept_size, _ = kept_head(self._log)
        for stop in stops:
            events = self._log.read(self.frontier.size, stop)
            while batch := tuple(islice(events, _STRETCH)):
                for level, index, hash_ in self.frontier.extend([value for _, value in batch], KEPT_LEVEL):
                    if (index + 1) << level <= kept_size:
                        self._check_subtree(level, index, hash_)
                for offset, value in batch:
                    self._take(offset, value)
                progress(self.frontier.size)
            self.roots[stop] = self.frontier.root()

    def _check_subtree(self, level: int, index: int, hash_: bytes) -> None:
        try:
            fits = kept_subtree(self._log, level, index) == hash_
        except LogCorrupted as error:
            self.findings.found(str(error))
            return
        if not fits:
            first, last = index << level, ((index + 1) << level) - 1
            self.findings.found(f"events {first} to {last} are not those that the tree was made over")

    def _take(self, offset: int, value: bytes) -> None:
        if self._stayed.get(offset, value) != value:
            self.findings.found(f"event {offset}, which stayed here, is not the one that is in the archive")
        try:
            record = decode_event(offset, value)
        except EventDecodeError as error:
            self.findings.found(str(error))
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
        head = head_in_event(self._part, event)
        if not head.is_signed_by(self._public_key or head.public_key):
            self.findings.found(f"event {offset}: the head that it keeps was not signed by the key that it should be")
        if event.size > offset:
            self.findings.found(f"event {offset}: the head that it keeps is over {event.size} events, some after it")
            return
        try:
            root = TreeReader(self._log, self._end).root(event.size)
        except (LogCorrupted, TreeBehind):
            return  # which has been found already
        if root != event.root:
            self.findings.found(f"the first {event.size} events are not those whose head event {offset} keeps")

    def _check_index(self, of_requests: bool) -> None:
        kind = "requests" if of_requests else "topics"
        total = count = 0
        for name, first, last in self._log.index_runs(of_requests):
            if not first <= last < self._end:
                self.findings.found(f"the index of {kind} has events {first} to {last} under {name[:100]!r}")
                return
            for offset in range(first, last + 1):
                total += self._weight(name, offset)
            count += last + 1 - first
            if count > self._counts[of_requests]:
                break
        if (total, count) != (self._sums[of_requests], self._counts[of_requests]):
            self._find_in_index(kind, of_requests, count)

    def _find_in_index(self, kind: str, of_requests: bool, count: int) -> None:
        """Say which entries of an index that is wrong are: those that are not of their event."""
        wrong = 0
        for name, first, last in self._log.index_runs(of_requests):
            for offset in range(first, last + 1):
                with suppress(EventDecodeError):
                    own = indexed_under(decode_event(offset, self._log.read_one(offset)), of_requests)
                    if own != name:
                        wrong += 1
                        self.findings.found(
                            f"the index of {kind} has event {offset} under {name[:100]!r}: it is one of {own[:100]!r}"
                        )
            if wrong >= FINDINGS_MAX:
                return
        if not wrong:
            self.findings.found(
                f"the index of {kind} is not that of the events: it has {count} entries, and there are "
                f"{self._counts[of_requests]} to be indexed"
            )

    def _weight(self, name: str, offset: int) -> int:
        text = name.encode("utf-8", "replace")
        digest = blake2b(offset.to_bytes(8, "big") + text, digest_size=24, key=self._index_key).digest()
        return int.from_bytes(digest, "big")


def wrong_snapshots(log: EventLog, part: Query, refold: Refold) -> Iterator[str]:
    """Which are not, in words; `refold` is at the first event, and goes on to the newest of them. Raises LogError."""
    for offset in snapshot_offsets(log):
        try:
            with open_snapshot(log, offset) as snapshot:
                at = refold.go_to(offset)
                anew = part.snapshot_pairs(offset, refold.pairs())
                if at != offset or any(one != other for one, other in zip_longest(snapshot.scan(), anew)):
                    yield f"{snapshot.path} is not what the events before it lead to: delete it, and it is made anew"
        except SnapshotDamaged as error:
            yield f"{error}; it is made anew at the next start"
