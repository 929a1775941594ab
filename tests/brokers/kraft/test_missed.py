"""Events that a voter missed come from another Topicwright, with their offsets; or the gap is marked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.brokers.cluster.connections import Address
from controller.brokers.kraft import catch_up
from controller.brokers.kraft.log import metadata_records as kinds
from controller.brokers.kraft.log.metadata_codec import encode_record
from controller.brokers.kraft.quorum.snapshotting import Snapshotting
from controller.kafka.messages import fetch_snapshot as fs
from events.catalog import HistorySkipped
from tests.brokers.kraft.desks import Desk, steps, three
from tests.brokers.kraft.importing import story
from tests.brokers.kraft.logs import access_history
from tests.kafka.server.listener import until

HISTORY = access_history()
COMMANDS = steps(HISTORY)


async def cut_short(desk: Desk) -> None:
    """Two snapshots of all that is committed, so that the log before is gone."""
    assert desk.seat.log is not None

    async def applied() -> int:
        desk.log.flush()
        return desk.replication.record_applied()

    for _ in range(2):
        desk.node.append([(None, encode_record(kinds.NoOpRecord()))])
        end = desk.seat.log.end
        await desk.node.until(lambda core, end=end: core.high_watermark >= end)  # type: ignore[misc]
        desk.replication.following.applied = end
        taken = Snapshotting(desk.node.quorum, desk.seat.log, 1, 0, lambda: 0.0, applied)
        assert await taken.take()
    assert desk.seat.log.start > 0


def kept(desk: Desk) -> list[tuple[bytes, bytes]]:
    """The state that the log keeps, but for up to where it is applied; counts of nothing are kept or not."""
    return [(key, value) for key, value in desk.kept() if key != b"kv" and key[:1] not in (b"n", b"y")]


async def decided_by_kafka(desk: Desk, number: int) -> None:
    """A batch without events."""
    topic = kinds.TopicRecord(name=f"k{number}", topic_id=bytes([number]) * 16)
    end = 1 + desk.node.append([(None, encode_record(each)) for each in (topic, story.partition(topic.topic_id, 0, 1))])
    desk.load()
    while desk.replication.applied < end:
        assert await desk.follow(), "it has events"


@pytest.mark.parametrize(
    ("given", "others_last"),
    [("all", False), ("all", True), ("nobody", False), ("another history", False), ("a lie", False)],
)
async def test_what_was_missed_is_copied_from_who_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, others_last: bool
) -> None:
    monkeypatch.setattr(catch_up, "PAGE_EVENTS", 3)
    async with three(tmp_path) as (leader, (away, other)):
        await leader.commit(COMMANDS[:3])
        known = leader.log.next_offset
        for each in (away, other):
            await each.follow(lambda each=each: each.log.next_offset == known)  # type: ignore[misc]
        await away.seat.stop()
        await leader.commit(COMMANDS[3:])
        if others_last:
            await decided_by_kafka(leader, 1)
        await cut_short(leader)
        if others_last:  # what comes after the snapshot does not belong to it
            await decided_by_kafka(leader, 2)
        whole = leader.log.next_offset
        await other.follow(lambda: other.log.next_offset == whole)
        assert other.events() == leader.events()

        seats = [each.seat for each in (leader, away, other)]
        away.seat.boot(seats)
        away.open()
        places = [each.node.quorum.me.listeners[0] for each in (other, leader) if given != "nobody"]

        async def of_topicwright() -> list[Address]:
            return [(each.host, each.port) for each in places]

        monkeypatch.setattr(away.node, "of_topicwright", of_topicwright)
        if given == "another history":
            monkeypatch.setattr(catch_up, "head_of", lambda log, size: (size, bytes([log is away.log]) * 32))
        elif given == "a lie":
            values = [value for _, value in leader.log.read()][: known + 3]
            monkeypatch.setattr(catch_up.EventPages, "_end_below", lambda *_: len(values))
        log = away.seat.log
        assert log is not None
        await until(lambda: log.start > 0 and away.node.quorum.high_watermark >= leader.replication.applied)
        following = asyncio.create_task(away.follow())
        await until(lambda: away.replication.applied >= leader.replication.applied)
        away.stopping.set()
        await following

        skipped = [each for each in away.events() if isinstance(each.event, HistorySkipped)]
        if given == "all":
            assert skipped == [], away.events()[skipped[0].offset :]
            assert away.events() == leader.events()
            assert kept(away) == kept(leader)
            assert away.projector.ids == leader.projector.ids
        else:
            assert len(skipped) == 1
            assert skipped[0].offset == known + 3 * (given == "a lie"), "what is missing is marked, and said"
            assert away.recorder.state.cluster.acls == leader.recorder.state.cluster.acls
        away.load()
        assert away.replication.applied >= log.start, "it is written down"


async def test_a_page_that_nobody_should_have_is_not_given(tmp_path: Path) -> None:
    async with three(tmp_path) as (leader, _):
        await leader.commit(COMMANDS)
        end = leader.replication.applied

        async def code(cluster: str, position: int, below: int) -> int:
            part = fs.RequestPartitionSnapshot(snapshot_id=fs.SnapshotId(end_offset=below), position=position)
            topic = fs.RequestTopicSnapshot(name=catch_up.EVENTS_TOPIC, partitions=(part,))
            request = fs.FetchSnapshotRequest(cluster_id=cluster, topics=(topic,))
            assert catch_up.EventPages.takes(request)
            response = await leader.replication.pages.respond(request, end)
            return response.error_code or response.topics[0].partitions[0].error_code

        assert await code("cluster", 0, end) == 0
        assert await code("cluster", 3, -1) == 0, "the root alone"
        assert await code("another", 0, end) == 104
        for position, below in ((-1, end), (len(HISTORY) + 1, end), (0, end + 1), (2**62, end), (-1, -1), (2**62, -1)):
            assert await code("cluster", position, below) == 98, (position, below)
