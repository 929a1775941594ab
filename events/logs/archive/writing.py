"""Archiving a log: one complete segment after another, each once.

Method. `step` archives the next segment in a thread of its own. It reads the events, makes columns, and compares the
root with the log's own Merkle tree. Then it writes the file, and last the manifest, which adds the segment to the
archive. The thread that writes the log records the segment afterwards (`segment_changes`). After a crash anywhere,
the next start adopts segments that the log does not know, if their trees match the log's.

Two services that archive to one place are detected: each registers as the writer at its start, and checks before each
change of the manifest that it still is. The later one goes on. Both write a segment of the same history identically;
the tree detects another history.

Non-goals: writing to the log, waiting, retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from msgspec.structs import replace

from events.logs.archive.manifest import (
    SEGMENT,
    ArchiveDamaged,
    ArchiveForeign,
    Manifest,
    ManifestWriter,
    Segment,
    archive_status,
    find_manifest,
    history_of,
)
from events.logs.archive.segment import ColumnMaker, pack_segment
from events.logs.archive.store import ArchiveStore
from events.logs.log import EventLog, LogCorrupted

Root = Callable[[int, int], bytes | None]
"""The root of the log's tree over the events of a segment alone; None if the tree is not that far yet."""


class Archiver:
    def __init__(
        self,
        log: EventLog,
        writer: ManifestWriter,
        columns: Callable[[], ColumnMaker],
        requests: Callable[[int, int], Mapping[bytes, bytes]],
        root: Root,
        rest: Callable[[], None],
        known: Callable[[], list[Segment]] = list,
        segment_events: int = SEGMENT,
    ) -> None:
        """`requests` returns the state keys of the requests that began in a range; `known` are the segments that the
        log records; `segment_events` is a power of two; `rest` is called between pieces of work, and may raise to
        stop."""
        assert segment_events.bit_count() == 1, "a segment is a subtree"
        self._log, self._writer = log, writer
        self._columns, self._requests, self._root, self._rest = columns, requests, root, rest
        self._known, self._segment = known, segment_events
        self._is_begun = False
        self._found: Iterator[Segment] = iter(())
        self.next_offset = 0
        self.is_new_archive = False
        """True if the log has archived before, to another place or to one that was emptied. The log must forget those
        segments."""

    def read_again(self) -> None:
        """Read the archive again before the next step, because it no longer matches what the log recorded."""
        self._is_begun = False

    def step(self, end: int | None = None) -> Segment | None:
        """Archive the next segment, or adopt an existing one; None if none is complete. `end` allows a shorter last
        segment.

        Raises ArchiveError, LogError; after that, the next step reads the archive again.
        """
        if not self._log.durable_offset:
            return None  # the first event says which history it is
        if not self._is_begun:
            self._begin()
        try:
            return self._step(end)
        except BaseException:
            self.read_again()
            raise

    def _step(self, end: int | None) -> Segment | None:
        found = next(self._found, None)
        if found is not None:
            _check_same(self._writer.store, self._log, found, self._root)
            self.next_offset = found.end
            return found
        stop = (self.next_offset // self._segment + 1) * self._segment
        if end is not None:
            stop = min(stop, end)
        if stop > self._log.durable_offset or stop <= self.next_offset:
            return None
        root = self._root(self.next_offset, stop)
        if root is None:
            return None
        values, requests = self._log.read(self.next_offset, stop), partial(self._requests, self.next_offset, stop)
        segment, content = pack_segment(values, self._log.cluster_id, self._columns(), requests, self._rest)
        if segment.tree != root.hex():
            raise LogCorrupted(
                f"the log is damaged: events {self.next_offset} to {stop - 1} are not those that its tree was made "
                "over, and are not archived; restore it from a copy, and see `topicwright verify`"
            )
        self._writer.store.write(segment.name, content)
        self._writer.change(self._adding(segment))
        self.next_offset = stop
        return segment

    def _adding(self, segment: Segment) -> Callable[[Manifest], Manifest]:
        def add(manifest: Manifest) -> Manifest:
            if manifest.end != segment.start:
                raise ArchiveDamaged(f"{self._writer.store.url} ends at {manifest.end} instead of {segment.start}")
            return replace(manifest, segments=(*manifest.segments, segment))

        return add

    def _begin(self) -> None:
        """Read which log the archive belongs to and where it ends, and register as its writer."""
        log, store, history = self._log, self._writer.store, history_of(self._log)
        found = find_manifest(store)
        if found is not None:
            _check_about(store, found, log.cluster_id, history)
        known = self._known()
        if found is None and known and log.start_offset:
            raise ArchiveForeign(
                f"{store.url} is empty, and the log's events below {log.start_offset} are in {archive_status(log).url} "
                "alone: copy all that is there first, or name that place again"
            )
        # The record of another archive may be lost in a power cut after this one has its first segments.
        is_another = found is None or archive_status(log).url != store.url
        self.is_new_archive = bool(known) and is_another and not log.start_offset
        if self.is_new_archive:
            known = []
        manifest = found or self._writer.begin(log.cluster_id, history)
        _check_known(store, manifest.segments[: len(known)], known)
        self._writer.register(manifest)
        self.next_offset = known[-1].end if known else 0
        self._found = iter(manifest.segments[len(known) :])
        self._is_begun = True


class ArchiveFollower:
    """Adopts the segments that another process archives of the same log, as a gateway does with its worker's. Writes
    nothing there."""

    def __init__(self, log: EventLog, store: ArchiveStore, root: Root, known: Callable[[], list[Segment]]) -> None:
        """`known` are the segments that the log records."""
        self._log, self._store, self._root, self._known = log, store, root, known
        self._next: int | None = None
        self.is_new_archive = False

    def read_again(self) -> None:
        self._next = None

    def step(self) -> Segment | None:
        """Adopt the next segment.

        Raises ArchiveError, LogError; ArchiveForeign if its events differ from the log's.
        """
        log, store = self._log, self._store
        manifest = find_manifest(store)
        if self._next is None:
            self.is_new_archive = not log.start_offset and archive_status(log).url != store.url
            known = [] if self.is_new_archive else self._known()
            self._next = known[-1].end if known else 0
        if manifest is None:
            return None
        _check_about(store, manifest, log.cluster_id, history_of(log))
        segment = next((one for one in manifest.segments if one.start == self._next), None)
        if segment is None or segment.end > log.durable_offset or self._root(segment.start, segment.end) is None:
            return None
        _check_same(store, log, segment, self._root)
        self._next = segment.end
        return segment


def _check_known(store: ArchiveStore, there: tuple[Segment, ...], known: list[Segment]) -> None:
    """Raise ArchiveDamaged if an archive lacks segments that the log records."""
    for one, found in zip(known, (*there, *[None] * (len(known) - len(there))), strict=True):
        if found is None:
            raise ArchiveDamaged(
                f"{store.url} lacks the segment from offset {one.start} on, which was archived: restore it from a copy "
                "of the archive"
            )
        if found != one:
            raise ArchiveDamaged(
                f"{store.url}: the manifest of the segment from offset {one.start} on was changed: restore it from a "
                "copy of the archive"
            )


def _check_same(store: ArchiveStore, log: EventLog, segment: Segment, root_over: Root) -> None:
    """Raise ArchiveForeign unless the log has the events of a segment."""
    root = root_over(segment.start, segment.end) if segment.end <= log.durable_offset else None
    if root is None or root.hex() != segment.tree:
        raise ArchiveForeign(
            f"{store.url} holds other events from offset {segment.start} on than this log: it is the archive of "
            "another copy of it; give this one a place of its own"
        )


def _check_about(store: ArchiveStore, found: Manifest, cluster_id: str, history: str) -> None:
    if found.cluster_id != cluster_id:
        raise ArchiveForeign(
            f"{store.url} is the archive of cluster {found.cluster_id}, not of {cluster_id}: name another place"
        )
    if found.history != history:
        raise ArchiveForeign(
            f"{store.url} is the archive of another history of cluster {cluster_id} ({found.history}; this log's is "
            f"{history}), as of a log that was recovered or recreated: name another place"
        )
