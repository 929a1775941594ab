"""The port through which the consensus uses the metadata log on one voter's disk; `quorum.files` implements it.

Offsets count records. `start` is the first offset in the log; it is at most the newest snapshot's end. `end` is the
offset after the last record. Records below `durable_end` survive a crash. Divergence is detected as in Kafka's
`ReplicatedLog` (validateOffsetAndEpoch, endOffsetForEpoch).
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from controller.kafka.messages import ZERO_UUID
from controller.quorum.log.batches import RecordBatch

NOBODY: Final = -1
"""The node id for "no leader" and "no vote"."""
EPOCH_MAX: Final = (1 << 31) - 2
"""The last epoch in which a voter may lead: an epoch is an int32, in files and on the wire."""
_EPOCH_ALWAYS_ACCEPTED: Final = 1 << 30
"""At one election a second, a quorum reaches this epoch after 34 years."""
_EPOCH_STEP_MAX: Final = 1000


def is_plausible(epoch: int, known: int) -> bool:
    """True if a received epoch is acceptable when the newest known one is `known`. In the upper half of the range an
    epoch may rise only in small steps, so that one message cannot exhaust the epochs."""
    return epoch <= max(_EPOCH_ALWAYS_ACCEPTED, min(known + _EPOCH_STEP_MAX, EPOCH_MAX))


class QuorumState(msgspec.Struct, frozen=True):
    """The durable state of a voter (`quorum-state` in Kafka): its epoch, and its leader and vote in that epoch."""

    epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory: bytes = ZERO_UUID


class EpochEnd(msgspec.Struct, frozen=True):
    """The newest epoch up to a requested one, and the offset at which it ends."""

    epoch: int
    offset: int


class SnapshotId(msgspec.Struct, frozen=True, order=True):
    """A snapshot of all records below `end_offset`; `epoch` is that of its last record."""

    end_offset: int
    epoch: int


class QuorumLog(Protocol):
    """A voter's log and its durable state."""

    state: QuorumState
    """The state as of the last `persist`."""
    durable_end: int
    """The offset below which all records survive a crash."""

    @property
    def start(self) -> int:
        """The first offset that can be read."""

    @property
    def end(self) -> int:
        """The offset after the last record."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, in the log or else in its newest snapshot."""

    @property
    def snapshot(self) -> SnapshotId | None:
        """The newest snapshot."""

    def persist(self, state: QuorumState) -> None:
        """Store the quorum state durably. After an OSError the previous state remains."""

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The newest epoch up to `epoch`, and its end. For an epoch older than the log: `epoch` itself and `start`."""

    def mismatch(self, offset: int, epoch: int) -> EpochEnd | SnapshotId | None:
        """Compare a follower's log that ends at `offset`, with a last record of `epoch`, with this one.

        Returns None if the follower's log is a prefix of this one; if it diverges, the end of an epoch here, to which
        the follower must truncate; and if it ends before `start`, the snapshot to fetch first."""

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the batch with `offset`: up to `max_bytes`, but at least one; empty at the log's end."""

    def append(self, data: bytes) -> Sequence[RecordBatch]:
        """Append batches, which become durable with the next `flush`.

        Raises BrokenBatch unless `data` is whole, valid batches that continue the log, and OSError if the disk fails.
        Both leave the log unchanged."""

    def flush(self) -> int:
        """Make appended batches durable; returns the new `durable_end`. Blocks; may run in a thread, concurrently with
        `append` and `read`. After an OSError the log rejects writes until `truncate`."""

    def truncate(self, offset: int) -> int:
        """Durably remove all batches that reach beyond `offset`; returns the new end. Callers must not truncate below
        the high watermark."""

    def control_batches(self) -> Iterator[RecordBatch]:
        """The batches of control records in the log; other batches are not read."""

    def snapshot_control_batches(self) -> Sequence[RecordBatch]:
        """The control batches of the newest snapshot: voters and kraft.version."""

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """A snapshot's size, and up to `max_bytes` of it from byte `position`; None if it does not exist."""

    def begin_snapshot(self, snapshot: SnapshotId) -> None:
        """Begin the download of a snapshot; drops an unfinished download."""

    def append_snapshot(self, data: bytes) -> None:
        """Append the next bytes of the download."""

    def finish_snapshot(self) -> None:
        """Validate the download, make it the newest snapshot, and start an empty log at its end. Raises BrokenBatch,
        and drops the download, if it is incomplete or invalid."""
