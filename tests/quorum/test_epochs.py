"""A voter rejects invalid epochs and leaders in responses and on disk, so that none exhausts the epochs. Requests are
tested in `traces/epochs.txt`."""

import asyncio
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from controller.kafka.messages import quorum
from controller.quorum.files import LogCorrupted
from controller.quorum.folder import PARTITION, QUORUM_STATE, FolderError, write_quorum_state
from controller.quorum.log.batches import KRAFT_VOTERS, encode_batch
from controller.quorum.raft.effects import Role
from controller.quorum.raft.log import EPOCH_MAX, QuorumState
from controller.quorum.raft.replica import LeaderAndEpoch
from controller.quorum.raft.role import ToUnattached, discovered, topics_of
from controller.serving.quorum_member import Member
from controller.settings.load import load_settings
from events.catalog import Endpoint
from tests.quorum.logs import opened, some
from tests.quorum.worlds import leader_of, others, quorum_of, settled
from tests.simulation.quorum.world import Replica
from tests.support.memory_log import InMemoryLog

STRANGER = 66


def discovers(follower: Replica, leader: LeaderAndEpoch) -> None:
    follower.does(lambda quorum: quorum._run(follower.now(), discovered(quorum, leader)))


@pytest.mark.parametrize("epoch", [(1 << 31) - 1, EPOCH_MAX])
def test_no_response_exhausts_the_epochs(epoch: int) -> None:
    world = settled()
    follower = others(world)[0]
    before = quorum_of(follower).leader_and_epoch
    discovers(follower, LeaderAndEpoch(STRANGER, epoch, ("node", STRANGER)))
    assert quorum_of(follower).leader_and_epoch == before


def test_a_negative_leader_id_is_ignored() -> None:
    world = settled()
    follower = others(world)[0]
    epoch = quorum_of(follower).epoch + 1
    discovers(follower, LeaderAndEpoch(-5, epoch, ("node", 2)))
    assert (quorum_of(follower).role, quorum_of(follower).epoch) == (Role.UNATTACHED, epoch)
    assert follower.disk.state.leader_id == -1


def test_voters_elect_leaders_up_to_the_last_epoch() -> None:
    """The epoch reaches its maximum in small steps."""
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


def test_an_invalid_quorum_state_is_not_written(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.persist(QuorumState(3))
    for state in (QuorumState(1 << 31), QuorumState(4, -7), QuorumState(4, voted_id=-2)):
        with pytest.raises(ValueError, match="Expected"):
            log.persist(state)
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


def opened_member(data: Path) -> Member:
    """The only voter of its quorum, with an election timeout of ten minutes."""
    given = ["node.id=1", "controller.quorum.election.timeout.ms=600000"]
    log, at = InMemoryLog("cluster"), Endpoint("CONTROLLER", "127.0.0.1", 9093)
    return Member(data, load_settings(overrides=given), None, "PLAINTEXT", log, at, AsyncMock())


async def test_a_voter_whose_leadership_a_vote_of_a_higher_epoch_ended_is_not_ready(tmp_path: Path) -> None:
    member = opened_member(tmp_path)
    member.start(asyncio.ensure_future)
    assert member.error is None
    part = quorum.VotePartition(replica_epoch=100, replica_id=STRANGER, last_offset_epoch=99, last_offset=1 << 40)
    await member.node.request(quorum.VoteRequest(topics=topics_of(part)))
    assert member.error == "no leader of the controllers is known"
    await member.stop()


async def test_a_malformed_control_record_is_reported_with_advice(tmp_path: Path) -> None:
    opened(tmp_path).close()
    batch = encode_batch(0, 1, 0, [(KRAFT_VOTERS.to_bytes(4, "big"), b"\0\0")], is_control=True)
    (tmp_path / PARTITION / f"{0:020d}.log").write_bytes(batch)
    why = r"0\.log, byte 0: invalid control record at offset 0: VotersRecordV0.* Restore the folder from a copy"
    with pytest.raises(LogCorrupted, match=why):
        opened_member(tmp_path)
