"""Topics in the log's state keys: a change of one partition writes its block, not all that a topic of many has.

    t SHARD_KEY          the topic (MessagePack of `machine.state.Topic`) with its first block of partitions
    t SHARD_KEY NUL N    the N-th further block (MessagePack of its partitions), N from 1, of four bytes

No name has a NUL, so a topic's keys stand together, and the topic's own comes first. Logs of earlier releases have all
partitions under it: they are read alike, and written anew with the next change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from controller.machine.partitions.blocks import BLOCK, blocks_of, is_one_block
from controller.machine.state import Topic
from events.catalog import Partition
from events.logs.log import StateKeys
from events.names import ShardKey
from projections.store.access_state import Puts

TOPIC = b"t"
EXTRA = b"\0\xff"
"""What a topic's key goes on with for what a snapshot has beside its state, after all of its blocks."""
_END = b"\0"
_FULL_BYTES_MIN = 8 * BLOCK
"""A topic with further blocks has a full one under its own key: no partition takes less than eight bytes."""

_decode_topic = msgspec.msgpack.Decoder(Topic).decode
_decode_block = msgspec.msgpack.Decoder(tuple[Partition, ...]).decode
encode_topic = msgspec.msgpack.Encoder(enc_hook=tuple).encode
"""A topic with all its partitions in one value, however many; so it stood in earlier releases, and is hashed."""


def decode_topic(values: Sequence[bytes]) -> Topic:
    """The topic of its state keys' values. Raises msgspec.DecodeError."""
    topic = _decode_topic(values[0])
    if len(values) == 1:
        return topic
    return replace(topic, partitions=[*topic.partitions, *chain.from_iterable(map(_decode_block, values[1:]))])


def is_extra(key: bytes) -> bool:
    """Whether a state key is one of a snapshot for what is beside a topic's state."""
    # The number of a block may end alike.
    return key.endswith(EXTRA) and key.startswith(TOPIC) and key.index(_END) == len(key) - len(EXTRA)


def stored_values(log: StateKeys, key: ShardKey) -> list[bytes]:
    """The values of a topic's state keys; none where there is no topic."""
    head = TOPIC + key.encode()
    value = log.get(head)
    if value is None:
        return []
    return [value, *(block for _, block in log.scan(head + _END))] if len(value) > _FULL_BYTES_MIN else [value]


def each_stored(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[ShardKey, list[bytes]]]:
    """The topics among state keys in their order, each with its values; blocks without their topic are passed over."""
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


def put_topic(puts: Puts, log: StateKeys, key: ShardKey, before: Topic | None, after: Topic | None) -> None:
    """Add what a topic's change puts and deletes: its own key, and the blocks that are not the very same."""
    head = TOPIC + key.encode()
    if after is not None and is_one_block(after.partitions) and (before is None or is_one_block(before.partitions)):
        puts[head] = encode_topic(after)
        return
    old = () if before is None else blocks_of(before.partitions)
    new = () if after is None else blocks_of(after.partitions)
    if len(old) > 1 and log.get(head + _numbered(1)) is None:
        old = ()  # as earlier releases wrote it
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
