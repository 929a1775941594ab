"""Which partition of the commands and events topics a topic is decided in.

It is the partition that Kafka's default partitioner gives the shard key's UTF-8 bytes (murmur2, as in
org.apache.kafka.common.utils.Utils), so that other programs can put commands with any producer.
"""

from __future__ import annotations

from struct import iter_unpack

from events.names import ShardKey

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of(key: ShardKey, partitions: int) -> int:
    """The partition, 0 to `partitions` - 1, of a shard key."""
    return (murmur2(key.encode("utf-8", "surrogatepass")) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Kafka's murmur2, as an unsigned number of 32 bits."""
    length = len(data)
    whole = length & ~3
    value = _SEED ^ length
    for (word,) in iter_unpack("<I", data[:whole]):
        mixed = word * _M & _MASK
        mixed = (mixed ^ mixed >> 24) * _M & _MASK
        value = value * _M & _MASK ^ mixed
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15
