"""Commits through the quorum are in the event log exactly once, across crashes and leader changes."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import duckdb
import pytest
from structlog.testing import capture_logs

from controller.brokers.kraft import projector
from controller.brokers.kraft.projector import ProtocolIds
from controller.brokers.kraft.replication import wants_leadership
from controller.brokers.port import LeadLost
from controller.kafka.messages import records as kinds
from controller.kafka.messages.records import NoOpRecord
from controller.machine.state import QuorumLeader
from controller.quorum.log.batches import embed_events
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.metadata_codec import encode_record
from controller.quorum.raft.effects import Role
from controller.quorum.raft.log import SnapshotId
from controller.store.recorder import Recorder
from controller.store.store import TopicStore
from events.access import LoginSecretDrawn
from events.catalog import BrokerUnfenced, TopicDiscovered
from events.codec import encode_event
from events.logs.log import EventLog, LogWriteError
from events.logs.rocksdb_log import RocksDbLog
from events.names import BrokerId
from projections.replay.checks.history import views
from tests.brokers.kraft import follower
from tests.brokers.kraft.desks import Desk, alone, leader_of, steps, three
from tests.brokers.kraft.logs import access_history, differences
from tests.kafka.server.listener import until
from tests.machine.rig import fold
from tests.quorum.seats import PATIENCE_S, led, quorum
from tests.support.memory_log import InMemoryLog

HISTORY = access_history()
COMMANDS = steps(HISTORY)


def created(number: int) -> list[bytes]:
    """A topic as Kafka's controller writes it."""
    topic = kinds.TopicRecord(name=f"t{number}", topic_id=bytes([number]) * 16)
    return [encode_record(each) for each in (topic, follower.partition(topic.topic_id, 0, 1))]


def unfitting() -> tuple[bytes, ...]:
    """A valid event and an invalid one."""
    return tuple(
        encode_event(COMMANDS[0][0].at_ms, COMMANDS[0][0].cause, event)
        for event in (LoginSecretDrawn(b"s" * 32), BrokerUnfenced(BrokerId(99), 1, "it is not registered"))
    )


async def restart(desk: Desk) -> None:
    """Kill the process and start another one on its disk."""
    await desk.seat.stop()
    desk.seat.boot([desk.seat])
    desk.open()


def written_without_a_quorum() -> list[tuple[bytes, bytes]]:
    """The state of these events in a log without Kafka brokers."""
    log = InMemoryLog("cluster")
    recorder = Recorder(log, TopicStore(log))
    for first, events in COMMANDS:
        recorder.record(first.at_ms, first.cause, events)
    recorder.commit()
    return plainly(log)


def plainly(log: EventLog) -> list[tuple[bytes, bytes]]:
    """The state without the metadata mark and without zero counts."""
    return [(key, value) for key, value in log.scan(b"") if key[:1] not in (b"k", b"n", b"y")]


def check_history(desk: Desk) -> None:
    """Check that both logs have the whole history and that all states equal its fold."""
    assert desk.events() == desk.embedded_events() == HISTORY
    assert plainly(desk.log) == written_without_a_quorum()
    image = MetadataImage()
    image.fold(desk.batches())
    assert differences(image, fold(HISTORY)) == []


@pytest.fixture(params=["memory", "rocksdb"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventLog]:
    if request.param == "memory":
        yield InMemoryLog("cluster")
        return
    with closing(RocksDbLog(tmp_path / "events", cluster_id="cluster")) as opened:
        yield opened


async def test_a_commit_is_durable_in_the_metadata_log_and_the_event_log(tmp_path: Path, log: EventLog) -> None:
    async with alone(tmp_path, log) as desk:
        for at in range(0, len(COMMANDS), 3):
            await desk.commit(COMMANDS[at : at + 3])
            assert log.durable_offset == log.next_offset == len(desk.embedded_events())
            assert desk.replication.applied == desk.projector.mark.applied == desk.batches()[-1].last_offset + 1
        check_history(desk)


@pytest.mark.parametrize("most", [1000, 3])
async def test_committed_events_not_yet_written_are_restored_from_batches(
    tmp_path: Path, log: EventLog, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the commit has several batches: each is applied separately."""
    monkeypatch.setattr(projector, "RECORDS_PER_BATCH", most)
    async with alone(tmp_path, log) as desk:
        await desk.commit(COMMANDS[:5])
        written = log.next_offset
        with monkeypatch.context() as patch:
            patch.setattr(log, "write", Mock(side_effect=LogWriteError("planted")))
            with pytest.raises(LogWriteError):
                await desk.commit(COMMANDS[5:])
        assert (log.next_offset, desk.projector.mark.applied) == (written, desk.replication.applied)
        assert desk.embedded_events() == HISTORY
        await restart(desk)
        with capture_logs() as lines:
            assert await desk.follow() == HISTORY[written:]
        assert [line for line in lines if line["log_level"] == "error"] == []
        assert desk.replication.leads
        check_history(desk)
        assert dict(desk.projector.mark.broker_epochs).keys() == fold(HISTORY).cluster.brokers.keys()
        assert await desk.follow() == []
    assert desk.events() == HISTORY


async def test_events_lost_in_a_power_failure_are_written_again(tmp_path: Path) -> None:
    log = InMemoryLog("cluster")
    async with alone(tmp_path, log) as desk:
        await desk.commit(COMMANDS[:5])
        log.flush()
        kept = log.next_offset
        for command in COMMANDS[5:]:
            await desk.commit([command])
        before = desk.kept()
        assert log.drop_unflushed() == kept
        await restart(desk)
        assert await desk.follow() == HISTORY[kept:]
        assert (desk.events(), desk.kept()) == (HISTORY, before), "the stored state must be restored with marks and ids"


async def test_commits_continue_after_restarts(tmp_path: Path) -> None:
    async with alone(tmp_path) as desk:
        for at, command in enumerate(COMMANDS):
            if at % 4 == 3:
                await restart(desk)
                assert await desk.follow() == [], "events must not be applied twice"
            await desk.commit([command])
        check_history(desk)


async def test_batches_without_events_are_skipped(tmp_path: Path) -> None:
    async with alone(tmp_path) as desk:
        await desk.commit(COMMANDS[:5])
        for value in (encode_record(NoOpRecord()), embed_events(desk.log.next_offset, [])):
            desk.node.append([(None, value)])
        await restart(desk)
        assert await desk.follow() == []
        assert desk.replication.leads
        assert desk.replication.applied == desk.batches()[-1].last_offset + 1
        assert desk.events() == HISTORY[: desk.log.next_offset]
        await desk.commit(COMMANDS[5:])
        assert desk.events() == HISTORY


async def test_a_restart_within_an_epoch_records_the_same_epoch(tmp_path: Path) -> None:
    """All voters have the same events after a restart of any of them, because the leader of an imported decision comes
    from the log."""
    async with alone(tmp_path) as one:
        other = Desk(one.seat)
        for number in range(6):
            last = one.node.append([(None, value) for value in created(number)])
            await one.node.committed(last)
            for desk in (one, other):
                if desk is other and number % 2:
                    desk.replication.record_applied()
                    desk.load()
                await desk.follow()
        assert [each for each in one.events() if isinstance(each.event, TopicDiscovered)]
        assert one.events() == other.events()
        assert {each.cause.request_id.split("-epoch")[0] for each in one.events()} == {f"controller-{one.seat.id}"}
        with duckdb.connect() as made:
            made.execute(next(view.sql for view in views() if view.name == "causes"))
            known = dict(made.execute("from causes").fetchall())
        unexplained = [each for each in other.events() if each.cause.command not in known[type(each.event).__name__]]
        assert unexplained == [], "the check of causes must accept the first events of a follower"


async def test_unsupported_records_and_ids_survive_the_next_commit(tmp_path: Path) -> None:
    """A node that has read a record of a newer release never leads again; broker epochs are retained."""
    async with alone(tmp_path) as desk:
        await desk.commit(COMMANDS[:1])
        last = -1
        for values in ([b"\x01\xff\x01\x00"], created(1), created(2)):
            last = desk.node.append([(None, value) for value in values])
        desk.load()
        desk.projector.ids = ProtocolIds({BrokerId(1): 7})
        await desk.follow(lambda: desk.replication.applied > last)
        assert len([each for each in desk.events() if isinstance(each.event, TopicDiscovered)]) == 2
        for again in (False, True):
            if again:
                desk.load()
            assert "a record of type 255" in desk.projector.unsupported
            assert desk.projector.ids.broker_epochs == {BrokerId(1): 7}
        assert not desk.node.quorum.can_lead


@pytest.mark.parametrize("values", [(b"no event",), (b"",), unfitting(), (*unfitting(), b"no event")])
async def test_invalid_embedded_events_are_replaced_by_imported_records(
    tmp_path: Path, values: tuple[bytes, ...]
) -> None:
    async with alone(tmp_path) as desk:
        await desk.commit(COMMANDS[:1])
        known = desk.events()
        last = desk.node.append([(None, each) for each in (embed_events(0, values), *created(1))])
        desk.load()
        await desk.follow(lambda: desk.replication.applied > last)
        assert desk.events()[: len(known)] == known
        assert [each for each in desk.events()[len(known) :] if isinstance(each.event, TopicDiscovered)]
        for again in (False, True):
            if again:
                desk.load()
            assert "do not apply" in desk.projector.unsupported
        assert not desk.node.quorum.can_lead


async def test_follow_ends_when_the_process_stops(tmp_path: Path) -> None:
    async with quorum(tmp_path, 3) as seats:
        leader = await led(seats)
        desk = Desk(next(each for each in seats if each.node is not leader))
        following = asyncio.create_task(desk.follow())
        await until(lambda: desk.replication.applied > 0)
        desk.stopping.set()
        assert await following == []
        assert not desk.replication.leads


# --- several voters


async def test_a_follower_has_the_same_events_and_state(tmp_path: Path) -> None:
    async with three(tmp_path) as (leader, followers):

        def has_all(desk: Desk) -> bool:
            return desk.log.next_offset == len(HISTORY)

        following = [asyncio.create_task(each.follow(lambda each=each: has_all(each))) for each in followers]  # type: ignore[misc]
        with capture_logs() as lines:
            for at in range(0, len(COMMANDS), 3):
                await leader.commit(COMMANDS[at : at + 3])
            assert await asyncio.gather(*following) == [HISTORY, HISTORY]
        assert [line for line in lines if line["log_level"] == "error"] == []
        for each in followers:
            assert not each.replication.leads
            with pytest.raises(LeadLost):
                await each.replication.commit(each.recorder.take_commit())
            assert each.projector.mark == leader.projector.mark
            assert (each.events(), each.kept()) == (HISTORY, leader.kept())
            assert each.log.durable_offset == len(HISTORY)


async def test_a_commit_in_flight_at_lost_leadership_is_on_all_or_no_voters(tmp_path: Path) -> None:
    async with three(tmp_path) as (leader, followers):
        await leader.commit(COMMANDS[:5])
        known = leader.log.next_offset
        seats = [each.seat for each in (leader, *followers)]
        for each in followers:
            await each.seat.stop()
        with pytest.raises(LeadLost):
            await leader.commit(COMMANDS[5:])
        assert leader.lost == 1
        assert not leader.replication.leads
        assert leader.log.next_offset == known, "the uncommitted events are in the event log"
        for each in followers:
            each.seat.boot(seats)
            each.open()
        desks = [leader, *followers]
        leader.load()
        chosen = await leader_of(desks)
        is_there = chosen.log.next_offset == len(HISTORY)
        assert is_there or chosen.log.next_offset == known
        await chosen.commit(COMMANDS[5:] if not is_there else COMMANDS[:1])
        wanted = chosen.log.next_offset
        for each in desks:
            if each is not chosen:
                await each.follow(lambda each=each: each.log.next_offset == wanted)  # type: ignore[misc]
            assert (each.events(), each.kept()) == (chosen.events(), chosen.kept())


async def test_a_leader_stops_deciding_during_leadership_transfer(tmp_path: Path) -> None:
    async with three(tmp_path) as (leader, _):
        await leader.commit(COMMANDS[:5])
        leader.record(COMMANDS[5:])
        await leader.node.hand_over(PATIENCE_S)
        assert leader.node.quorum.role is not Role.LEADER
        assert not leader.replication.leads
        assert leader.lost == 1
        end = leader.node.quorum.log.end
        with pytest.raises(LeadLost):
            await leader.replication.commit(leader.recorder.take_commit())
        assert leader.embedded_events() == leader.events()
        assert len(leader.events()) < len(HISTORY)
        assert end >= leader.replication.applied


@pytest.mark.parametrize(
    ("known", "snapshot", "wants"),
    [
        ((4, 0), None, True),
        ((4, 1), None, False),
        ((4, 2), SnapshotId(200, 4), False),
        ((3, 0), None, False),  # the epoch has begun; its event comes soon
        ((3, 0), SnapshotId(100, 3), False),
        ((2, 1), SnapshotId(200, 4), True),  # it began below the snapshot, so its event never comes
        (None, SnapshotId(200, 4), True),
        (None, None, False),
    ],
)
def test_a_voter_requests_leadership_from_a_lower_priority(
    known: tuple[int, int] | None, snapshot: SnapshotId | None, wants: bool
) -> None:
    """In epoch 4, by a voter of priority 1; `known` is an epoch and its leader's priority."""
    begun = None if known is None else QuorumLeader(known[0], 7, 1, "", 0, b"", priority=known[1])
    assert wants_leadership(begun, 4, snapshot, 1) is wants
