"""Invariants of a quorum, checked at each step against all disks."""

import math
from collections.abc import Iterable

from controller.quorum.log.batches import KRAFT_VOTERS, LEADER_CHANGE, RecordBatch, control_type
from controller.quorum.raft.log import QuorumState
from controller.quorum.raft.voters import VoterSet, decode_voters
from tests.simulation.quorum.disk import Disk, Vote, request_of, topic_after
from tests.support.linearizability import ABSENT, PRESENT, Operation, unexplained


class Broken(AssertionError):
    """An invariant of the quorum is violated."""


class Witness:
    """Records all commits, leaders and votes. It reads the disks and shares no rule with the consensus."""

    def __init__(self) -> None:
        self.first_voters = VoterSet()
        self.disks: dict[bytes, Disk] = {}
        self.committed: dict[int, RecordBatch] = {}
        self.committed_end = 0
        self.leaders: dict[int, tuple[int, bytes]] = {}
        self._votes: dict[tuple[bytes, int], Vote] = {}
        self._epochs: dict[bytes, int] = {}
        self.answered = 0
        self._history: dict[bytes, Operation] = {}

    def remembers(self, directory: bytes, state: QuorumState) -> None:
        """Check a stored epoch and vote: epochs never decrease, and each epoch has one vote per disk."""
        if state.epoch < self._epochs.get(directory, 0):
            raise Broken(f"the epoch decreases from {self._epochs[directory]} to {state.epoch}")
        self._epochs[directory] = state.epoch
        if state.voted_id >= 0:
            vote = state.voted_id, state.voted_directory
            before = self._votes.setdefault((directory, state.epoch), vote)
            if before != vote:
                raise Broken(f"two votes in epoch {state.epoch}: {before}, then {vote}")

    def leads(self, node_id: int, directory: bytes, epoch: int) -> None:
        """Check a new leader: it is the only one of its epoch, and has all committed records."""
        leader = self.leaders.setdefault(epoch, (node_id, directory))
        if leader != (node_id, directory):
            raise Broken(f"two leaders of epoch {epoch}: {leader[0]} and {node_id}")
        last = next(reversed(self.committed.values()), None)
        disk = self.disks[directory]
        # A paused leader of an older epoch may lack committed records, but it commits nothing.
        if last is not None and last.leader_epoch < epoch and disk.epoch_at(last.last_offset) != last.leader_epoch:
            raise Broken(f"leader {node_id} of epoch {epoch} lacks committed records below {self.committed_end}")

    def commits(self, disk: Disk, before: int, end: int, leads: int | None) -> None:
        """Check a new high watermark of a node; `leads` is its epoch if it leads."""
        if end <= before:
            raise Broken(f"the high watermark decreases from {before} to {end}")
        if end > disk.durable_end:
            raise Broken(f"high watermark {end} is above the durable end {disk.durable_end}")
        if leads is not None:
            self._check_majority(disk, end, leads)
        for batch in disk.batches(max(before, disk.start)):
            if batch.base_offset < end:
                self._check_same(batch)
        if disk.start >= end and disk.epoch_at(end - 1) != self._epoch_of(end - 1):
            raise Broken(f"the snapshot up to {end} is of another history")

    def _epoch_of(self, offset: int) -> int | None:
        base = max((each for each in self.committed if each <= offset), default=None)
        return self.committed[base].leader_epoch if base is not None else None

    def _check_same(self, batch: RecordBatch) -> None:
        known = self.committed.get(batch.base_offset)
        if known is None:
            if batch.base_offset != self.committed_end:
                raise Broken(f"a commit at {batch.base_offset} leaves a gap after {self.committed_end}")
            self._check_begins(batch)
            self.committed[batch.base_offset] = batch
            self.committed_end = batch.last_offset + 1
        elif known.data != batch.data:
            raise Broken(
                f"committed twice at {batch.base_offset}: epoch {known.leader_epoch}, then {batch.leader_epoch}"
            )

    def _check_begins(self, batch: RecordBatch) -> None:
        before = next(reversed(self.committed.values()), None)
        if before is not None and before.leader_epoch == batch.leader_epoch:
            return
        if not batch.is_control or control_type(batch.records[0][0]) != LEADER_CHANGE:
            raise Broken(f"epoch {batch.leader_epoch} does not begin with LeaderChange")

    def _check_majority(self, disk: Disk, end: int, epoch: int) -> None:
        if disk.epoch_at(end - 1) != epoch:
            raise Broken(f"leader of {epoch} commits a record of epoch {disk.epoch_at(end - 1)} by count")
        voters = self._voters_of(disk)
        having = 0
        for voter in voters:
            their = self.disks.get(voter.directory)
            has = their is not None and their.durable_end >= end and their.epoch_at(end - 1) == epoch
            having += has or (their is not None and their.start >= end)
        if having < voters.majority:
            raise Broken(f"committed up to {end} in epoch {epoch} with {having} of {len(voters)} disks that have it")

    def _voters_of(self, disk: Disk) -> VoterSet:
        """The newest voter set in a leader's log, which this reads itself."""
        for batch in reversed(disk.kept):
            found = _voters_in([batch])
            if found is not None:
                return found
        return _voters_in(disk.snapshot_control_batches()) or self.first_voters

    def truncates(self, end: int, watermark: int) -> None:
        """Check a truncation of a log."""
        if end < watermark:
            raise Broken(f"truncated to {end}, below the high watermark {watermark}")

    def shown(self, watermark: int, known: int) -> None:
        """Check a high watermark in a fetch response. Kafka's follower ends its process if it decreases."""
        if 0 <= watermark < known:
            raise Broken(f"a follower with high watermark {known} gets {watermark}")

    def acknowledges(self, offset: int, value: bytes) -> None:
        """Check an answer to a client: the record must be committed."""
        base = max((each for each in self.committed if each <= offset), default=-1)
        batch = self.committed.get(base)
        if batch is None or batch.is_control or batch.records[offset - base][1] != value:
            raise Broken(f"answered, but not committed at {offset}")

    def begins(self, value: bytes, now: float) -> None:
        """Record the start of a client's request, when it is appended."""
        request, topic = request_of(value), value.hex()
        before, after = {"create": (ABSENT, topic), "delete": (PRESENT, ABSENT)}.get(request, (ABSENT, None))
        self._history[value] = Operation(request, now, math.inf, before, after)

    def answers(self, value: bytes, now: float, topic: bytes) -> None:
        """Record the answer to a request; `topic` is the topic's id before it."""
        self.answered += 1
        asked, after = self._history[value], topic_after(topic, value)
        before = PRESENT if topic and asked.request != "describe" else topic.hex()
        changed = None if after == topic else after.hex()
        self._history[value] = Operation(asked.request, asked.began, now, before, changed)

    def check_history(self) -> None:
        """Check that the answers to clients are linearizable across leaders."""
        found = unexplained(list(self._history.values()))
        if found:
            raise Broken(f"no order explains the answers to clients: {found}")


def _voters_in(batches: Iterable[RecordBatch]) -> VoterSet | None:
    found = None
    for batch in batches:
        for key, value in batch.records if batch.is_control else ():
            if control_type(key) == KRAFT_VOTERS:
                found = decode_voters(value)
    return found
