"""Faults planted in the consensus, or in the disk beneath it, each of which the simulator has to find."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from controller.brokers.kraft.quorum.raft import effects as out
from controller.brokers.kraft.quorum.raft import requests
from controller.brokers.kraft.quorum.raft.core import Quorum
from controller.brokers.kraft.quorum.raft.election import Candidate
from controller.brokers.kraft.quorum.raft.following import Follower
from controller.brokers.kraft.quorum.raft.leading import Leader
from controller.brokers.kraft.quorum.raft.log import NOBODY, QuorumState
from controller.brokers.kraft.quorum.raft.progress import Progress, Replica
from controller.brokers.kraft.quorum.raft.voters import Voter, VoterSet
from controller.kafka.messages import quorum
from tests.simulation.planting import Bugs
from tests.simulation.quorum.disk import Disk


def _commit_before_flush(core: Quorum, offset: int) -> None:
    if offset > core.high_watermark:
        core.high_watermark = offset
        core._effects.append(out.HighWatermark(offset))


def _count_all(leader: Leader, now: float, *, own: Callable[[Quorum], int], start: int | None) -> None:
    core, before = leader._core, leader.watermark
    end = leader.progress.majority_end(core.voters, core.me.id, own(core))
    if end > (leader.epoch_start if start is None else start):
        core.commit(end)
    if leader.watermark != before:
        leader._wake_parked(now)
        leader.changes.committed(now)
    leader._settle(now)


def _count_unflushed(leader: Leader, now: float) -> None:
    _count_all(leader, now, own=lambda core: core.log.end, start=None)


def _count_old_epochs(leader: Leader, now: float) -> None:
    _count_all(leader, now, own=lambda core: core.log.durable_end, start=0)


_crash = Disk.crash


def _forget_vote(disk: Disk, rng: random.Random, *, power: bool) -> None:
    _crash(disk, rng, power=power)
    disk.state = QuorumState(disk.state.epoch)


def _grant_twice(core: Quorum, now: float, part: quorum.VotePartition) -> bool:
    if not part.pre_vote and core.leading is None:
        core.voted = NOBODY, bytes(16)
    return _grant(core, now, part)


_grant = requests._grant


def _grant_behind(core: Quorum, now: float, part: quorum.VotePartition) -> bool:
    if core.role is out.Role.UNATTACHED and core.voted[0] == NOBODY and not part.pre_vote:
        core.cast(now, (part.replica_id, part.replica_directory_id))
        return True
    return _grant(core, now, part)


def _any_directory(progress: Progress, voter: Voter) -> Replica:
    mine = [each for (node_id, _), each in progress._seen.items() if node_id == voter.id]
    return max(mine, key=lambda replica: replica.fetched_at, default=Replica())


def _cut_all(follower: Follower, leader: object) -> None:
    core = follower._core
    was, end = core.log.end, core.log.truncate(core.log.start)
    core.history.truncated(end)
    core.note(out.Truncated(was, end))


def _no_leader_change(leader: Leader, now: float) -> None:
    leader.tick(now)


def _committed_voters(core: Quorum) -> VoterSet:
    return core.history.at(core.high_watermark)[1]


def _leads_again(core: Quorum, now: float, wall_ms: int) -> None:
    _start(core, now, wall_ms)
    if core.log.state.voted_id == core.me.id and core.epoch:
        core.to_leader(now, set())


_start = Quorum.start


def _votes_of_any_majority(candidate: Candidate, now: float, context: int, response: object) -> None:
    _replied(candidate, now, context, response)  # type: ignore[arg-type]
    if candidate._core.role is out.Role.CANDIDATE and len(candidate._granted) >= len(candidate._voters) // 2:
        candidate.won(now)


_replied = Candidate.replied

BUGS: Final[Bugs] = {
    "a follower fetches again before it has flushed": [(Quorum, "is_durable", property(lambda core: True))],
    "a high watermark beyond the flushed offset": [(Quorum, "commit", _commit_before_flush)],
    "a leader counts its unflushed records": [
        (Quorum, "commit", _commit_before_flush),
        (Leader, "_count", _count_unflushed),
    ],
    "a vote is forgotten at a restart": [(Disk, "crash", _forget_vote)],
    "two votes in an epoch": [(requests, "_grant", _grant_twice)],
    "a vote for a candidate whose log lacks records": [(requests, "_grant", _grant_behind)],
    "half of the votes are enough": [(Candidate, "replied", _votes_of_any_majority)],
    "an acknowledgement of another disk counts, for uncommitted records": [
        (Progress, "of", _any_directory),
        (Leader, "_end_for", lambda leader, parked: leader._core.log.end),
    ],
    "records of an older epoch are committed by count": [(Leader, "_count", _count_old_epochs)],
    "a new leader reports the high watermark that it knew as a follower": [
        (Leader, "watermark", property(lambda leader: leader._core.high_watermark))
    ],
    "a log is truncated below its high watermark": [(Follower, "_truncate", _cut_all)],
    "an epoch begins without LeaderChange": [(Leader, "enter", _no_leader_change)],
    "voters count only once they are committed": [(Quorum, "voters", property(_committed_voters))],
    "a leader continues in its epoch after a restart": [(Quorum, "start", _leads_again)],
}
