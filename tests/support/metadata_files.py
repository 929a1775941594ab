"""The metadata log of a voter: its image from a folder, and fetch requests for it."""

from pathlib import Path
from typing import Any

from controller.kafka.messages.quorum import (
    FetchPartition,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from controller.quorum.files import QuorumFiles
from controller.quorum.folder import PARTITION
from controller.quorum.log.batches import METADATA_TOPIC_ID, decode_batches
from controller.quorum.log.image import MetadataImage


def read_image(data: Path) -> MetadataImage:
    """Fold the newest snapshot of a folder and the batches after it."""
    files, image = QuorumFiles(data / PARTITION), MetadataImage()
    try:
        snapshot = files.snapshot
        if snapshot is not None:
            found = files.read_snapshot(snapshot, 0, 1 << 30)
            assert found is not None, "the newest snapshot must be readable"
            image.fold(decode_batches(found[1]))
        image.fold(files.batches(0 if snapshot is None else snapshot.end_offset))
    finally:
        files.close()
    return image


def fetch_of(offset: int = 0, epoch: int = 1, last_epoch: int = 0, wait_ms: int = 0, **fields: Any) -> FetchRequest:
    """A node's fetch request of the metadata log, for version 17 and later."""
    partition = FetchPartition(
        current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last_epoch, **fields.pop("partition", {})
    )
    topic = FetchTopic(topic_id=fields.pop("topic_id", METADATA_TOPIC_ID), partitions=(partition,))
    state = ReplicaState(replica_id=fields.pop("replica", 1))
    return FetchRequest(max_wait_ms=wait_ms, max_bytes=8 << 20, topics=(topic,), replica_state=state, **fields)


def partition_of(response: FetchResponse) -> FetchPartitionData:
    assert response.error_code == 0, response
    return response.responses[0].partitions[0]
