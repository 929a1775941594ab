"""What the consensus needs of a log: the quorum's copy of the metadata log on one voter's disk.

Offsets count records. `start` is where the log begins: behind the newest snapshot's end or before it, `end` is behind
the last record, and what is below `durable_end` survives a crash. The rules of divergence are those of Kafka's
`ReplicatedLog` (validateOffsetAndEpoch, endOffsetForEpoch).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec

from controller.brokers.kraft.log.batches import RecordBatch
from controller.kafka.messages import ZERO_UUID

NOBODY: Final = -1
"""The id where there is no leader, or no vote."""
EPOCH_MAX: Final = (1 << 31) - 2
"""The last epoch in which anybody may lead: an epoch has 32 bits, in files and on the wire."""
_EPOCHS_UNQUESTIONED: Final = 1 << 30
"""With an election a second no quorum is beyond this in 34 years."""
_EPOCHS_AT_ONCE: Final = 1000


def is_plausible(epoch: int, known: int) -> bool:
    """True if an epoch of others counts, when the newest known one is `known`. Beyond the first half of all epochs
    only a small step is taken, so that no single message uses them up."""
    return epoch <= max(_EPOCHS_UNQUESTIONED, min(known + _EPOCHS_AT_ONCE, EPOCH_MAX))


class QuorumState(msgspec.Struct, frozen=True):
    """What a voter must never forget: its epoch, whom it follows in that, whom it voted for."""

    epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory: bytes = ZERO_UUID


class EpochEnd(msgspec.Struct, frozen=True):
    """The newest epoch up to a requested one, and the offset at which it ends."""

    epoch: int
    offset: int


class SnapshotId(msgspec.Struct, frozen=True, order=True):
    """A snapshot of all below `end_offset`; `epoch` is that of the last record in it."""

    end_offset: int
    epoch: int


class Valid(msgspec.Struct, frozen=True):
    """A follower's log is a beginning of this one: it fetches on."""


class Diverging(msgspec.Struct, frozen=True):
    """A follower's log went another way: it goes back at least to the end of this epoch."""

    epoch: int
    offset: int


class NeedsSnapshot(msgspec.Struct, frozen=True):
    """A follower is behind the log's start: it needs this snapshot first."""

    snapshot: SnapshotId


class QuorumLog(Protocol):
    """A voter's log and its durable state."""

    @property
    def state(self) -> QuorumState:
        """The state that was remembered last."""

    @property
    def start(self) -> int:
        """The first offset that can be read."""

    @property
    def end(self) -> int:
        """The offset after the last record."""

    @property
    def durable_end(self) -> int:
        """All below survives a crash."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, in the log or in the snapshot that it begins with."""

    @property
    def snapshot(self) -> SnapshotId | None:
        """The newest snapshot."""

    def remember(self, state: QuorumState) -> None:
        """Durable when it returns."""

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """The newest epoch up to `epoch`, and where it ends. Before all that is known: `epoch` itself and `start`."""

    def validate(self, offset: int, epoch: int) -> Valid | Diverging | NeedsSnapshot:
        """Whether a log that ends at `offset`, with a last record of `epoch`, is a beginning of this one."""

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset`, at least one if there is any, else up to `max_bytes`."""

    def append(self, data: bytes) -> Sequence[RecordBatch]:
        """Write batches behind the others; not durable before `flush`.

        Raises BrokenBatch, and changes nothing, for bytes that are not whole valid batches that follow on."""

    def flush(self) -> int:
        """Make what was appended durable, and give the offset up to which it is. Blocks; may run in a thread beside
        `append` and `read`."""

    def truncate(self, offset: int) -> int:
        """Let go of all batches that reach beyond `offset`, durably, and give the new end. Never below the high
        watermark, which is the caller's duty."""

    def batches(self, start: int = 0) -> Iterator[RecordBatch]:
        """The batches from the one that holds `start`, or from `self.start` if that is later."""

    def control_batches(self) -> Iterator[RecordBatch]:
        """The batches of control records, from the log's start on; no others are read for it."""

    def snapshot_control_batches(self) -> Sequence[RecordBatch]:
        """The control batches of the newest snapshot: who votes, the kraft.version."""

    def read_snapshot(self, wanted: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes] | None:
        """The snapshot's size and a piece of it from byte `position`; None if it is not there."""

    def begin_snapshot(self, snapshot: SnapshotId) -> None:
        """Begin to download a snapshot; a download that was under way is dropped."""

    def append_snapshot(self, data: bytes) -> None:
        """The next piece."""

    def finish_snapshot(self) -> None:
        """Check the download, make it the newest snapshot, and begin the log anew behind it. Raises BrokenBatch, and
        drops the download, if it is not whole."""
