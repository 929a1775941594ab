"""The types of identifiers of topics, brokers, requests and events, so that mypy tells them apart."""

from typing import NewType

TopicName = NewType("TopicName", str)
ShardKey = NewType("ShardKey", str)
BrokerId = NewType("BrokerId", int)
"""A broker's `node.id`, 0 or greater. In a replica list a negative id is a placeholder (KIP-409)."""
Offset = NewType("Offset", int)
"""The position of an event in the log, from 0, without gaps."""
RequestId = NewType("RequestId", str)
TopicId = NewType("TopicId", bytes)
"""Sixteen bytes, as KIP-516's topic ids on the wire."""

NO_LEADER = BrokerId(-1)
CLUSTER_SHARD = ShardKey("")
"""The shard key of events that concern every topic: brokers and settings."""


def shard_key(topic: str) -> ShardKey:
    """The key under which a topic is decided, stored and partitioned.

    Kafka rejects two topics whose names differ only in `.` and `_`, because their metric names collide. So such names
    share a shard, and at most one topic with that key exists at a time.
    """
    return ShardKey(topic.replace(".", "_"))


def is_placeholder(replica: int) -> bool:
    """True for a placeholder that waits for a broker to join (KIP-409)."""
    return replica < 0
