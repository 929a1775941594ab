"""Detects when brokers have applied a topic's creation and serve as leaders of its partitions, for `kraft_brokers`.

Heartbeats report what a broker has applied, but only every two seconds. So a broker is probed as soon as it has fetched
the records: Metadata of the newest waiting topic shows that it applied everything up to there, ListOffsets that it
leads its partitions. The broker is probed every few milliseconds until both succeed; heartbeats count meanwhile too.
Only PLAINTEXT listeners are probed. Without one, or if an authorizer denies the probe, only heartbeats count.

Confirmations of all live brokers are submitted together, because a create is answered with the last of them and one
commit is enough. `kraft_brokers` submits those that wait for others periodically, as progress of the create.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Final

import msgspec
import structlog

from controller.brokers.port import CommandSink, stamp
from controller.kafka.connections import Address, ClusterUnreachable, Connections, Security
from controller.kafka.messages import ApiKey, clients
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.machine.commands.commands import ConfirmMetadata
from controller.machine.errors import ErrorCode
from controller.machine.state import Broker, Cluster
from controller.quorum.node import QuorumNode
from events.catalog import Recorded, TopicCreated
from events.logs.log import LogClosed
from events.names import BrokerId, Offset, TopicName

METADATA_VERSION, LIST_OFFSETS_VERSION = 12, 7
"""Request versions that brokers from 3.7 to 4.4 support."""
TIMEOUT_S: Final = 2.0
"""Timeout of a probe, including the connect: the heartbeat interval, because a heartbeat replaces a later result."""
RESPONSE_BYTES_MAX: Final = 16 << 20
"""Metadata of one topic with 100,000 partitions takes less."""
_LATEST: Final = -1
_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class ProbeDenied(Exception):
    """The broker denied the probe."""


class BrokerProbes(Connections):
    """Probes brokers over idle or new connections. Raises ClusterUnreachable and ProbeDenied."""

    def __init__(self) -> None:
        super().__init__(Security(), RESPONSE_BYTES_MAX)

    async def knows(self, broker: Address, topic: str) -> bool:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        key, kind = ApiKey.METADATA, MetadataResponse
        response = await self.call(broker, key, METADATA_VERSION, request, kind, TIMEOUT_S)
        code = response.topics[0].error_code if response.topics else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _is_success(code) and bool(response.topics[0].partitions)

    async def leads(self, broker: Address, partitions: Mapping[TopicName, Sequence[int]]) -> bool:
        """True if the broker serves as leader of all these partitions."""
        topics = tuple(
            clients.ListOffsetsTopic(
                name=name,
                partitions=tuple(
                    clients.ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in indexes
                ),
            )
            for name, indexes in partitions.items()
        )
        request = clients.ListOffsetsRequest(replica_id=-1, topics=topics)
        key, kind = ApiKey.LIST_OFFSETS, clients.ListOffsetsResponse
        response = await self.call(broker, key, LIST_OFFSETS_VERSION, request, kind, TIMEOUT_S)
        return all(_is_success(partition.error_code) for topic in response.topics for partition in topic.partitions)


def _is_success(code: int) -> bool:
    """Raises ProbeDenied for errors that a retry does not cure."""
    if code in _DENIED:
        raise ProbeDenied(f"the broker denies the probe (error {code})")
    return code == 0


MARKS_MAX: Final = 10_000
"""Commits whose end in the metadata log is remembered: some hundred kilobytes."""


class Confirmations:
    """Gathers the brokers' confirmations: brokers report metadata log offsets, and event offsets are submitted. `end`
    is the end of the metadata log."""

    def __init__(self, controller: CommandSink, end: int) -> None:
        self._controller = controller
        self._ends, self._offsets = [end], [controller.last_offset]
        """For each commit, its end in the metadata log and its newest event."""
        self._submitted: dict[BrokerId, Offset] = {}
        self._confirmed: dict[BrokerId, Offset] = {}

    def record(self, end: int, offset: Offset) -> None:
        """Record a durable commit: the metadata log ends at `end`, the event log at `offset`."""
        if end == self._ends[-1]:
            self._offsets[-1] = offset
            return
        self._ends.append(end)
        self._offsets.append(offset)
        if len(self._ends) > MARKS_MAX:
            del self._ends[: MARKS_MAX // 2], self._offsets[: MARKS_MAX // 2]

    def confirm_applied(self, broker_id: BrokerId, end: int) -> None:
        """A broker has applied the metadata log below `end`; ignored if that is too old to be known."""
        index = bisect_right(self._ends, end) - 1
        if index >= 0:
            self.confirm(broker_id, self._offsets[index])

    def confirm(self, broker_id: BrokerId, offset: Offset) -> None:
        """A broker has applied all events up to `offset`; ignored if no topic waits."""
        if offset <= self._reach(broker_id) or not self._controller.has_pending_creates():
            return
        self._confirmed[broker_id] = offset
        live = self._controller.store.durable_cluster.live
        reached = min(map(self._reach, live), default=Offset(-1))
        fresh = [each for each in live if self._submitted.get(each, -1) < reached]
        if fresh:
            self._submit(dict.fromkeys(fresh, reached))

    def _reach(self, broker_id: BrokerId) -> Offset:
        return max(self._confirmed.get(broker_id, Offset(-1)), self._submitted.get(broker_id, Offset(-1)))

    def forget(self, broker_id: BrokerId) -> None:
        """Discard the confirmations of a broker whose registration or fencing changed."""
        self._submitted.pop(broker_id, None)
        self._confirmed.pop(broker_id, None)

    def restart(self, end: int) -> None:
        self._ends, self._offsets = [end], [self._controller.last_offset]
        self._submitted.clear()
        self._confirmed.clear()

    def submit_gathered(self) -> None:
        """Submit the confirmations that wait for those of other brokers."""
        self._submit(dict(self._confirmed))

    def _submit(self, reached: dict[BrokerId, Offset]) -> None:
        """Submit one command for each offset in `reached`, with the brokers that have applied it."""
        for offset in sorted(set(reached.values())):
            brokers = tuple(sorted(broker_id for broker_id, each in reached.items() if each == offset))
            after = min(self._submitted.get(broker_id, Offset(-1)) for broker_id in brokers)
            stamped = stamp(self._controller, "kraft")
            self._controller.submit_internal(ConfirmMetadata(**stamped, brokers=brokers, offset=offset, after=after))
            for broker_id in brokers:
                self._submitted[broker_id] = offset
                if self._confirmed[broker_id] <= offset:
                    del self._confirmed[broker_id]


FIRST_PAUSE_S: Final = 0.003
"""A broker applies fetched records within a few milliseconds."""
PAUSE_GROWTH: Final = 1.2  # backs off from a broker that has not started yet
PAUSE_S_MAX: Final = 0.05  # the longest delay until a serving leader is noticed
PLAINTEXT: Final = 0
"""Kafka's number of the security protocol."""
WAITED_MAX: Final = 10_000
"""The number of commits whose creations are probed; for older commits only heartbeats count."""
WAIT_S: Final = 0.5
"""A broker that fetches nothing for this time may be fenced now."""

logger = structlog.get_logger("topicwright.kraft")


class AwaitedTopics(msgspec.Struct, frozen=True):
    """Incomplete topics of one commit, with its newest event and its end in the metadata log."""

    offset: Offset
    end: int
    topics: tuple[TopicName, ...]


class Readiness:
    """Probes brokers for incomplete topics. A broker has a task only while there is something to probe."""

    def __init__(self, controller: CommandSink, node: QuorumNode, confirmations: Confirmations) -> None:
        self._controller = controller
        self._node = node
        self._confirmations = confirmations
        self._waiting: deque[AwaitedTopics] = deque(maxlen=WAITED_MAX)
        self._probes = BrokerProbes()
        self._tasks: dict[BrokerId, asyncio.Task[None]] = {}
        self._fetched: dict[BrokerId, asyncio.Event] = {}

    @property
    def _cluster(self) -> Cluster:
        return self._controller.store.durable_cluster

    def await_created(self, records: Sequence[Recorded], end: Offset, log_end: int) -> None:
        """Probe for topics created by these events. The commit's last event is at `end`; with it the metadata log ends
        at `log_end`."""
        names = tuple(record.event.topic for record in records if isinstance(record.event, TopicCreated))
        if names:
            self._waiting.append(AwaitedTopics(end, log_end, names))
            for broker_id in self._cluster.live:
                if broker_id not in self._tasks:  # an earlier task has probed the topics before these
                    self._fetched[broker_id] = asyncio.Event()
                    self._tasks[broker_id] = self._controller.background(self._follow(broker_id, Offset(end - 1)))

    def fetched(self, broker_id: int) -> None:
        """A broker has fetched more of the metadata log: probe it if topics wait."""
        event = self._fetched.get(BrokerId(broker_id))
        if event is not None:
            event.set()

    def resume(self) -> None:
        """Forget all waiting topics; heartbeats will report them."""
        self._waiting.clear()

    def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._probes.close()

    async def _follow(self, broker_id: BrokerId, done: Offset) -> None:
        """Probe a broker until it has applied all waiting commits after `done`."""
        fetched = self._fetched[broker_id]
        try:
            while pending := self._waiting_after(done):
                leader, address = self._node.quorum.leading, _plaintext_of(self._cluster.brokers.get(broker_id))
                if leader is None or address is None:
                    return
                end = leader.progress.end_of(broker_id)
                waited = [each for each in pending if each.end <= end]
                if waited:
                    done = await self._probe(address, broker_id, waited)
                else:
                    fetched.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(fetched.wait(), WAIT_S)
        except (ClusterUnreachable, ProbeDenied) as why:
            logger.info("broker cannot be probed; relying on its heartbeats", broker=broker_id, why=str(why))
        finally:
            del self._tasks[broker_id], self._fetched[broker_id]

    def _waiting_after(self, done: Offset) -> list[AwaitedTopics]:
        return [*takewhile(lambda each: each.offset > done, reversed(self._waiting))][::-1]

    async def _probe(self, address: Address, broker_id: BrokerId, waited: list[AwaitedTopics]) -> Offset:
        pause_s = FIRST_PAUSE_S
        newest = waited[-1]
        while not await self._serves(address, broker_id, waited):
            if not self._cluster.is_live(broker_id):
                return newest.offset
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * PAUSE_GROWTH, PAUSE_S_MAX)
        self._confirmations.confirm(broker_id, newest.offset)
        return newest.offset

    async def _serves(self, address: Address, broker_id: BrokerId, waited: list[AwaitedTopics]) -> bool:
        """True if the broker knows these topics and serves as leader of the partitions that it leads."""
        try:
            topics = [self._controller.store.durable_named(name) for each in waited for name in each.topics]
        except LogClosed:  # during recovery
            return False
        there = [topic for topic in topics if topic is not None]
        if not there:
            return True
        led = {
            topic.name: indexes
            for topic in there
            if (indexes := [i for i, partition in enumerate(topic.partitions) if partition.leader == broker_id])
        }
        if led and not await self._probes.leads(address, led):
            return False
        return there[-1].name in led or await self._probes.knows(address, there[-1].name)


def _plaintext_of(broker: Broker | None) -> Address | None:
    """The address of a broker on its first PLAINTEXT listener; None if it has none, or is fenced."""
    if broker is None or broker.fenced:
        return None
    places = zip(broker.endpoints, broker.security_protocols, strict=False)
    return next(((each.host, each.port) for each, protocol in places if protocol == PLAINTEXT), None)
