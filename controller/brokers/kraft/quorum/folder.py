"""The folder in which a Kafka controller keeps its metadata log, as Kafka's own controllers and tools know it.

    meta.properties                               cluster.id, node.id, directory.id (KIP-853)
    .lock                                         locked by the node while it runs
    __cluster_metadata-0/
        OFFSET.log                                batches from that offset on
        OFFSET-EPOCH.checkpoint                   a snapshot of all below the offset (KIP-630)
        quorum-state                              epoch, leader and vote (KIP-595)

Whoever opens the folder must be of the cluster and the node that it was made for. A voter whose folder is lost must
come back under another directory id: what forgot a vote or an acknowledged record must not pass for the one that did
not.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from controller.brokers.kraft.quorum.raft.log import EPOCH_MAX, NOBODY, QuorumState
from controller.kafka.messages import ZERO_UUID
from events.files import replacing

PARTITION: Final = "__cluster_metadata-0"
META_PROPERTIES: Final = "meta.properties"
QUORUM_STATE: Final = "quorum-state"
LOCK: Final = ".lock"
_RESERVED_IDS: Final = 100
"""Kafka keeps the lowest directory ids for itself (`DirectoryId`)."""


class FolderError(Exception):
    """A folder that no metadata log can be taken from; the message names it, and says what to do."""


class NodeFolder:
    """The folder of this node, locked until `close`."""

    def __init__(self, path: Path, directory_id: bytes, lock: int) -> None:
        self.path = path
        self.partition = path / PARTITION
        self.directory_id = directory_id
        self._lock = lock

    @classmethod
    def open(cls, path: Path, cluster_id: str, node_id: int, draw_id: Callable[[], bytes]) -> NodeFolder:
        """Open the folder of a node, or make it, under a directory id of sixteen bytes that `draw_id` gives.

        Raises FolderError where it belongs to another node or cluster or another process runs on it, and OSError.
        """
        (path / PARTITION).mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _take_lock(path, lock)
            return cls(path, _own_directory_id(path / META_PROPERTIES, cluster_id, node_id, draw_id), lock)
        except BaseException:
            os.close(lock)
            raise

    def close(self) -> None:
        """Let another process have it."""
        os.close(self._lock)


def read_properties(path: Path) -> dict[str, str]:
    """The properties of a formatted node. Raises FolderError."""
    lines = (line.strip() for line in path.read_text("utf-8", "replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    properties = {key.strip(): value.strip() for key, _, value in pairs}
    for key in ("cluster.id", "node.id"):
        if not properties.get(key):
            raise FolderError(f"{path} has no {key}: it is not that of a formatted Kafka node")
    if not (properties["node.id"].isascii() and properties["node.id"].isdigit()):
        raise FolderError(f"{path}: node.id={properties['node.id']} is not a number from 0 on")
    return properties


def properties_text(cluster_id: str, node_id: int, directory_id: bytes) -> bytes:
    """What `meta.properties` says, in Kafka's version 1; a directory id of zeros is left out."""
    lines = ["version=1", f"cluster.id={cluster_id}", f"node.id={node_id}"]
    if any(directory_id):
        lines.append(f"directory.id={uuid_text(directory_id)}")
    return "".join(f"{line}\n" for line in lines).encode()


def uuid_text(uuid: bytes) -> str:
    """Sixteen bytes as Kafka writes an id."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def uuid_of(text: str) -> bytes:
    """The bytes of an id that Kafka wrote; zeros for what is none."""
    try:
        decoded = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        return ZERO_UUID
    return decoded if len(decoded) == 16 else ZERO_UUID


def read_quorum_state(path: Path) -> QuorumState:
    """What a node remembered; nothing if there is no such file. Raises FolderError."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=_QuorumStateFile)
    except FileNotFoundError:
        return QuorumState()
    except msgspec.DecodeError as error:
        raise FolderError(f"{path} is not a quorum state: {error}") from error
    return QuorumState(kept.leader_epoch, kept.leader_id, kept.voted_id, uuid_of(kept.voted_directory_id))


def refuse_the_last_epoch(partition: Path, remembered: int, logged: int) -> None:
    """Raise FolderError for epochs, of the quorum state and of the log, after which no leader can be elected."""
    if logged >= EPOCH_MAX:
        raise FolderError(
            f"{partition} has records of epoch {logged}, and no leader can be elected after {EPOCH_MAX}: restore the "
            "folder from a copy"
        )
    if remembered >= EPOCH_MAX:
        raise FolderError(
            f"{partition / QUORUM_STATE} is in epoch {remembered}, and no leader can be elected after {EPOCH_MAX}. If "
            "this node is the only voter, delete that file and start again. Otherwise remove this voter from the "
            "quorum, and let it join again with an empty folder"
        )


def write_quorum_state(path: Path, state: QuorumState) -> None:
    """Durable when it returns. Version 1 of the file (KIP-853), which Kafka reads from 3.9 on, where a vote names a
    directory; else version 0, which all read. Raises OSError, and ValueError for what `read_quorum_state` would refuse;
    the file then says what it said before."""
    fields: dict[str, Any] = {"leaderId": state.leader_id, "leaderEpoch": state.epoch, "votedId": state.voted_id}
    if any(state.voted_directory):
        fields |= {"votedDirectoryId": uuid_text(state.voted_directory), "data_version": 1}
    else:
        fields |= {"clusterId": "", "appliedOffset": 0, "currentVoters": [], "data_version": 0}
    msgspec.convert(fields, _QuorumStateFile)
    replace_file(path, msgspec.json.encode(fields))


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file durably. Raises OSError."""
    with replacing(path) as file:
        file.write(data)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_INT32_MAX: Final = 2**31 - 1
_Epoch = Annotated[int, msgspec.Meta(ge=0, le=_INT32_MAX)]
_NodeId = Annotated[int, msgspec.Meta(ge=NOBODY, le=_INT32_MAX)]


class _QuorumStateFile(msgspec.Struct, frozen=True, rename="camel"):
    leader_id: _NodeId = NOBODY
    leader_epoch: _Epoch = 0
    voted_id: _NodeId = NOBODY
    voted_directory_id: str = ""


def _take_lock(path: Path, lock: int) -> None:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise FolderError(f"{path} is in use: stop the process that runs on it first") from None


def _own_directory_id(path: Path, cluster_id: str, node_id: int, draw_id: Callable[[], bytes]) -> bytes:
    if path.exists():
        known = read_properties(path)
        if known["cluster.id"] != cluster_id:
            raise FolderError(f"{path.parent} is of cluster {known['cluster.id']}, not of {cluster_id}")
        if int(known["node.id"]) != node_id:
            raise FolderError(f"{path.parent} is of node {known['node.id']}, not of {node_id}")
        directory_id = uuid_of(known.get("directory.id", ""))
        if any(directory_id):
            return directory_id
    directory_id = draw_id()
    while uuid_text(directory_id).startswith("-") or int.from_bytes(directory_id, "big") < _RESERVED_IDS:
        directory_id = draw_id()  # Kafka takes no ids that look like an option
    replace_file(path, properties_text(cluster_id, node_id, directory_id))
    return directory_id
