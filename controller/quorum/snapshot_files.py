"""The snapshot files next to the log (KIP-630): Kafka's checkpoints, and the snapshot that is being downloaded.

A snapshot is written to a temporary file (`.part` for a download, `.made` for one written here), validated, made
durable, and only then renamed. So every `.checkpoint` file is complete. The next start deletes temporary files.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from controller.quorum.log.batches import (
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    BatchHead,
    BrokenBatch,
    RecordBatch,
    control_type,
    decode_batches,
    scan_batches,
)
from controller.quorum.raft.log import SnapshotId
from controller.quorum.segment import FilePart, in_order
from events.files import sync_folder

CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART: Final = ".part"
_MADE: Final = ".made"


class SnapshotFiles:
    """The snapshot files in a partition's folder, for `QuorumFiles`. `raft.log.QuorumLog` documents the methods without
    a docstring. All may raise OSError."""

    def __init__(self, partition: Path) -> None:
        self._partition = partition
        for leftover in partition.glob("*.checkpoint.*"):
            leftover.unlink()
        found = (CHECKPOINT.fullmatch(each.name) for each in partition.iterdir())
        self._snapshots = sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)
        """The ids of all complete snapshots, the newest last."""
        self._download: tuple[SnapshotId, BinaryIO] | None = None

    @property
    def snapshot(self) -> SnapshotId | None:
        return self._snapshots[-1] if self._snapshots else None

    def snapshot_control_batches(self) -> Sequence[RecordBatch]:
        return _control_batches(self._path(self.snapshot)) if self.snapshot else ()

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        if snapshot not in self._snapshots:
            return None
        with self._path(snapshot).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not 0 <= position < size or max_bytes <= 0:  # an invalid request, which is no failure of the disk
                return size, b""
            file.seek(position)
            return size, file.read(max_bytes)

    def newest_snapshot(self) -> Sequence[FilePart]:
        """The file of the newest snapshot; empty if there is none."""
        if self.snapshot is None:
            return ()
        path = self._path(self.snapshot)
        return (FilePart(path, 0, path.stat().st_size),)

    def begin_snapshot(self, snapshot: SnapshotId) -> None:
        self._drop_download()
        self._download = snapshot, _new_file(self._unfinished(snapshot, _PART))

    def append_snapshot(self, data: bytes) -> None:
        assert self._download is not None, "a snapshot was begun"
        self._download[1].write(data)

    def _finish_download(self) -> SnapshotId:
        """Validate the download and rename it, durably. Raises BrokenBatch and OSError, and then drops it."""
        assert self._download is not None, "a snapshot was begun"
        snapshot, file = self._download
        part = self._unfinished(snapshot, _PART)
        try:
            file.flush()
            os.fsync(file.fileno())
            _control_batches(part)
        except BaseException:
            self._drop_download()
            raise
        file.close()
        self._download = None
        self._name(part, snapshot)
        return snapshot

    def _drop_download(self) -> None:
        if self._download is not None:
            snapshot, file = self._download
            self._download = None
            try:
                file.close()
            finally:
                self._unfinished(snapshot, _PART).unlink(missing_ok=True)

    def write_snapshot(self, snapshot: SnapshotId, data: Iterable[bytes]) -> None:
        """Write a snapshot, durably; `keep_snapshot` then makes it the newest one. May run in a thread, concurrently
        with all other methods. Raises BrokenBatch, OSError and errors of `data`, and then leaves no file."""
        made = self._unfinished(snapshot, _MADE)
        try:
            with _new_file(made) as file:
                file.writelines(data)
                file.flush()
                os.fsync(file.fileno())
            _control_batches(made)
        except BaseException:
            made.unlink(missing_ok=True)
            raise

    def keep_snapshot(self, snapshot: SnapshotId) -> bool:
        """Make a written snapshot the newest. If a newer one was fetched meanwhile, deletes it and returns False."""
        made = self._unfinished(snapshot, _MADE)
        if self._snapshots and snapshot <= self._snapshots[-1]:
            made.unlink()
            return False
        self._name(made, snapshot)
        return True

    def _retain_snapshots(self, count: int) -> None:
        """Delete all but the newest `count` snapshots."""
        while len(self._snapshots) > count:
            self._path(self._snapshots[0]).unlink(missing_ok=True)
            del self._snapshots[0]

    def _path(self, snapshot: SnapshotId) -> Path:
        return self._partition / f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"

    def _unfinished(self, snapshot: SnapshotId, suffix: str) -> Path:
        path = self._path(snapshot)
        return path.with_name(path.name + suffix)

    def _name(self, unfinished: Path, snapshot: SnapshotId) -> None:
        unfinished.rename(self._path(snapshot))
        sync_folder(self._partition)
        self._snapshots = sorted({*self._snapshots, snapshot})


def _new_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "w+b")


def _control_batches(path: Path) -> Sequence[RecordBatch]:
    """The control batches of a snapshot. Raises BrokenBatch unless its batches continue one another from offset 0, with
    a header first and a footer last."""
    if not path.stat().st_size:
        raise BrokenBatch(f"{path}: an empty snapshot")
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    found: list[RecordBatch] = []
    last: BatchHead | None = None
    for last in in_order(scan_batches(view, str(path)), str(path), 0, 0):
        if last.is_control:
            found += decode_batches(bytes(view[last.position : last.end]), str(path))
        elif not found:
            break
    keys = [key for batch in found for key, _ in batch.records if key is not None]
    kinds = [control_type(key) for key in keys]
    if last is None or not last.is_control or (kinds[:1], kinds[-1:]) != ([SNAPSHOT_HEADER], [SNAPSHOT_FOOTER]):
        raise BrokenBatch(f"{path}: an incomplete snapshot, without a header first and a footer last")
    return found
