"""Dropping archived events past retention, and their index entries.

Events are dropped as whole archived segments, and only if a snapshot covers them: then neither the current state nor
any later one needs them. The log reads dropped events from its archive. The snapshots with one event each, the
subtrees of the Merkle tree and the creation index stay forever: together a few bytes an event.

`drop` removes the events in one write. Then, for each segment, the requests that began in it move to the archive
(`IndexCleanup.archive`, `IndexCleanup.forget`), and its index entries are removed in slices (`slices`). The log stores
the progress (`ArchiveStatus`), so this continues after a crash.

What it does not do: read a clock, or choose threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Protocol, Self

from msgspec.structs import replace

from events.catalog import EVENT_VERSION
from events.codec import decode_event
from events.external_decision import indexed_under
from events.logs.archive.manifest import (
    ArchiveDamaged,
    Manifest,
    Stored,
    archive_status,
    requests_changes,
    status_changes,
)
from events.logs.archive.segment import pairs_file
from events.logs.archive.store import ArchiveAway, ArchiveStore
from events.logs.log import EventLog
from events.logs.rocksdb_keys import REQUEST, SHARD, run_prefix
from events.logs.snapshots import SnapshotInfo, newest_snapshot, snapshot_offsets
from projections.store.request_index import requests_between

Run = tuple[bytes, range]
"""A range of events under an index key."""
EVENTS_PER_SLICE = 1000
"""A slice takes some milliseconds of the writing thread."""


class DroppingLog(EventLog, Protocol):
    """A log whose oldest events can be dropped."""

    def drop_before(self, offset: int, kept: Sequence[int] = (), names: Sequence[bytes] = ()) -> None:
        """Drop the events below an offset, except those at `kept`."""
        ...

    def forget(self, runs: Iterable[Run], state: Iterable[bytes] = ()) -> None:
        """Remove runs of dropped events from the index, and state keys."""
        ...


def first_kept(
    manifests: Sequence[Manifest], start: int, snapshot: int, now_ms: int, kept_ms: int, kept_bytes: int
) -> int:
    """The offset below which a log that begins at `start` may drop events: those older than `kept_ms`, and the oldest
    beyond `kept_bytes`; -1 sets no limit. `snapshot` is the offset of the newest snapshot."""
    here = [one for one in manifests if one.start >= start and one.end <= snapshot]
    size = sum(one.event_bytes for one in manifests if one.start >= start)
    for one in here:
        too_old = kept_ms >= 0 and now_ms - one.last_ms > kept_ms
        if not too_old and not (kept_bytes >= 0 and size > kept_bytes):
            return one.start
        size -= one.event_bytes
    return here[-1].end if here else start


def drop(log: DroppingLog, manifests: Sequence[Manifest], now_ms: int, kept_ms: int, kept_bytes: int) -> bool:
    """Drop archived events past retention, on the writing thread. Returns whether any were dropped. Raises LogError,
    OSError."""
    start, end = log.start_offset, log.durable_offset - 1
    if first_kept(manifests, start, end, now_ms, kept_ms, kept_bytes) == start:  # regardless of snapshots
        return False
    to = first_kept(manifests, start, min(newest_snapshot(log) or 0, end), now_ms, kept_ms, kept_bytes)
    if to <= start:
        return False
    stay = {offset - 1 for offset in snapshot_offsets(log) if start < offset <= to}
    stay |= {to - 1, 0} if not start else {to - 1}  # the request of a topic created at `to`; the first event
    record = decode_event(to, log.read_one(to))
    names = [run_prefix(SHARD, indexed_under(record, False))]
    request = indexed_under(record, True)
    if request:
        names.append(run_prefix(REQUEST, request))
    log.drop_before(to, sorted(stay), names)
    return True


class IndexCleanup:
    """The oldest segment that was dropped but is still indexed. `archive` may run in any thread, all else on the
    writing thread. All methods raise LogError."""

    def __init__(self, log: DroppingLog, manifest: Manifest) -> None:
        self.manifest = manifest
        self._log = log
        self._keys: list[bytes] = []
        self._put: dict[bytes, bytes] = {}

    @classmethod
    def next(cls, log: DroppingLog, manifests: Iterable[Manifest]) -> Self | None:
        """The next segment to clean up, if any."""
        cleaned = archive_status(log).cleaned
        found = (one for one in manifests if cleaned <= one.start and one.end <= log.start_offset)
        return next((cls(log, one) for one in found), None)

    def archive(self, place: ArchiveStore) -> None:
        """Write the requests to the archive, unless that is done."""
        pairs = requests_between(self._log, self.manifest.start, self.manifest.end)
        self._keys = [key for key, _ in pairs]
        if archive_status(self._log).forgotten >= self.manifest.end:
            return
        content = pairs_file(SnapshotInfo(self._log.cluster_id, self.manifest.end, EVENT_VERSION, 0), pairs)
        stored = Stored.of(content)
        place.write(self.manifest.requests_name(stored), content)
        self._put = requests_changes(self.manifest, stored)

    def take_over(self, place: ArchiveStore) -> None:
        """Use the requests that another process of the same log wrote to the archive. Raises ArchiveError if there are
        none."""
        self._keys = [key for key, _ in requests_between(self._log, self.manifest.start, self.manifest.end)]
        if archive_status(self._log).forgotten >= self.manifest.end:
            return
        name = self.manifest.find_requests(place)
        content = None if name is None else place.read(name)
        if content is None:
            raise ArchiveAway(f"{place.url} lacks the requests of the segment at offset {self.manifest.start}")
        stored = Stored.of(content)
        if self.manifest.requests_name(stored) != name:
            raise ArchiveDamaged(f"{place.url}: {name} was changed: restore it from a copy")
        self._put = requests_changes(self.manifest, stored)

    def forget(self) -> None:
        """Make readers find the requests in the archive."""
        if self._put:
            self._log.put_state(
                {**self._put, **status_changes(replace(archive_status(self._log), forgotten=self.manifest.end))}
            )

    def slices(self, runs: Iterable[Run]) -> Iterator[Callable[[], None]]:
        """Steps that remove the segment from the indexes, each about `EVENTS_PER_SLICE` events. `runs` come from the
        segment's index."""
        for some in _slices(runs):
            yield partial(self._log.forget, some)
        keys = iter(self._keys)
        while batch := list(islice(keys, EVENTS_PER_SLICE)):
            yield partial(self._log.forget, (), batch)
        yield lambda: self._log.put_state(status_changes(replace(archive_status(self._log), cleaned=self.manifest.end)))


def _slices(runs: Iterable[Run]) -> Iterator[list[Run]]:
    some: list[Run] = []
    room = EVENTS_PER_SLICE
    for name, run in runs:
        for first in range(run.start, run.stop, EVENTS_PER_SLICE):
            some.append((name, range(first, min(first + EVENTS_PER_SLICE, run.stop))))
            room -= len(some[-1][1])
            if room <= 0:
                yield some
                some, room = [], EVENTS_PER_SLICE
    if some:
        yield some
