"""Voter sets of the quorum (KIP-853): from the log's control records, or else from `controller.quorum.voters`.

The newest set in the log is effective from its append on, committed or not, until it is truncated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from controller.kafka.messages import ZERO_UUID
from controller.kafka.messages import records as kinds
from controller.kafka.messages.cluster import Listener
from controller.kafka.messages.quorum import KRaftVersionFeature
from controller.quorum.log.batches import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    Pair,
    RecordBatch,
    control_record,
    control_type,
)
from controller.quorum.log.metadata_codec import decode_control
from controller.quorum.raft.log import QuorumLog

Address = tuple[str, int]
"""Host and port."""


class Voter(msgspec.Struct, frozen=True):
    """A voter. A directory id of zeros, as in `controller.quorum.voters`, matches any directory."""

    id: int
    directory: bytes
    listeners: tuple[Listener, ...]
    versions: KRaftVersionFeature = KRaftVersionFeature(min_supported_version=0, max_supported_version=1)


class VoterSet(msgspec.Struct, frozen=True):
    """The voters of a quorum by node id."""

    by_id: dict[int, Voter] = {}

    @staticmethod
    def of(voters: Iterable[Voter]) -> VoterSet:
        """A set of these voters, in the order of their ids."""
        return VoterSet({each.id: each for each in sorted(voters, key=lambda voter: voter.id)})

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.by_id.values())

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(self.by_id)

    @property
    def majority(self) -> int:
        """The least number of voters that is more than half."""
        return len(self.by_id) // 2 + 1

    def has(self, node_id: int, directory: bytes) -> bool:
        """True if that node with that disk is a voter."""
        voter = self.by_id.get(node_id)
        return voter is not None and voter.directory in (ZERO_UUID, directory)

    def with_voter(self, voter: Voter) -> VoterSet:
        """This set with a voter added or replaced."""
        return VoterSet.of({**self.by_id, voter.id: voter}.values())

    def without(self, node_id: int) -> VoterSet:
        return VoterSet.of(each for each in self if each.id != node_id)


class VoterHistory:
    """The voter sets and kraft.versions of a log, by the offset of their records."""

    def __init__(self, log: QuorumLog, static: Iterable[Voter]) -> None:
        self._log = log
        self._static = VoterSet.of(static)
        self.read_again()

    def read_again(self) -> None:
        """Read everything from the log, for example after a snapshot was installed."""
        self._sets: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []
        snapshot = self._log.snapshot
        if snapshot is not None:
            for batch in self._log.snapshot_control_batches():
                self.add(batch, snapshot.end_offset - 1)
        for batch in self._log.control_batches():
            if snapshot is None or batch.base_offset >= snapshot.end_offset:
                self.add(batch)

    def add(self, batch: RecordBatch, at: int | None = None) -> None:
        """Process an appended batch, or one of a snapshot, whose records all have the offset `at`."""
        for number, (key, value) in enumerate(batch.records if batch.is_control else ()):
            offset = batch.base_offset + number if at is None else at
            match control_type(key):
                case kind if kind == KRAFT_VOTERS:
                    self._sets.append((offset, decode_voters(value)))
                case kind if kind == KRAFT_VERSION:
                    self._versions.append((offset, decode_control(kinds.KRaftVersionRecord, value).k_raft_version))

    def truncated(self, end: int) -> None:
        self._sets = [each for each in self._sets if each[0] < end]
        self._versions = [each for each in self._versions if each[0] < end]

    @property
    def newest(self) -> VoterSet:
        return self._sets[-1][1] if self._sets else self._static

    @property
    def previous(self) -> VoterSet:
        """The voter set before the newest one."""
        return self._sets[-2][1] if len(self._sets) > 1 else self._static

    @property
    def changed_at(self) -> int:
        """The offset of the newest set's record; -1 for the set of the settings."""
        return self._sets[-1][0] if self._sets else -1

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else 0


def decode_voters(value: bytes) -> VoterSet:
    return VoterSet.of(
        Voter(
            each.voter_id,
            each.voter_directory_id,
            tuple(Listener(name=at.name, host=at.host, port=at.port) for at in each.endpoints),
            each.k_raft_version_feature,
        )
        for each in decode_control(kinds.VotersRecord, value).voters
    )


def voters_record(voters: VoterSet) -> Pair:
    message = kinds.VotersRecord(
        voters=tuple(
            kinds.Voter(
                voter_id=each.id,
                voter_directory_id=each.directory,
                endpoints=tuple(kinds.VoterEndpoint(name=at.name, host=at.host, port=at.port) for at in each.listeners),
                k_raft_version_feature=each.versions,
            )
            for each in voters
        )
    )
    return control_record(KRAFT_VOTERS, message)


def kraft_version_record(version: int) -> Pair:
    return control_record(KRAFT_VERSION, kinds.KRaftVersionRecord(k_raft_version=version))


def leader_change_record(leader_id: int, voters: VoterSet, granting: Iterable[int]) -> Pair:
    """The first control record of an epoch: its leader, the voters, and the voters that elected the leader."""
    message = kinds.LeaderChangeMessage(
        leader_id=leader_id,
        voters=tuple(kinds.GrantingVoter(voter_id=each.id) for each in voters),
        granting_voters=tuple(kinds.GrantingVoter(voter_id=each) for each in sorted(granting)),
    )
    return control_record(LEADER_CHANGE, message)
