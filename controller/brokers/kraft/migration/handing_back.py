"""The metadata log as a folder that another controller leads on from: the way to Kafka's own, and the way from it.

Both keep it in the same files. What a controller needs are the batches from where the log begins, the checkpoints of
all before, and `meta.properties` with the directory id that votes (with kraft.version 1 a controller under another id
waits for ever and says nothing). Indexes are built anew, and the epoch after the last one in the log begins.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from controller.brokers.kraft.log.batches import encode_batch
from controller.brokers.kraft.log.metadata_codec import encode_record
from controller.brokers.kraft.migration.kafka_folder import read_folder, refuse_if_in_use
from controller.brokers.kraft.quorum.files import SEGMENT, QuorumFiles
from controller.brokers.kraft.quorum.folder import (
    META_PROPERTIES,
    PARTITION,
    QUORUM_STATE,
    FolderError,
    NodeFolder,
    properties_text,
    replace_file,
    sync_folder,
    write_quorum_state,
)
from controller.brokers.kraft.quorum.raft.log import QuorumState
from controller.brokers.kraft.quorum.registered import limits, read_registered, without_limits
from controller.brokers.kraft.quorum.snapshot_files import CHECKPOINT
from controller.brokers.kraft.registration import controller_record
from controller.machine.state import Quorum

HAND_BACK: Final = "HandMetadataBack"
"""The command that is the cause of MetadataHandedBack."""
REPLACED: Final = ".before-handback"
"""What is appended to the name of a folder that is replaced."""


def write_folder(
    folder: Path,
    node: NodeFolder,
    files: QuorumFiles,
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
        _check_replaced(folder, aside, files, cluster_id, replace)
    made = folder.with_name(folder.name + ".handback-unfinished")
    _clear(made)
    made.mkdir(0o700, parents=True)  # it holds SCRAM credentials
    copy_partition(node.partition, made / PARTITION)
    replace_file(made / META_PROPERTIES, properties_text(cluster_id, quorum.node_id, node.directory_id))
    before()
    if is_there:
        folder.rename(aside)
    made.rename(folder)
    sync_folder(folder.parent)


def free_left(files: QuorumFiles, me: int, now_ms: int) -> tuple[int, ...]:
    """Register the controllers that left so that they block no upgrade, in the log of the only voter; who they are.
    Raises MalformedRecord, BrokenBatch, OSError."""
    registered = read_registered((*files.newest_snapshot(), *files.since_snapshot(files.end)))
    left = {node_id: found for node_id, each in registered.items() if node_id != me and (found := limits(each, ()))}
    if left:
        freed = (controller_record(without_limits(node_id, found)) for node_id, found in left.items())
        files.append(encode_batch(files.end, files.last_epoch, now_ms, [(None, encode_record(each)) for each in freed]))
        files.flush()
    return tuple(sorted(left))


def take_partition(source: Path, data: Path, cluster_id: str, node_id: int, directory_id: bytes, epoch: int) -> None:
    """Copy a node's metadata folder into a data folder, for the node that leads on from it, under the directory id that
    votes, in a later epoch than any that is known. What is torn at the end is cut off. Raises FolderError, OSError."""
    partition = data / PARTITION
    copy_partition(source / PARTITION, partition)
    write_quorum_state(partition / QUORUM_STATE, QuorumState(epoch=epoch))
    replace_file(data / META_PROPERTIES, properties_text(cluster_id, node_id, directory_id))
    QuorumFiles(partition).close()


def copy_partition(source: Path, target: Path) -> None:
    """Copy the files of a metadata log, durably. Raises OSError."""
    target.mkdir(0o700, parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if SEGMENT.fullmatch(path.name) or CHECKPOINT.fullmatch(path.name):
            shutil.copyfile(path, target / path.name)
            with (target / path.name).open("rb+") as file:
                os.fsync(file.fileno())
    sync_folder(target)


def _check_replaced(folder: Path, aside: Path, files: QuorumFiles, cluster_id: str, replace: bool) -> None:
    if not replace:
        raise FolderError(f"{folder} is not empty: name another folder, or say --replace to have it renamed first")
    if aside.exists():
        raise FolderError(f"{aside} is there, from a handback before: move it away first")
    known = read_folder(folder)
    if known.cluster_id != cluster_id:
        raise FolderError(f"{folder} is of cluster {known.cluster_id}, not of {cluster_id}")
    refuse_if_in_use(folder)
    if (known.epoch, known.end_offset) > (files.last_epoch, files.end):
        raise FolderError(
            f"{folder} is ahead, with epoch {known.epoch} and offset {known.end_offset}; the data folder has epoch "
            f"{files.last_epoch} and offset {files.end}: another controller has led since"
        )


def _clear(made: Path) -> None:
    """Take away what an interrupted handback left."""
    if made.exists():
        shutil.rmtree(made)
