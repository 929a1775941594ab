"""Reading archived events and their index, as the log reads its newer ones.

Method. The log knows the segments (`manifests_of`), and rejects an object whose hash differs from the recorded one.
Objects are fetched whole. Some row groups are cached in memory, and the indexes, which topic queries search, in files;
all logs of the process share the limits. Any thread may read, and none waits for another: two threads that need the
same object may both fetch it.

Non-goal: retries. An unavailable store raises ArchiveAway, which names it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, Generic, Protocol, TypeVar

from events.logs.archive.manifest import (
    ArchiveDamaged,
    Manifest,
    Stored,
    archive_status,
    manifests_of,
    read_stored,
    requests_of,
)
from events.logs.archive.segment import SegmentFile, SegmentIndex
from events.logs.archive.store import ArchiveError, ArchiveStore, open_store, visits
from events.logs.log import StateKeys
from events.logs.snapshots import Snapshot, SnapshotDamaged

FILES_KEPT: Final = 8
"""Some megabytes each."""
GROUPS_KEPT: Final = 32
"""Of 8,192 events, about a megabyte each."""
INDEXES_KEPT: Final = 256
"""Open files of some hundred kilobytes."""

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class ArchivedLog(StateKeys, Protocol):
    @property
    def start_offset(self) -> int: ...


class Archive:
    """The archived events of a log."""

    def __init__(self, log: ArchivedLog) -> None:
        self._log = log
        self._store: ArchiveStore | None = None
        self._known: tuple[tuple[Manifest, ...], list[int]] = (), []
        """The known segments and their starts, replaced in one step because any thread may read them."""
        self._owner = object()
        """The owner of this archive's cache entries."""
        self.fetched = 0
        """Number of objects fetched from the store."""

    def close(self) -> None:
        """Drop the cached objects."""
        for recent in (_files, _groups, _indexes):
            recent.drop_owner(self._owner)

    def read(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The archived events in [start, end). Raises ArchiveError."""
        for manifest in self.segments(start, end):
            file = self._file(manifest)
            for group in file.groups(start, end):
                first = file.first_of(group)
                for offset, value in enumerate(self._group(file, group), first):
                    if start <= offset < end:
                        yield offset, value

    def read_many(self, offsets: Sequence[int]) -> list[bytes]:
        """The events at some offsets, in the order requested. Raises ArchiveError."""
        found = []
        for offset in offsets:
            file = self._file(self.segments(offset, offset + 1)[0])
            (group,) = file.groups(offset, offset + 1)
            found.append(self._group(file, group)[offset - file.first_of(group)])
        return found

    def runs(self, prefix: bytes, start: int, end: int) -> Iterator[range]:
        """The runs of events in [start, end) under a name of the index. Raises ArchiveError."""
        for manifest in self.segments(start, end):
            for run in self._index(manifest).runs(prefix):
                if run.start < end and run.stop > start:
                    yield range(max(run.start, start), min(run.stop, end))

    def newest(self, prefixes: set[bytes], end: int) -> dict[bytes, int]:
        """The newest archived event before `end` under each name; names without one are left out. Raises
        ArchiveError."""
        found: dict[bytes, int] = {}
        for manifest in reversed(self.segments(0, min(end, self._log.start_offset))):
            if len(found) == len(prefixes):
                break
            for key, runs in self._index(manifest).each():
                if key in prefixes and key not in found:
                    before = [min(run.stop, end) - 1 for run in runs if run.start < end]
                    found |= {key: before[-1]} if before else {}
        return found

    def names(self, kind: bytes, after: bytes) -> Iterator[bytes]:
        """The names of one kind in the index, in order, after a given one. Raises ArchiveError."""
        indexes = (self._index(manifest) for manifest in self.segments(0, self._log.start_offset))
        return (key for key, _ in groupby(merge(*(index.names(kind, after) for index in indexes))))

    def segments(self, start: int, end: int) -> Sequence[Manifest]:
        """The segments that hold the events in [start, end). Raises ArchiveError if they are unknown."""
        if start >= end:
            return ()
        known, starts = self._known
        if not known or known[-1].end < end:
            known = (*known, *manifests_of(self._log, known[-1].end if known else 0))
            starts = [one.start for one in known]
            self._known = known, starts
        if not known or known[-1].end < end:
            raise ArchiveError(f"the log does not say where its events {start} to {end - 1} are archived")
        first = bisect_right(starts, start) - 1
        return known[first : bisect_right(starts, end - 1)]

    def content(self, manifest: Manifest) -> bytes:
        """The Parquet file of a segment, as archived. Raises ArchiveError."""
        return self._fetched(manifest.events_name, manifest.events)

    def requests(self, end: int) -> Iterator[tuple[Manifest, Snapshot]]:
        """The requests that began in segments before an offset, newest first: state keys as the log had them. Raises
        ArchiveError."""
        for manifest in reversed(self.segments(0, min(end, archive_status(self._log).forgotten))):
            stored = requests_of(self._log, manifest)
            if stored is not None:
                name = manifest.requests_name(stored)
                yield manifest, self._opened(name, stored)

    def runs_of(self, manifest: Manifest) -> list[tuple[bytes, range]]:
        """The whole index of a segment: each name's key with its runs. Raises ArchiveError."""
        return [(name, run) for name, runs in self._index(manifest).each() for run in runs]

    def _file(self, manifest: Manifest) -> SegmentFile:
        return _files.get((self._owner, manifest.start), lambda: SegmentFile(manifest, self.content(manifest)))

    def _group(self, file: SegmentFile, group: int) -> list[bytes]:
        return _groups.get((self._owner, (file.manifest.start, group)), lambda: file.values(group))

    def _index(self, manifest: Manifest) -> SegmentIndex:
        return SegmentIndex(self._opened(manifest.index_name, manifest.index), manifest.start)

    def _opened(self, name: str, stored: Stored) -> Snapshot:
        return _indexes.get((self._owner, name), lambda: self._open(name, stored))

    def _open(self, name: str, stored: Stored) -> Snapshot:
        content = self._fetched(name, stored)
        with NamedTemporaryFile(prefix="topicwright-archive-") as file:  # stays readable as long as it is open
            file.write(content)
            file.flush()
            try:
                return Snapshot(Path(file.name))
            except SnapshotDamaged as error:
                raise ArchiveDamaged(str(error)) from None

    def _fetched(self, name: str, stored: Stored) -> bytes:
        url = archive_status(self._log).url
        if self._store is None or self._store.url != url:
            self._store = open_store(url)
        content = read_stored(self._store, name, stored)
        self.fetched += 1
        count = visits.get()
        if count is not None:
            count.count += 1
        return content


class _LruCache(Generic[_K, _V]):
    """An LRU cache by owner, with one bound over all owners; no lock is held while a value is made."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[object, _K], _V] = OrderedDict()

    def get(self, key: tuple[object, _K], make: Callable[[], _V]) -> _V:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        made = make()
        with self._lock:
            entry = self._entries.setdefault(key, made)
            self._entries.move_to_end(key)
            while len(self._entries) > self._limit:
                self._entries.popitem(last=False)
        return entry

    def drop_owner(self, owner: object) -> None:
        with self._lock:
            for key in [key for key in self._entries if key[0] is owner]:
                del self._entries[key]


_files: _LruCache[int, SegmentFile] = _LruCache(FILES_KEPT)
_groups: _LruCache[tuple[int, int], list[bytes]] = _LruCache(GROUPS_KEPT)
_indexes: _LruCache[str, Snapshot] = _LruCache(INDEXES_KEPT)
