"""Partitions archived by their owners. Empty folders start from a base and equal those that read all events. The next
owner continues the archive. Damaged, missing or foreign bases are skipped."""

from __future__ import annotations

import asyncio
import copy
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from msgspec.structs import replace

from controller.serving.archiving import archive_store
from controller.settings.load import ServeSettings, load_settings
from controller.store.recovering import archived
from controller.store.request_index import FACET, REQUEST
from controller.stream.log.partition import POSITION, FirstRecordsDeleted, PartitionState
from events.logs.archive import archive
from events.logs.archive.base import bases
from events.logs.archive.manifest import (
    ARCHIVE_KEY,
    MANIFEST,
    ArchiveOfAnotherLog,
    Base,
    Manifest,
    find_manifest,
    read_manifest,
)
from events.logs.archive.store import ArchiveStore, Folder
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import open_snapshot, snapshot_offsets
from projections.queries.query import Query
from tests.store.archive.archives import assert_one_log
from tests.stream.log.records import create
from tests.stream.worker.memory_kafka import TOPICS, MemoryKafka
from tests.stream.worker.stage import Stage, check_all_decided

SEGMENT = 256
KEPT_EVENTS = 300
_OTHERWISE_KEPT = (ARCHIVE_KEY, POSITION, REQUEST, FACET)
"""State keys that differ between a log with an archive and one without."""


class Partitions:
    """Workers over topics in memory, whose partitions are archived in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kafka = MemoryKafka()
        self.settings: ServeSettings = load_settings(
            overrides=(
                f"log.archive.url={folder / 'archive'}",
                f"log.archive.interval.events={SEGMENT}",
                "log.snapshot.interval.events=200",
            )
        )
        self._created = 0

    def archive(self, partition: int) -> ArchiveStore:
        found = archive_store(self.settings, partition)
        assert found is not None
        return found

    def begin_as(self, other: Partitions) -> None:
        """Start with copies of another's topics and archive."""
        shutil.copytree(other.folder / "archive", self.folder / "archive")
        self.kafka = copy.deepcopy(other.kafka)

    def place(self, partition: int = 0) -> Folder:
        return Folder(self.folder / "archive" / f"partition-{partition:05}")

    async def worker(self, name: str) -> Stage:
        """Returns a worker that owns all partitions."""
        one = Stage(self.kafka, self.folder, name, brokers=2, settings=self.settings)
        await one.claim()
        await one.settle()
        return one

    async def create(self, worker: Stage, topics: int) -> None:
        self.kafka.put(*(create(f"t{number}") for number in range(self._created, self._created + topics)))
        self._created += topics
        await worker.settle()

    def newest(self, partition: int = 0) -> Base | None:
        if find_manifest(self.place(partition)) is None:
            return None
        return next(bases(self.place(partition), TOPICS.cluster_id, TOPICS.events_id), None)

    async def until_base(self, worker: Stage, after: int = 0) -> None:
        """Wait until each partition has a base that starts after this offset."""
        for partition in range(TOPICS.partitions):
            while (one := self.newest(partition)) is None or one.start <= after:
                worker.now_ms += 1  # ages the archived events, so that they may be dropped
                await asyncio.sleep(0.01)
                assert not worker.failures, worker.failures

    def gateway(self, name: str, partition: int = 0, *, archive: bool = True, first_record: int = 0) -> PartitionState:
        """Returns a gateway's copy of a partition that has read all events."""
        state = PartitionState.open(
            self.folder / name,
            partition,
            cluster_id=TOPICS.cluster_id,
            topic_id=TOPICS.events_id,
            answers=True,
            archive=self.archive(partition) if archive else None,
            first_record=first_record,
        )
        self.began_at = state.reader.kafka_offset
        for offset in range(self.began_at, len(self.kafka.events[partition])):
            state.accept(offset, self.kafka.events[partition][offset])
        state.commit()
        return state


def state_of(log: RocksDbLog) -> dict[bytes, bytes]:
    return {key: value for key, value in log.scan() if key[:1] not in _OTHERWISE_KEPT}


def assert_same(one: PartitionState, other: PartitionState) -> None:
    """A partition that started from a base equals one that read all events."""
    assert one.log.start_offset > 0 == other.log.start_offset
    assert state_of(one.log) == state_of(other.log)
    assert one.reader.position == other.reader.position
    assert_one_log(one.log, other.log)


async def test_a_gateway_from_a_base_equals_one_that_read_all_events(partitions: Partitions) -> None:
    worker = await partitions.worker("a")
    await partitions.create(worker, 300)
    await partitions.until_base(worker)
    await partitions.create(worker, 20)
    for number in range(TOPICS.partitions):
        one = partitions.gateway("fresh", number)
        assert partitions.began_at > 0
        with closing(one), closing(partitions.gateway("whole", number, archive=False)) as other:
            assert partitions.began_at == 0
            assert_same(one, other)
    await worker.close()
    check_all_decided(partitions.kafka)


async def test_an_empty_worker_starts_from_a_base_and_takes_over(partitions: Partitions) -> None:
    first = await partitions.worker("a")
    await partitions.create(first, 300)
    await partitions.until_base(first)
    await partitions.create(first, 20)
    await first.close()
    second = await partitions.worker("b")
    assert second.state(0).log.start_offset > 0, "it started from a base"
    starts = [base.start for number in (0, 1) if (base := partitions.newest(number))]
    await partitions.create(second, 300)
    await partitions.until_base(second, max(starts))
    for number in range(TOPICS.partitions):
        with closing(partitions.gateway("whole", number, archive=False)) as whole:
            assert_archived_once(partitions.place(number), whole.log)
            with closing(partitions.gateway("fresh", number)) as one:
                assert_same(one, whole)
    await second.close()
    check_all_decided(partitions.kafka)


async def test_a_partition_is_taken_over_while_the_archive_is_unreachable(partitions: Partitions) -> None:
    worker = await partitions.worker("a")
    await partitions.create(worker, 300)
    await partitions.until_base(worker)
    await worker.engine.revoke()
    (partitions.folder / "archive").rename(partitions.folder / "away")
    (partitions.folder / "archive").touch()
    await worker.claim()
    await partitions.create(worker, 10)
    assert worker.state(0).log.start_offset > 0
    await worker.close()


async def test_new_owner_continues_the_archive(partitions: Partitions) -> None:
    """A replaced worker does not know it yet, and still archives."""
    first, second = await partitions.worker("a"), Stage(partitions.kafka, partitions.folder, "b", brokers=2)
    await second.claim()
    await partitions.create(second, 300)
    await second.close()
    third = await partitions.worker("b")
    await partitions.create(third, 100)
    await partitions.until_base(third)
    await partitions.create(third, 200)
    await partitions.until_base(third, 512)
    for number in range(TOPICS.partitions):
        with closing(partitions.gateway("whole", number, archive=False)) as whole:
            assert_archived_once(partitions.place(number), whole.log)
    await first.close()
    await third.close()


def assert_archived_once(place: Folder, whole: RocksDbLog) -> None:
    """The archive has the events from the first on, each once."""
    values = [value for _, value in archived(place, read_manifest(place).segments)]
    assert len(values) >= 2 * SEGMENT
    assert values == [value for _, value in whole.read(0, len(values))]


def turn_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def parts(partitions: Partitions, copies: str = "bases") -> list[Path]:
    """Returns the files of the bases or snapshots of partition 0 by offset."""
    place = partitions.place()
    found = getattr(read_manifest(place), copies)
    return [Path(place.url) / copy.part_name(part) for copy in found for part in copy.parts]


def change(partitions: Partitions, by: Callable[[Manifest], Manifest]) -> None:
    """Rewrite the manifest of partition 0."""
    place = partitions.place()
    place.write(MANIFEST, msgspec.json.encode(by(read_manifest(place))))


def _newer(manifest: Manifest) -> Manifest:
    return replace(manifest, bases=(manifest.bases[0], replace(manifest.bases[1], event_version=99)))


DAMAGED: dict[str, Callable[[Partitions], object]] = {
    "a byte of a part turned": lambda one: turn_a_byte(parts(one)[-1]),
    "a part is missing": lambda one: parts(one)[-1].unlink(),
    "a newer release wrote it": lambda one: change(one, _newer),
}


async def two_bases(partitions: Partitions) -> None:
    """Write two bases of each partition, and events after them."""
    worker = await partitions.worker("a")
    await partitions.create(worker, 300)
    await partitions.until_base(worker)
    await partitions.create(worker, 300)
    await partitions.until_base(worker, 600)
    await partitions.create(worker, 10)
    await worker.close()
    for thread in threading.enumerate():
        if thread.name.startswith("archive"):
            thread.join(60)  # an upload in progress is complete or missing


async def test_damaged_bases_are_skipped(based: Partitions) -> None:
    kept = based.folder / "kept"
    with closing(based.gateway("whole", archive=False)) as whole:
        place = based.folder / "archive" / "partition-00000"
        shutil.copytree(place, kept)
        offsets = [base.kafka_offset for base in bases(based.place(), TOPICS.cluster_id, TOPICS.events_id)]
        assert len(offsets) == 2
        for what, damage in DAMAGED.items():
            damage(based)
            with closing(based.gateway(f"fresh {what}")) as one:
                assert based.began_at == offsets[1], what
                assert state_of(one.log) == state_of(whole.log), what
            shutil.rmtree(place)
            shutil.copytree(kept, place)
        for file in parts(based):
            turn_a_byte(file)
        with closing(based.gateway("fresh")) as one:
            assert based.began_at == 0, "without a base the reader starts at Kafka's first record"
            assert state_of(one.log) == state_of(whole.log)
        (place / MANIFEST).write_text("{")
        with closing(based.gateway("fresh too")):
            assert based.began_at == 0


async def test_deleted_first_records_require_a_base(based: Partitions) -> None:
    newest, older = bases(based.place(), TOPICS.cluster_id, TOPICS.events_id)
    with closing(based.gateway("behind", archive=False)):
        pass
    with closing(based.gateway("behind", first_record=newest.kafka_offset)):
        assert based.began_at > newest.kafka_offset, "the folder already has all events that it needs"
    with pytest.raises(
        FirstRecordsDeleted, match=r"begins at record 5 in Kafka, .*: no log\.archive\.url is set\. Set"
    ):
        based.gateway("none", archive=False, first_record=5)
    turn_a_byte(parts(based)[-1])
    with closing(based.gateway("older", first_record=older.kafka_offset)):
        assert based.began_at == older.kafka_offset
    with pytest.raises(FirstRecordsDeleted, match="the newest is older"):
        based.gateway("too late", first_record=newest.kafka_offset)


async def test_a_worker_behind_the_first_kafka_record_starts_from_a_base(partitions: Partitions) -> None:
    behind = await partitions.worker("behind")
    await behind.close()
    await two_bases(partitions)
    newest = [base for number in range(TOPICS.partitions) if (base := partitions.newest(number))]
    partitions.kafka.first_record = min(base.kafka_offset for base in newest)
    worker = await partitions.worker("behind")
    assert worker.state(0).log.start_offset == newest[0].start
    await worker.close()


OTHERS: dict[str, Callable[[Manifest], Manifest]] = {
    "cluster-2": lambda one: replace(one, cluster_id="cluster-2"),
    "events-2": lambda one: replace(one, bases=tuple(replace(base, topic_id="events-2") for base in one.bases)),
}


@pytest.mark.parametrize("other", OTHERS)
async def test_a_base_of_another_cluster_or_topic_is_rejected(based: Partitions, other: str) -> None:
    change(based, OTHERS[other])
    with pytest.raises(ArchiveOfAnotherLog, match=f"{other}.*name another place"):
        based.newest()
    with closing(based.gateway("fresh")):
        assert based.began_at == 0


async def test_an_empty_gateway_downloads_snapshots_of_the_archive(
    based: Partitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = [one.offset for one in read_manifest(based.place()).snapshots]
    assert len(put) > 1
    turn_a_byte(parts(based, "snapshots")[0])
    with closing(based.gateway("fresh")) as one:
        snapshots = one.snapshots(10_000, based.archive(0))
        snapshots.thread.shutdown()  # waits for all downloads
        snapshots.close()
        assert snapshot_offsets(one.log) == put[1:]
        for offset in put[1:]:
            with open_snapshot(one.log, offset) as snapshot:
                snapshot.check()
        reading = Mock(side_effect=AssertionError("a page of the past starts at the snapshot"))
        monkeypatch.setattr(archive, "read_stored", reading)
        assert Query(one.log, lambda: one.store).topics_at(put[1], "", 5).rows
