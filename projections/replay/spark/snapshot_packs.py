"""The topics of a snapshot, in packs: what a fold begins with that does not begin at the first event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from events.logs.snapshots import Snapshot, SnapshotDamaged, open_snapshot
from events.names import TopicName
from projections.replay.errors import ReplayError
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import look
from projections.store.snapshotting import state_keys
from projections.store.stored_topics import TOPIC, decode_topic, each_stored, encode_topic


class SnapshotRange(NamedTuple):
    """The snapshot at an offset, of a log partition."""

    offset: int
    partition: int


def begun(last_offset: int) -> int:
    """The place in a pack of a topic that is not an event, but what all events of its shard up to this offset came
    to; they are below all offsets. It is its own reverse."""
    return -1 - last_offset


def snapshot_topics(log: LogRef, wanted: SnapshotRange) -> Iterator[tuple[TopicName, int, bytes]]:
    """The topics, as they are packed: shard key, place, and the topic in one piece. Raises LogError, ReplayError."""
    try:
        with look(log.path) as opened, open_snapshot(opened, wanted.offset) as snapshot:
            shards = [shard for shard, _ in each_stored(_topic_keys(snapshot))]
            newest = opened.newest_before(shards, wanted.offset)
            for (shard, values), offset in zip(each_stored(_topic_keys(snapshot)), newest, strict=True):
                whole = values[0] if len(values) == 1 else encode_topic(decode_topic(values))
                yield TopicName(shard), begun(offset), whole
    except (SnapshotDamaged, FileNotFoundError) as error:
        raise ReplayError(
            f"the snapshot at {wanted.offset} is gone ({error}): begin again, or --from-scratch"
        ) from None


def _topic_keys(snapshot: Snapshot) -> Iterator[tuple[bytes, bytes]]:
    return ((key, value) for key, value in state_keys(snapshot) if key.startswith(TOPIC))
