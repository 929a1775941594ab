"""The commands and events topics in memory, for tests of the engine."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from controller.machine.commands.commands import AnyCommand, TopicCommand
from controller.stream.log.codec import encode_command, partition_of
from controller.stream.log.topics import Topics
from controller.stream.log.transport import Transport, Values
from controller.stream.worker.partition_decider import Sourced
from events.names import shard_key

TOPICS = Topics("commands", "events", 2, "cluster-1", "events-1")


class MemoryKafka:
    """Both topics by partition. Retention has deleted commands before `first_command` and events before
    `first_record`."""

    def __init__(self, partitions: int = TOPICS.partitions) -> None:
        self.commands: list[list[bytes]] = [[] for _ in range(partitions)]
        self.events: list[list[bytes]] = [[] for _ in range(partitions)]
        self.first_command = self.first_record = 0

    def put(self, *commands: AnyCommand) -> None:
        """Append each topic command to the partition of its topic, and other commands to all partitions."""
        for command in commands:
            value = encode_command(command)
            if isinstance(command, TopicCommand):
                self.commands[partition_of(shard_key(command.topic), len(self.commands))].append(value)
            else:
                for partition in self.commands:
                    partition.append(value)

    def fetch(self, partition: int, start: int, count: int = 1000) -> list[Sourced]:
        """Returns commands as a driver delivers them."""
        values = self.commands[partition][start : start + count]
        return [Sourced(partition, offset, value) for offset, value in enumerate(values, start)]


class MemoryTransport(Transport):
    """A transport to `MemoryKafka` that never fails. The stream simulator has one that does."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self.kafka = kafka
        self.closed = False
        self.appends: list[int] = []
        """The partition of each append, in order."""

    async def append(self, partition: int, values: Sequence[bytes]) -> int:
        assert not self.closed, "a closed transport must not be used"
        self.appends.append(partition)
        first = len(self.kafka.events[partition])
        self.kafka.events[partition] += values
        await asyncio.sleep(0)
        return first

    async def read(self, partition: int, start: int, end: int) -> AsyncGenerator[Values, None]:
        assert start >= self.kafka.first_record, "Kafka would answer OFFSET_OUT_OF_RANGE"
        for at in range(start, end, 3):
            await asyncio.sleep(0)
            portion = self.kafka.events[partition][at : min(at + 3, end)]
            yield list(enumerate(portion, at))

    async def events_range(self, partition: int) -> tuple[int, int]:
        return self.kafka.first_record, len(self.kafka.events[partition])

    async def commands_range(self, partition: int) -> tuple[int, int]:
        return self.kafka.first_command, len(self.kafka.commands[partition])

    async def put(self, partition: int, key: bytes, value: bytes) -> asyncio.Future[int]:
        outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.kafka.commands[partition].append(value)
        outcome.set_result(len(self.kafka.commands[partition]) - 1)
        return outcome

    async def close(self) -> None:
        self.closed = True
