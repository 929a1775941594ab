"""Encodes topics as state keys in blocks of partitions, so that a changed partition writes only its block; a cache.

    t SHARD_KEY          the topic (MessagePack of `machine.state.Topic`) with its first block of partitions
    t SHARD_KEY NUL N    the N-th further block (MessagePack of its partitions), N from 1, of four bytes

No name has a NUL, so the keys of a topic are adjacent, and the key without a number is the first.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from controller.machine.partitions.blocks import BLOCK, blocks_of, is_one_block
from controller.machine.state import Topic
from controller.store.keys import Puts
from events.catalog import Partition
from events.logs.log import StateKeys
from events.names import ShardKey

TOPIC = b"t"
CREATION_SUFFIX = b"\0\xff"
"""Ends the key of a topic's `Creation` in a snapshot; it sorts after all blocks."""
_END = b"\0"
_FULL_BYTES_MIN = 8 * BLOCK
"""The least size of a topic with further blocks: its first block is full, and a partition takes eight bytes or more."""

_decode_topic = msgspec.msgpack.Decoder(Topic).decode
_decode_block = msgspec.msgpack.Decoder(tuple[Partition, ...]).decode
encode_topic = msgspec.msgpack.Encoder(enc_hook=tuple).encode
"""Encodes a topic with all its partitions as one value; state hashes cover this value."""


def decode_topic(values: Sequence[bytes]) -> Topic:
    """The topic whose state keys have these values. Raises msgspec.DecodeError."""
    topic = _decode_topic(values[0])
    if len(values) == 1:
        return topic
    partitions = list(topic.partitions)
    for value in values[1:]:  # other threads run between the blocks
        partitions += _decode_block(value)
    return replace(topic, partitions=partitions)


def is_creation_key(key: bytes) -> bool:
    """True for the key of a `Creation` in a snapshot."""
    # The key of a block may end with the same bytes: they are then part of its number.
    return (
        key.endswith(CREATION_SUFFIX) and key.startswith(TOPIC) and key.index(_END) == len(key) - len(CREATION_SUFFIX)
    )


def stored_values(log: StateKeys, key: ShardKey) -> list[bytes]:
    """The values of a topic's state keys; empty without a topic."""
    head = TOPIC + key.encode()
    value = log.get(head)
    if value is None:
        return []
    return [value, *(block for _, block in log.scan(head + _END))] if len(value) > _FULL_BYTES_MIN else [value]


def each_stored(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[ShardKey, list[bytes]]]:
    """The topics among state keys in order, each with its values; blocks without their topic are skipped."""
    head, values = b"", list[bytes]()
    for key, value in pairs:
        if _END not in key:
            if values:
                yield _shard_key(head), values
            head, values = key, [value]
        elif values and key.startswith(head + _END):
            values.append(value)
    if values:
        yield _shard_key(head), values


def _shard_key(head: bytes) -> ShardKey:
    return ShardKey(head[len(TOPIC) :].decode())


def put_topic(puts: Puts, key: ShardKey, before: Topic | None, after: Topic | None) -> None:
    """Add to `puts` the state keys of a changed topic: the topic itself, and its changed blocks."""
    head = TOPIC + key.encode()
    if after is not None and is_one_block(after.partitions) and (before is None or is_one_block(before.partitions)):
        puts[head] = encode_topic(after)
        return
    old = () if before is None else blocks_of(before.partitions)
    new = () if after is None else blocks_of(after.partitions)
    if after is None:
        puts[head] = None
    elif before is None or not old or new[0] is not old[0] or _but_partitions(before) != _but_partitions(after):
        puts[head] = encode_topic(replace(after, partitions=new[0]))
    for number in range(1, max(len(old), len(new))):
        if number >= len(new):
            puts[head + _numbered(number)] = None
        elif number >= len(old) or new[number] is not old[number]:
            puts[head + _numbered(number)] = encode_topic(new[number])


def _but_partitions(topic: Topic) -> Topic:
    return replace(topic, partitions=())


def _numbered(number: int) -> bytes:
    return _END + number.to_bytes(4, "big")


class TopicCache:
    """A cache of decoded topics with at most `partitions_max` partitions together; the least recently used leave."""

    def __init__(self, partitions_max: int) -> None:
        self._partitions_max = partitions_max
        self._topics: OrderedDict[ShardKey, Topic] = OrderedDict()
        self._weight = 0

    def get(self, key: ShardKey) -> Topic | None:
        topic = self._topics.get(key)
        if topic is not None:
            with suppress(KeyError):  # another thread may have dropped it
                self._topics.move_to_end(key)
        return topic

    def put(self, key: ShardKey, topic: Topic) -> None:
        self.drop(key)
        self._topics[key] = topic
        self._weight += len(topic.partitions)
        while self._weight > self._partitions_max and len(self._topics) > 1:
            self._weight -= len(self._topics.popitem(last=False)[1].partitions)

    def drop(self, key: ShardKey) -> None:
        dropped = self._topics.pop(key, None)
        if dropped is not None:
            self._weight -= len(dropped.partitions)
