"""When a broker has applied a topic's creation, and serves as leader of its partitions.

A broker that has fetched the records may not have applied them yet, and its heartbeats, which tell what it has
applied, come every two seconds. So, as soon as it has fetched them, the broker is asked itself: for the metadata of the
newest topic that waits, which tells that it has applied all up to there, and for offsets of the partitions that it
leads. Until it answers well it is asked again, every few milliseconds. What a heartbeat tells in the meantime counts
as well.

Brokers are asked on a PLAINTEXT listener; without one, or where an authorizer refuses, heartbeats have to do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
import structlog

from controller.brokers.fleet import CommandSink
from controller.brokers.kraft.asking import BrokerConnection, Unanswered
from controller.machine.state import Broker, Cluster
from events.catalog import Endpoint, Recorded, TopicCreated
from events.names import BrokerId, Offset, TopicName

FIRST_PAUSE_S: Final = 0.003
PAUSE_GROWTH: Final = 1.2
PAUSE_S_MAX: Final = 0.05
PLAINTEXT: Final = 0
WAITED_MAX: Final = 10_000
"""Commits with creations that are asked about; those before are left to the heartbeats."""
WAIT_S: Final = 0.5
IDLE_S: Final = 10.0

logger = structlog.get_logger("topicwright.kraft")


class Waited(msgspec.Struct, frozen=True):
    """Topics that wait to be complete, created with one commit: its newest event, and where the metadata log ended."""

    offset: Offset
    end: int
    topics: tuple[TopicName, ...]


class Followed(Protocol):
    """What is needed of the fleet."""

    @property
    def cluster(self) -> Cluster:
        """Brokers as of the last durable commit."""
        ...

    def fetched(self, broker_id: BrokerId) -> int:
        """Up to where a broker has fetched the metadata log."""
        ...

    def end(self) -> int:
        """Where the metadata log ends."""
        ...

    def confirm(self, broker_id: BrokerId, offset: Offset) -> None:
        """A broker has applied all events up to `offset`."""
        ...


class Readiness:
    """Asks the brokers about topics that wait. One task a broker, there only while there is something to ask."""

    def __init__(self, fleet: Followed, controller: CommandSink) -> None:
        self._fleet = fleet
        self._controller = controller
        self._waiting: deque[Waited] = deque(maxlen=WAITED_MAX)
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}
        self._fetched: dict[BrokerId, asyncio.Event] = {}

    def learn(self, records: Sequence[Recorded]) -> None:
        """Ask about the topics that were created with these events."""
        names = tuple(record.event.topic for record in records if isinstance(record.event, TopicCreated))
        if names:
            self._waiting.append(Waited(records[-1].offset, self._fleet.end(), names))
            for broker_id in self._fleet.cluster.live:
                self._begin(broker_id)

    def fetched(self, broker_id: int) -> None:
        """A broker has fetched more."""
        event = self._fetched.get(BrokerId(broker_id))
        if event is not None:
            event.set()

    def resume(self) -> None:
        """Forget what was asked about: the heartbeats tell of it."""
        self._waiting.clear()

    async def stop(self) -> None:
        """End all asking."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, broker_id: BrokerId) -> None:
        if broker_id not in self._tasks:
            self._fetched[broker_id] = asyncio.Event()
            task = self._tasks[broker_id] = self._controller.background(self._follow(broker_id))
            task.add_done_callback(lambda _: self._ended(broker_id))

    def _ended(self, broker_id: BrokerId) -> None:
        del self._tasks[broker_id], self._fetched[broker_id]

    async def _follow(self, broker_id: BrokerId) -> None:
        """Ask one broker until it has applied all that waits, then for a while keep the connection for more."""
        connection: BrokerConnection | None = None
        try:
            idle_s = 0.0
            done = Offset(-1)
            while idle_s < IDLE_S:
                broker = self._fleet.cluster.brokers.get(broker_id)
                endpoint = _plaintext_of(broker) if broker is not None and not broker.fenced else None
                if endpoint is None:
                    return
                if connection is None or connection.endpoint != endpoint:
                    connection = _replaced(connection, endpoint)
                waited = self._next(broker_id, done)
                if waited:
                    done = await self._ask(connection, broker_id, waited)
                    idle_s = 0.0
                elif not await self._more(broker_id):
                    idle_s += WAIT_S
        except Unanswered as why:
            logger.info("broker not asked: its heartbeats tell what it has applied", broker=broker_id, why=str(why))
        finally:
            if connection is not None:
                connection.close()

    def _next(self, broker_id: BrokerId, done: Offset) -> list[Waited]:
        """What the broker has fetched and was not asked about."""
        fetched = self._fleet.fetched(broker_id)
        return [waited for waited in self._waiting if waited.offset > done and waited.end <= fetched]

    async def _more(self, broker_id: BrokerId) -> bool:
        event = self._fetched[broker_id]
        event.clear()
        try:
            await asyncio.wait_for(event.wait(), WAIT_S)
        except TimeoutError:
            return False
        return True

    async def _ask(self, connection: BrokerConnection, broker_id: BrokerId, waited: list[Waited]) -> Offset:
        pause_s = FIRST_PAUSE_S
        newest = waited[-1]
        while not await self._serves(connection, broker_id, waited):
            if not self._fleet.cluster.is_live(broker_id):
                return newest.offset
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * PAUSE_GROWTH, PAUSE_S_MAX)
        self._fleet.confirm(broker_id, newest.offset)
        return newest.offset

    async def _serves(self, connection: BrokerConnection, broker_id: BrokerId, waited: list[Waited]) -> bool:
        """Whether the broker knows these topics, and serves where it is to lead."""
        topics = [self._controller.store.durable_named(name) for each in waited for name in each.topics]
        there = [topic for topic in topics if topic is not None]
        if not there:
            return True
        led = {
            topic.name: indexes
            for topic in there
            if (indexes := [i for i, partition in enumerate(topic.partitions) if partition.leader == broker_id])
        }
        if led and not await connection.leads(led):
            return False
        return there[-1].name in led or await connection.knows(there[-1].name)


def _plaintext_of(broker: Broker) -> Endpoint | None:
    """Where a broker can be asked: its first PLAINTEXT listener."""
    for endpoint, protocol in zip(broker.endpoints, broker.security_protocols, strict=False):
        if protocol == PLAINTEXT:
            return endpoint
    return None


def _replaced(connection: BrokerConnection | None, endpoint: Endpoint) -> BrokerConnection:
    if connection is not None:
        connection.close()
    return BrokerConnection(endpoint)
