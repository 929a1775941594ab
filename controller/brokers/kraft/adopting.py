"""Takes a cluster over from Kafka's controller and hands it back, for the commands `adopt`, `restore` and `handback`.

Topicwright and Kafka store the metadata log in the same files (see `quorum.folder`). A controller needs the batches
from the start of the log, the checkpoints of everything before that start, and `meta.properties` with the directory id
of the voter; with kraft.version 1 a controller with another id waits forever without a message. Indexes are rebuilt
from the log. The next controller begins the epoch after the last one in the log.

`read_folder` reads the log of a Kafka controller, or a broker's copy of a lost controller's log, and `adopted` returns
it as events. The log itself is copied byte for byte, because brokers have it too. The events cover everything that the
state machine knows: brokers, features, configs, topics with their partitions, epochs and eligible leaders, ACLs, SCRAM
credentials, quotas. Everything else (delegation tokens, records of newer releases) is in the metadata log only, where
brokers apply it. `write_folder` hands back: Kafka continues a log of Topicwright.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from controller.brokers.kraft.importing import import_all
from controller.brokers.kraft.importing_cluster import EventCollector
from controller.brokers.kraft.membership import controller_record
from controller.brokers.kraft.projector import MARK, MetadataMark, ProtocolIds, acl_keys
from controller.kafka.messages import records as kinds
from controller.machine.state import QuorumLeader
from controller.quorum.features import fold, limits, unsupported_feature, without_limits
from controller.quorum.files import SEGMENT, QuorumFiles
from controller.quorum.folder import (
    LOCK,
    META_PROPERTIES,
    PARTITION,
    QUORUM_STATE,
    FolderError,
    NodeFolder,
    properties_text,
    read_properties,
    read_quorum_state,
    replace_file,
    uuid_of,
    write_quorum_state,
)
from controller.quorum.log.batches import (
    CONTROLLER_LISTENER,
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    SNAPSHOT_FOOTER,
    BrokenBatch,
    RecordBatch,
    control_type,
    decode_batches,
    encode_batch,
    whole_batches,
)
from controller.quorum.log.image import MetadataImage, RecordMismatch
from controller.quorum.log.metadata_codec import MalformedRecord, decode_control, encode_record
from controller.quorum.log.record_kinds import Author
from controller.quorum.log_files import CHECKPOINT, batches_of
from controller.quorum.raft.log import QuorumState, SnapshotId
from events import catalog
from events.files import sync_folder
from events.names import RequestId


class KafkaFolder(msgspec.Struct, frozen=True):
    """The contents of a node's metadata folder. `batches` have no gaps."""

    path: Path
    cluster_id: str
    node_id: int
    directory_id: bytes
    """Sixteen bytes; zeros if the folder has none."""
    quorum_state: QuorumState
    checkpoint: SnapshotId
    """Zeros if the log begins at 0."""
    checkpoint_batches: tuple[RecordBatch, ...]
    batches: tuple[RecordBatch, ...]
    torn_bytes: int
    """The number of bytes of an incomplete batch at the end of the log, which `batches` does not have."""

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.checkpoint.end_offset

    @property
    def epoch(self) -> int:
        """The epoch of the last record."""
        return self.batches[-1].leader_epoch if self.batches else self.checkpoint.epoch


def read_folder(path: Path, *, ignore_torn_tail: bool = False) -> KafkaFolder:
    """Read a node's metadata folder. `path` is its `metadata.log.dir`, or the partition's folder in it. With
    `ignore_torn_tail`, an incomplete batch at the end is ignored. Raises FolderError."""
    partition = _partition_folder(path)
    try:
        properties = read_properties(partition.parent / META_PROPERTIES)
        checkpoint, checkpoint_batches = _newest_checkpoint(partition)
        batches, torn_bytes = _log(partition, checkpoint.end_offset, ignore_torn_tail)
        state = read_quorum_state(partition / QUORUM_STATE)
    except OSError as error:
        raise FolderError(f"{error.filename or partition} cannot be read: {error.strerror or error}") from error
    except BrokenBatch as error:
        raise FolderError(f"{error}: restore the folder from a backup") from error
    if not batches and checkpoint.end_offset == 0:
        raise FolderError(f"{partition} has no records: its node never joined a cluster")
    return KafkaFolder(
        path=partition.parent,
        cluster_id=properties["cluster.id"],
        node_id=int(properties["node.id"]),
        directory_id=uuid_of(properties.get("directory.id", "")),
        quorum_state=state,
        checkpoint=checkpoint,
        checkpoint_batches=checkpoint_batches,
        batches=batches,
        torn_bytes=torn_bytes,
    )


def refuse_if_in_use(folder: Path) -> None:
    """Raise FolderError if a Kafka node runs on the folder."""
    lock = folder / LOCK
    if not lock.exists():
        return
    with lock.open("rb") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            raise FolderError(f"{folder} is in use: stop its Kafka node first") from None


def _partition_folder(path: Path) -> Path:
    if (path / PARTITION).is_dir():
        return path / PARTITION
    if path.name == PARTITION and path.is_dir():
        return path.absolute()
    raise FolderError(
        f"{path} is not a metadata folder: pass the metadata.log.dir (or the first of log.dirs) of a Kafka node, which "
        f"holds {PARTITION}"
    )


def _newest_checkpoint(partition: Path) -> tuple[SnapshotId, tuple[RecordBatch, ...]]:
    path = max((each for each in partition.iterdir() if CHECKPOINT.fullmatch(each.name)), default=None)
    if path is None:
        return SnapshotId(0, 0), ()
    batches = tuple(decode_batches(path.read_bytes(), str(path)))
    last = batches[-1] if batches else None
    if last is None or not last.is_control or control_type(last.records[-1][0]) != SNAPSHOT_FOOTER:
        raise FolderError(f"{path} is an incomplete checkpoint: restore the folder from a backup")
    return SnapshotId(*map(int, path.stem.split("-"))), batches


def _log(partition: Path, covered: int, ignore_torn_tail: bool) -> tuple[tuple[RecordBatch, ...], int]:
    """The batches of the segments, and the size of an incomplete one. A checkpoint has the records below `covered`."""
    segments = sorted(each for each in partition.iterdir() if SEGMENT.fullmatch(each.name))
    batches: list[RecordBatch] = []
    torn_bytes = 0
    for segment in segments:
        data = segment.read_bytes()
        if segment is segments[-1] and ignore_torn_tail:
            whole = whole_batches(data)
            torn_bytes, data = len(data) - len(whole), whole
        expected = batches[-1].last_offset + 1 if batches else int(segment.stem)
        for batch in decode_batches(data, str(segment)):
            if batch.base_offset != expected:
                raise FolderError(f"{segment}: expected a batch at offset {expected}, found offset {batch.base_offset}")
            batches.append(batch)
            expected = batch.last_offset + 1
    first = batches[0].base_offset if batches else 0
    if first > covered:
        raise FolderError(f"{partition} begins at offset {first} and has no checkpoint of the records before it")
    if batches and batches[-1].last_offset + 1 < covered:
        return (), torn_bytes  # the checkpoint was fetched later and has all records
    return tuple(batches), torn_bytes


# --- to events

COMMAND = "AdoptMetadata"
"""The name of the command that the log records as cause of all imported events."""


class Adopted(msgspec.Struct, frozen=True):
    """The events and state to write for an adopted metadata log."""

    quorum: catalog.QuorumEpochBegun
    """The last epoch of the adopted log, and the only voter of its quorum."""
    image: MetadataImage
    events: tuple[catalog.Event, ...]
    state: Mapping[bytes, bytes | None]
    """Keys of the projector's state: the `MetadataMark` with the broker epochs, and the ACL ids."""
    request_id: RequestId
    """The id of the adopting command."""


def adopted(folder: KafkaFolder, request_id: RequestId) -> Adopted:
    """The metadata log in a folder as events and state keys. Raises FolderError if it cannot be continued."""
    image = MetadataImage()
    try:
        image.fold(folder.checkpoint_batches)
        image.fold(each for each in folder.batches if each.base_offset >= folder.checkpoint.end_offset)
    except (RecordMismatch, MalformedRecord) as error:
        raise FolderError(f"{folder.path} has an inconsistent metadata log: {error}") from error
    quorum = _last_epoch(folder, image)
    _check(folder, image, quorum)
    found = import_all(EventCollector(Author(request_id, COMMAND, "as it was"), image))
    begun = catalog.MetadataAdopted(folder.node_id, quorum.leader_epoch, folder.end_offset)
    events = (begun, quorum, *found.events)
    epochs = ProtocolIds().after(found.ids).broker_epochs
    mark = MetadataMark(folder.end_offset, tuple(sorted(epochs.items())), adopted=True)
    return Adopted(quorum, image, events, {MARK: msgspec.msgpack.encode(mark), **acl_keys(found.ids.acls)}, request_id)


def _last_epoch(folder: KafkaFolder, image: MetadataImage) -> catalog.QuorumEpochBegun:
    """The newest known epoch and the only voter. Raises FolderError for more than one voter."""
    epoch = max(folder.epoch, folder.quorum_state.epoch)
    pair = image.quorum.get(KRAFT_VERSION)
    kraft_version = 0 if pair is None else decode_control(kinds.KRaftVersionRecord, pair[1]).k_raft_version
    if kraft_version == 0:
        leader = _leader(folder)
        return catalog.QuorumEpochBegun(
            epoch, leader, 0, "", 0, folder.directory_id if leader == folder.node_id else bytes(16)
        )
    record = image.quorum.get(KRAFT_VOTERS)
    voters = () if record is None else decode_control(kinds.VotersRecord, record[1]).voters
    _check_one_voter(folder, [each.voter_id for each in voters])
    voter = voters[0]
    places = {each.name: each for each in voter.endpoints}
    place = places.get(CONTROLLER_LISTENER)
    if place is None:
        raise FolderError(
            f"{folder.path}: the controller's listener is called {', '.join(places) or 'nothing'}; "
            f"with kraft.version 1 it must be called {CONTROLLER_LISTENER}"
        )
    return catalog.QuorumEpochBegun(
        epoch, voter.voter_id, kraft_version, place.host, place.port, voter.voter_directory_id
    )


def _leader(folder: KafkaFolder) -> int:
    for batch in reversed(folder.batches):
        if batch.is_control and control_type(batch.records[0][0]) == LEADER_CHANGE:
            change = decode_control(kinds.LeaderChangeMessage, batch.records[0][1])
            _check_one_voter(folder, [each.voter_id for each in change.voters])
            return change.leader_id
    known = folder.quorum_state.leader_id
    return known if known >= 0 else folder.node_id


def _check_one_voter(folder: KafkaFolder, voters: list[int]) -> None:
    if len(voters) != 1:
        raise FolderError(
            f"{folder.path}: the quorum has the voters {voters}; only a cluster with one controller can be adopted"
        )


def _check(folder: KafkaFolder, image: MetadataImage, quorum: catalog.QuorumEpochBegun) -> None:
    if image.transactions.begun_at is not None:
        raise FolderError(f"{folder.path}: the log ends within a transaction: start Kafka's controller once to end it")
    if (why := unsupported_feature(image.features)) is not None:
        raise FolderError(f"{folder.path}: {why}")
    if any(each.broker_id == quorum.node_id for each in image.all(kinds.RegisterBrokerRecord)):
        raise FolderError(
            f"{folder.path}: node {quorum.node_id} is both controller and broker; only a node with "
            "process.roles=controller can be adopted"
        )


# --- to files

HAND_BACK: Final = "HandMetadataBack"
"""The command that causes MetadataHandedBack."""


def write_folder(
    folder: Path,
    node: NodeFolder,
    files: QuorumFiles,
    cluster_id: str,
    quorum: QuorumLeader,
    *,
    replace: bool = False,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Write a metadata folder atomically, for the node `quorum.node_id` to continue from.

    The folder must be empty or missing. With `replace` it may be a folder of the same cluster whose log is not ahead,
    which is renamed first. `before` is called when everything is written, just before the folder appears. Raises
    FolderError and OSError.
    """
    folder = folder.absolute()
    aside = folder.with_name(folder.name + ".before-handback")
    is_there = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if is_there:
        _check_replaced(folder, aside, files, cluster_id, replace)
    made = folder.with_name(folder.name + ".handback-unfinished")
    shutil.rmtree(made, ignore_errors=True)  # of an interrupted handback
    made.mkdir(0o700, parents=True)  # it holds SCRAM credentials
    copy_partition(node.partition, made / PARTITION)
    replace_file(made / META_PROPERTIES, properties_text(cluster_id, quorum.node_id, node.directory_id))
    before()
    if is_there:
        folder.rename(aside)
    made.rename(folder)
    sync_folder(folder.parent)


def clear_removed_controllers(files: QuorumFiles, me: int, now_ms: int) -> tuple[int, ...]:
    """Clear the supported feature ranges that removed controllers registered, so that they do not block upgrades.
    The node must be the only voter of the log. Returns their ids. Raises MalformedRecord, BrokenBatch, OSError."""
    registered = fold({}, batches_of((*files.newest_snapshot(), *files.since_snapshot(files.end))))
    left = {node_id: found for node_id, each in registered.items() if node_id != me and (found := limits(each, ()))}
    if left:
        freed = (controller_record(without_limits(node_id, found)) for node_id, found in left.items())
        files.append(encode_batch(files.end, files.last_epoch, now_ms, [(None, encode_record(each)) for each in freed]))
        files.flush()
    return tuple(sorted(left))


def copy_metadata_log(folder: KafkaFolder, data: Path, quorum: catalog.QuorumEpochBegun) -> None:
    """Copy a node's metadata folder into a data folder, for a node that continues it as the voter in `quorum` with a
    higher epoch. Cuts off an incomplete batch at the end. Raises FolderError and OSError."""
    partition = data / PARTITION
    copy_partition(folder.path / PARTITION, partition)
    write_quorum_state(partition / QUORUM_STATE, QuorumState(epoch=quorum.leader_epoch))
    replace_file(data / META_PROPERTIES, properties_text(folder.cluster_id, quorum.node_id, quorum.directory_id))
    QuorumFiles(partition).close()


def copy_partition(source: Path, target: Path) -> None:
    """Copy the files of a metadata log and fsync them. Raises OSError."""
    target.mkdir(0o700, parents=True, exist_ok=True)
    for path in sorted(source.iterdir()):
        if SEGMENT.fullmatch(path.name) or CHECKPOINT.fullmatch(path.name):
            shutil.copyfile(path, target / path.name)
            with (target / path.name).open("rb+") as file:
                os.fsync(file.fileno())
    sync_folder(target)


def _check_replaced(folder: Path, aside: Path, files: QuorumFiles, cluster_id: str, replace: bool) -> None:
    if not replace:
        raise FolderError(f"{folder} is not empty: choose another folder, or pass --replace to rename this one first")
    if aside.exists():
        raise FolderError(f"{aside} exists from an earlier handback: move it away first")
    known = read_folder(folder)
    if known.cluster_id != cluster_id:
        raise FolderError(f"{folder} belongs to cluster {known.cluster_id}, not to {cluster_id}")
    refuse_if_in_use(folder)
    if (known.epoch, known.end_offset) > (files.last_epoch, files.end):
        raise FolderError(
            f"{folder} is ahead, with epoch {known.epoch} and offset {known.end_offset}; the data folder has epoch "
            f"{files.last_epoch} and offset {files.end}: another controller has led since"
        )
