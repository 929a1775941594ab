"""Event logs replicated by a quorum, for tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path

from controller.brokers.kraft.projector import MetadataProjector
from controller.brokers.kraft.replication import QuorumReplication
from controller.quorum.log.batches import RecordBatch, embedded_events
from controller.quorum.node import QuorumNode
from controller.store.recorder import Recorder
from controller.store.store import TopicStore
from events.catalog import Event, Recorded, SettingsChanged
from events.codec import decode_event
from events.logs.log import EventLog
from tests.quorum.seats import PATIENCE_S, Seat, led, quorum
from tests.support.memory_log import InMemoryLog

FIRST = SettingsChanged((), "1.0")
Step = tuple[Recorded, list[Event]]


def steps(records: Sequence[Recorded]) -> list[Step]:
    """The events of each command, with its first event."""
    groups = (list(group) for _, group in groupby(records, lambda record: (record.at_ms, record.cause)))
    return [(group[0], [record.event for record in group]) for group in groups]


class Desk:
    """The event log of one voter. `open` starts the next process on the same disk."""

    def __init__(self, seat: Seat, log: EventLog | None = None) -> None:
        self.seat = seat
        self.log: EventLog = log or InMemoryLog("cluster")
        self.lost = 0
        self.stopping = asyncio.Event()
        self.open()

    def open(self) -> None:
        self.projector = MetadataProjector(self.log)
        self.replication = QuorumReplication(self.node, self.seat.log, self.log, self.projector, FIRST)
        self.replication.on_lost = self._lost
        self.seat.pages = lambda request: self.replication.pages.respond(request, self.replication.applied)
        self.node.on_role = self.replication.on_role_changed
        self.load()

    @property
    def node(self) -> QuorumNode:
        return self.seat.running

    def _lost(self) -> None:
        self.lost += 1

    def load(self) -> None:
        self.projector.reload()
        self.replication.reload()
        self.store = TopicStore(self.log)
        self.recorder = Recorder(self.log, self.store, self.projector)

    async def follow(self, until: Callable[[], bool] = lambda: False) -> list[Recorded]:
        """Apply committed events until this voter leads, or `until` holds."""
        seen: list[Recorded] = []
        async with asyncio.timeout(PATIENCE_S):
            while not until() and (more := await self.replication.follow(self.recorder, self.stopping)) is not None:
                seen += more
                self.store.became_durable(self.recorder.state)
        return seen

    def record(self, commands: Sequence[Step]) -> None:
        """Decide without committing."""
        for first, events in commands:
            self.recorder.record(first.at_ms, first.cause, events)

    async def commit(self, commands: Sequence[Step]) -> None:
        """Commit these commands together. Raises LeadLost, LogError."""
        self.record(commands)
        async with asyncio.timeout(PATIENCE_S):
            await self.replication.commit(self.recorder.take_commit())
        self.store.became_durable(self.recorder.state)

    def events(self) -> list[Recorded]:
        return [decode_event(offset, value) for offset, value in self.log.read()]

    def kept(self) -> list[tuple[bytes, bytes]]:
        """The stored state, with the mark of the metadata log."""
        return list(self.log.scan(b""))

    def batches(self) -> list[RecordBatch]:
        return list(self.seat.log.batches())

    def embedded_events(self) -> list[Recorded]:
        found = []
        for batch in self.batches():
            ours = None if batch.is_control else embedded_events(batch.records[0][1])
            if ours is not None:
                found += [decode_event(offset, value) for offset, value in enumerate(ours.values, ours.first)]
        return found


@asynccontextmanager
async def alone(folder: Path, log: EventLog | None = None) -> AsyncIterator[Desk]:
    """A quorum of one that leads."""
    async with quorum(folder, 1) as (seat,):
        desk = Desk(seat, log)
        await desk.follow()
        assert desk.replication.leads
        yield desk


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[tuple[Desk, list[Desk]]]:
    """A quorum of three: the leader and the followers."""
    async with quorum(folder, 3) as seats:
        await led(seats)
        desks = [Desk(seat) for seat in seats]
        leader = await leader_of(desks)
        yield leader, [each for each in desks if each is not leader]


async def leader_of(desks: Sequence[Desk]) -> Desk:
    """The leader, after it has applied everything."""
    node = await led([each.seat for each in desks])
    leader = next(each for each in desks if each.seat.node is node)
    await leader.follow()
    return leader
