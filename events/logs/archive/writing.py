"""Archiving a log: one complete segment after another, each once.

Method. `step` archives the next segment in a thread of its own. It reads the events, makes columns, and compares the
root with the log's own Merkle tree. Then it writes the objects, and last the manifest, which adds the segment to the
archive. The thread that writes the log records the manifest afterwards (`manifest_changes`). After a crash anywhere,
the next start adopts manifests that the log does not know, if their trees match the log's.

Two services that archive to one place are detected: each registers as the writer at its start, and checks before each
manifest that it still is. The later one goes on. Both write a segment of the same history identically; the tree detects
another history.

Non-goals: writing to the log, waiting, retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from events.logs.archive.manifest import (
    ABOUT,
    SEGMENT,
    WRITER,
    ArchiveDamaged,
    ArchiveForeign,
    ArchiveInfo,
    Manifest,
    Writer,
    archive_status,
    find_manifest,
    history_of,
    read_archive_info,
    read_manifest,
    read_object,
    starts_in,
    write_object,
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
        store: ArchiveStore,
        writer: Writer,
        columns: Callable[[], ColumnMaker],
        root: Root,
        rest: Callable[[], None],
        known: Callable[[], list[Manifest]] = list,
        segment_events: int = SEGMENT,
    ) -> None:
        """`known` are the manifests in the log; `segment_events` is a power of two; `rest` is called between pieces of
        work, and may raise to stop."""
        assert segment_events.bit_count() == 1, "a segment is a subtree"
        self._log, self._store, self._writer = log, store, writer
        self._columns, self._root, self._rest = columns, root, rest
        self._known, self._segment = known, segment_events
        self._about: ArchiveInfo | None = None
        self._found: Iterator[int] = iter(())
        self.next_offset = 0
        self.is_new_archive = False
        """True if the log has archived before, to another place or to one that was emptied. The log must forget those
        segments."""

    def read_again(self) -> None:
        """Read the archive again before the next step, because it no longer matches what the log recorded."""
        self._about = None

    def step(self, end: int | None = None) -> Manifest | None:
        """Archive the next segment, or adopt an existing one; None if none is complete. `end` allows a shorter last
        segment.

        Raises ArchiveError, LogError; after that, the next step reads the archive again.
        """
        if not self._log.durable_offset:
            return None  # the first event says which history it is
        if self._about is None:
            self._begin()
        about = self._about
        assert about is not None, "it was begun"
        try:
            return self._step(about, end)
        except BaseException:
            self.read_again()
            raise

    def _step(self, about: ArchiveInfo, end: int | None) -> Manifest | None:
        start = next(self._found, None)
        if start is not None:
            return self._adopted(about, start)
        stop = (self.next_offset // self._segment + 1) * self._segment
        if end is not None:
            stop = min(stop, end)
        if stop > self._log.durable_offset or stop <= self.next_offset:
            return None
        root = self._root(self.next_offset, stop)
        if root is None:
            return None
        packed = pack_segment(self._log.read(self.next_offset, stop), about, self._columns(), self._rest)
        if packed.manifest.tree != root.hex():
            raise LogCorrupted(
                f"the log is damaged: events {self.next_offset} to {stop - 1} are not those that its tree was made "
                "over, and are not archived; restore it from a copy, and see `topicwright verify`"
            )
        self._store.write(packed.manifest.events_name, packed.events)
        self._store.write(packed.manifest.index_name, packed.names)
        self._check_writer()
        write_object(self._store, packed.manifest.name, packed.manifest)
        self.next_offset = stop
        return packed.manifest

    def _begin(self) -> None:
        """Read which log the archive belongs to and where it ends, and register as its writer."""
        log, store = self._log, self._store
        about = ArchiveInfo(cluster_id=log.cluster_id, history=history_of(log))
        found = read_archive_info(store)
        if found is not None:
            _check_about(store, found, about)
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
        if found is None:
            write_object(store, ABOUT, about)
        write_object(store, WRITER, self._writer)
        starts = starts_in(store) if found is not None else []
        self._check_known(starts, known)
        self.next_offset = known[-1].end if known else 0
        self._found = iter([start for start in starts if start >= self.next_offset])
        self._about = about

    def _check_known(self, starts: list[int], known: list[Manifest]) -> None:
        missing = {one.start for one in known} - set(starts)
        if missing:
            raise ArchiveDamaged(
                f"{self._store.url} lacks the segment from offset {min(missing)} on, which was archived: restore it "
                "from a copy of the archive"
            )
        if known and read_manifest(self._store, known[-1].start) != known[-1]:
            raise ArchiveDamaged(
                f"{self._store.url}: the manifest of the segment from offset {known[-1].start} on was changed: restore "
                "it from a copy of the archive"
            )

    def _adopted(self, about: ArchiveInfo, start: int) -> Manifest:
        manifest = read_manifest(self._store, start)
        if start != self.next_offset:
            raise ArchiveDamaged(f"{self._store.url} lacks the segment from offset {self.next_offset} on")
        root = self._root(start, manifest.end) if manifest.end <= self._log.durable_offset else None
        _check_same(self._store, about, manifest, root)
        self.next_offset = manifest.end
        return manifest

    def _check_writer(self) -> None:
        now = read_object(self._store, WRITER, Writer)
        if now is not None and now.boot != self._writer.boot:
            raise ArchiveForeign(
                f"another service archives to {self._store.url}: {now.where}; give each a place of its own, and "
                "restart the one that is to go on there"
            )


class ArchiveFollower:
    """Adopts the segments that another process archives of the same log, as a gateway does with its worker's. Writes
    nothing there."""

    def __init__(self, log: EventLog, store: ArchiveStore, root: Root, known: Callable[[], list[Manifest]]) -> None:
        """`known` are the manifests in the log."""
        self._log, self._store, self._root, self._known = log, store, root, known
        self._about: ArchiveInfo | None = None
        self._next = 0
        self.is_new_archive = False

    def read_again(self) -> None:
        self._about = None

    def step(self) -> Manifest | None:
        """Adopt the next segment after the worker has written its requests; None until then.

        Raises ArchiveError, LogError; ArchiveForeign if its events differ from the log's.
        """
        log, store = self._log, self._store
        if self._about is None:
            found, own = read_archive_info(store), ArchiveInfo(cluster_id=log.cluster_id, history=history_of(log))
            self.is_new_archive = not log.start_offset and archive_status(log).url != store.url
            if found is None:
                return None
            _check_about(store, found, own)
            known = [] if self.is_new_archive else self._known()
            self._about, self._next = found, known[-1].end if known else 0
        manifest = find_manifest(store, self._next)
        if manifest is None or manifest.end > log.durable_offset:
            return None
        root = self._root(manifest.start, manifest.end)
        if root is None or manifest.find_requests(store) is None:
            return None
        _check_same(store, self._about, manifest, root)
        self._next = manifest.end
        return manifest


def _check_same(store: ArchiveStore, about: ArchiveInfo, manifest: Manifest, root: bytes | None) -> None:
    """Raise ArchiveForeign if a segment does not have this root."""
    _check_about(store, ArchiveInfo(cluster_id=manifest.cluster_id, history=manifest.history), about)
    if root is None or root.hex() != manifest.tree:
        raise ArchiveForeign(
            f"{store.url} holds other events from offset {manifest.start} on than this log: it is the archive of "
            "another copy of it; give this one a place of its own"
        )


def _check_about(store: ArchiveStore, found: ArchiveInfo, own: ArchiveInfo) -> None:
    if found.cluster_id != own.cluster_id:
        raise ArchiveForeign(
            f"{store.url} is the archive of cluster {found.cluster_id}, not of {own.cluster_id}: name another place"
        )
    if found.history != own.history:
        raise ArchiveForeign(
            f"{store.url} is the archive of another history of cluster {own.cluster_id} ({found.history}; this log's "
            f"is {own.history}), as of a log that was recovered or recreated: name another place"
        )
