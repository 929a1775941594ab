"""Reads archived events and their index for `WholeLog`, which reads newer events from RocksDB itself.

Method. The log records the segments and the hash of each (`segments_of`). An object with another hash is rejected. A
segment file is fetched whole, or only its footer, which has the index. Files and row groups are cached in memory,
indexes in open files. All logs of the process share these caches. Any thread may read, and no thread waits for another:
two threads that need the same object may both fetch it.

Non-goal: retries. An unavailable store raises ArchiveAway, which names it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import Final

from events.logs.archive.manifest import Segment, Stored, archive_status, read_stored, segments_of
from events.logs.archive.segment import SegmentFile, SegmentIndex
from events.logs.archive.store import ArchiveError, ArchiveStore, fetched, open_store
from events.logs.log import StateKeys

FILES_KEPT: Final = 8
"""Segment files to cache, some megabytes each."""
GROUPS_KEPT: Final = 32
"""Row groups to cache: of 8,192 events, about a megabyte each."""
INDEXES_KEPT: Final = 256
"""Segment indexes to cache: open files of some hundred kilobytes."""
_start = attrgetter("start")


class Archive:
    """The archived events of `log`, from the store that its archive status names."""

    def __init__(self, log: StateKeys) -> None:
        self._log = log
        self._store: ArchiveStore | None = None
        self._known: tuple[Segment, ...] = ()
        """The known segments, replaced in one step because any thread may read them."""

    def read(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The archived events in [start, end). Raises ArchiveError."""
        for segment in self.segments(start, end):
            file = self._file(segment)
            for group in file.groups(start, end):
                first = file.firsts[group]
                low = max(start - first, 0)
                yield from enumerate(self._group(segment, group)[low : end - first], first + low)

    def runs(self, prefix: bytes, start: int, end: int) -> Iterator[range]:
        """The ranges of consecutive offsets (runs) in [start, end) whose events have an index key, such as a shard key.
        Raises ArchiveError."""
        for segment in self.segments(start, end):
            for run in self.index(segment).runs(prefix):
                if run.start < end and run.stop > start:
                    yield range(max(run.start, start), min(run.stop, end))

    def names(self, kind: bytes, after: bytes, end: int) -> Iterator[bytes]:
        """The index keys of one kind, in order, that are greater than `after`, of events below `end`. Raises
        ArchiveError."""
        indexes = (self.index(segment) for segment in self.segments(0, end))
        return (key for key, _ in groupby(merge(*(index.names(kind, after) for index in indexes))))

    def segments(self, start: int, end: int) -> Sequence[Segment]:
        """The segments that hold the events in [start, end). Raises ArchiveError if they are unknown."""
        if start >= end:
            return ()
        known = self._known
        if not known or known[-1].end < end:
            known = self._known = (*known, *segments_of(self._log, known[-1].end if known else 0))
        if not known or known[-1].end < end:
            raise ArchiveError(f"the log does not record where its events {start} to {end - 1} are archived")
        first = bisect_right(known, start, key=_start) - 1
        return known[first : bisect_right(known, end - 1, key=_start)]

    def content(self, segment: Segment) -> bytes:
        """The file of a segment, as archived. Raises ArchiveError."""
        return self._fetched(segment.name, segment.events)

    def requests(self, end: int) -> Iterator[tuple[int, SegmentIndex]]:
        """The index and the start offset of each segment that begins before `end`, newest first. An index has the state
        keys of the requests that began in its segment. Raises ArchiveError."""
        for segment in reversed(self.segments(0, end)):
            yield segment.start, self.index(segment)

    @lru_cache(INDEXES_KEPT)  # noqa: B019 - few, and shared by all logs
    def index(self, segment: Segment) -> SegmentIndex:
        """The index of a segment. Raises ArchiveError."""
        footer = self._fetched(segment.name, segment.footer, segment.events.size - segment.footer.size)
        return SegmentIndex(segment, footer)

    @lru_cache(FILES_KEPT)  # noqa: B019
    def _file(self, segment: Segment) -> SegmentFile:
        return SegmentFile(segment, self.content(segment))

    @lru_cache(GROUPS_KEPT)  # noqa: B019
    def _group(self, segment: Segment, group: int) -> list[bytes]:
        return self._file(segment).values(group)

    def _fetched(self, name: str, stored: Stored, start: int = 0) -> bytes:
        url = archive_status(self._log).url
        if self._store is None or self._store.url != url:
            self._store = open_store(url)
        content = read_stored(self._store, name, stored, start)
        if (names := fetched.get()) is not None:
            names.append(name)
        return content
