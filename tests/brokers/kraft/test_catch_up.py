"""Voters copy missed events from each other, and detect different histories."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from controller.brokers.kraft import catch_up, projector
from controller.kafka.messages import quorum
from controller.kafka.messages import records as kinds
from controller.quorum.log.metadata_codec import encode_record
from controller.quorum.snapshotting import Snapshotting
from controller.store import tree
from events.catalog import HistorySkipped
from events.logs.log import EventLog
from tests.brokers.kraft import follower
from tests.brokers.kraft.desks import Desk, steps, three
from tests.brokers.kraft.logs import access_history
from tests.kafka.server.listener import until

HISTORY = access_history()
COMMANDS = steps(HISTORY)


async def cut_short(desk: Desk) -> None:
    """Take two snapshots, so that the log before them is deleted."""

    async def applied() -> int:
        desk.log.flush()
        return desk.replication.record_applied()

    for _ in range(2):
        desk.node.append([(None, encode_record(kinds.NoOpRecord()))])
        end = desk.seat.log.end
        await desk.node.until(lambda core, end=end: core.high_watermark >= end)  # type: ignore[misc]
        desk.replication.applied = end
        taken = Snapshotting(desk.node.quorum, desk.seat.log, 1, 0, lambda: 0.0, applied)
        assert await taken.take()
    assert desk.seat.log.start > 0


def kept(desk: Desk) -> list[tuple[bytes, bytes]]:
    """The stored state without the applied offset and without zero counts."""
    return [(key, value) for key, value in desk.kept() if key != b"kv" and key[:1] not in (b"n", b"y")]


async def decided_by_kafka(desk: Desk, number: int) -> None:
    """A batch without events."""
    topic = kinds.TopicRecord(name=f"k{number}", topic_id=bytes([number]) * 16)
    end = 1 + desk.node.append(
        [(None, encode_record(each)) for each in (topic, follower.partition(topic.topic_id, 0, 1))]
    )
    desk.load()
    while desk.replication.applied < end:
        assert await desk.follow(), "the voter must import events of a batch without any"


def knows(monkeypatch: pytest.MonkeyPatch, desk: Desk, others: Sequence[Desk]) -> None:
    """Let this voter know the others as Topicwright voters."""
    addresses = [each.node.quorum.address_of(each.node.quorum.me) for each in others]
    monkeypatch.setattr(desk.node, "topicwright_voters", AsyncMock(return_value=addresses))


@pytest.mark.parametrize(
    ("given", "others_last"),
    [("all", False), ("all", True), ("nobody", False), ("another history", False), ("a lie", False)],
)
async def test_catch_up_copies_events_from_another_voter(
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
        if others_last:  # records after the snapshot do not belong to it
            await decided_by_kafka(leader, 2)
        whole = leader.log.next_offset
        await other.follow(lambda: other.log.next_offset == whole)
        assert other.events() == leader.events()

        seats = [each.seat for each in (leader, away, other)]
        away.seat.boot(seats)
        away.open()
        knows(monkeypatch, away, () if given == "nobody" else (other, leader))
        if given == "another history":
            monkeypatch.setattr(catch_up, "head_of", lambda log, size: (size, bytes([log is away.log]) * 32))
        elif given == "a lie":
            values = [value for _, value in leader.log.read()][: known + 3]
            monkeypatch.setattr(catch_up.EventPages, "_end_below", lambda *_: len(values))
        log = away.seat.log
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
            assert skipped[0].offset == known + 3 * (given == "a lie"), "missing events must be marked and reported"
            assert away.recorder.state.cluster.acls == leader.recorder.state.cluster.acls
        away.load()
        assert away.replication.applied >= log.start, "the applied offset must be stored"


async def test_invalid_catch_up_requests_are_rejected(tmp_path: Path) -> None:
    async with three(tmp_path) as (leader, _):
        await leader.commit(COMMANDS)
        end = leader.replication.applied

        async def code(cluster: str, position: int, below: int) -> int:
            part = quorum.RequestPartitionSnapshot(
                snapshot_id=quorum.FetchSnapshotId(end_offset=below), position=position
            )
            topic = quorum.RequestTopicSnapshot(name=catch_up.EVENTS_TOPIC, partitions=(part,))
            request = quorum.FetchSnapshotRequest(cluster_id=cluster, topics=(topic,))
            assert catch_up.EventPages.takes(request)
            response = await leader.replication.pages.respond(request, end)
            return response.error_code or response.topics[0].partitions[0].error_code

        assert await code("cluster", 0, end) == 0
        assert await code("cluster", 3, -1) == 0, "a request for the root only must succeed"
        assert await code("another", 0, end) == 104
        for position, below in ((-1, end), (len(HISTORY) + 1, end), (0, end + 1), (2**62, end), (-1, -1), (2**62, -1)):
            assert await code("cluster", position, below) == 98, (position, below)


def know_each_other(monkeypatch: pytest.MonkeyPatch, desks: Sequence[Desk]) -> None:
    for desk in desks:
        knows(monkeypatch, desk, [each for each in desks if each is not desk])


def change(monkeypatch: pytest.MonkeyPatch, log: EventLog) -> None:
    """From now on, let the log's events differ."""

    def stored_head(of: EventLog) -> tuple[int, bytes]:
        size, root = tree.stored_head(of)
        return size, b"x" * 32 if of is log else root

    def head_of(of: EventLog, size: int | None = None) -> tuple[int, bytes]:
        end, root = tree.head_of(of, size)
        return end, b"x" * 32 if of is log else root

    for module in (catch_up, projector):
        monkeypatch.setattr(module, "stored_head", stored_head)
    monkeypatch.setattr(catch_up, "head_of", head_of)


@pytest.mark.parametrize("changed", ["nobody", "a follower", "the leader"])
async def test_a_voter_that_differs_from_the_majority_does_not_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    async with three(tmp_path) as (leader, (one, other)):
        know_each_other(monkeypatch, (leader, one, other))

        async def all_take(commands: slice) -> None:
            await leader.commit(COMMANDS[commands])
            end = leader.log.next_offset
            for each in (one, other):
                await each.follow(lambda each=each: each.log.next_offset == end)  # type: ignore[misc]

        await all_take(slice(0, 4))
        assert [each.replication.tree_heads.difference for each in (leader, one, other)] == [None] * 3
        if changed != "nobody":
            change(monkeypatch, leader.log if changed == "the leader" else one.log)
        await all_take(slice(4, 8))
        match changed:
            case "nobody":
                assert [each.replication.tree_heads.difference for each in (one, other)] == [None] * 2
            case "a follower":
                await until(lambda: one.replication.tree_heads.difference is not None)
                assert f"voters {one.seat.id} differ from the majority" in str(one.replication.tree_heads.difference)
                assert not one.node.quorum.can_lead
                assert other.replication.tree_heads.difference is None
                one.load()
                assert not one.node.quorum.can_lead, "a voter that differs must not lead, also after a failed write"
            case _:
                for each in (one, other):
                    await until(lambda each=each: each.replication.tree_heads.difference is not None)  # type: ignore[misc]
                    assert each.node.quorum.distrusted == {leader.seat.id}
                    assert each.node.quorum.can_lead
        await all_take(slice(8, None))
        assert one.events() == other.events() == HISTORY, "all voters must continue"


async def test_two_different_voters_have_no_majority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with three(tmp_path) as (leader, (one, _)):
        know_each_other(monkeypatch, (leader, one))
        change(monkeypatch, leader.log)
        await leader.commit(COMMANDS[:4])
        await one.follow(lambda: one.log.next_offset == leader.log.next_offset)
        await until(lambda: one.replication.tree_heads.difference is not None)
        assert "differ in the events" in str(one.replication.tree_heads.difference)
        assert (one.node.quorum.can_lead, one.node.quorum.distrusted) == (True, frozenset())
