"""A partition after one event: what `apply` does, and what a decision of several events reckons with."""

from __future__ import annotations

from msgspec.structs import replace

from controller.machine.state import Topic
from events.catalog import IsrChanged, LeaderElected, Partition, PlaceholderFilled


def after_change(before: Partition, change: LeaderElected | IsrChanged) -> Partition:
    """The partition under another leader or in-sync set."""
    return Partition(before.replicas, change.isr, change.leader, change.leader_epoch, change.partition_epoch)


def after_fill(before: Partition, fill: PlaceholderFilled) -> Partition:
    """The partition with a broker in the place of a placeholder (KIP-409)."""
    replicas = tuple(fill.broker_id if replica == fill.placeholder else replica for replica in before.replicas)
    return Partition(replicas, before.isr, before.leader, before.leader_epoch, fill.partition_epoch)


def with_partition(topic: Topic, index: int, partition: Partition) -> Topic:
    """The topic with one partition replaced."""
    partitions = topic.partitions
    return replace(topic, partitions=(*partitions[:index], partition, *partitions[index + 1 :]))
