"""A disk with a voter's log. A power failure may lose some or all of the batches that are not flushed."""

import errno
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from controller.quorum.log.batches import BrokenBatch, RecordBatch, decode_batches, encode_batch
from controller.quorum.raft.log import EpochEnd, QuorumState, SnapshotId
from controller.quorum.raft.voters import VoterHistory, VoterSet, kraft_version_record, voters_record

Vote = tuple[int, bytes]


def voters_at(history: VoterHistory, end: int) -> tuple[int, VoterSet]:
    """kraft.version and the voter set after all records below `end`."""
    versions = [version for offset, version in history._versions if offset < end]
    sets = [voters for offset, voters in history._sets if offset < end]
    return versions[-1] if versions else 0, sets[-1] if sets else history._static


def request_of(value: bytes) -> str:
    """The kind of client request that appended a record."""
    return ("create", "delete", "describe")[int.from_bytes(value, "big") % 3]


def topic_after(topic: bytes, value: bytes) -> bytes:
    """The id of the clients' topic after a record; empty if it does not exist."""
    match request_of(value):
        case "create":
            return topic or value
        case "delete":
            return b""
    return topic


class Disk:
    """A `QuorumLog` that survives the death of its process."""

    def __init__(self, directory: bytes, on_remember: Callable[[bytes, QuorumState], None]) -> None:
        self.directory = directory
        self.state = QuorumState()
        self.kept: list[RecordBatch] = []
        self.durable_end = 0
        self.is_full = False
        self.snapshots: dict[SnapshotId, bytes] = {}
        self._bases: list[int] = []
        self._on_remember = on_remember
        self.on_truncate: Callable[[int, int], None] = lambda was, end: None
        self.on_install: Callable[[SnapshotId], None] = lambda snapshot: None
        self._download: tuple[SnapshotId, bytes] | None = None

    # --- faults and maintenance

    def crash(self, rng: random.Random, *, power: bool) -> None:
        """The process has died. After a `power` failure, unflushed batches may be lost from some batch on."""
        self._download = None
        while power and self.kept and self.kept[-1].base_offset >= self.durable_end and rng.random() < 0.7:
            self._pop()
        self.durable_end = self.end

    def clean(self, end: int, epoch: int, kraft_version: int, voters: VoterSet, kept: int = 1, beyond: int = 0) -> None:
        """Take a snapshot of the voters and the clients' topic at `end`. Retains `kept` snapshots, and `beyond` batches
        before the oldest of them."""
        records = [kraft_version_record(kraft_version), voters_record(voters)] if kraft_version else []
        noop = encode_batch(len(records), epoch, 0, [(None, end.to_bytes(8, "big") + self.topic_at(end))])
        data = encode_batch(0, epoch, 0, records, is_control=True) + noop if records else noop
        self.snapshots[SnapshotId(end, epoch)] = data
        for old in sorted(self.snapshots)[:-kept]:
            del self.snapshots[old]
        needless = sum(each.last_offset < min(self.snapshots).end_offset for each in self.kept)
        for _ in range(needless - beyond):
            self.kept.pop(0)
            self._bases.pop(0)

    def flush_to(self, end: int) -> None:
        """Complete a flush that began when the log ended at `end`."""
        self.durable_end = max(self.durable_end, min(end, self.end))

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at an offset; None if it is unknown."""
        batch = self.batch_at(offset)
        if batch is not None:
            return batch.leader_epoch
        return next((each.epoch for each in self.snapshots if each.end_offset == offset + 1), None)

    def batch_at(self, offset: int) -> RecordBatch | None:
        """The batch with the record at an offset, or None."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0 or self.kept[index].last_offset < offset:
            return None
        return self.kept[index]

    def topic_at(self, end: int) -> bytes:
        """The id of the clients' topic after all records below `end`, which is the value of the record that created it;
        empty if it does not exist."""
        base = max((each for each in self.snapshots if each.end_offset <= end), default=None)
        *_, last = decode_batches(self.snapshots[base]) if base else (None,)
        topic = last.records[0][1][8:] if last is not None else b""
        for batch in self.batches(base.end_offset if base else 0):
            if not batch.is_control and batch.last_offset < end:
                topic = topic_after(topic, batch.records[0][1])
        return topic

    # --- as a QuorumLog

    @property
    def snapshot(self) -> SnapshotId | None:
        return max(self.snapshots) if self.snapshots else None

    @property
    def start(self) -> int:
        if self.kept:
            return self.kept[0].base_offset
        return self.snapshot.end_offset if self.snapshot is not None else 0

    @property
    def end(self) -> int:
        return self.kept[-1].last_offset + 1 if self.kept else self.start

    @property
    def last_epoch(self) -> int:
        if self.kept:
            return self.kept[-1].leader_epoch
        return self.snapshot.epoch if self.snapshot is not None else 0

    def _need_room(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "planted")

    def persist(self, state: QuorumState) -> None:
        self._need_room()
        self._on_remember(self.directory, state)
        self.state = state

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        if epoch >= self.last_epoch:
            return EpochEnd(self.last_epoch, self.end)
        for batch in reversed(self.kept):
            if batch.leader_epoch <= epoch:
                return EpochEnd(batch.leader_epoch, batch.last_offset + 1)
        before = [each for each in self.snapshots if each.end_offset <= self.start and each.epoch <= epoch]
        return EpochEnd(max(before).epoch, self.start) if before else EpochEnd(epoch, self.start)

    def mismatch(self, offset: int, epoch: int) -> EpochEnd | SnapshotId | None:
        if (self.start, offset, epoch) == (0, 0, 0):
            return None
        if self.start > 0:
            before = next((each.epoch for each in self.snapshots if each.end_offset == self.start), None)
            oldest = self.kept[0].leader_epoch if before is None else before
            if offset < self.start or epoch < oldest or (offset == self.start and epoch != before):
                return max(self.snapshots)
        end = self.end_of_epoch(epoch)
        return end if end.epoch != epoch or end.offset < offset else None

    def read(self, offset: int, max_bytes: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        for batch in self.batches(offset):
            if parts and size + len(batch.data) > max_bytes:
                break
            parts.append(batch.data)
            size += len(batch.data)
        return b"".join(parts)

    def append(self, data: bytes) -> Sequence[RecordBatch]:
        self._need_room()
        batches = list(decode_batches(data))
        end = self.end
        for batch in batches:
            if batch.base_offset != end:
                raise BrokenBatch(f"a batch begins at {batch.base_offset}, the log ends at {end}")
            end = batch.last_offset + 1
        self.kept += batches
        self._bases += [each.base_offset for each in batches]
        return batches

    def flush(self) -> int:
        raise AssertionError("the world flushes")

    def truncate(self, offset: int) -> int:
        was = self.end
        while self.kept and self.kept[-1].last_offset >= offset:
            self._pop()
        self.durable_end = self.end
        self.on_truncate(was, self.end)
        return self.end

    def batches(self, start: int = 0) -> Iterator[RecordBatch]:
        first = max(bisect_right(self._bases, start) - 1, 0)
        return (each for each in self.kept[first:] if each.last_offset >= start)

    def control_batches(self) -> Iterator[RecordBatch]:
        return (each for each in self.kept if each.is_control)

    def snapshot_control_batches(self) -> Sequence[RecordBatch]:
        if self.snapshot is None:
            return ()
        return [each for each in decode_batches(self.snapshots[self.snapshot]) if each.is_control]

    def read_snapshot(self, wanted: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        data = self.snapshots.get(wanted)
        return (len(data), data[position : position + min(max_bytes, 100)]) if data is not None else None

    def begin_snapshot(self, snapshot: SnapshotId) -> None:
        self._download = snapshot, b""

    def append_snapshot(self, data: bytes) -> None:
        self._need_room()
        assert self._download is not None
        self._download = self._download[0], self._download[1] + data

    def finish_snapshot(self) -> None:
        assert self._download is not None
        (snapshot, data), self._download = self._download, None
        list(decode_batches(data))
        self.snapshots = {snapshot: data}
        self.kept, self._bases = [], []
        self.durable_end = snapshot.end_offset
        self.on_install(snapshot)

    def _pop(self) -> None:
        self.kept.pop()
        self._bases.pop()
