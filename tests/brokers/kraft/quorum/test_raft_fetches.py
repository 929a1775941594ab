"""How followers and brokers fetch from the leader (KIP-595, KIP-1166)."""

from __future__ import annotations

from typing import Any

import pytest

from controller.brokers.kraft.log.batches import METADATA_TOPIC_ID, decode_batches
from controller.brokers.kraft.quorum.raft.effects import CommittedLost
from controller.brokers.kraft.quorum.raft.leading import PUT_OFF_S
from controller.brokers.kraft.quorum.raft.log import EpochEnd, SnapshotId
from controller.brokers.kraft.quorum.raft.progress import REPLICAS_MAX, Progress
from controller.brokers.kraft.quorum.raft.voters import VoterSet
from controller.kafka.messages import quorum as quorum_messages
from controller.machine.errors import ErrorCode
from tests.brokers.kraft.quorum.worlds import (
    answer,
    leader_of,
    others,
    quorum_of,
    sent,
    settled,
)
from tests.simulation.quorum.world import CLUSTER, FETCH_TIMEOUT_S, World


def fetched(world: World, **changes: Any) -> quorum_messages.FetchPartitionData:
    """The leader's answer to a fetch that does not wait, by nobody."""
    leader = leader_of(world)
    fields = {"current_leader_epoch": quorum_of(leader).epoch, "fetch_offset": 0, "last_fetched_epoch": 0, **changes}
    topic = quorum_messages.FetchTopic(
        topic_id=METADATA_TOPIC_ID, partitions=(quorum_messages.FetchPartition(**fields),)
    )
    part: quorum_messages.FetchPartitionData = (
        answer(leader, quorum_messages.FetchRequest(cluster_id=CLUSTER, topics=(topic,))).responses[0].partitions[0]
    )
    return part


def test_a_fetch_shows_records_watermark_and_leader() -> None:
    world = settled()
    part = fetched(world)
    assert part.records == leader_of(world).disk.read(0, 1 << 20)
    assert part.high_watermark == leader_of(world).watermark
    assert part.current_leader.leader_id == leader_of(world).id


def test_an_observer_has_what_is_committed_and_a_voter_all() -> None:
    world = settled()
    leader, voter = leader_of(world), others(world)[0]
    committed = leader.watermark
    leader.does(lambda quorum: quorum.append(leader.now(), 0, [(None, b"in flight")]))
    end = leader.disk.end
    assert committed < end, "nobody has fetched since"
    last_epoch = leader.disk.last_epoch

    def ends(replica_id: int, directory: bytes, offset: int = 0) -> tuple[int, int]:
        part = quorum_messages.FetchPartition(
            current_leader_epoch=quorum_of(leader).epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch if offset else 0,
            replica_directory_id=directory,
        )
        topic = quorum_messages.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(part,))
        state = quorum_messages.ReplicaState(replica_id=replica_id)
        response = answer(
            leader, quorum_messages.FetchRequest(cluster_id=CLUSTER, topics=(topic,), replica_state=state)
        )
        shown = response.responses[0].partitions[0]
        *_, last = [None, *decode_batches(shown.records or b"")]
        return (offset if last is None else last.last_offset + 1), shown.high_watermark

    for stranger in ((99, b"x" * 16), (-1, b"x" * 16), (voter.id, b"x" * 16)):
        assert ends(*stranger) == (committed, committed), stranger
        assert ends(*stranger, committed) == (committed, committed), stranger
    assert ends(voter.id, voter.disk.directory) == (end, committed)


def test_what_is_not_for_observers_comes_with_the_next_that_is_or_a_moment_later() -> None:
    world = settled()
    leader = leader_of(world)
    core, began = quorum_of(leader), leader.watermark
    last_epoch = leader.disk.last_epoch

    def append(for_observers: bool) -> None:
        leader.does(lambda quorum: quorum.append(leader.now(), 0, [(None, b"x")], for_observers=for_observers))
        world.run_until(world.now + 0.1)
        assert core.high_watermark == core.log.end, "no voter waits for it"

    def seen() -> int:
        part = fetched(world, fetch_offset=began, last_fetched_epoch=last_epoch)
        return began + len(list(decode_batches(part.records or b"")))

    append(for_observers=False)
    assert seen() == began
    append(for_observers=True)
    assert seen() == began + 2
    append(for_observers=False)
    append(for_observers=False)
    assert seen() == began + 2
    world.run_until(world.now + PUT_OFF_S)
    assert seen() == began + 4, "it is put off no longer than that"


def test_made_up_replicas_are_not_remembered_without_bound() -> None:
    progress = Progress(VoterSet)
    for number in range(3 * REPLICAS_MAX):
        progress.fetched(float(number) / 1000, number, b"d" * 16, 5, 5)
        progress.fetched(float(number) / 1000, -7, b"e" * 16, 3, 5)
    assert len(progress._seen) == REPLICAS_MAX
    assert progress.end_of(-7) == 3, "who goes on fetching is kept"
    assert progress.end_of(0) == 0, "and is forgotten who was silent the longest"


def test_voters_are_heard_however_many_others_fetch() -> None:
    """More brokers than are remembered must not depose a leader."""
    world = settled()
    leader = leader_of(world)
    epoch = quorum_of(leader).epoch
    world.run_until(world.now + 4 * FETCH_TIMEOUT_S)
    end, newest = leader.disk.end, leader.disk.last_epoch
    part = quorum_messages.FetchPartition(current_leader_epoch=epoch, fetch_offset=end, last_fetched_epoch=newest)
    topic = quorum_messages.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(part,))
    for number in range(100, 100 + 2 * REPLICAS_MAX):
        state = quorum_messages.ReplicaState(replica_id=number)
        answer(leader, quorum_messages.FetchRequest(cluster_id=CLUSTER, topics=(topic,), replica_state=state))
    world.run_until(world.now + 0.2)
    leader.append(b"x")
    world.run_until(world.now + 0.5)
    assert (leader_of(world), quorum_of(leader).epoch) == (leader, epoch)
    assert quorum_of(leader).high_watermark == leader.disk.end
    assert len(quorum_of(leader).leading.progress._seen) == REPLICAS_MAX  # type: ignore[union-attr]


@pytest.mark.parametrize(("topic_id", "index"), [(b"x" * 16, 0), (bytes(16), 0), (METADATA_TOPIC_ID, 1)])
def test_a_fetch_of_another_partition_is_refused(topic_id: bytes, index: int) -> None:
    leader = leader_of(settled())
    part = quorum_messages.FetchPartition(partition=index, current_leader_epoch=quorum_of(leader).epoch, fetch_offset=0)
    request = quorum_messages.FetchRequest(
        cluster_id=CLUSTER, topics=(quorum_messages.FetchTopic(topic_id=topic_id, partitions=(part,)),)
    )
    assert answer(leader, request).error_code == ErrorCode.INVALID_REQUEST


def test_a_fetch_in_another_epoch_is_refused() -> None:
    world = settled()
    epoch = quorum_of(leader_of(world)).epoch
    assert fetched(world, current_leader_epoch=epoch - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert fetched(world, current_leader_epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_fetch_from_where_the_logs_part_is_shown_where() -> None:
    world = settled()
    disk = leader_of(world).disk
    part = fetched(world, fetch_offset=disk.end + 7, last_fetched_epoch=disk.last_epoch)
    shown = EpochEnd(part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
    assert shown == disk.end_of_epoch(disk.last_epoch)
    assert not part.records


def test_parked_fetches_are_answered_for_a_watermark_and_at_a_quarter_of_the_fetch_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = settled()
    leader, follower = leader_of(world), others(world)[0]
    seen = sent(follower, monkeypatch)
    world.run_until(world.now + 4 * FETCH_TIMEOUT_S)
    assert 14 <= len([each for each in seen if isinstance(each.request, quorum_messages.FetchRequest)]) <= 17
    leader.append(b"x")
    world.run_until(world.now + 0.05)
    assert [each.watermark for each in world.replicas.values()].count(leader.disk.end) == 2, "a majority"
    world.run_until(world.now + FETCH_TIMEOUT_S / 4)
    assert {each.watermark for each in world.replicas.values()} == {leader.disk.end}, "and all after their turn"


def test_what_is_fetched_at_once_comes_in_time_on_a_slow_line(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_per_s, timeout_s = 1_000_000, 2.0
    world = settled()
    follower = others(world)[0]
    following, seen = quorum_of(follower).following, sent(follower, monkeypatch)
    assert following is not None
    following._begin_snapshot(SnapshotId(follower.disk.end + 1000, follower.disk.last_epoch))
    world.run_until(world.now + 4 * FETCH_TIMEOUT_S)
    requests = [
        each.request
        for each in seen
        if isinstance(each.request, quorum_messages.FetchRequest | quorum_messages.FetchSnapshotRequest)
    ]
    assert {type(each) for each in requests} == {quorum_messages.FetchRequest, quorum_messages.FetchSnapshotRequest}
    assert all(each.max_bytes < bytes_per_s * timeout_s for each in requests)


def test_a_follower_that_would_lose_what_is_committed_stops() -> None:
    world = settled()
    follower = others(world)[0]
    following, end = quorum_of(follower).following, follower.disk.end
    assert following is not None
    with pytest.raises(CommittedLost, match="committed"):
        following._truncate(quorum_messages.EpochEndOffset(epoch=0, end_offset=0))
    assert follower.disk.end == end
