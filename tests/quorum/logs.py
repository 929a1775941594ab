"""Logs of a voter for tests: batches and snapshots."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from controller.kafka.messages.cluster import Listener
from controller.machine.state import QuorumLeader
from controller.quorum.files import QuorumFiles
from controller.quorum.folder import PARTITION
from controller.quorum.log.batches import CONTROLLER_LISTENER, Pair, encode_batch, snapshot_footer, snapshot_header
from controller.quorum.raft.log import SnapshotId
from controller.quorum.raft.voters import Voter, VoterSet, kraft_version_record, leader_change_record, voters_record

QUORUM = QuorumLeader(3, 3000, 1, "127.0.0.1", 9093, b"d" * 16)


def epoch_begun(quorum: QuorumLeader) -> list[Pair]:
    """The control records that begin the epoch of a leader that is the only voter."""
    place = Listener(name=CONTROLLER_LISTENER, host=quorum.host, port=quorum.port)
    voters = VoterSet.of([Voter(quorum.node_id, quorum.directory_id, (place,))])
    pairs = [leader_change_record(quorum.node_id, voters, [quorum.node_id])]
    if quorum.kraft_version:
        pairs += [kraft_version_record(quorum.kraft_version), voters_record(voters)]
    return pairs


def opened(folder: Path, segment_bytes: int = 1 << 20, retention_bytes: int = 0) -> QuorumFiles:
    """Open the log in a folder, which is created if missing. By default it retains nothing before its snapshots."""
    (folder / PARTITION).mkdir(parents=True, exist_ok=True)
    return QuorumFiles(folder / PARTITION, segment_bytes, retention_bytes)


def some(base: int, count: int = 1, epoch: int = 1, size: int = 20) -> bytes:
    """A batch of `count` records of `size` bytes each."""
    return encode_batch(base, epoch, 1000 + base, [(None, b"r" * size)] * count)


def led(base: int, epoch: int) -> bytes:
    """The control batch that begins an epoch."""
    return encode_batch(base, epoch, 1000 + base, epoch_begun(QUORUM)[:1], is_control=True)


def snapshot(epoch: int, records: Sequence[Pair] = ((None, b"r" * 20),)) -> bytes:
    """The bytes of a snapshot with the voter set and some records."""
    head = [snapshot_header(5), *epoch_begun(QUORUM)[1:]]
    parts = [encode_batch(0, epoch, 5, head, is_control=True), encode_batch(len(head), epoch, 5, records)]
    foot = encode_batch(len(head) + len(records), epoch, 5, [snapshot_footer()], is_control=True)
    return b"".join((*parts, foot))


def kept(log: QuorumFiles, wanted: SnapshotId, data: Iterable[bytes]) -> None:
    """Write a snapshot and add it to the log."""
    log.write_snapshot(wanted, data)
    assert log.keep_snapshot(wanted)
