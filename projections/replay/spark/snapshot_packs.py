"""The topics of a snapshot as packed entries, so that a rebuild can start there and not at the first event."""

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
    """The snapshot of a log partition at an offset, planned like a range of events."""

    offset: int
    partition: int


def begun(last_offset: int) -> int:
    """Encode the last offset of a topic's shard as a negative number, and back.

    In a pack, a negative offset marks the state of a topic in a snapshot, and sorts it before all events."""
    return -1 - last_offset


def snapshot_topics(log: LogRef, wanted: SnapshotRange) -> Iterator[tuple[TopicName, int, bytes]]:
    """The topics of a snapshot as packed entries: shard key, `begun` offset, and the encoded topic. Raises LogError,
    ReplayError."""
    try:
        with look(log.path) as opened, open_snapshot(opened, wanted.offset) as snapshot:
            shards = [shard for shard, _ in each_stored(_topic_keys(snapshot))]
            newest = opened.newest_before(shards, wanted.offset)
            for (shard, values), offset in zip(each_stored(_topic_keys(snapshot)), newest, strict=True):
                whole = values[0] if len(values) == 1 else encode_topic(decode_topic(values))
                yield TopicName(shard), begun(offset), whole
    except (SnapshotDamaged, FileNotFoundError) as error:
        raise ReplayError(
            f"the snapshot at {wanted.offset} no longer exists ({error}): run again, or use --from-scratch"
        ) from None


def _topic_keys(snapshot: Snapshot) -> Iterator[tuple[bytes, bytes]]:
    return ((key, value) for key, value in state_keys(snapshot) if key.startswith(TOPIC))
