"""Compares the copies of a metadata log: equal bytes, and snapshots that equal the log."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from controller.brokers.kraft.adopting import KafkaFolder, read_folder
from controller.kafka.messages.records import (
    ConfigRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from controller.quorum.log.batches import decode_batches
from controller.quorum.log.image import MetadataImage
from controller.quorum.log.metadata_codec import decode_record, encode_record
from controller.quorum.log.record_kinds import TOPICS
from controller.quorum.log_files import CHECKPOINT
from events.logs.rocksdb_log import RocksDbLog


def records_at(partition: Path) -> Iterator[MetadataRecord]:
    """The records of a copy, whose last batch may be incomplete."""
    for batch in read_folder(partition, ignore_torn_tail=True).batches:
        if not batch.is_control:
            yield from (decode_record(value) for _, value in batch.records)


def image_at(folder: KafkaFolder, end: int) -> MetadataImage:
    """The metadata image of a copy below an offset."""
    image = MetadataImage()
    image.fold(folder.checkpoint_batches)
    image.fold(each for each in folder.batches if each.last_offset < end)
    return image


def said(image: MetadataImage) -> tuple[list[bytes], object]:
    """The records of an image, sorted, because Kafka writes them in the order of hash tables. Configs of missing topics
    are left out: Kafka's snapshots retain those of a topic that was created and deleted within one delta
    (`ConfigurationsDelta.replay`)."""
    topics = {each.name for each in image.all(TopicRecord)}
    records = (
        each
        for each in image.records()
        if not (isinstance(each, ConfigRecord) and each.resource_type == TOPICS and each.resource_name not in topics)
    )
    return sorted(encode_record(_as_kafka_writes(each)) for each in records), image.quorum


def _as_kafka_writes(record: MetadataRecord) -> MetadataRecord:
    if isinstance(record, RegisterControllerRecord | RegisterBrokerRecord):
        return replace(record, features=tuple(sorted(record.features, key=lambda feature: feature.name)))
    return record


def assert_alike(partitions: Mapping[int, Path], watermark: int) -> int:
    """Check that all copies have equal bytes from the highest log start to the high watermark; returns their number."""
    folders = {node_id: read_folder(path, ignore_torn_tail=True) for node_id, path in partitions.items()}
    start = max(each.batches[0].base_offset for each in folders.values())
    copies = {
        node_id: b"".join(
            each.data for each in folder.batches if each.base_offset >= start and each.last_offset < watermark
        )
        for node_id, folder in folders.items()
    }
    lengths = {node_id: len(each) for node_id, each in copies.items()}
    assert len(set(copies.values())) == 1, f"the logs differ below offset {watermark}; bytes: {lengths}"
    size = min(lengths.values())
    assert size > 0, f"no batches from {start} to {watermark}"
    return size


def assert_one_history(folders: Sequence[Path]) -> int:
    """Check that the event logs of stopped voters are equal up to the end of the shortest; returns its length."""
    histories = [events_at(each) for each in folders]
    shortest = min(map(len, histories))
    for folder, other in zip(folders[1:], histories[1:], strict=True):
        differing = [at for at in range(shortest) if histories[0][at] != other[at]]
        assert not differing, f"{folder}: events differ from {folders[0]} at {differing[:5]}, of {shortest}"
    return shortest


def events_at(folder: Path) -> list[bytes]:
    """The events of a stopped voter."""
    log = RocksDbLog(folder, cluster_id=None, new_cluster_id=lambda: "")
    try:
        return [value for _, value in log.read()]
    finally:
        log.close()


def snapshots_in(partition: Path) -> list[tuple[Path, int]]:
    """The snapshots of a metadata log with their end offsets, without the bootstrap checkpoint."""
    found = ((path, CHECKPOINT.fullmatch(path.name)) for path in sorted(partition.iterdir()))
    return [(path, int(name[1])) for path, name in found if name is not None and int(name[1]) > 0]


def assert_snapshots_say_the_same(snapshots_of: Iterable[Path], whole: Path) -> int:
    """Check that each snapshot equals the records of a complete log below its end; returns the number of snapshots."""
    folder = read_folder(whole, ignore_torn_tail=True)
    assert folder.batches[0].base_offset == 0, f"the log in {whole} does not begin at 0"
    count = 0
    for partition in snapshots_of:
        for path, end in snapshots_in(partition):
            image, ours = MetadataImage(), MetadataImage()
            image.fold(decode_batches(path.read_bytes(), str(path)))
            ours.fold(each for each in folder.batches if each.last_offset < end)
            theirs, mine = said(image), said(ours)
            differing = [decode_record(each) for each in set(theirs[0]) ^ set(mine[0])]
            assert theirs == mine, f"{path} and the log differ in {len(differing)} records: {differing[:6]}"
            count += 1
    return count
