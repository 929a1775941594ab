"""Epochs and leaders in requests and responses that a voter rejects: none may exhaust the epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.kafka.messages import quorum as quorum_messages
from controller.machine.errors import ErrorCode
from controller.quorum.folder import PARTITION, QUORUM_STATE, FolderError, write_quorum_state
from controller.quorum.raft.effects import Role
from controller.quorum.raft.log import EPOCH_MAX, QuorumState
from controller.quorum.raft.replica import LeaderAndEpoch
from controller.quorum.raft.role import ToUnattached, discovered, topics_of
from tests.quorum.logs import opened, some
from tests.quorum.worlds import answer, begin_request, end_request, leader_of, others, quorum_of, settled

STRANGER = 66
REQUESTS = ("vote", "pre-vote", "begin", "end")


def request_of(kind: str, sender_id: int, epoch: int) -> Any:
    """A request of a kind, in an epoch, of a candidate or a leader."""
    if kind == "begin":
        return begin_request(sender_id, epoch)
    if kind == "end":
        return end_request(sender_id, epoch)
    part = quorum_messages.VotePartition(
        replica_epoch=epoch,
        replica_id=sender_id,
        last_offset_epoch=epoch - 1,
        last_offset=1 << 40,
        pre_vote=kind == "pre-vote",
    )
    return quorum_messages.VoteRequest(topics=topics_of(part))


def code_of(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("epoch", [(1 << 31) - 1, EPOCH_MAX, EPOCH_MAX - 1, (1 << 30) + 2000])
def test_no_request_exhausts_the_epochs(count: int, kind: str, epoch: int) -> None:
    world = settled(count)
    leader = leader_of(world)
    before = quorum_of(leader).epoch
    assert code_of(answer(leader, request_of(kind, 2, epoch))) == ErrorCode.INVALID_REQUEST
    assert (quorum_of(leader).epoch, leader.disk.state.epoch) == (before, before)
    assert leader_of(world) is leader


@pytest.mark.parametrize("epoch", [(1 << 31) - 1, EPOCH_MAX])
def test_no_response_exhausts_the_epochs(epoch: int) -> None:
    world = settled()
    follower = others(world)[0]
    before = quorum_of(follower).leader_and_epoch
    follower.does(
        lambda quorum: quorum._run(
            follower.now(), discovered(quorum, LeaderAndEpoch(STRANGER, epoch, ("node", STRANGER)))
        )
    )
    assert quorum_of(follower).leader_and_epoch == before


def test_a_leader_whose_id_is_negative_is_no_leader() -> None:
    world = settled()
    follower = others(world)[0]
    epoch = quorum_of(follower).epoch + 1
    follower.does(
        lambda quorum: quorum._run(follower.now(), discovered(quorum, LeaderAndEpoch(-5, epoch, ("node", 2))))
    )
    assert (quorum_of(follower).role, quorum_of(follower).epoch) == (Role.UNATTACHED, epoch)
    assert follower.disk.state.leader_id == -1


def test_voters_elect_leaders_up_to_the_last_epoch() -> None:
    """A quorum whose epoch rose in small steps."""
    world = settled()
    for replica in world.replicas.values():
        replica.does(lambda quorum, replica=replica: quorum._run(replica.now(), ToUnattached(EPOCH_MAX - 3)))  # type: ignore[misc]
    world.run_until(world.now + 5)
    assert leader_of(world)
    for _ in range(4):
        if world.leader is not None:
            world.leader.does(lambda quorum: quorum.set_can_lead(0.0, can_lead=False))
            world.run_until(world.now + 0.5)
            for replica in world.replicas.values():
                replica.does(lambda quorum: quorum.set_can_lead(0.0, can_lead=True))
            world.run_until(world.now + 5)
    assert world.leader is None
    assert {quorum_of(each).epoch for each in world.replicas.values()} == {EPOCH_MAX}


@pytest.mark.parametrize("kind", ["begin", "end"])
def test_an_alone_voter_follows_no_other_leader(kind: str) -> None:
    """Nobody is elected without its vote."""
    world = settled(1)
    leader = leader_of(world)
    before = quorum_of(leader).epoch
    response = answer(leader, request_of(kind, STRANGER, before + 90))
    assert code_of(response) == ErrorCode.INCONSISTENT_VOTER_SET
    assert (leader_of(world), quorum_of(leader).epoch) == (leader, before)


def test_an_invalid_quorum_state_is_not_written(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.remember(QuorumState(3))
    for state in (QuorumState(1 << 31), QuorumState(4, -7), QuorumState(4, voted_id=-2)):
        with pytest.raises(ValueError, match="Expected"):
            log.remember(state)
    log.close()
    again = opened(tmp_path)
    assert again.state == QuorumState(3)
    again.close()


def test_a_quorum_state_in_the_last_epoch_is_rejected_with_advice(tmp_path: Path) -> None:
    opened(tmp_path).close()
    path = tmp_path / PARTITION / QUORUM_STATE
    write_quorum_state(path, QuorumState(EPOCH_MAX))
    with pytest.raises(FolderError, match=f"quorum-state is in epoch {EPOCH_MAX}.*delete that file"):
        opened(tmp_path)
    path.unlink()
    opened(tmp_path).close()


def test_a_log_in_the_last_epoch_is_rejected_with_advice(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(some(0, epoch=EPOCH_MAX))
    log.close()
    with pytest.raises(FolderError, match=f"records of epoch {EPOCH_MAX}.*restore the folder"):
        opened(tmp_path)
