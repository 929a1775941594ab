"""A simulated Kafka: the topics, the consumer group, and a network to it that delays, holds up and loses.

Records that have arrived stay. A request that was held up still arrives, in its turn, and its sender may long have been
shown that there was no answer: that is how records of a worker come that was replaced.
"""

from __future__ import annotations

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
"""How long an answer is waited for."""
SESSION_S: Final = 1.5
HEARTBEAT_S: Final = 0.25
REBALANCE_S: Final = 3.0
GATEWAYS: Final = "gateways"
NO_RECORD: Final = b""
"""Of an offset that readers are not given: of an aborted record, or of the marker that ends a transaction."""
COPIES: Final = 0.02
"""How many of the commands come to lie in their topic once more, as when brokers are killed."""
COPIED_S: Final = 3.0
"""So much later, at most."""


class SimulatedKafka:
    """What the brokers have."""

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
        """How long a worker's records are on their way at most: to all in-sync replicas."""
        self.lost = 0.0
        """How many of the answers get lost."""
        self.copied = COPIES
        self._more = asyncio.Event()
        self._fenced = [asyncio.Event() for _ in range(partitions)]

    async def more(self, within_s: float) -> None:
        """Wait for further records anywhere, but not longer."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._more.wait(), within_s)

    async def fenced(self, partition: int, within_s: float) -> None:
        """Wait until somebody takes a partition over, but not longer."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._fenced[partition].wait(), within_s)

    def _stir(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    def log(self, topic: str, partition: int) -> list[bytes]:
        """A partition's records."""
        if topic == GATEWAYS:
            return self.gateways
        return (self.commands if topic == self.topics.commands else self.events)[partition]

    def put(self, topic: str, partition: int, value: bytes) -> int:
        """A producer's record; its offset."""
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
        """A worker's records, all of them in one request; the offset of the first."""
        log = self.events[partition]
        log += values
        self._stir()
        if isinstance(decode_record(values[0]), Fence):
            self._fenced[partition].set()
            self._fenced[partition] = asyncio.Event()
        return len(log) - len(values)

    def abort(self, partition: int, records: int) -> None:
        """Somebody else has written to an events partition in a transaction, and aborted it."""
        self.events[partition] += [NO_RECORD] * (records + 1)
        self._stir()

    def mend(self) -> None:
        """All that was held up arrives, and nothing is lost any more."""
        self.lost = self.copied = 0.0
        self.latency_s = 0.002
        for link in self.links:
            link.mend()


class Link:
    """One process' way to Kafka and back. What it sends arrives in order."""

    def __init__(self, kafka: SimulatedKafka, process: int) -> None:
        self.kafka = kafka
        self.process = process
        self.is_cut = self.is_dead = False
        self._outside = context_of(0)
        """A request that is on its way arrives, whatever becomes of who sent it."""
        self._arrives_at = 0.0
        self._held: list[Callable[[], None]] = []
        kafka.links.append(self)

    async def call(self, work: Callable[[], T], takes_s: float = 0.0) -> T:
        """What Kafka answers; it may take so long to do. Raises KafkaUnavailable where no answer comes in time."""
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
        """Have something done at Kafka; `answered` is called with what comes of it, unless that gets lost."""
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
        """What was held up goes on."""
        self.is_cut = False
        held, self._held = self._held, []
        for each in held:
            self._outside.run(each)

    def end(self) -> None:
        """The process is gone. What it has sent may still arrive; what its `finally` blocks send does not."""
        self.is_dead = True
        if self.kafka.rng.random() < 0.5:
            self._held.clear()


class Generation(msgspec.Struct, frozen=True):
    """What a member is assigned."""

    number: int
    partitions: frozenset[int]


class Group:
    """The group's coordinator (KIP-62's rules): members join, are assigned all partitions anew whenever one comes or
    goes, and are left out when they were not heard of for a session."""

    def __init__(self, rng: random.Random, partitions: int) -> None:
        self._rng = rng
        self._partitions = partitions
        self._heard: dict[str, float] = {}
        self._joined: set[str] | None = None
        """Who has joined the generation that is to begin; None where one is in force."""
        self._ends_at = 0.0
        self._number = 0
        self._assigned: dict[str, frozenset[int]] = {}

    def join(self, member: str) -> None:
        """A member wants its share."""
        self._hear(member)
        if self._joined is None:
            self._rebalance()
        assert self._joined is not None, "it has just begun"
        self._joined.add(member)
        self._settle()

    def share(self, member: str) -> Generation | None:
        """What the member is assigned, None as long as that is open or where it has to join again."""
        self._hear(member, only_known=True)
        self._settle()
        if self._joined is None and member in self._assigned:
            return Generation(self._number, self._assigned[member])
        return None

    def beat(self, member: str, number: int) -> bool:
        """Whether what the member was assigned is still in force."""
        self._hear(member, only_known=True)
        self._settle()
        return member in self._assigned and self._joined is None and number == self._number

    def awaits(self, member: str) -> bool:
        """Whether the member has joined the generation that is to begin."""
        return self._joined is not None and member in self._joined

    def leave(self, member: str) -> None:
        """A member goes in order."""
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
