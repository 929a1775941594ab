"""A voter's copy of the metadata log, in files that Kafka's own controllers and tools read, and lead on from.

    OFFSET.log                      a segment: batches from that offset on (see `segment`)
    OFFSET-EPOCH.checkpoint         a snapshot of all below the offset (see `snapshot_files`)
    quorum-state                    epoch, leader and vote (see `folder`)
    flushed-offset                  up to where the log was flushed when that was noted last; Kafka looks over it

Constraints. What was flushed is never lost without a word, what was not may be. So what is not whole is cut off at a
start from `flushed-offset` on; before that, or in a segment that is not the last one (which is flushed before the next
begins), it is LogCorrupted, and the voter must not vote as if it had it still. The note is written without waiting for
the disk: after a power cut it may be older, never newer than what is there.

Failures of the disk are OSError. An append that fails is cut off again, and the log goes on. After a failed flush Linux
may hold in memory what is on no disk, so nothing is taken any more until `truncate(durable_end)` has gone well.

Two snapshots are kept. The log goes back beyond the older one as long as both together take no more than they may, so
that who was away finds its place; then segments go, the oldest first. One begins with a snapshot of our own, once the
one before is large enough to count.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.brokers.kraft.log.batches import BatchHead, RecordBatch, decode_batches, scan_batches
from controller.brokers.kraft.quorum.epochs import Epochs
from controller.brokers.kraft.quorum.folder import (
    QUORUM_STATE,
    read_quorum_state,
    refuse_the_last_epoch,
    sync_folder,
    write_quorum_state,
)
from controller.brokers.kraft.quorum.raft.log import (
    Diverging,
    EpochEnd,
    NeedsSnapshot,
    QuorumState,
    SnapshotId,
    Valid,
)
from controller.brokers.kraft.quorum.segment import FilePart, Segment, in_order
from controller.brokers.kraft.quorum.snapshot_files import SnapshotFiles

SEGMENT: Final = re.compile(r"(\d{20})\.log")
SEGMENT_BYTES: Final = 1 << 30
"""Kafka's default of metadata.log.segment.bytes."""
SNAPSHOTS_KEPT: Final = 2
RETENTION_BYTES: Final = 100 << 20
"""Kafka's default of metadata.max.retention.bytes."""
_PARTS: Final = 16
"""Of what is kept, so large are the segments that go one by one."""
_FLUSHED: Final = "flushed-offset"
_EPOCH_FILE: Final = "leader-epoch-checkpoint"
_DERIVED: Final = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot", "*.deleted", _EPOCH_FILE)
"""What Kafka makes of the log, and makes again where it is missing; it would be wrong once this log has gone on."""
_READ_BYTES: Final = 1 << 20


class LogCorrupted(Exception):
    """Batches are damaged that were on the disk once. The message names the file and the place."""


class QuorumFiles:
    """The log of one voter (`raft.log.QuorumLog`). All belongs to one thread, but `flush`, which may run beside it."""

    def __init__(
        self, partition: Path, segment_bytes: int = SEGMENT_BYTES, retention_bytes: int = RETENTION_BYTES
    ) -> None:
        """Open the log in a folder that is this process's own. Raises LogCorrupted, FolderError and OSError."""
        self._partition = partition
        self._segment_bytes, self._retention_bytes = segment_bytes, retention_bytes
        self._syncing = threading.Lock()
        self._failed = False
        kafka_was_here = (partition / _EPOCH_FILE).exists()
        for pattern in _DERIVED:
            for path in partition.glob(pattern):
                path.unlink()
        self._state = read_quorum_state(partition / QUORUM_STATE)
        self._snapshots = SnapshotFiles(partition)
        self._epochs = Epochs()
        self._control: list[int] = []
        self._note_file = os.open(partition / _FLUSHED, os.O_RDWR | os.O_CREAT, 0o600)
        self._segments: list[Segment] = []
        self._load(0 if kafka_was_here else _flushed(os.pread(self._note_file, 32, 0)))

    def _load(self, flushed: int) -> None:
        bases = sorted(int(match[1]) for each in self._partition.iterdir() if (match := SEGMENT.fullmatch(each.name)))
        newest = self.snapshot
        if not bases:
            self._begin_anew(newest.end_offset if newest else 0)
        for base in bases:
            if self._segments and base != self.end:
                raise LogCorrupted(f"{self._partition}: offsets {self.end} to {base} are missing")
            segment = Segment(self._partition, base)
            self._segments.append(segment)
            broken = segment.load(self._note, self._epochs.last or 0)
            if (broken is not None and base != bases[-1]) or (base == bases[-1] and segment.end < flushed):
                why = broken or f"{segment.path}, byte {segment.size}: offsets {segment.end} to {flushed} are missing"
                raise LogCorrupted(f"{why}: it was flushed, and is damaged since; let this voter come back empty")
        covered = (newest.epoch, newest.end_offset) if newest else (0, 0)
        if covered > (self._epochs.last or 0, self.end):
            self._begin_anew(covered[1])  # it was fetched, and what it stands for was not taken away yet
        elif self._segments[0].base > covered[1]:
            raise LogCorrupted(
                f"{self._partition} begins at offset {self._segments[0].base}, without a snapshot of what is before it"
            )
        self._segments[-1].cut(self.end)
        self._note_flushed(self.end)
        self._clean()
        refuse_the_last_epoch(self._partition, self._state.epoch, self.last_epoch)

    # --- what is there

    @property
    def state(self) -> QuorumState:
        """The state that was remembered last."""
        return self._state

    @property
    def start(self) -> int:
        """The first offset that can be read."""
        return self._start

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self._segments[-1].end

    @property
    def durable_end(self) -> int:
        """All below survives a crash."""
        return self._durable_end

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, in the log or in the snapshot that it begins with."""
        if self._epochs.last is not None:
            return self._epochs.last
        return self.snapshot.epoch if self.snapshot else 0

    @property
    def snapshot(self) -> SnapshotId | None:
        """The newest snapshot."""
        return self._snapshots.known[-1] if self._snapshots.known else None

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The newest epoch up to `epoch`, and where it ends. Before all that is known: `epoch` itself and `start`."""
        found = self._epochs.floor(epoch)
        if found is not None:
            return EpochEnd(*found)
        return EpochEnd(self.last_epoch, self.end) if epoch >= self.last_epoch else EpochEnd(epoch, self.start)

    def validate(self, offset: int, epoch: int) -> Valid | Diverging | NeedsSnapshot:
        """Whether a log that ends at `offset`, with a last record of `epoch`, is a beginning of this one."""
        if (self.start, offset, epoch) == (0, 0, 0):
            return Valid()
        if self.start > 0:
            # Unlike Kafka, which sends who has an epoch before its oldest snapshot's there, where the log would do.
            before = next((each.epoch for each in self._snapshots.known if each.end_offset == self.start), None)
            is_old = epoch < (self._epochs.first if before is None else before)
            if offset < self.start or is_old or (offset == self.start and epoch != before):
                return NeedsSnapshot(self._snapshots.known[-1])
        found = self.end_of_epoch(epoch)
        return Valid() if found.epoch == epoch and offset <= found.offset else Diverging(found.epoch, found.offset)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset`, at least one if there is any, else up to `max_bytes`."""
        if not self.start <= offset < self.end:
            return b""
        return self._segment_of(offset).read(offset, max_bytes)

    def batches(self, start: int = 0) -> Iterator[RecordBatch]:
        """The batches from the one that holds `start`, or from `self.start` if that is later."""
        offset = max(start, self.start)
        while data := self.read(offset, _READ_BYTES):
            for batch in decode_batches(data, str(self._segment_of(offset).path)):
                yield batch
                offset = batch.last_offset + 1

    def control_batches(self) -> Iterator[RecordBatch]:
        """The batches of control records, from the log's start on; no others are read for it."""
        for offset in tuple(self._control):
            yield from decode_batches(self.read(offset, 0), str(self._segment_of(offset).path))

    def beginning(self, epoch: int) -> RecordBatch | None:
        """The batch that an epoch begins with, which says who leads it; None where that is not in the log."""
        offset = self._epochs.start_of(epoch)
        if offset is None:
            return None
        batch = next(decode_batches(self.read(offset, 0), str(self._segment_of(offset).path)))
        return batch if batch.is_control else None

    # --- writing

    def remember(self, state: QuorumState) -> None:
        """Durable when it returns. Raises OSError, and then what was remembered before still holds."""
        if state != self._state:
            write_quorum_state(self._partition / QUORUM_STATE, state)
            self._state = state

    def append(self, data: bytes) -> Sequence[RecordBatch]:
        """Write batches behind the others; not durable before `flush`.

        Raises BrokenBatch, and changes nothing, for bytes that are not whole valid batches that follow on; OSError, and
        changes nothing, where the disk does not take them."""
        where = f"what is appended at offset {self.end}"
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
            self._note(head)
        return batches

    def flush(self) -> int:
        """Make what was appended durable, and give the offset up to which it is. Blocks; may run in a thread beside
        `append` and `read`. Raises OSError: see above how the log goes on then."""
        with self._syncing:
            self._refuse_after_failure()
            segment = self._segments[-1]
            end = segment.end  # taken before the sync: what is written during it may not be on the disk
            self._sync(segment)
            with suppress(OSError):  # an older note is as good
                self._note_flushed(end)
            self._durable_end = end
            return end

    def truncate(self, offset: int) -> int:
        """Let go of all batches that reach beyond `offset`, durably, and give the new end. Never below the high
        watermark, which is the caller's duty. Raises OSError."""
        assert self.start <= offset, f"truncated to {offset}, below the log's start {self.start}"
        with self._syncing:
            self._failed = True  # unless all goes well
            self._note_flushed(min(self._durable_end, offset), durably=True)
            while len(self._segments) > 1 and self._segments[-1].base >= offset:
                self._segments.pop().remove()
                sync_folder(self._partition)
            self._segments[-1].cut(offset)
            self._note_flushed(self.end, durably=True)
            self._epochs.cut(self.end)
            self._control = [each for each in self._control if each < self.end]
            self._failed = False
        return self.end

    def close(self) -> None:
        """Let go of the files; what was not flushed may be lost."""
        self._snapshots.drop()
        with self._syncing:
            for segment in self._segments:
                segment.close()
            os.close(self._note_file)

    # --- snapshots

    def snapshot_control_batches(self) -> Sequence[RecordBatch]:
        """The control batches of the newest snapshot: who votes, the kraft.version."""
        return self._snapshots.control_batches(self.snapshot) if self.snapshot else ()

    def read_snapshot(self, wanted: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """The snapshot's size and a piece of it from byte `position`; None if it is not there."""
        return self._snapshots.read(wanted, position, max_bytes)

    def begin_snapshot(self, snapshot: SnapshotId) -> None:
        """Begin to download a snapshot; a download that was under way is dropped."""
        self._snapshots.begin(snapshot)

    def append_snapshot(self, data: bytes) -> None:
        """The next piece."""
        self._snapshots.append(data)

    def finish_snapshot(self) -> None:
        """Check the download, make it the newest snapshot, and begin the log anew behind it. Raises BrokenBatch, and
        drops the download, if it is not whole."""
        snapshot = self._snapshots.finish()
        with self._syncing:
            self._begin_anew(snapshot.end_offset)
            self._note_flushed(snapshot.end_offset)
        self._clean()

    def newest_snapshot(self) -> Sequence[FilePart]:
        """Where the newest snapshot lies; nothing where there is none."""
        if self.snapshot is None:
            return ()
        path = self._snapshots.path(self.snapshot)
        return (FilePart(path, 0, path.stat().st_size),)

    def since_snapshot(self, end: int) -> Sequence[FilePart]:
        """Where the batches since the newest snapshot lie, up to `end`. They stay there, unless the log begins anew."""
        return self.parts(self.snapshot.end_offset if self.snapshot else 0, end)

    def parts(self, start: int, end: int) -> Sequence[FilePart]:
        """Where the batches from `start` up to `end` lie, for a thread to read; they may go."""
        return tuple(
            FilePart(each.path, each.position(max(start, each.base)), each.position(end))
            for each in self._segments
            if each.end > start and each.base < end
        )

    def write_snapshot(self, snapshot: SnapshotId, data: Iterable[bytes]) -> None:
        """Write a snapshot of what is in the log; it counts from `keep_snapshot` on. May run in a thread beside all
        else. Raises BrokenBatch, OSError and what `data` raises, and leaves nothing then."""
        self._snapshots.write(snapshot, data)

    def keep_snapshot(self, snapshot: SnapshotId) -> bool:
        """Take a snapshot that was written as the newest, and let go of what that makes needless; False, and it is
        gone, if a newer one was fetched meanwhile. Raises OSError."""
        if not self._snapshots.keep(snapshot):
            return False
        assert snapshot.end_offset <= self.durable_end, "a snapshot is of what is committed"
        if self._segments[-1].size and self._segments[-1].size >= self._retention_bytes // _PARTS:
            self._roll()
        self._clean()
        return True

    # --- within

    def _begin_anew(self, start: int) -> None:
        """Without a batch, behind the newest snapshot, which stands for all."""
        self._note_flushed(0, durably=True)
        while self._segments:
            self._segments.pop().remove()
            sync_folder(self._partition)
        self._epochs, self._control = Epochs(), []
        if self.snapshot:
            self._snapshots.remove(self._snapshots.known[:-1])
        self._segments.append(Segment(self._partition, start, new=True))
        sync_folder(self._partition)

    def _clean(self) -> None:
        known = self._snapshots.known
        self._snapshots.remove(known[:-SNAPSHOTS_KEPT])
        known = self._snapshots.known
        needless_to = known[0].end_offset if len(known) >= SNAPSHOTS_KEPT else 0
        surplus = sum(each.size for each in self._segments) - self._retention_bytes
        surplus += sum(self._snapshots.path(each).stat().st_size for each in known)
        while surplus > 0 and len(self._segments) > 1 and self._segments[0].end <= needless_to:
            surplus -= self._segments[0].size
            self._segments.pop(0).remove()
        self._start = max(self._segments[0].base, needless_to if surplus > 0 else 0)
        sync_folder(self._partition)
        self._epochs.begin(self._start)
        self._control = [each for each in self._control if each >= self._start]

    def _roll(self) -> None:
        """Begin a segment; the one before it is durable then, which tells a torn tail from damage."""
        with self._syncing:
            segment = self._segments[-1]
            self._sync(segment)
            self._note_flushed(segment.end)
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
            raise OSError(errno.EIO, f"a flush has failed: truncate to {self._durable_end} first", str(self._partition))

    def _note_flushed(self, end: int, *, durably: bool = False) -> None:
        os.pwrite(self._note_file, b"%020d\n" % end, 0)
        if durably:
            os.fdatasync(self._note_file)
        self._durable_end = end

    def _note(self, head: BatchHead) -> None:
        self._epochs.note(head.epoch, head.base_offset)
        if head.is_control:
            self._control.append(head.base_offset)

    def _segment_of(self, offset: int) -> Segment:
        return next(each for each in reversed(self._segments) if each.base <= offset or each is self._segments[0])


def _flushed(note: bytes) -> int:
    return int(note) if note.strip().isdigit() else 0
