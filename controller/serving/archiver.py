"""Archives a log: one complete segment after another, each once, with the columns of an export. `archiving` calls it.

Method. `step` archives the next segment in a thread of its own. It reads the events, makes columns, and compares the
root with the log's own Merkle tree. Then it writes the file (`events.logs.archive.segment` describes it), and last the
manifest, which adds the segment to the archive. The thread that writes the log records the segment afterwards
(`segment_changes`). After a crash at any point, the next start adopts segments that the log has not recorded, if their
trees match the log's.

Two services that archive to one place are detected: each registers as the writer at its start, and checks before each
change of the manifest that it still is the writer. The later one continues. Services with the same history write
identical segments; the tree detects another history.

Non-goals: writing to the log, waiting, retries.
"""

from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from itertools import zip_longest
from typing import Final

import pyarrow as pa
from msgspec.structs import replace

from controller.store.request_index import requests_between
from controller.store.tree import range_root
from events.catalog import EVENT_VERSION
from events.codec import decode_event
from events.logs.archive import manifest as manifests
from events.logs.archive.parquet import GROUP, GROUP_BYTES, ParquetWriter, footer_of
from events.logs.archive.segment import CANONICAL, VALUE, IndexBuilder
from events.logs.archive.store import ArchiveStore
from events.logs.log import EventLog, LogCorrupted, grouped
from events.logs.merkle import PATH_LENGTH_MAX, Frontier
from events.logs.rocksdb_database import STATE
from events.logs.snapshots import snapshot_info, write_snapshot
from projections.replay.log.columns import COLUMNS, Columns

_BATCH: Final = 512
_BATCH_BYTES: Final = 2 << 20
"""The approximate size of a batch, which takes some milliseconds. `pause` is called after each batch."""


class Archiver:
    """Archives a log. Without a `writer` another process archives, such as the worker of a gateway: this process only
    adopts its segments, and writes nothing to the store."""

    def __init__(
        self,
        log: EventLog,
        store: ArchiveStore,
        writer: manifests.ManifestWriter | None,
        known: Callable[[], list[manifests.Segment]] = list,
        segment_events: int = manifests.SEGMENT,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """`known` returns the segments that the log records; `segment_events` is a power of two; `pause` is called
        between pieces of work, and may raise to stop."""
        self._log, self._store, self._writer, self._known = log, store, writer, known
        self._segment_events, self._pause = segment_events, pause
        self._is_begun = False
        self._found: Iterator[manifests.Segment] = iter(())
        self.next_offset = 0
        self.is_new_archive = False
        """True if the log has archived before, to another place or to one that was emptied. The log must forget those
        segments."""

    def read_again(self) -> None:
        """Read the archive again before the next step, because it no longer matches what the log recorded."""
        self._is_begun = False

    def step(self, end: int | None = None) -> manifests.Segment | None:
        """Archive the next segment, or adopt an existing one; None if no segment is complete. `end` allows a shorter
        last segment.

        Raises ArchiveError, LogError; ArchiveOfAnotherLog for a segment with other events than the log's. After that,
        the caller must call `read_again`.
        """
        if not self._log.durable_offset:
            return None  # the id of the history is a hash of the first event
        if not self._is_begun:
            self._begin()
        found = next(self._found, None)
        if self._writer is None:
            self.read_again()
        if found is not None:
            return self._adopted(found)
        return None if self._writer is None else self._packed(self._writer, end)

    def _adopted(self, segment: manifests.Segment) -> manifests.Segment | None:
        is_here = segment.end <= self._log.durable_offset
        if not is_here and self._writer is None:
            return None
        if not is_here or range_root(self._log, segment.start, segment.end).hex() != segment.tree:
            raise manifests.ArchiveOfAnotherLog(
                f"{self._store.url} holds other events from offset {segment.start} on than this log: it is the archive "
                "of another copy of it; give this one a place of its own"
            )
        self.next_offset = segment.end
        return segment

    def _packed(self, writer: manifests.ManifestWriter, end: int | None) -> manifests.Segment | None:
        start = self.next_offset
        stop = (start // self._segment_events + 1) * self._segment_events
        if end is not None:
            stop = min(stop, end)
        if stop > self._log.durable_offset or stop <= start:
            return None
        segment, content = self._segment(start, stop)
        if segment.tree != range_root(self._log, start, stop).hex():
            raise LogCorrupted(
                f"the log is damaged: events {start} to {stop - 1} are not those that its tree was made over, and are "
                "not archived; restore it from a copy, and see `topicwright verify`"
            )
        self._store.write(segment.name, content)
        writer.change(partial(_with_segment, self._store, segment))
        self.next_offset = stop
        return segment

    def _segment(self, start: int, stop: int) -> tuple[manifests.Segment, bytes]:
        """The segment of the events in [start, stop), and its file. Raises LogError, EventDecodeError."""
        log, columns, index, frontier = self._log, Columns(tuple(COLUMNS)), IndexBuilder(start), Frontier()
        schema, times, size = columns.schema.append(pa.field(CANONICAL, pa.binary())), list[int](), 0
        events = ((decode_event(offset, value), value) for offset, value in log.read(start, stop))

        def batches() -> Iterator[tuple[pa.RecordBatch, int]]:
            """The columns of some events at once, with the size of these events."""
            for batch in grouped(events, _BATCH_BYTES, lambda pair: len(pair[1]), _BATCH):
                for record, value in batch:
                    index.add(record)
                    columns.add(record, value)
                times.extend((batch[0][0].at_ms, batch[-1][0].at_ms))
                values = [value for _, value in batch]
                frontier.extend(values, PATH_LENGTH_MAX)
                made = columns.batch()
                shown = made.column(VALUE).to_pylist()
                canonical = [None if value == one else value for one, value in zip(shown, values, strict=True)]
                arrays = [*made.columns, pa.array(canonical, pa.binary())]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema), sum(map(len, values))
                self._pause()

        writer, footer = ParquetWriter(schema, plain=(VALUE, CANONICAL)), BytesIO()
        for group in grouped(batches(), GROUP_BYTES, lambda one: one[1], GROUP // _BATCH):
            writer.write_group(pa.Table.from_batches([batch for batch, _ in group]))
            size += sum(batch_bytes for _, batch_bytes in group)
        requests = {STATE + key: value for key, value in requests_between(log, start, stop).items()}
        write_snapshot(footer, snapshot_info(log, stop), sorted((index.pairs() | requests).items()))
        content = writer.done(footer.getvalue())
        segment = manifests.Segment(
            start=start,
            end=stop,
            first_ms=times[0],
            last_ms=times[-1],
            event_version=EVENT_VERSION,
            event_bytes=size,
            tree=frontier.root().hex(),
            events=manifests.Stored.of(content),
            footer=manifests.Stored.of(footer_of(content)),
        )
        return segment, content

    def _begin(self) -> None:
        """Read which log the archive belongs to and where it ends, and register as its writer."""
        log, store, history = self._log, self._store, manifests.history_of(self._log)
        manifest = manifests.find_manifest(store)
        if manifest is not None:
            _check_about(store, manifest, log.cluster_id, history)
        known = self._known()
        if manifest is None and known and log.start_offset:
            raise manifests.ArchiveOfAnotherLog(
                f"{store.url} is empty, and the log's events below {log.start_offset} are in "
                f"{manifests.archive_status(log).url} alone: copy all that is there first, or name that place again"
            )
        # The record of another archive may be lost in a power cut after this one has its first segments.
        is_another = manifest is None or manifests.archive_status(log).url != store.url
        self.is_new_archive = bool(known) and is_another and not log.start_offset
        if self.is_new_archive:
            known = []
        segments = () if manifest is None else manifest.segments
        _check_known(store, segments[: len(known)], known)
        if self._writer is not None:
            new = manifests.Manifest(cluster_id=log.cluster_id, history=history, writer=self._writer.writer)
            self._writer.register(manifest or new)
        self.next_offset = known[-1].end if known else 0
        self._found = iter(segments[len(known) :])
        self._is_begun = True


def _with_segment(store: ArchiveStore, segment: manifests.Segment, manifest: manifests.Manifest) -> manifests.Manifest:
    if manifest.end != segment.start:
        raise manifests.ArchiveDamaged(
            f"{store.url}: the manifest ends at offset {manifest.end}, but the next segment starts at {segment.start}: "
            "it was changed; restore it from a copy of the archive"
        )
    return replace(manifest, segments=(*manifest.segments, segment))


def _check_known(store: ArchiveStore, there: tuple[manifests.Segment, ...], known: list[manifests.Segment]) -> None:
    """Raise ArchiveDamaged if an archive lacks segments that the log records."""
    for one, found in zip_longest(known, there):
        if found != one:
            which = f"the segment from offset {one.start} on"
            why = f" lacks {which}, which was archived" if found is None else f": the manifest of {which} was changed"
            raise manifests.ArchiveDamaged(f"{store.url}{why}: restore it from a copy of the archive")


def _check_about(store: ArchiveStore, found: manifests.Manifest, cluster_id: str, history: str) -> None:
    if found.cluster_id != cluster_id:
        raise manifests.ArchiveOfAnotherLog(
            f"{store.url} is the archive of cluster {found.cluster_id}, not of {cluster_id}: name another place"
        )
    if found.history != history:
        raise manifests.ArchiveOfAnotherLog(
            f"{store.url} is the archive of another history of cluster {cluster_id}: {found.history}; this log's is "
            f"{history}. A recovered or recreated log begins a new history: set another log.archive.url"
        )
