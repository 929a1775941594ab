"""A simulated Kafka: the topics, the consumer group, and a network that delays requests and loses responses.

Appended records are durable. A delayed request still arrives, in order, even after a timeout at its sender. In this way
the records of a replaced worker can arrive late.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from controller.stream.log.topics import KafkaUnavailable, Topics
from events.logs.events_topic import Fence, decode_record
from tests.simulation.virtual_time import context_of

T = TypeVar("T")

TIMEOUT_S: Final = 4.0
"""Request timeout."""
SESSION_S: Final = 1.5
HEARTBEAT_S: Final = 0.25
REBALANCE_S: Final = 3.0
GATEWAYS: Final = "gateways"
NO_RECORD: Final = b""
"""The value at an offset that readers skip: an aborted record, or a transaction marker."""
COPIES: Final = 0.02
"""Probability that a command is duplicated in its topic, as after the kill of a broker."""
COPIED_S: Final = 3.0
"""Maximum delay of a duplicate."""


class SimulatedKafka:
    """The topics and the group coordinator of the brokers."""

    def __init__(self, rng: random.Random, partitions: int) -> None:
        self.rng = rng
        self.topics = Topics("commands", "events", partitions, "cluster-1", "events-1")
        self.commands: list[list[bytes]] = [[] for _ in range(partitions)]
        self.events: list[list[bytes]] = [[] for _ in range(partitions)]
        self.gateways: list[bytes] = []
        self.group = Group(rng, partitions)
        self.links: list[Link] = []
        self.latency_s = 0.002
        self.replicates_s = rng.choice((0.002, 0.03, 0.15))
        """Maximum time to replicate a worker's records to the ISR."""
        self.lost = 0.0
        """Probability that a response is lost."""
        self.copied = COPIES
        self._more = asyncio.Event()
        self._fenced = [asyncio.Event() for _ in range(partitions)]

    async def more(self, within_s: float) -> None:
        """Wait for a new record in any topic, for `within_s` at most."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._more.wait(), within_s)

    async def fenced(self, partition: int, within_s: float) -> None:
        """Wait until a worker writes a fence to a partition, for `within_s` at most."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._fenced[partition].wait(), within_s)

    def _stir(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    def log(self, topic: str, partition: int) -> list[bytes]:
        if topic == GATEWAYS:
            return self.gateways
        return (self.commands if topic == self.topics.commands else self.events)[partition]

    def put(self, topic: str, partition: int, value: bytes) -> int:
        """Append a producer's record; returns its offset."""
        log = self.log(topic, partition)
        log.append(value)
        self._stir()
        if topic == self.topics.commands and self.rng.random() < self.copied:
            asyncio.get_running_loop().call_later(self.rng.uniform(0, COPIED_S), self._copy, log, value)
        return len(log) - 1

    def _copy(self, log: list[bytes], value: bytes) -> None:
        log.append(value)
        self._stir()

    def append(self, partition: int, values: list[bytes]) -> int:
        """Append the records of a worker's request; returns the offset of the first."""
        log = self.events[partition]
        log += values
        self._stir()
        if isinstance(decode_record(values[0]), Fence):
            self._fenced[partition].set()
            self._fenced[partition] = asyncio.Event()
        return len(log) - len(values)

    def abort(self, partition: int, records: int) -> None:
        """Append the records of an aborted transaction and its marker to an events partition."""
        self.events[partition] += [NO_RECORD] * (records + 1)
        self._stir()

    def mend(self) -> None:
        """End all network faults; delayed requests arrive."""
        self.lost = self.copied = 0.0
        self.latency_s = 0.002
        for link in self.links:
            link.mend()


class Link:
    """A process' connection to Kafka. Requests arrive in order."""

    def __init__(self, kafka: SimulatedKafka, process: int) -> None:
        self.kafka = kafka
        self.process = process
        self.is_cut = self.is_dead = False
        self._outside = context_of(0)
        """A sent request arrives even if its sender is killed."""
        self._arrives_at = 0.0
        self._held: list[Callable[[], None]] = []
        kafka.links.append(self)

    async def call(self, work: Callable[[], T], takes_s: float = 0.0) -> T:
        """Send a request that takes up to `takes_s`; returns the response. Raises KafkaUnavailable on a timeout."""
        if self.is_dead:
            raise asyncio.CancelledError
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def answered(result: T) -> None:
            if not answer.done():
                answer.set_result(result)

        self.send(work, answered, takes_s)
        try:
            return await asyncio.wait_for(answer, TIMEOUT_S)
        except TimeoutError:
            raise KafkaUnavailable("no answer in time") from None

    def send(self, work: Callable[[], T], answered: Callable[[T], object], takes_s: float = 0.0) -> None:
        """Run `work` at Kafka; `answered` is called with its result, unless the response is lost."""
        kafka = self.kafka
        if self.is_dead:
            return

        def arrive() -> None:
            if self.is_cut:
                self._held.append(arrive)
                return
            result = work()
            if kafka.rng.random() >= kafka.lost:
                loop.call_later(self._delay_s(), back, result)

        def back(result: Any) -> None:
            if self.is_cut:
                self._held.append(lambda: back(result))
            elif not self.is_dead:
                own.run(answered, result)

        loop = asyncio.get_running_loop()
        own = context_of(self.process)
        way_s = self._delay_s() + kafka.rng.uniform(0, takes_s)
        self._arrives_at = max(self._arrives_at + 1e-6, loop.time() + way_s)
        loop.call_at(self._arrives_at, arrive, context=self._outside)

    def _delay_s(self) -> float:
        return self.kafka.rng.uniform(0.2, 1.8) * self.kafka.latency_s

    def mend(self) -> None:
        """End the cut; delayed requests and responses arrive."""
        self.is_cut = False
        held, self._held = self._held, []
        for each in held:
            self._outside.run(each)

    def end(self) -> None:
        """The process has died. Its sent requests may still arrive; those of its `finally` blocks do not."""
        self.is_dead = True
        if self.kafka.rng.random() < 0.5:
            self._held.clear()


class Generation(msgspec.Struct, frozen=True):
    """A member's assignment in a generation of the group."""

    number: int
    partitions: frozenset[int]


class Group:
    """The group coordinator (KIP-62). It reassigns all partitions whenever a member joins or leaves, and removes
    members without a heartbeat within the session timeout."""

    def __init__(self, rng: random.Random, partitions: int) -> None:
        self._rng = rng
        self._partitions = partitions
        self._heard: dict[str, float] = {}
        self._joined: set[str] | None = None
        """The members that have joined the next generation; None if a generation is active."""
        self._ends_at = 0.0
        self._number = 0
        self._assigned: dict[str, frozenset[int]] = {}

    def join(self, member: str) -> None:
        """A member joins the next generation."""
        self._hear(member)
        if self._joined is None:
            self._rebalance()
        assert self._joined is not None, "the rebalance has just begun"
        self._joined.add(member)
        self._settle()

    def share(self, member: str) -> Generation | None:
        """The member's assignment; None during a rebalance, or if the member must join again."""
        self._hear(member, only_known=True)
        self._settle()
        if self._joined is None and member in self._assigned:
            return Generation(self._number, self._assigned[member])
        return None

    def beat(self, member: str, number: int) -> bool:
        """A heartbeat; True if the member's generation is still active."""
        self._hear(member, only_known=True)
        self._settle()
        return member in self._assigned and self._joined is None and number == self._number

    def awaits(self, member: str) -> bool:
        """True if the member has joined the next generation."""
        return self._joined is not None and member in self._joined

    def leave(self, member: str) -> None:
        """A member leaves the group."""
        if self._heard.pop(member, None) is not None:
            self._rebalance()
            self._settle()

    def _hear(self, member: str, *, only_known: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        late = [each for each, at in self._heard.items() if now - at > SESSION_S and each != member]
        if member in self._heard and now - self._heard[member] > SESSION_S:
            late.append(member)
        for each in late:
            del self._heard[each]
        if late:
            self._rebalance()
        if member in self._heard or not only_known:
            self._heard[member] = now

    def _rebalance(self) -> None:
        self._joined = (self._joined or set()) & self._heard.keys()
        self._ends_at = asyncio.get_running_loop().time() + REBALANCE_S
        self._assigned = {}

    def _settle(self) -> None:
        if self._joined is None or not self._joined:
            return
        if self._joined < self._heard.keys() and asyncio.get_running_loop().time() < self._ends_at:
            return
        for member in self._heard.keys() - self._joined:
            del self._heard[member]
        members = sorted(self._joined)
        self._rng.shuffle(members)
        self._number += 1
        self._joined = None
        self._assigned = {
            member: frozenset(range(turn, self._partitions, len(members))) for turn, member in enumerate(members)
        }
