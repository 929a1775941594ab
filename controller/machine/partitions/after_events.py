"""A partition after one event: what `apply` does, and what a decision of several events reckons with."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from controller.machine.partitions.blocks import changed
from controller.machine.state import Topic
from events.catalog import IsrChanged, LeaderElected, Partition, PartitionChanged, PlaceholderFilled, ReplicaMetadata

T = TypeVar("T")


def after_change(before: Partition, change: LeaderElected | IsrChanged) -> Partition:
    """The partition under another leader or in-sync set."""
    return Partition(
        before.replicas, change.isr, change.leader, change.leader_epoch, change.partition_epoch, before.replica_metadata
    )


def after_step(before: Partition, change: PartitionChanged) -> Partition:
    """The partition of real brokers after a change of any of its sides."""
    kept = before.replica_metadata or ReplicaMetadata()
    replica_metadata = ReplicaMetadata(
        _newer(change.directories, kept.directories),
        _newer(change.adding, kept.adding),
        _newer(change.removing, kept.removing),
        _newer(change.elr, kept.elr),
        _newer(change.last_known_elr, kept.last_known_elr),
        _newer(change.recovering, kept.recovering),
    )
    return Partition(
        _newer(change.replicas, before.replicas),
        _newer(change.isr, before.isr),
        _newer(change.leader, before.leader),
        change.leader_epoch,
        change.partition_epoch,
        replica_metadata,
    )


def _newer(new: T | None, old: T) -> T:
    return old if new is None else new


def after_fill(before: Partition, fill: PlaceholderFilled) -> Partition:
    """The partition with a broker in the place of a placeholder (KIP-409)."""
    replicas = tuple(fill.broker_id if replica == fill.placeholder else replica for replica in before.replicas)
    replica_metadata = before.replica_metadata
    if replica_metadata is not None and fill.directory is not None:
        place = before.replicas.index(fill.placeholder)
        directories = (
            *replica_metadata.directories[:place],
            fill.directory,
            *replica_metadata.directories[place + 1 :],
        )
        replica_metadata = replace(replica_metadata, directories=directories)
    return Partition(replicas, before.isr, before.leader, before.leader_epoch, fill.partition_epoch, replica_metadata)


def with_partition(topic: Topic, index: int, partition: Partition) -> Topic:
    """The topic with one partition replaced."""
    return replace(topic, partitions=changed(topic.partitions, {index: partition}))
