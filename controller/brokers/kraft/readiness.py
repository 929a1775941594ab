"""When a broker has applied a topic's creation, and serves as leader of its partitions.

A broker that has fetched the records may not have applied them yet, and its heartbeats, which say what it has applied,
come every two seconds. So, as soon as it has fetched them, the broker is probed: for the metadata of the newest topic
that waits, which shows that it has applied all up to there, and for offsets of the partitions that it leads. Until it
answers well it is probed again, every few milliseconds. What a heartbeat says in the meantime counts as well.

Brokers are probed on a PLAINTEXT listener; without one, or where an authorizer refuses, heartbeats have to do.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from controller.brokers.cluster import connections
from controller.brokers.cluster.connections import ClusterUnreachable, M
from controller.brokers.cluster.security import Security
from controller.brokers.port import CommandSink, stamp
from controller.kafka.messages import ApiKey, Message, list_offsets
from controller.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.machine.commands.commands import ConfirmMetadata
from controller.machine.errors import ErrorCode
from controller.machine.state import Broker, Cluster
from events.catalog import Endpoint, Recorded, TopicCreated
from events.logs.log import LogClosed
from events.names import BrokerId, Offset, TopicName

METADATA_VERSION, LIST_OFFSETS_VERSION = 12, 7
"""Versions of the requests that brokers from 3.7 to 4.4 speak."""
TIMEOUT_S: Final = 2.0
"""Opening a connection included: as long as between two heartbeats, which have to do otherwise."""
RESPONSE_BYTES_MAX: Final = 16 << 20
"""Metadata of one topic with 100,000 partitions takes less."""
_LATEST: Final = -1
_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class ProbeFailed(Exception):
    """The broker could not be reached, or refused; the message says why."""


class BrokerProbe:
    """One connection, opened when it is first needed; used by one task at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._connection: connections.BrokerConnection | None = None

    async def knows(self, topic: str) -> bool:
        """Whether the broker's metadata have the topic. Raises ProbeFailed."""
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        response = await self._send(ApiKey.METADATA, METADATA_VERSION, request, MetadataResponse)
        code = response.topics[0].error_code if response.topics else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _is_success(code) and bool(response.topics[0].partitions)

    async def leads(self, partitions: Mapping[TopicName, Sequence[int]]) -> bool:
        """Whether the broker serves as leader of all these partitions, by topic. Raises ProbeFailed."""
        topics = tuple(
            list_offsets.ListOffsetsTopic(
                name=name,
                partitions=tuple(
                    list_offsets.ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in indexes
                ),
            )
            for name, indexes in partitions.items()
        )
        request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)
        kind = list_offsets.ListOffsetsResponse
        response = await self._send(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request, kind)
        return all(_is_success(partition.error_code) for topic in response.topics for partition in topic.partitions)

    def close(self) -> None:
        """Let go of the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _send(self, key: ApiKey, version: int, request: Message, response: type[M]) -> M:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if self._connection is None:
                    address = self.endpoint.host, self.endpoint.port
                    self._connection = await connections.BrokerConnection.open(address, Security(), RESPONSE_BYTES_MAX)
                return await self._connection.call(key, version, request, response)
        except BaseException as error:
            self.close()
            if isinstance(error, ClusterUnreachable):
                raise ProbeFailed(str(error)) from None
            if isinstance(error, TimeoutError):
                raise ProbeFailed(f"{self.endpoint.host}:{self.endpoint.port} does not answer") from None
            raise


def _is_success(code: int) -> bool:
    """Whether the code is that of success; what it is in a moment may be another. Raises ProbeFailed if it stays."""
    if code in _DENIED:
        raise ProbeFailed(f"the broker refuses to be probed (error {code})")
    return code == 0


GATHER_S: Final = 0.1
"""How long a confirmation waits for the others: brokers that keep up confirm within some milliseconds."""
MARKS_MAX: Final = 10_000
"""Commits of which it is known where the metadata log ended: some hundred kilobytes."""


class AppliedOffsets:
    """Which events a broker has applied, from how far it is in the metadata log: pairs of offsets, one a commit, where
    the metadata log ended with it, and its newest event."""

    def __init__(self, end: int, offset: Offset) -> None:
        self._ends = [end]
        self._offsets = [offset]

    def note(self, end: int, offset: Offset) -> None:
        """A commit is durable: the metadata log ends at `end`, the event log has all up to `offset`."""
        if end == self._ends[-1]:
            self._offsets[-1] = offset
            return
        self._ends.append(end)
        self._offsets.append(offset)
        if len(self._ends) > MARKS_MAX:
            del self._ends[: MARKS_MAX // 2], self._offsets[: MARKS_MAX // 2]

    def event_at(self, end: int) -> Offset:
        """The newest event that the metadata log has below `end`; -1 where that is too long ago to know."""
        index = bisect_right(self._ends, end) - 1
        return self._offsets[index] if index >= 0 else Offset(-1)


class Confirmations:
    """What brokers have confirmed, and what of it was passed on. `end` is where the metadata log ends."""

    def __init__(self, controller: CommandSink, end: int) -> None:
        self._controller = controller
        self._applied = AppliedOffsets(end, controller.last_offset)
        self._submitted: dict[BrokerId, Offset] = {}
        self._taken: dict[BrokerId, Offset] = {}
        self._timer: asyncio.TimerHandle | None = None

    def note(self, end: int, offset: Offset) -> None:
        """A commit is durable: the metadata log ends at `end`, the event log has all up to `offset`."""
        self._applied.note(end, offset)

    def confirm_applied(self, broker_id: BrokerId, end: int) -> None:
        """A broker has applied the metadata log below `end`."""
        self.take(broker_id, self._applied.event_at(end))

    def take(self, broker_id: BrokerId, offset: Offset) -> None:
        """A broker has applied all events up to `offset`: of interest if a topic may wait for it."""
        if offset <= self._reach(broker_id) or not self._controller.has_waiting_topics():
            return
        self._taken[broker_id] = offset
        live = self._controller.store.durable_cluster.live
        reached = min(map(self._reach, live), default=Offset(-1))
        fresh = [each for each in live if self._submitted.get(each, -1) < reached]
        if fresh:
            self._submit(dict.fromkeys(fresh, reached))
        if self._taken and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._on_timer)

    def _reach(self, broker_id: BrokerId) -> Offset:
        return max(self._taken.get(broker_id, Offset(-1)), self._submitted.get(broker_id, Offset(-1)))

    def forget(self, broker_id: BrokerId) -> None:
        """A broker came or went: what it confirmed counts no more."""
        self._submitted.pop(broker_id, None)
        self._taken.pop(broker_id, None)

    def restart(self, end: int) -> None:
        """Forget all; the metadata log ends at `end`."""
        self._applied = AppliedOffsets(end, self._controller.last_offset)
        self.clear()

    def clear(self) -> None:
        """Forget all, and pass nothing on."""
        self._submitted.clear()
        self._taken.clear()
        self._stop_timer()

    def _on_timer(self) -> None:
        self._timer = None
        if self._taken:
            self._submit(dict(self._taken))

    def _submit(self, reached: dict[BrokerId, Offset]) -> None:
        """Put one command for each offset that was reached; what goes beyond stays."""
        for offset in sorted(set(reached.values())):
            brokers = tuple(sorted(broker_id for broker_id, each in reached.items() if each == offset))
            after = min(self._submitted.get(broker_id, Offset(-1)) for broker_id in brokers)
            stamped = stamp(self._controller, "kraft")
            self._controller.observe(ConfirmMetadata(**stamped, brokers=brokers, offset=offset, after=after))
            for broker_id in brokers:
                self._submitted[broker_id] = offset
                if self._taken[broker_id] <= offset:
                    del self._taken[broker_id]
        if not self._taken:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


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


class AwaitedTopics(msgspec.Struct, frozen=True):
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
        self._waiting: deque[AwaitedTopics] = deque(maxlen=WAITED_MAX)
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}
        self._fetched: dict[BrokerId, asyncio.Event] = {}

    @property
    def _cluster(self) -> Cluster:
        return self._controller.store.durable_cluster

    def on_events(self, records: Sequence[Recorded], end: int) -> None:
        """Probe for the topics that were created with these events, after which the metadata log ends at `end`."""
        names = tuple(record.event.topic for record in records if isinstance(record.event, TopicCreated))
        if names:
            self._waiting.append(AwaitedTopics(records[-1].offset, end, names))
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
        connection: BrokerProbe | None = None
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
        except ProbeFailed as why:
            logger.info("broker not probed: its heartbeats say what it has applied", broker=broker_id, why=str(why))
        finally:
            if connection is not None:
                connection.close()

    def _next(self, broker_id: BrokerId, done: Offset) -> list[AwaitedTopics]:
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

    async def _probe(self, connection: BrokerProbe, broker_id: BrokerId, waited: list[AwaitedTopics]) -> Offset:
        pause_s = FIRST_PAUSE_S
        newest = waited[-1]
        while not await self._serves(connection, broker_id, waited):
            if not self._cluster.is_live(broker_id):
                return newest.offset
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * PAUSE_GROWTH, PAUSE_S_MAX)
        self._confirm(broker_id, newest.offset)
        return newest.offset

    async def _serves(self, connection: BrokerProbe, broker_id: BrokerId, waited: list[AwaitedTopics]) -> bool:
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


def _replaced(connection: BrokerProbe | None, endpoint: Endpoint) -> BrokerProbe:
    if connection is not None:
        connection.close()
    return BrokerProbe(endpoint)
