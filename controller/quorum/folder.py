"""Opens, locks and creates the folder of a KRaft controller's metadata log, in Kafka's own layout.

    meta.properties                               cluster.id, node.id, directory.id (KIP-853)
    .lock                                         locked by the node while it runs
    __cluster_metadata-0/                         the log and its snapshots (see `files`)
        quorum-state                              epoch, leader and vote (KIP-595)

A process may open only the folder of its own cluster and node. A voter whose folder is lost must rejoin with a new
directory id (KIP-853), because it has lost its vote and acknowledged records, and must not count as the old voter.
"""

import base64
import binascii
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from controller.kafka.messages import ZERO_UUID
from controller.quorum.raft.log import EPOCH_MAX, NOBODY, QuorumState
from events.errors import UserError
from events.files import replacing

PARTITION: Final = "__cluster_metadata-0"
META_PROPERTIES: Final = "meta.properties"
QUORUM_STATE: Final = "quorum-state"
LOCK: Final = ".lock"
_RESERVED_IDS: Final = 100
"""Kafka reserves the lowest directory ids (`DirectoryId`)."""


class FolderError(UserError):
    """The folder cannot be used for a metadata log. The message names the folder and says what to do."""


class NodeFolder:
    """The folder of a node, locked until `close`."""

    def __init__(self, path: Path, cluster_id: str, node_id: int, draw_id: Callable[[], bytes]) -> None:
        """Open the folder of a node, or create it. `draw_id` returns sixteen random bytes for a new directory id.

        Raises FolderError if the folder belongs to another node or cluster or is in use, and OSError.
        """
        self.partition = path / PARTITION
        self.partition.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise FolderError(f"{path} is in use: stop the process that uses it first") from None
            self.directory_id = _own_directory_id(path / META_PROPERTIES, cluster_id, node_id, draw_id)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._lock)


def read_properties(path: Path) -> dict[str, str]:
    """Read `meta.properties`. Raises FolderError."""
    lines = (line.strip() for line in path.read_text("utf-8", "replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    properties = {key.strip(): value.strip() for key, _, value in pairs}
    for key in ("cluster.id", "node.id"):
        if not properties.get(key):
            raise FolderError(f"{path} has no {key}: it is not the meta.properties of a formatted Kafka node")
    if not (properties["node.id"].isascii() and properties["node.id"].isdigit()):
        raise FolderError(f"{path}: node.id={properties['node.id']} is invalid: it must be a number, 0 or greater")
    return properties


def properties_text(cluster_id: str, node_id: int, directory_id: bytes) -> bytes:
    """The content of `meta.properties` in Kafka's version 1; a directory id of zeros is left out."""
    lines = ["version=1", f"cluster.id={cluster_id}", f"node.id={node_id}"]
    if any(directory_id):
        lines.append(f"directory.id={uuid_text(directory_id)}")
    return "".join(f"{line}\n" for line in lines).encode()


def uuid_text(uuid: bytes) -> str:
    """An id of sixteen bytes as Kafka writes it: base64url without padding."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def uuid_of(text: str) -> bytes:
    """The bytes of an id as Kafka writes it; zeros for an invalid text."""
    try:
        decoded = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        return ZERO_UUID
    return decoded if len(decoded) == 16 else ZERO_UUID


def read_quorum_state(path: Path) -> QuorumState:
    """Read a `quorum-state` file; a missing file is the initial state. Raises FolderError."""
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_QuorumStateFile)
    except FileNotFoundError:
        return QuorumState()
    except msgspec.DecodeError as error:
        raise FolderError(f"{path} is not a quorum state: {error}") from error
    return QuorumState(stored.leader_epoch, stored.leader_id, stored.voted_id, uuid_of(stored.voted_directory_id))


def refuse_the_last_epoch(partition: Path, remembered: int, logged: int) -> None:
    """Raise FolderError if the epoch of the quorum state or the log is the last one, so that no election can follow."""
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
    """Replace a `quorum-state` file durably. A vote with a directory id needs version 1 of the file (KIP-853, Kafka 3.9
    and later). Without one the file has version 0, which all releases read.

    Raises OSError, and ValueError for a state that `read_quorum_state` would reject; the file is then unchanged."""
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


_INT32_MAX: Final = 2**31 - 1
_Epoch = Annotated[int, msgspec.Meta(ge=0, le=_INT32_MAX)]
_NodeId = Annotated[int, msgspec.Meta(ge=NOBODY, le=_INT32_MAX)]


class _QuorumStateFile(msgspec.Struct, frozen=True, rename="camel"):
    leader_id: _NodeId = NOBODY
    leader_epoch: _Epoch = 0
    voted_id: _NodeId = NOBODY
    voted_directory_id: str = ""


def _own_directory_id(path: Path, cluster_id: str, node_id: int, draw_id: Callable[[], bytes]) -> bytes:
    if path.exists():
        known = read_properties(path)
        if known["cluster.id"] != cluster_id:
            raise FolderError(f"{path.parent} belongs to cluster {known['cluster.id']}, not to {cluster_id}")
        if int(known["node.id"]) != node_id:
            raise FolderError(f"{path.parent} belongs to node {known['node.id']}, not to {node_id}")
        directory_id = uuid_of(known.get("directory.id", ""))
        if any(directory_id):
            return directory_id
    directory_id = draw_id()
    while uuid_text(directory_id).startswith("-") or int.from_bytes(directory_id, "big") < _RESERVED_IDS:
        directory_id = draw_id()  # Kafka rejects ids that look like a command-line option
    replace_file(path, properties_text(cluster_id, node_id, directory_id))
    return directory_id
