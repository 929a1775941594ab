"""When a broker has applied a topic's creation, and serves as leader of its partitions.

A broker that has fetched the records may not have applied them yet, and its heartbeats, which say what it has applied,
come every two seconds. So, as soon as it has fetched them, the broker is probed: for the metadata of the newest topic
that waits, which shows that it has applied all up to there, and for offsets of the partitions that it leads. Until it
answers well it is probed again, every few milliseconds. What a heartbeat says in the meantime counts as well.

Brokers are probed on a PLAINTEXT listener; without one, or where an authorizer refuses, heartbeats have to do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from controller.brokers.kraft.broker_probe import BrokerConnection, Unanswered
from controller.brokers.port import CommandSink
from controller.machine.state import Broker, Cluster
from events.catalog import Endpoint, Recorded, TopicCreated
from events.logs.log import LogClosed
from events.names import BrokerId, Offset, TopicName

FIRST_PAUSE_S: Final = 0.003
"""A broker applies what it has fetched within a few milliseconds."""
PAUSE_GROWTH: Final = 1.2  # probes back off from a broker that is not there yet
PAUSE_S_MAX: Final = 0.05  # so late, at most, is a leader seen to serve
PLAINTEXT: Final = 0
"""Kafka's number of the security protocol."""
WAITED_MAX: Final = 10_000
"""Commits with creations that brokers are probed for; those before are left to the heartbeats."""
WAIT_S: Final = 0.5
"""How long a broker that has nothing to be probed for is waited for at a time."""
IDLE_S: Final = 10.0
"""How long a connection without use is kept: topics are often created in a row."""

logger = structlog.get_logger("topicwright.kraft")


class Waited(msgspec.Struct, frozen=True):
    """Topics that wait to be complete, created with one commit: its newest event, and where the metadata log ended."""

    offset: Offset
    end: int
    topics: tuple[TopicName, ...]


class Readiness:
    """Probes the brokers for topics that wait. One task a broker, there only while there is something to probe.

    `fetched` gives up to where a broker has fetched the metadata log; `confirm` takes that it has applied all events up
    to an offset.
    """

    def __init__(
        self,
        controller: CommandSink,
        fetched: Callable[[BrokerId], int],
        confirm: Callable[[BrokerId, Offset], None],
    ) -> None:
        self._controller = controller
        self._fetched_by = fetched
        self._confirm = confirm
        self._waiting: deque[Waited] = deque(maxlen=WAITED_MAX)
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}
        self._fetched: dict[BrokerId, asyncio.Event] = {}

    @property
    def _cluster(self) -> Cluster:
        return self._controller.store.durable_cluster

    def on_events(self, records: Sequence[Recorded], end: int) -> None:
        """Probe for the topics that were created with these events, after which the metadata log ends at `end`."""
        names = tuple(record.event.topic for record in records if isinstance(record.event, TopicCreated))
        if names:
            self._waiting.append(Waited(records[-1].offset, end, names))
            for broker_id in self._cluster.live:
                self._begin(broker_id)

    def fetched(self, broker_id: int) -> None:
        """A broker has fetched more."""
        event = self._fetched.get(BrokerId(broker_id))
        if event is not None:
            event.set()

    def resume(self) -> None:
        """Forget what waits: the heartbeats will show it."""
        self._waiting.clear()

    async def stop(self) -> None:
        """End all probing."""
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
        """Probe one broker until it has applied all that waits, then for a while keep the connection for more."""
        connection: BrokerConnection | None = None
        try:
            idle_s = 0.0
            done = Offset(-1)
            while idle_s < IDLE_S:
                broker = self._cluster.brokers.get(broker_id)
                endpoint = _plaintext_of(broker) if broker is not None and not broker.fenced else None
                if endpoint is None:
                    return
                if connection is None or connection.endpoint != endpoint:
                    connection = _replaced(connection, endpoint)
                waited = self._next(broker_id, done)
                if waited:
                    done = await self._probe(connection, broker_id, waited)
                    idle_s = 0.0
                elif not await self._more(broker_id):
                    idle_s += WAIT_S
        except Unanswered as why:
            logger.info("broker not probed: its heartbeats say what it has applied", broker=broker_id, why=str(why))
        finally:
            if connection is not None:
                connection.close()

    def _next(self, broker_id: BrokerId, done: Offset) -> list[Waited]:
        """What the broker has fetched and was not probed for."""
        fetched = self._fetched_by(broker_id)
        return [waited for waited in self._waiting if waited.offset > done and waited.end <= fetched]

    async def _more(self, broker_id: BrokerId) -> bool:
        event = self._fetched[broker_id]
        event.clear()
        try:
            await asyncio.wait_for(event.wait(), WAIT_S)
        except TimeoutError:
            return False
        return True

    async def _probe(self, connection: BrokerConnection, broker_id: BrokerId, waited: list[Waited]) -> Offset:
        pause_s = FIRST_PAUSE_S
        newest = waited[-1]
        while not await self._serves(connection, broker_id, waited):
            if not self._cluster.is_live(broker_id):
                return newest.offset
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * PAUSE_GROWTH, PAUSE_S_MAX)
        self._confirm(broker_id, newest.offset)
        return newest.offset

    async def _serves(self, connection: BrokerConnection, broker_id: BrokerId, waited: list[Waited]) -> bool:
        """Whether the broker knows these topics, and serves where it is to lead."""
        try:
            topics = [self._controller.store.durable_named(name) for each in waited for name in each.topics]
        except LogClosed:  # it is being recovered
            return False
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
    """Where a broker can be probed: its first PLAINTEXT listener."""
    for endpoint, protocol in zip(broker.endpoints, broker.security_protocols, strict=False):
        if protocol == PLAINTEXT:
            return endpoint
    return None


def _replaced(connection: BrokerConnection | None, endpoint: Endpoint) -> BrokerConnection:
    if connection is not None:
        connection.close()
    return BrokerConnection(endpoint)
