"""Fetches of followers and brokers (KIP-595, KIP-1166) that traces cannot test."""

import pytest

from controller.kafka.messages import quorum as quorum_messages
from controller.machine.errors import ErrorCode
from controller.quorum.log.batches import METADATA_TOPIC_ID
from controller.quorum.raft.effects import CommittedLost
from controller.quorum.raft.log import SnapshotId
from controller.quorum.raft.progress import REPLICAS_MAX
from tests.quorum.worlds import answer, following, leader_of, others, quorum_of, sent, settled
from tests.simulation.quorum.world import FETCH_TIMEOUT_S
from tests.support.metadata_files import fetch_of


def test_many_observers_do_not_displace_voters() -> None:
    """Fetches of more brokers than the leader records must not make it resign."""
    world = settled()
    leader = leader_of(world)
    epoch = quorum_of(leader).epoch
    world.run_until(world.now + 4 * FETCH_TIMEOUT_S)
    end, newest = leader.disk.end, leader.disk.last_epoch
    for number in range(100, 100 + 2 * REPLICAS_MAX):
        answer(leader, fetch_of(end, epoch, newest, replica=number))
    world.run_until(world.now + 0.2)
    leader.append(b"x")
    world.run_until(world.now + 0.5)
    assert (leader_of(world), quorum_of(leader).epoch) == (leader, epoch)
    assert quorum_of(leader).high_watermark == leader.disk.end
    assert len(quorum_of(leader).leading.progress._seen) == REPLICAS_MAX  # type: ignore[union-attr]


@pytest.mark.parametrize(("topic_id", "index"), [(b"x" * 16, 0), (bytes(16), 0), (METADATA_TOPIC_ID, 1)])
def test_a_fetch_of_another_partition_is_rejected(topic_id: bytes, index: int) -> None:
    leader = leader_of(settled())
    request = fetch_of(0, quorum_of(leader).epoch, topic_id=topic_id, partition={"partition": index})
    assert answer(leader, request).error_code == ErrorCode.INVALID_REQUEST


def test_delayed_fetches_end_at_a_new_high_watermark_or_a_quarter_of_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = settled()
    leader, follower = leader_of(world), others(world)[0]
    seen = sent(follower, monkeypatch)
    world.run_until(world.now + 4 * FETCH_TIMEOUT_S)
    assert 14 <= len([each for each in seen if isinstance(each.request, quorum_messages.FetchRequest)]) <= 17
    leader.append(b"x")
    world.run_until(world.now + 0.05)
    assert [each.watermark for each in world.replicas.values()].count(leader.disk.end) == 2, "expected: a majority"
    world.run_until(world.now + FETCH_TIMEOUT_S / 4)
    assert {each.watermark for each in world.replicas.values()} == {leader.disk.end}, "expected: all, after the delay"


def test_fetch_responses_are_limited_for_slow_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_per_s, timeout_s = 1_000_000, 2.0
    world = settled()
    follower = others(world)[0]
    seen = sent(follower, monkeypatch)
    following(follower)._begin_snapshot(SnapshotId(follower.disk.end + 1000, follower.disk.last_epoch))
    world.run_until(world.now + 4 * FETCH_TIMEOUT_S)
    requests = [
        each.request
        for each in seen
        if isinstance(each.request, quorum_messages.FetchRequest | quorum_messages.FetchSnapshotRequest)
    ]
    assert {type(each) for each in requests} == {quorum_messages.FetchRequest, quorum_messages.FetchSnapshotRequest}
    assert all(each.max_bytes < bytes_per_s * timeout_s for each in requests)


def test_a_follower_does_not_truncate_committed_records() -> None:
    world = settled()
    follower = others(world)[0]
    end = follower.disk.end
    with pytest.raises(CommittedLost, match="committed"):
        following(follower)._truncate(quorum_messages.EpochEndOffset(epoch=0, end_offset=0))
    assert follower.disk.end == end
