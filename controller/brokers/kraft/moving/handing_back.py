"""The metadata log as a folder that Kafka's own controller leads on from: the way back.

Kafka needs the batches from where the log begins, the checkpoint of all before, and `meta.properties` with the
directory id that votes (with kraft.version 1 a controller under another id waits for ever and says nothing). It builds
indexes itself, and begins the epoch after the last one in the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from controller.brokers.kraft.log.metadata_log import MetadataLog
from controller.brokers.kraft.moving.kafka_folder import read_folder, refuse_if_in_use
from controller.brokers.kraft.quorum.folder import (
    META_PROPERTIES,
    PARTITION,
    FolderError,
    properties_text,
    replace_file,
    sync_folder,
)
from controller.machine.state import Quorum

SEGMENT_BYTES: Final = 256 << 20  # a file of the log, well below Kafka's 1 GiB
HAND_BACK: Final = "HandMetadataBack"
"""The command that is the cause of MetadataHandedBack."""
REPLACED: Final = ".before-handback"
"""What is appended to the name of a folder that is replaced."""


def write_folder(
    folder: Path,
    log: MetadataLog,
    cluster_id: str,
    quorum: Quorum,
    *,
    replace: bool = False,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Write a metadata folder, whole or not at all, so that the node `quorum.node_id` leads on from it.

    The folder must be empty or not be there. With `replace` it may be one of the same cluster, which is renamed first:
    its log must not be ahead of this one. `before` is called when all is written, just before the folder is there.
    Raises FolderError, and OSError where the disk does.
    """
    folder = folder.absolute()
    aside = folder.with_name(folder.name + REPLACED)
    is_there = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if is_there:
        _check_replaced(folder, aside, log, cluster_id, replace)
    made = folder.with_name(folder.name + ".handback-unfinished")
    _clear(made)
    partition = made / PARTITION
    partition.mkdir(parents=True)
    _write_checkpoints(partition, log)
    _write_segments(partition, log)
    replace_file(made / META_PROPERTIES, properties_text(cluster_id, quorum.node_id, quorum.directory_id))
    sync_folder(partition)
    before()
    if is_there:
        folder.rename(aside)
    made.rename(folder)
    sync_folder(folder.parent)


def _check_replaced(folder: Path, aside: Path, log: MetadataLog, cluster_id: str, replace: bool) -> None:
    if not replace:
        raise FolderError(f"{folder} is not empty: name another folder, or say --replace to have it renamed first")
    if aside.exists():
        raise FolderError(f"{aside} is there, from a handback before: move it away first")
    known = read_folder(folder)
    if known.cluster_id != cluster_id:
        raise FolderError(f"{folder} is of cluster {known.cluster_id}, not of {cluster_id}")
    refuse_if_in_use(folder)
    if (known.epoch, known.end_offset) > (log.mark.epoch, log.mark.end):
        raise FolderError(
            f"{folder} is ahead, with epoch {known.epoch} and offset {known.end_offset}; the data folder has epoch "
            f"{log.mark.epoch} and offset {log.mark.end}: another controller has led since"
        )


def _clear(made: Path) -> None:
    """Take away what an interrupted handback left."""
    if made.exists():
        for path in sorted(made.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        made.rmdir()


def _write_checkpoints(partition: Path, log: MetadataLog) -> None:
    for mark in log.mark.snapshots:
        name = f"{mark.end_offset:020d}-{mark.epoch:010d}.checkpoint"
        with (partition / name).open("wb") as file:
            file.write(log.snapshot_bytes(mark))
            _sync_file(file)


def _write_segments(partition: Path, log: MetadataLog) -> None:
    for first, batches in _segments(log):
        with (partition / f"{first:020d}.log").open("wb") as file:
            file.writelines(batches)
            _sync_file(file)


def _segments(log: MetadataLog) -> Iterator[tuple[int, list[bytes]]]:
    """Batches in portions, each with the offset of its first record."""
    portion: list[bytes] = []
    size = 0
    for batch in log.batches(log.mark.start):
        if portion and size + len(batch) > SEGMENT_BYTES:
            yield _base_offset(portion[0]), portion
            portion, size = [], 0
        portion.append(batch)
        size += len(batch)
    if portion:
        yield _base_offset(portion[0]), portion


def _base_offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big")


def _sync_file(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
