"""A machine with disks, on which one broker after another runs: what outlives a broker's process.

A log is a list of numbers, each with the epoch of the leader that took it. A kill loses none of them; a power cut loses
what was not flushed; a disk that is replaced is empty. Which of these the controller may know of is Kafka's: a clean
shutdown leaves a file with the broker's epoch in each directory, and one that is missing means unclean (KIP-966).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from controller.kafka.messages import ZERO_UUID
from controller.quorum.log.batches import RecordBatch, decode_batches
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.metadata_codec import decode_record
from controller.quorum.log.metadata_records import (
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from tests.simulation.brokers.broker import Broker
    from tests.simulation.brokers.world import World

PORT = 9000
"""A broker listens on this port and its id."""
MIN_ISR = "min.insync.replicas"
TOPICS, BROKERS = 2, 4
"""Kafka's numbers of what has configs."""

Key = tuple[bytes, int]
"""A partition: the id of its topic, and its index."""


Decoded = tuple[tuple[RecordBatch, tuple[MetadataRecord, ...]], ...]


@lru_cache(maxsize=4096)
def decoded(data: bytes) -> Decoded:
    """Batches with their records; those of control batches are left out. Brokers all read the same."""
    return tuple(
        (batch, () if batch.is_control else tuple(decode_record(value) for _, value in batch.records))
        for batch in decode_batches(data)
    )


class Replica:
    __slots__ = ("directory", "entries", "flushed")

    def __init__(self, directory: bytes) -> None:
        self.directory = directory
        self.entries: list[tuple[int, int]] = []
        """The epoch and the number of each record."""
        self.flushed = 0

    @property
    def numbers(self) -> set[int]:
        return {number for _, number in self.entries}

    def agree_with(self, leader: Replica) -> None:
        """Let go of what the leader has not. Numbers are never given twice, so one that both have says all before."""
        mine, theirs = self.entries, leader.entries
        same = min(len(mine), len(theirs))
        while same and mine[same - 1] != theirs[same - 1]:
            same -= 1
        del mine[same:]
        self.flushed = min(self.flushed, same)


class View:
    """The cluster's metadata as far as a broker has applied them; it is on its disk too."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.end, self.epoch = 0, 0
        """All below that offset is applied; the last record's epoch."""

    def topic_id(self, name: str) -> bytes | None:
        return next((each.topic_id for each in self.image.all(TopicRecord) if each.name == name), None)

    def broker(self, broker_id: int) -> RegisterBrokerRecord | None:
        return self.image.find(RegisterBrokerRecord(broker_id=broker_id))

    def partitions_of(self, broker_id: int) -> dict[Key, PartitionRecord]:
        return {
            (topic_id, index): partition
            for topic_id, partitions in self.image.partitions.items()
            for index, partition in partitions.items()
            if broker_id in partition.replicas
        }

    def min_isr(self, topic_id: bytes) -> int:
        """How many have to be in sync for a record to be taken."""
        topic = self.image.find(TopicRecord(topic_id=topic_id))
        own = dict(self.image.configs_of(TOPICS, topic.name)) if topic is not None else {}
        return int(own.get(MIN_ISR) or dict(self.image.configs_of(BROKERS, "")).get(MIN_ISR) or 1)


class Machine:
    """One machine. `broker` is the process that has its disks; None while it is down."""

    def __init__(self, world: World, broker_id: int) -> None:
        rng = world.rng
        self.world, self.id = world, broker_id
        self.directories = [rng.randbytes(16) for _ in range(rng.choice((1, 1, 2)))]
        self.failed: set[bytes] = set()
        self.clean: dict[bytes, int] = {}
        """By directory, the epoch in its file of a clean shutdown."""
        self.replicas: dict[Key, Replica] = {}
        self.view = View()
        self.broker: Broker | None = None
        self.is_cut = False
        """Whether the controller cannot be reached, and reaches nothing here. Brokers reach each other."""
        self.slow_s = 0.001
        """How long a request takes to the controller, at most."""
        self.registration_version = rng.choice((3, 4, 4))
        self.isr_version = 3 if world.loses else rng.choice((2, 3, 3))
        self.fetch_version = rng.choice((17, 18))

    @property
    def online(self) -> list[bytes]:
        return [each for each in self.directories if each not in self.failed]

    def take_clean_epoch(self) -> int:
        """The epoch that all directories say was shut down in order, -1 where they do not; it is said once."""
        said = {self.clean.get(each, -1) for each in self.directories}
        self.clean.clear()
        return said.pop() if len(said) == 1 and not self.failed else -1

    def replica(self, key: Key, partition: PartitionRecord) -> Replica | None:
        """The log of a partition that is to be here, made if it is new; None where its directory does not work."""
        replica = self.replicas.get(key)
        if replica is None:
            assigned = partition.directories[partition.replicas.index(self.id)] if partition.directories else ZERO_UUID
            is_lost = assigned not in self.directories and assigned != ZERO_UUID
            if assigned in self.failed or (is_lost and self.failed) or not self.online:
                return None
            chosen = assigned if assigned in self.online else self.world.rng.choice(self.online)
            replica = self.replicas[key] = Replica(chosen)
        return None if replica.directory in self.failed else replica

    def lose_power(self) -> None:
        """What was not flushed is gone, in part or all."""
        rng = self.world.rng
        for replica in self.replicas.values():
            kept = rng.randint(replica.flushed, len(replica.entries))
            del replica.entries[kept:]

    def replace_disk(self) -> None:
        """A new disk in place of another, which nothing is on; with the only one goes all that the machine knew."""
        rng = self.world.rng
        gone = rng.choice(sorted(self.failed) or self.directories)
        self.directories[self.directories.index(gone)] = rng.randbytes(16)
        self.failed.discard(gone)
        self.replicas = {key: each for key, each in self.replicas.items() if each.directory != gone}
        if gone not in self.directories[1:]:
            self.view = View()
