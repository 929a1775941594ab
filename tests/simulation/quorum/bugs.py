"""Bugs planted in the consensus or in its disk. The simulator must find each of them."""

import random
from typing import Final

from controller.kafka.messages import quorum
from controller.quorum.raft import effects as out
from controller.quorum.raft.consensus import Consensus
from controller.quorum.raft.follower import Follower
from controller.quorum.raft.leader import Leader
from controller.quorum.raft.leaderless import Candidate
from controller.quorum.raft.log import NOBODY, QuorumState
from controller.quorum.raft.progress import Fetches, Progress
from controller.quorum.raft.replica import Replica
from controller.quorum.raft.role import RoleState, ToLeader, Transition
from controller.quorum.raft.voters import Voter, VoterSet
from tests.simulation.planting import Bugs
from tests.simulation.quorum.disk import Disk, request_of, voters_at
from tests.simulation.quorum.world import Replica as SimulatedReplica


def _commit_before_flush(replica: Replica, offset: int) -> None:
    if offset > replica.high_watermark:
        replica.high_watermark = offset
        replica._effects.append(out.HighWatermark(offset))


def _count_all(leader: Leader, now: float, end: int, start: int) -> Transition | None:
    before = leader.watermark
    end = leader.progress.majority_end(end)
    if end > start:
        leader._replica.commit(end)
    if leader.watermark != before:
        leader._answer_delayed(now)
        leader.changes.committed()
    return leader._resign_if_done()


def _count_unflushed(leader: Leader, now: float) -> Transition | None:
    return _count_all(leader, now, leader._replica.log.end, leader.epoch_start)


def _count_old_epochs(leader: Leader, now: float) -> Transition | None:
    return _count_all(leader, now, leader._replica.log.durable_end, 0)


_crash = Disk.crash


def _forget_vote(disk: Disk, rng: random.Random, *, power: bool) -> None:
    _crash(disk, rng, power=power)
    disk.state = QuorumState(disk.state.epoch)


_grants = RoleState._grants


def _grant_twice(role: RoleState, now: float, part: quorum.VotePartition) -> bool:
    if not part.pre_vote and role.kind is not out.Role.LEADER:
        role._replica.voted = NOBODY, bytes(16)
    return _grants(role, now, part)


def _grant_behind(role: RoleState, now: float, part: quorum.VotePartition) -> bool:
    if role.kind is out.Role.UNATTACHED and role._replica.voted[0] == NOBODY and not part.pre_vote:
        role._replica.vote((part.replica_id, part.replica_directory_id))
        return True
    return _grants(role, now, part)


def _any_directory(progress: Progress, voter: Voter) -> Fetches:
    found = [each for (node_id, _), each in progress._seen.items() if node_id == voter.id]
    return max(found, key=lambda each: each.fetched_at, default=Fetches())


def _truncate_all(follower: Follower, leader: object) -> None:
    follower._replica.truncate(follower._replica.log.start)


def _no_leader_change(leader: Leader, now: float) -> Transition | None:
    return leader.tick(now)


def _committed_voters(replica: Replica) -> VoterSet:
    return voters_at(replica.history, replica.high_watermark)[1]


def _leads_again(consensus: Consensus, now: float, wall_ms: int) -> None:
    _start(consensus, now, wall_ms)
    if consensus.log.state.voted_id == consensus.me.id and consensus.epoch:
        consensus._run(now, ToLeader(frozenset()))


_start = Consensus.start


def _skip_check(consensus: Consensus, *transition: object) -> None:
    """Disables the consensus' own assertion, so that the witness must find the bug."""


def _half_of_the_votes(candidate: Candidate, now: float, context: int, response: object) -> Transition | None:
    transition = _replied(candidate, now, context, response)  # type: ignore[arg-type]
    if transition is None and len(candidate._granted) >= len(candidate._voters) // 2:
        return candidate.won()
    return transition


_replied = Candidate.replied


def _describe_without_a_commit(replica: SimulatedReplica, value: bytes) -> None:
    if request_of(value) != "describe":
        _append(replica, value)
    elif replica.quorum is not None and replica.quorum.role is out.Role.LEADER:
        witness, now = replica.world.witness, replica.world.now
        witness.begins(value, now)
        witness.answers(value, now, replica.disk.topic_at(replica.watermark))


def _answer_before_the_commit(replica: SimulatedReplica, value: bytes) -> None:
    _append(replica, value)
    for offset, _, each in replica._waiting:
        replica.world.witness.answers(each, replica.world.now, replica.disk.topic_at(offset))
    replica._waiting.clear()


_append = SimulatedReplica.append

BUGS: Final[Bugs] = {
    "a follower fetches again before it has flushed": [(Replica, "is_durable", property(lambda replica: True))],
    "a high watermark beyond the flushed offset": [(Replica, "commit", _commit_before_flush)],
    "a leader counts its unflushed records": [
        (Replica, "commit", _commit_before_flush),
        (Leader, "_advance_high_watermark", _count_unflushed),
    ],
    "a vote is forgotten at a restart": [(Disk, "crash", _forget_vote)],
    "two votes in an epoch": [(RoleState, "_grants", _grant_twice)],
    "a vote for a candidate whose log lacks records": [(RoleState, "_grants", _grant_behind)],
    "half of the votes are enough": [(Candidate, "replied", _half_of_the_votes), (Consensus, "_check", _skip_check)],
    "an acknowledgement of another disk counts, for uncommitted records": [
        (Progress, "of", _any_directory),
        (Leader, "_end_for", lambda leader, delayed: leader._replica.log.end),
    ],
    "records of an older epoch are committed by count": [(Leader, "_advance_high_watermark", _count_old_epochs)],
    "a new leader reports the high watermark that it knew as a follower": [
        (Leader, "watermark", property(lambda leader: leader._replica.high_watermark))
    ],
    "a log is truncated below its high watermark": [(Follower, "_truncate", _truncate_all)],
    "an epoch begins without LeaderChange": [(Leader, "enter", _no_leader_change)],
    "voters count only once they are committed": [(Replica, "voters", property(_committed_voters))],
    "a leader continues in its epoch after a restart": [
        (Consensus, "start", _leads_again),
        (Consensus, "_check", _skip_check),
    ],
    "a leader describes a topic although another one may lead": [
        (SimulatedReplica, "append", _describe_without_a_commit)
    ],
    "a create is answered before it is committed": [(SimulatedReplica, "append", _answer_before_the_commit)],
}
