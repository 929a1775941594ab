"""Dropping the oldest events of a log that are archived, with what the indexes have of them.

Events go only as whole archived segments, and only where a snapshot stands at or after them: so the state of now, and
of every moment since, needs none of them. What goes stays readable: the log reads it from its archive. Here stay, for
all time, the snapshots with an event each, the Merkle tree's subtrees, and the index of births: together a few bytes an
event.

First the events go, in one write (`drop`). Then, a segment at a time, the requests that began in it go to the archive
(`Leaving.archive`, `Leaving.forget`), and in slices what the indexes have of it (`slices`). How far that is the log
keeps (`ArchiveStatus`), so who dies in between goes on.

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
from events.logs.archive.manifest import ArchiveDamaged, Manifest, Stored, archive_status, note, requests_changes
from events.logs.archive.segment import pairs_file
from events.logs.archive.store import ArchiveAway, ArchiveStore
from events.logs.log import EventLog
from events.logs.rocksdb_keys import REQUEST, SHARD, run_prefix
from events.logs.snapshots import SnapshotInfo, newest_snapshot, snapshot_offsets
from projections.store.request_index import requests_between

Run = tuple[bytes, range]
"""Events under the key of a name of the index."""
EVENTS_PER_SLICE = 1000
"""The writing thread is kept for some milliseconds."""


class DroppingLog(EventLog, Protocol):
    """A log whose oldest events can be dropped."""

    def drop_before(self, offset: int, kept: Sequence[int] = (), names: Sequence[bytes] = ()) -> None:
        """Let the events below an offset go, but for those at some offsets."""
        ...

    def forget(self, runs: Iterable[Run], state: Iterable[bytes] = ()) -> None:
        """Take out of the index some runs of events that were dropped, and state keys."""
        ...


def first_kept(
    manifests: Sequence[Manifest], start: int, snapshot: int, now_ms: int, kept_ms: int, kept_bytes: int
) -> int:
    """The offset below which events may go, of a log that begins at `start`: those older than `kept_ms`, and the oldest
    of more than `kept_bytes`; -1 sets no limit. `snapshot` is the offset of the newest one."""
    here = [one for one in manifests if one.start >= start and one.end <= snapshot]
    size = sum(one.event_bytes for one in manifests if one.start >= start)
    for one in here:
        too_old = kept_ms >= 0 and now_ms - one.last_ms > kept_ms
        if not too_old and not (kept_bytes >= 0 and size > kept_bytes):
            return one.start
        size -= one.event_bytes
    return here[-1].end if here else start


def drop(log: DroppingLog, manifests: Sequence[Manifest], now_ms: int, kept_ms: int, kept_bytes: int) -> bool:
    """Let go what may go; whether that was anything. On the thread that writes. Raises LogError, OSError."""
    start, end = log.start_offset, log.durable_offset - 1
    if first_kept(manifests, start, end, now_ms, kept_ms, kept_bytes) == start:  # whatever snapshots there are
        return False
    to = first_kept(manifests, start, min(newest_snapshot(log) or 0, end), now_ms, kept_ms, kept_bytes)
    if to <= start:
        return False
    stay = {offset - 1 for offset in snapshot_offsets(log) if start < offset <= to}
    stay |= {to - 1, 0} if not start else {to - 1}  # the request of the topic that is created at `to`; the first event
    record = decode_event(to, log.read_one(to))
    names = [run_prefix(SHARD, indexed_under(record, False))]
    request = indexed_under(record, True)
    if request:
        names.append(run_prefix(REQUEST, request))
    log.drop_before(to, sorted(stay), names)
    return True


class Leaving:
    """The oldest segment that was dropped and is in the log's indexes yet. What `archive` does may be done in another
    thread, all else is done on the one that writes. All raise LogError."""

    def __init__(self, log: DroppingLog, manifest: Manifest) -> None:
        self.manifest = manifest
        self._log = log
        self._keys: list[bytes] = []
        self._put: dict[bytes, bytes] = {}

    @classmethod
    def next(cls, log: DroppingLog, manifests: Iterable[Manifest]) -> Self | None:
        """None where there is none."""
        cleaned = archive_status(log).cleaned
        found = (one for one in manifests if cleaned <= one.start and one.end <= log.start_offset)
        return next((cls(log, one) for one in found), None)

    def archive(self, place: ArchiveStore) -> None:
        """Find the requests, and put them into the archive, unless that is done."""
        pairs = requests_between(self._log, self.manifest.start, self.manifest.end)
        self._keys = [key for key, _ in pairs]
        if archive_status(self._log).forgotten >= self.manifest.end:
            return
        content = pairs_file(SnapshotInfo(self._log.cluster_id, self.manifest.end, EVENT_VERSION, 0), pairs)
        stored = Stored.of(content)
        place.write(self.manifest.requests_name(stored), content)
        self._put = requests_changes(self.manifest, stored)

    def take_over(self, place: ArchiveStore) -> None:
        """The same where another process has put them, as it does of the same log: they are what it put. Raises
        ArchiveError where they are not there."""
        self._keys = [key for key, _ in requests_between(self._log, self.manifest.start, self.manifest.end)]
        if archive_status(self._log).forgotten >= self.manifest.end:
            return
        name = self.manifest.find_requests(place)
        content = None if name is None else place.read(name)
        if content is None:
            raise ArchiveAway(f"{place.url} has no requests of the segment from offset {self.manifest.start} on yet")
        stored = Stored.of(content)
        if self.manifest.requests_name(stored) != name:
            raise ArchiveDamaged(f"{place.url}: {name} is not what was put there: restore it from a copy")
        self._put = requests_changes(self.manifest, stored)

    def forget(self) -> None:
        """Have readers look for the requests in the archive from now on."""
        if self._put:
            self._log.note({**self._put, **note(replace(archive_status(self._log), forgotten=self.manifest.end))})

    def slices(self, runs: Iterable[Run]) -> Iterator[Callable[[], None]]:
        """What takes all of it out of the indexes, in pieces of about `EVENTS_PER_SLICE` events; `runs` are those of
        the segment's index."""
        for some in _slices(runs):
            yield partial(self._log.forget, some)
        keys = iter(self._keys)
        while batch := list(islice(keys, EVENTS_PER_SLICE)):
            yield partial(self._log.forget, (), batch)
        yield lambda: self._log.note(note(replace(archive_status(self._log), cleaned=self.manifest.end)))


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
