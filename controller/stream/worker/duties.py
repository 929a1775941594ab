"""What the owner of a partition does beside deciding: deadlines, its brokers, topics looked at again.

All of it speaks in commands, which go through the commands topic like anybody else's; but what brokers say at once of a
command's events is decided with it. Whatever is lost with a process is said anew by the next owner, from the
partition's state alone.

Broker commands concern every topic. Each owner puts them to its own partition, from what it sees itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from controller.brokers.port import Fleet
from controller.engine.background import Background
from controller.engine.deadlines import Deadlines
from controller.engine.decider import DryRunner
from controller.engine.reconciler import Reconciler
from controller.engine.stamps import Stamps
from controller.machine.commands.commands import AnyCommand, ReviewTopics
from controller.machine.partitions.blocks import Span
from controller.serving.archiving import sign_heads
from controller.stream.log.commands_topic import encode_command, key_of
from controller.stream.log.partition import PartitionState
from controller.stream.log.transport import KafkaTrouble, Transport
from controller.stream.worker.partition_cluster import PartitionCluster
from controller.stream.worker.partition_history import PartitionHistory
from events.catalog import Recorded
from events.logs.heads import HeadSigner
from events.logs.kafka_partitions import partition_of
from events.names import Offset, RequestId, TopicName, shard_key
from projections.queries.query import Query
from projections.store.store import TopicStore

MakeFleet = Callable[[PartitionState], Fleet]
"""The brokers of one partition, as its owner sees them."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What all partitions of a worker share."""

    partitions: int
    transport: Callable[[], Transport]
    clock_ms: Callable[[], int]
    new_request_id: Callable[[str], RequestId]
    """An id that no other request has; the text says where it comes from."""
    make_fleet: MakeFleet
    on_trouble: Callable[[str], None]
    """Kafka did not take commands: the partitions are to be claimed anew."""
    on_failure: Callable[[BaseException], None]
    """A bug: the process is to end."""
    history: Callable[[PartitionState], PartitionHistory] | None = None
    """Keeps the history of a partition; None where it is not archived."""
    signer: HeadSigner | None = None
    """Signs the heads of partitions; None without a key."""
    signing_interval_s: float = 600.0


class PartitionSink:
    """A `CommandSink` over one partition: what is observed becomes a command of its topic."""

    def __init__(self, around: Surroundings, partition: PartitionState) -> None:
        self.partition = partition.partition
        self.store: TopicStore = partition.store
        self._around = around
        self._state = partition
        self._decided = partition.fold.next_source
        self._outbox: list[AnyCommand] = []
        self._observed = self._put = 0
        self._last_offset = -1
        self._stamps = Stamps("", around.clock_ms, partition.last_ms)
        self._wake = asyncio.Event()
        self._step = asyncio.Event()
        """Set, and another in its place, when commands are put or decided."""
        background = Background(around.on_failure)
        self.background, self.stop = background.begin, background.stop
        self.reviews = Reconciler(lambda: self.store, self._review, self.decided, self.background)
        self.background(self._put_all())

    @property
    def last_offset(self) -> Offset:
        """The number of the newest event of the partition, -1 if there is none."""
        return Offset(self._state.log.durable_offset - 1)

    def has_pending_creates(self) -> bool:
        """Whether a topic of the partition is not complete yet."""
        return bool(self._state.state.waiting)

    def is_settled(self) -> bool:
        """Whether every topic has been looked at since the last broker came or went."""
        return self.reviews.idle

    def now_ms(self, at_least_ms: int = 0) -> int:
        """The time to stamp on a command: not before the newest event of the partition."""
        return self._stamps.now_ms(max(self._state.last_ms, at_least_ms))

    def new_request_id(self, origin: str = "") -> RequestId:
        """An id that no other request has."""
        return self._around.new_request_id(origin)

    def owns(self, topic: str) -> bool:
        """Whether a topic of this name is decided in the partition."""
        return partition_of(shard_key(topic), self._around.partitions) == self.partition

    def submit_internal(self, command: AnyCommand) -> None:
        """Put a command to the partition."""
        self._outbox.append(command)
        self._observed += 1
        self._wake.set()

    async def decided(self) -> None:
        """Wait until all that was observed so far is decided, in this partition."""
        observed = self._observed
        while self._put < observed:
            await self._step.wait()
        offset = self._last_offset
        while self._decided <= offset:
            await self._step.wait()

    def learn(self) -> None:
        """The partition was decided further."""
        self._decided = self._state.fold.next_source
        self._poke()

    def _review(self, topics: tuple[TopicName, ...], span: Span | None) -> None:
        request_id = self.new_request_id("review")
        self.submit_internal(ReviewTopics(request_id=request_id, at_ms=self.now_ms(), topics=topics, span=span))

    async def _put_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            outbox, self._outbox = self._outbox, []
            try:
                await self._put_some(outbox)
            except KafkaTrouble as trouble:
                self._around.on_trouble(f"commands were not taken: {trouble}")
                return
            self._put += len(outbox)
            self._poke()

    async def _put_some(self, outbox: Sequence[AnyCommand]) -> None:
        transport = self._around.transport()
        putting = [
            await transport.put(self.partition, key_of(command).encode(), encode_command(command)) for command in outbox
        ]
        self._last_offset = max([self._last_offset, *await asyncio.gather(*putting)])

    def _poke(self) -> None:
        step, self._step = self._step, asyncio.Event()
        step.set()


class _Duties:
    """What is done for one owned partition."""

    def __init__(self, around: Surroundings, partition: PartitionState) -> None:
        self.sink = PartitionSink(around, partition)
        self.deadlines = Deadlines(partition.store.durable, self.sink.now_ms, self.sink.submit_internal)
        self.reviews = self.sink.reviews
        self.fleet = around.make_fleet(partition)
        self.history = None if around.history is None else around.history(partition)
        if self.history is not None:
            self.history.begin()
        if around.signer is not None:
            part = Query(partition.log, lambda: partition.store, partition.partition)
            self.sink.background(sign_heads(self.sink, part, around.signer, around.signing_interval_s))
        self.deadlines.begin(partition.state.waiting)
        self.fleet.start(self.sink)
        self.reviews.sweep()

    def learn(self, records: Sequence[Recorded]) -> None:
        self.sink.learn()
        if self.history is not None:
            self.history.learn()
        if records:
            self.deadlines.learn(records)
            self.fleet.learn(records)
            self.reviews.learn(records)

    async def end(self) -> None:
        if self.history is not None:
            await self.history.end()
        self.deadlines.stop()
        self.reviews.stop()
        await self.fleet.stop()
        await self.sink.stop()


class PartitionDuties:
    """Implements `engine.Owner` for all partitions of a worker."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._duties: dict[int, _Duties] = {}

    def begin(self, partition: PartitionState) -> None:
        """Watch over a partition."""
        self._duties[partition.partition] = _Duties(self._around, partition)

    def immediate_commands(self, partition: PartitionState, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        """What the brokers of the partition say at once."""
        return self._duties[partition.partition].fleet.immediate_commands(records)

    def learn(self, partition: PartitionState, records: Sequence[Recorded]) -> None:
        """The partition was decided further."""
        self._duties[partition.partition].learn(records)

    async def end(self, partition: int) -> None:
        """Watch over it no longer."""
        duties = self._duties.pop(partition, None)
        if duties is not None:
            await duties.end()

    def cluster_of(self, partition: int) -> DryRunner | None:
        """The cluster that has a say in decisions of a partition, None where there is none."""
        duties = self._duties.get(partition)
        fleet = duties.fleet if duties is not None else None
        return fleet if isinstance(fleet, PartitionCluster) else None

    @property
    def trouble(self) -> str | None:
        """Why what is decided cannot be carried out now; None when it can, or is not by a cluster."""
        fleets = [duties.fleet for duties in self._duties.values()]
        troubles = [fleet.trouble for fleet in fleets if isinstance(fleet, PartitionCluster) and fleet.trouble]
        return troubles[0] if troubles else None

    @property
    def not_archived(self) -> int:
        """How many partitions cannot be archived now."""
        histories = [duties.history for duties in self._duties.values()]
        return sum(1 for history in histories if history is not None and history.trouble)

    @property
    def deadlines(self) -> int:
        """How many deadlines are watched."""
        return sum(len(duties.deadlines) for duties in self._duties.values())
