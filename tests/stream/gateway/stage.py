"""A gateway over two partitions without Kafka. The test transports records, and workers decide in the same process."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from controller.access.mutation_quotas import MutationQuotas
from controller.controller_api import Reply
from controller.machine.commands.commands import CreateTopic
from controller.stream.gateway.kafka import Done, FollowedEvents, NotProduced, Record
from controller.stream.gateway.members import Announcement, Members, StreamGateway, encode_announcement
from controller.stream.gateway.node import GatewayNode
from controller.stream.log.codec import decode_command, partition_of
from controller.stream.log.partition import PartitionState
from controller.stream.log.topics import Topics
from events.catalog import Endpoint
from events.names import RequestId, shard_key
from tests.stream.log.records import BORN_MS, Writing, create, joined

PARTITIONS = 2
TOPICS = Topics("commands", "events", PARTITIONS, "cluster-1", "topic-1")
SESSION_S = 5.0


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Rig:
    """A gateway over two partitions, its commands before delivery, and the workers of both partitions."""

    def __init__(self, folder: Path, quotas: MutationQuotas | None = None) -> None:
        self.clock = Clock()
        self.put: list[tuple[str, int, bytes, bytes, Done]] = []
        self.failed: list[str] = []
        """The kinds of the commands that failed with an exception."""
        self.full = False
        self.workers = [Writing(_opened(folder / "worker", number)) for number in range(PARTITIONS)]
        own = Announcement("a-gateway", "p1", (Endpoint("PLAINTEXT", "gateway-a", 9092),))
        producer: Any = self
        self.members = Members(own, producer, "gateways", session_s=SESSION_S, clock=self.clock)
        self.node = GatewayNode(
            [_opened(folder / "gateway", number, answers=True) for number in range(PARTITIONS)],
            TOPICS,
            self.members,
            producer,
            boot_id="boot",
            clock_ms=lambda: BORN_MS,
            answer_timeout_s=30,
            ends=[1] * PARTITIONS,
            quotas=quotas,
            command_failed=self.failed.append,
        )
        self.gateway = StreamGateway(self.node, self.members, advertised=Endpoint("PLAINTEXT", "gateway-a", 9092))
        self._read = [0] * PARTITIONS

    def produce(self, topic: str, partition: int, key: bytes, value: bytes, done: Done) -> None:
        """Implements the producer of the gateway."""
        if self.full:
            raise NotProduced("too many commands are waiting for Kafka")
        self.put.append((topic, partition, key, value, done))

    def begin(self, brokers: int = 3) -> None:
        """The workers take over with live brokers. The gateway reads their events and its own heartbeat."""
        for worker in self.workers:
            worker.fence()
            for broker in range(1, brokers + 1):
                worker.decide(*joined(broker))
        self.read(ended=True)
        self.on_heartbeat(self.members.own)

    def work(self, *, acknowledge_first: bool = True) -> None:
        """Deliver the produced commands; workers decide, brokers confirm, and the gateway reads the decisions."""
        put, self.put = [one for one in self.put if one[0] == "commands"], []
        acknowledged = []
        for _, partition, _, value, done in put:
            offset = self.workers[partition].partition.reader.next_source
            self.workers[partition].decide(decode_command(value))
            acknowledged.append((done, offset))
        if acknowledge_first:
            self.acknowledge(acknowledged)
            self.read()
        else:
            self.read()
            self.acknowledge(acknowledged)

    def acknowledge(self, taken: list[tuple[Done, int]]) -> None:
        for done, offset in taken:
            done(offset, None)

    def read(self, ended: bool = False) -> None:
        """The gateway reads all new records of the workers."""
        records = []
        for number, worker in enumerate(self.workers):
            worker.partition.commit()
            new = range(self._read[number], len(worker.topic))
            records += [Record("events", number, offset, worker.topic[offset]) for offset in new]
            self._read[number] = len(worker.topic)
        ends = frozenset(("events", number) for number in range(PARTITIONS)) if ended else frozenset()
        self.node.take(FollowedEvents(tuple(records), ends))

    def on_heartbeat(self, announcement: Announcement) -> None:
        self.node.take(FollowedEvents((Record("gateways", 0, 0, encode_announcement(announcement)),), frozenset()))

    def request(self, *commands: Any, timeout_ms: int = 0) -> asyncio.Future[Reply]:
        return self.node.submit(commands, timeout_ms)

    async def answers(self, *commands: Any) -> Reply:
        """Send a request, deliver it, and return the reply."""
        pending = self.request(*commands)
        self.work()
        return await pending

    def close(self) -> None:
        self.node.close()
        for worker in self.workers:
            worker.partition.close()


def _opened(data: Path, number: int, **options: Any) -> PartitionState:
    return PartitionState.open(data, number, cluster_id="cluster-1", topic_id="topic-1", **options)


def in_partition(number: int) -> str:
    """Returns a topic name of a partition."""
    return next(name for name in (f"t{i}" for i in range(99)) if partition_of(shard_key(name), PARTITIONS) == number)


def codes(answers: Iterable[Any]) -> dict[str, int]:
    return {answer.topic_name: answer.code for answer in answers}


def both(**fields: Any) -> list[CreateTopic]:
    """Returns a request with one topic in each partition."""
    given = {"timeout_ms": 0, **fields}
    return [replace(create(in_partition(n), **given), request_id=RequestId("r")) for n in range(PARTITIONS)]
