"""A machine with disks, which outlive the processes of its broker.

A log is a list of numbers, each with the leader epoch in which it was appended. A kill loses no number, a power failure
may lose unflushed ones, and a replaced disk is empty. As in Kafka, a clean shutdown writes a file with the broker epoch
into each directory; if one is missing, the controller treats the shutdown as unclean (KIP-966).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from controller.kafka.messages import ZERO_UUID
from controller.kafka.messages.records import MetadataRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from controller.quorum.log.batches import RecordBatch, decode_batches
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.metadata_codec import decode_record

if TYPE_CHECKING:
    from tests.simulation.brokers.broker import Broker
    from tests.simulation.brokers.world import World

PORT = 9000
"""A broker listens on this port plus its id."""
MIN_ISR = "min.insync.replicas"
TOPICS, BROKERS = 2, 4
"""Kafka's resource types of configs."""

Key = tuple[bytes, int]
"""A partition: topic id and index."""


Decoded = tuple[tuple[RecordBatch, tuple[MetadataRecord, ...]], ...]


@lru_cache(maxsize=4096)
def decoded(data: bytes) -> Decoded:
    """Batches with their records; none for control batches. Cached, because all brokers read the same bytes."""
    return tuple(
        (batch, () if batch.is_control else tuple(decode_record(value) for _, value in batch.records))
        for batch in decode_batches(data)
    )


class Replica:
    __slots__ = ("directory", "entries", "flushed")

    def __init__(self, directory: bytes) -> None:
        self.directory = directory
        self.entries: list[tuple[int, int]] = []
        """(leader epoch, number) of each record."""
        self.flushed = 0

    @property
    def numbers(self) -> set[int]:
        return {number for _, number in self.entries}

    def agree_with(self, leader: Replica) -> None:
        """Truncate to the common prefix with the leader. Numbers are unique, so an equal entry means equal prefixes."""
        mine, theirs = self.entries, leader.entries
        same = min(len(mine), len(theirs))
        while same and mine[same - 1] != theirs[same - 1]:
            same -= 1
        del mine[same:]
        self.flushed = min(self.flushed, same)


class View:
    """The metadata that a broker has applied; it survives a kill."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.end, self.epoch = 0, 0
        """The next offset to apply, and the epoch of the last applied record."""

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
        """min.insync.replicas of a topic."""
        topic = self.image.find(TopicRecord(topic_id=topic_id))
        own = dict(self.image.configs_of(TOPICS, topic.name)) if topic is not None else {}
        return int(own.get(MIN_ISR) or dict(self.image.configs_of(BROKERS, "")).get(MIN_ISR) or 1)


class Machine:
    """One machine. `broker` is the process that uses its disks; None while it is down."""

    def __init__(self, world: World, broker_id: int) -> None:
        rng = world.rng
        self.world, self.id = world, broker_id
        self.directories = [rng.randbytes(16) for _ in range(rng.choice((1, 1, 2)))]
        self.failed: set[bytes] = set()
        self.clean: dict[bytes, int] = {}
        """Directory → broker epoch in its clean shutdown file."""
        self.replicas: dict[Key, Replica] = {}
        self.view = View()
        self.broker: Broker | None = None
        self.is_cut = False
        """True while the network between the controller and this machine is cut; brokers still reach each other."""
        self.slow_s = 0.001
        """Maximum latency of a request to the controller."""
        self.registration_version = rng.choice((3, 4, 4))
        self.isr_version = 3 if world.loses else rng.choice((2, 3, 3))
        self.fetch_version = rng.choice((17, 18))

    @property
    def online(self) -> list[bytes]:
        return [each for each in self.directories if each not in self.failed]

    def take_clean_epoch(self) -> int:
        """Delete the clean shutdown files; returns their broker epoch if all directories have the same, else -1."""
        said = {self.clean.get(each, -1) for each in self.directories}
        self.clean.clear()
        return said.pop() if len(said) == 1 and not self.failed else -1

    def replica(self, key: Key, partition: PartitionRecord) -> Replica | None:
        """The log of an assigned partition, created if it is new; None if its directory is offline."""
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
        """Lose some or all unflushed records of each replica."""
        rng = self.world.rng
        for replica in self.replicas.values():
            kept = rng.randint(replica.flushed, len(replica.entries))
            del replica.entries[kept:]

    def replace_disk(self) -> None:
        """Replace a disk with an empty one; if it was the first, the applied metadata are lost too."""
        rng = self.world.rng
        gone = rng.choice(sorted(self.failed) or self.directories)
        self.directories[self.directories.index(gone)] = rng.randbytes(16)
        self.failed.discard(gone)
        self.replicas = {key: each for key, each in self.replicas.items() if each.directory != gone}
        if gone not in self.directories[1:]:
            self.view = View()
