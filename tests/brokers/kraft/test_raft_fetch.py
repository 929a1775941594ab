"""Fetch and FetchSnapshot of the metadata log: the answers that `KafkaRaftClient` gives, and waiting."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controller.brokers.kraft.log import raft_fetch
from controller.brokers.kraft.log.batches import decode_batches
from controller.brokers.kraft.log.raft_fetch import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    OBSERVER_SILENT_MS_MAX,
    OBSERVERS_MAX,
    RaftLog,
)
from controller.brokers.kraft.log.snapshots import make_snapshot
from controller.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from controller.kafka.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    RequestPartitionSnapshot,
    RequestTopicSnapshot,
    SnapshotId,
)
from events.names import BrokerId
from tests.brokers.kraft.logs import LogRig, log_of, real_history

HISTORY = real_history()
LATEST = 18


def raft(log: LogRig) -> RaftLog:
    return RaftLog(log.metadata, "cluster", lambda: log.state.cluster.quorum, lambda: 1_000)


def request(offset: int = 0, epoch: int = 1, last_epoch: int = 0, wait_ms: int = 0, **fields: Any) -> FetchRequest:
    partition = FetchPartition(
        current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last_epoch, **fields.pop("partition", {})
    )
    topic = FetchTopic(topic_id=fields.pop("topic_id", METADATA_TOPIC_ID), partitions=(partition,))
    state = ReplicaState(replica_id=fields.pop("replica", 1))
    return FetchRequest(max_wait_ms=wait_ms, max_bytes=8 << 20, topics=(topic,), replica_state=state, **fields)


def partition_of(response: FetchResponse) -> PartitionData:
    assert response.error_code == 0, response
    return response.responses[0].partitions[0]


async def test_it_gives_batches_the_leader_and_where_the_log_ends() -> None:
    log = log_of(HISTORY, 1)
    response = await raft(log).fetch(LATEST, request())
    partition = partition_of(response)
    assert partition.records == log.data()
    end = log.metadata.mark.end
    assert (partition.high_watermark, partition.log_start_offset) == (end, 0)
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (3000, 1)
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [(3000, "localhost", 9093)]
    assert (await raft(log).fetch(15, request())).node_endpoints == ()


@pytest.mark.parametrize(
    ("fetch", "code"),
    [
        (request(cluster_id="another"), 104),
        (request(topic_id=b"x" * 16), 42),
        (FetchRequest(), 42),
    ],
    ids=["cluster", "topic", "nothing"],
)
async def test_what_is_not_for_this_log_is_refused_as_a_whole(fetch: FetchRequest, code: int) -> None:
    assert (await raft(log_of(HISTORY, 1)).fetch(LATEST, fetch)).error_code == code


@pytest.mark.parametrize(
    ("fetch", "code", "diverging"),
    [
        (request(epoch=0), 74, (-1, -1)),
        (request(epoch=2), 75, (-1, -1)),
        (request(offset=-1), 42, (-1, -1)),
        (request(offset=3, last_epoch=-1), 42, (-1, -1)),
        (request(offset=3, last_epoch=1), 0, (-1, -1)),
        (request(offset=1000, last_epoch=1), 0, (1, "end")),
        (request(offset=3, last_epoch=5), 0, (1, "end")),
        (request(offset=3, last_epoch=0), 0, (0, 0)),
    ],
    ids=["old epoch", "new epoch", "negative", "no epoch", "fine", "beyond", "unknown epoch", "before the first"],
)
async def test_epochs_and_divergence_are_reported_as_kafka_reports_them(
    monkeypatch: pytest.MonkeyPatch, fetch: FetchRequest, code: int, diverging: tuple[int, Any]
) -> None:
    log = log_of(HISTORY, 1)
    follower = raft(log)
    warned: list[int] = []
    warn = SimpleNamespace(warning=lambda event, *, broker, offset, epoch: warned.append(broker))
    monkeypatch.setattr(raft_fetch, "logger", warn)
    partition = partition_of(await follower.fetch(LATEST, fetch))
    epoch, offset = diverging
    assert warned == ([1] if epoch >= 0 else [])
    wanted = epoch, log.metadata.mark.end if offset == "end" else offset
    found = partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset
    assert (partition.error_code, found) == (code, wanted)
    assert bool(partition.records) == (code == 0 and epoch == -1)


async def test_a_fetch_at_the_end_waits_until_there_is_more() -> None:
    log = log_of(HISTORY[:10], 1)
    follower = raft(log)
    end = log.metadata.mark.end
    waiting = asyncio.ensure_future(
        follower.fetch(LATEST, request(end, last_epoch=1, wait_ms=60_000, partition={"high_watermark": end}))
    )
    await asyncio.sleep(0)
    log.commit(HISTORY[10:])
    follower.grew()
    partition = partition_of(await waiting)
    assert next(decode_batches(partition.records or b"")).base_offset == end
    assert partition.high_watermark == log.metadata.mark.end


async def test_a_fetch_at_the_end_of_one_who_knows_less_is_answered_at_once() -> None:
    log = log_of(HISTORY, 1)
    end = log.metadata.mark.end
    fetch = request(end, last_epoch=1, wait_ms=60_000, partition={"high_watermark": end - 1})
    assert partition_of(await raft(log).fetch(LATEST, fetch)).records == b""


async def test_it_is_noted_how_far_each_broker_is() -> None:
    log = log_of(HISTORY, 1)
    follower = raft(log)
    heard: list[tuple[int, int]] = []
    follower.on_fetched = lambda broker, offset: heard.append((broker, offset))
    for offset in (0, 3, 3, log.metadata.mark.end):
        await follower.fetch(LATEST, request(offset, last_epoch=1 if offset else 0, replica=7))
    await follower.fetch(LATEST, request(3, last_epoch=1, replica=-1))
    assert heard == [(7, 3), (7, log.metadata.mark.end)]
    assert list(follower.observers) == [7]
    assert follower.observers[7].caught_up_at_ms == 1_000


async def test_made_up_replicas_are_not_remembered_without_bound() -> None:
    log = log_of(HISTORY, 1)
    follower = raft(log)
    for replica in range(3 * OBSERVERS_MAX):
        await follower.fetch(LATEST, request(3, last_epoch=1, replica=replica))
        await follower.fetch(LATEST, request(3, last_epoch=1, replica=7))
    assert len(follower.observers) == OBSERVERS_MAX
    assert follower.fetched(BrokerId(7)) == 3, "who goes on fetching is kept"


async def test_a_silent_replica_is_forgotten() -> None:
    now_ms = 0
    log = log_of(HISTORY, 1)
    follower = RaftLog(log.metadata, "cluster", lambda: log.state.cluster.quorum, lambda: now_ms)
    await follower.fetch(LATEST, request(3, last_epoch=1, replica=1))
    now_ms = OBSERVER_SILENT_MS_MAX
    await follower.fetch(LATEST, request(3, last_epoch=1, replica=2))
    assert list(follower.observers) == [1, 2]
    now_ms += 1
    await follower.fetch(LATEST, request(3, last_epoch=1, replica=3))
    assert list(follower.observers) == [2, 3]


async def test_one_too_far_back_is_sent_to_the_snapshot() -> None:
    log = log_of(HISTORY[:10], 1)
    for record in HISTORY[10:13]:
        mark = log.metadata.mark
        log.metadata.offer_snapshot(make_snapshot(log.metadata, mark.end, mark.epoch))
        log.commit([record])
    newest = log.metadata.mark.snapshots[-1]
    partition = partition_of(await raft(log).fetch(LATEST, request()))
    assert (partition.snapshot_id.end_offset, partition.snapshot_id.epoch) == (newest.end_offset, newest.epoch)
    assert partition.records == b""
    whole, position = b"", 0
    while position < newest.size:
        piece = _piece(log, newest.end_offset, newest.epoch, position, max_bytes=100)
        assert (piece.error_code, piece.size, piece.position) == (0, newest.size, position)
        whole += piece.unaligned_records
        position = len(whole)
    assert whole == log.metadata.snapshot_bytes(newest)
    assert _piece(log, newest.end_offset, 9, 0).error_code == 98
    assert _piece(log, newest.end_offset, newest.epoch, newest.size).error_code == 99
    assert _piece(log, newest.end_offset, newest.epoch, 0, leader_epoch=0).error_code == 74
    assert _piece(log, newest.end_offset, newest.epoch, 0, leader_epoch=2).error_code == 75


def _piece(
    log: LogRig, end_offset: int, epoch: int, position: int, *, leader_epoch: int = 1, max_bytes: int = 1 << 20
) -> Any:
    partition = RequestPartitionSnapshot(
        current_leader_epoch=leader_epoch,
        snapshot_id=SnapshotId(end_offset=end_offset, epoch=epoch),
        position=position,
    )
    topic = RequestTopicSnapshot(name=METADATA_TOPIC, partitions=(partition,))
    response = raft(log).fetch_snapshot(1, FetchSnapshotRequest(max_bytes=max_bytes, topics=(topic,)))
    assert response.error_code == 0
    return response.topics[0].partitions[0]
