"""The identifiers that everything else is said in, each a type of its own."""

from typing import NewType

TopicName = NewType("TopicName", str)
ShardKey = NewType("ShardKey", str)
BrokerId = NewType("BrokerId", int)
"""A broker's `node.id`, 0 or greater. In a replica list a negative id is a placeholder (KIP-409)."""
Offset = NewType("Offset", int)
"""The place of an event in the log, from 0, without gaps."""
RequestId = NewType("RequestId", str)
TopicId = NewType("TopicId", bytes)
"""Sixteen bytes, as KIP-516's topic ids are on the wire."""

NO_LEADER = BrokerId(-1)
CLUSTER_SHARD = ShardKey("")
"""The shard key of events that concern every topic: brokers and settings."""


def shard_key(topic: str) -> ShardKey:
    """The key under which a topic is decided, stored and partitioned.

    Kafka refuses two topics whose names differ only in `.` and `_` (their metric names collide), so such
    names must meet in one shard; and so at most one topic lives under a key.
    """
    return ShardKey(topic.replace(".", "_"))


def is_placeholder(replica: int) -> bool:
    """Whether a replica is a place that waits for a broker to join (KIP-409)."""
    return replica < 0
