"""The metadata log of one voter (the `QuorumLog` of `quorum.raft`), in files that Kafka's controllers can continue.

    OFFSET.log                      a segment: the batches from that offset on (see `log_files`)
    OFFSET-EPOCH.checkpoint         a snapshot of all records below the offset (see `log_files`)
    quorum-state                    epoch, leader and vote (see `folder`)
    flushed-offset                  the end of the flushed records, as last recorded; Kafka ignores this file

Durability. Flushed records must never be lost silently; unflushed ones may be. Opening the log truncates an incomplete
batch at or after `flushed-offset`. Damage below that offset raises LogCorrupted: the voter must not vote as if it still
had those records. So does damage in any segment but the last, because a segment is flushed before the next one begins.
`flushed-offset` is written without fsync. After a power cut it may be too low, but never too high.

Disk failures raise OSError. A failed append is truncated, and the log stays usable. After a failed flush, Linux may
hold pages in memory that are not on disk. The log then rejects writes until `truncate(durable_end)` succeeds.

Retention. The two newest snapshots are retained. Batches below the older one are retained while log and snapshots
together fit into the retention size, so that a follower that was offline can continue without a snapshot. Beyond that
size the oldest segments are deleted. A snapshot written here starts a new segment if the current one is large enough.
"""

import errno
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.quorum.folder import QUORUM_STATE, read_quorum_state, refuse_the_last_epoch, write_quorum_state
from controller.quorum.log.batches import RecordBatch, decode_batches, scan_batches
from controller.quorum.log_files import Epochs, FilePart, Segment, SnapshotFiles, batches_of, in_order
from controller.quorum.raft.log import EpochEnd, QuorumState, SnapshotId
from events.errors import UserError
from events.files import sync_folder

SEGMENT: Final = re.compile(r"(\d{20})\.log")
SEGMENT_BYTES: Final = 1 << 30
"""Kafka's default of metadata.log.segment.bytes."""
SNAPSHOTS_RETAINED: Final = 2
RETENTION_BYTES: Final = 100 << 20
"""Kafka's default of metadata.max.retention.bytes."""
_PARTS: Final = 16
"""A snapshot starts a new segment if the current one has at least 1/16 of the retention size."""
_FLUSHED: Final = "flushed-offset"
_EPOCH_FILE: Final = "leader-epoch-checkpoint"
_DERIVED: Final = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot", "*.deleted", _EPOCH_FILE)
"""Files that Kafka derives from the log, and rebuilds if missing. Deleted here, because appends make them stale."""


class LogCorrupted(UserError):
    """Flushed batches are damaged. The message names the file and the position."""


class QuorumFiles(SnapshotFiles):
    """A `raft.log.QuorumLog` in a folder. `QuorumLog` documents the methods that have no docstring here. Methods must
    be called in one thread unless a docstring allows another. Writing raises OSError."""

    def __init__(
        self, partition: Path, segment_bytes: int = SEGMENT_BYTES, retention_bytes: int = RETENTION_BYTES
    ) -> None:
        """Open the log in a folder that this process has locked. Raises LogCorrupted, FolderError and OSError."""
        super().__init__(partition)
        self._segment_bytes, self._retention_bytes = segment_bytes, retention_bytes
        self._syncing = threading.Lock()
        self._failed = False
        written_by_kafka = (partition / _EPOCH_FILE).exists()
        for pattern in _DERIVED:
            for path in partition.glob(pattern):
                path.unlink()
        self.state = read_quorum_state(partition / QUORUM_STATE)
        self._epochs = Epochs()
        self._flushed_file = os.open(partition / _FLUSHED, os.O_RDWR | os.O_CREAT, 0o600)
        self._segments: list[Segment] = []
        stored = os.pread(self._flushed_file, 32, 0)
        self._load(int(stored) if stored.strip().isdigit() and not written_by_kafka else 0)

    def _load(self, flushed: int) -> None:
        bases = sorted(int(match[1]) for each in self._partition.iterdir() if (match := SEGMENT.fullmatch(each.name)))
        newest = self.snapshot
        if not bases:
            self._replace_log(newest.end_offset if newest else 0)
        for base in bases:
            if self._segments and base != self.end:
                raise LogCorrupted(f"{self._partition}: offsets {self.end} to {base} are missing")
            segment = Segment(self._partition, base)
            self._segments.append(segment)
            broken = segment.load(self._epochs.add, self._epochs.last or 0)
            if (broken is not None and base != bases[-1]) or (base == bases[-1] and segment.end < flushed):
                why = broken or f"{segment.path}, byte {segment.size}: offsets {segment.end} to {flushed} are missing"
                raise LogCorrupted(
                    f"{why}: flushed data is damaged; remove this voter, and let it join again with an empty folder"
                )
        covered = (newest.epoch, newest.end_offset) if newest else (0, 0)
        if covered > (self._epochs.last or 0, self.end):
            self._replace_log(covered[1])  # a crash after fetching the snapshot, before the log was replaced
        elif self._segments[0].base > covered[1]:
            raise LogCorrupted(
                f"{self._partition} begins at offset {self._segments[0].base}, and has no snapshot of earlier records"
            )
        self._segments[-1].truncate(self.end)
        self._record_flushed(self.end)
        self._clean()
        refuse_the_last_epoch(self._partition, self.state.epoch, self.last_epoch)

    # --- reading

    @property
    def end(self) -> int:
        return self._segments[-1].end

    @property
    def last_epoch(self) -> int:
        if self._epochs.last is not None:
            return self._epochs.last
        return self.snapshot.epoch if self.snapshot else 0

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        found = self._epochs.floor(epoch)
        if found is not None:
            return EpochEnd(*found)
        return EpochEnd(self.last_epoch, self.end) if epoch >= self.last_epoch else EpochEnd(epoch, self.start)

    def mismatch(self, offset: int, epoch: int) -> EpochEnd | SnapshotId | None:
        if (self.start, offset, epoch) == (0, 0, 0):
            return None
        if self.start > 0:
            # Kafka also sends a snapshot if the epoch is older than its oldest snapshot's and the log has the offset.
            before = next((each.epoch for each in self._snapshots if each.end_offset == self.start), None)
            is_old = epoch < (self._epochs.first if before is None else before)
            if offset < self.start or is_old or (offset == self.start and epoch != before):
                return self._snapshots[-1]
        found = self.end_of_epoch(epoch)
        return None if found.epoch == epoch and offset <= found.offset else found

    def read(self, offset: int, max_bytes: int) -> bytes:
        if not self.start <= offset < self.end:
            return b""
        return self._segment_of(offset).read(offset, max_bytes)

    def batches(self, start: int = 0) -> Iterator[RecordBatch]:
        """The batches from the one with `start`, or from `self.start` if that is later."""
        return batches_of(self.parts(max(start, self.start), self.end))

    def control_batches(self) -> Iterator[RecordBatch]:
        return map(self._batch, tuple(self._epochs.control))

    def beginning(self, epoch: int) -> RecordBatch | None:
        """The control batch at the start of an epoch, which names its leader; None if the log does not have it."""
        offset = self._epochs.start_of(epoch)
        return self._batch(offset) if offset in self._epochs.control else None

    def _batch(self, offset: int) -> RecordBatch:
        return next(decode_batches(self.read(offset, 0), str(self._segment_of(offset).path)))

    # --- writing

    def persist(self, state: QuorumState) -> None:
        if state != self.state:
            write_quorum_state(self._partition / QUORUM_STATE, state)
            self.state = state

    def append(self, data: bytes) -> Sequence[RecordBatch]:
        where = f"the append at offset {self.end}"
        heads = list(in_order(scan_batches(data, where), where, self.end, self.last_epoch))
        batches = tuple(decode_batches(data, where))
        if not batches:
            return ()
        self._refuse_after_failure()
        if self._segments[-1].size and self._segments[-1].size + len(data) > self._segment_bytes:
            self._roll()
        try:
            self._segments[-1].append(data, heads)
        except OSError:
            self._failed = os.stat(self._segments[-1].path).st_size != self._segments[-1].size
            raise
        for head in heads:
            self._epochs.add(head)
        return batches

    def flush(self) -> int:
        with self._syncing:
            self._refuse_after_failure()
            segment = self._segments[-1]
            end = segment.end  # read before the sync: batches appended during it may not be on disk
            self._sync(segment)
            with suppress(OSError):  # too low an offset is safe
                self._record_flushed(end)
            self.durable_end = end
            return end

    def truncate(self, offset: int) -> int:
        assert self.start <= offset, f"truncated to {offset}, below the log's start {self.start}"
        with self._syncing:
            self._failed = True  # until the truncation is complete
            self._record_flushed(min(self.durable_end, offset), durably=True)
            while len(self._segments) > 1 and self._segments[-1].base >= offset:
                self._segments.pop().remove()
                sync_folder(self._partition)
            self._segments[-1].truncate(offset)
            self._record_flushed(self.end, durably=True)
            self._epochs.truncate(self.end)
            self._failed = False
        return self.end

    def close(self) -> None:
        """Close the files; unflushed batches may be lost."""
        self._drop_download()
        with self._syncing:
            for segment in self._segments:
                segment.close()
            os.close(self._flushed_file)

    # --- snapshots

    def finish_snapshot(self) -> None:
        snapshot = self._finish_download()
        with self._syncing:
            self._replace_log(snapshot.end_offset)
            self._record_flushed(snapshot.end_offset)
        self._clean()

    def since_snapshot(self, end: int) -> Sequence[FilePart]:
        """The parts of files with the batches from the newest snapshot's end up to `end`. The files remain until the
        log starts again after a fetched snapshot."""
        return self.parts(self.snapshot.end_offset if self.snapshot else 0, end)

    def parts(self, start: int, end: int) -> Sequence[FilePart]:
        """The parts of files with the batches from `start` up to `end`, for reading in a thread. Retention may delete
        the files meanwhile."""
        return tuple(
            FilePart(each.path, each.position(max(start, each.base)), each.position(end))
            for each in self._segments
            if each.end > start and each.base < end
        )

    def keep_snapshot(self, snapshot: SnapshotId) -> bool:
        """As in `SnapshotFiles`, and apply retention."""
        if not super().keep_snapshot(snapshot):
            return False
        assert snapshot.end_offset <= self.durable_end, "a snapshot has committed records only"
        if self._segments[-1].size and self._segments[-1].size >= self._retention_bytes // _PARTS:
            self._roll()
        self._clean()
        return True

    # --- internal

    def _replace_log(self, start: int) -> None:
        """Replace the log by an empty one at offset `start`, the end of the newest snapshot."""
        self._record_flushed(0, durably=True)
        while self._segments:
            self._segments.pop().remove()
            sync_folder(self._partition)
        self._epochs = Epochs()
        self._retain_snapshots(1)
        self._segments.append(Segment(self._partition, start, new=True))
        sync_folder(self._partition)

    def _clean(self) -> None:
        self._retain_snapshots(SNAPSHOTS_RETAINED)
        known = self._snapshots
        deletable_below = known[0].end_offset if len(known) >= SNAPSHOTS_RETAINED else 0
        surplus = sum(each.size for each in self._segments) - self._retention_bytes
        surplus += sum(self._path(each).stat().st_size for each in known)
        while surplus > 0 and len(self._segments) > 1 and self._segments[0].end <= deletable_below:
            surplus -= self._segments[0].size
            self._segments.pop(0).remove()
        self.start = max(self._segments[0].base, deletable_below if surplus > 0 else 0)
        sync_folder(self._partition)
        self._epochs.begin(self.start)

    def _roll(self) -> None:
        """Flush the current segment, then begin a new one: only the last segment can end with an incomplete batch."""
        with self._syncing:
            segment = self._segments[-1]
            self._sync(segment)
            self._record_flushed(segment.end)
            self._segments.append(Segment(self._partition, segment.end, new=True))
            sync_folder(self._partition)

    def _sync(self, segment: Segment) -> None:
        try:
            segment.sync()
        except OSError:
            self._failed = True
            raise

    def _refuse_after_failure(self) -> None:
        if self._failed:
            raise OSError(errno.EIO, f"a flush has failed: truncate to {self.durable_end} first", str(self._partition))

    def _record_flushed(self, end: int, *, durably: bool = False) -> None:
        os.pwrite(self._flushed_file, b"%020d\n" % end, 0)
        if durably:
            os.fdatasync(self._flushed_file)
        self.durable_end = end

    def _segment_of(self, offset: int) -> Segment:
        return next(each for each in reversed(self._segments) if each.base <= offset or each is self._segments[0])
