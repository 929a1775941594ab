"""Gateways drop archived events from their own folders, and never write to a worker's archive."""

import asyncio
from contextlib import closing
from pathlib import Path

from controller.serving.archiving import Archiving
from controller.settings.load import load_settings
from controller.stream.log.partition import PartitionState
from events.logs.archive.manifest import archive_status, segments_of
from events.logs.archive.store import ArchiveStore, Folder
from tests.store.archive.archives import assert_one_log, take_snapshot
from tests.stream.worker.memory_kafka import TOPICS
from tests.stream.worker.test_partition_history import Partitions, state_of

LATER_MS = 10**15


def files(folder: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


async def drop(gateway: PartitionState, place: ArchiveStore, kept_ms: int = 0) -> Archiving:
    """Import all segments of the archive, and drop the events that retention allows."""
    settings = load_settings(overrides=(f"log.events.retention.ms={kept_ms}",))
    one = Archiving(gateway.log, settings, lambda: LATER_MS, place)
    while await one._once() == 0:
        pass
    return one


async def test_a_gateway_drops_archived_events_and_reads_them_from_the_archive(based: Partitions) -> None:
    folder = based.folder / "archive"
    before = files(folder)
    for number in range(TOPICS.partitions):
        with (
            closing(based.gateway("whole", number, archive=False)) as whole,
            closing(based.gateway("gateway", number, archive=False)) as gateway,
        ):
            place = based.archive(number)
            at_work = await drop(gateway, place)
            assert (gateway.log.start_offset, at_work.error) == (0, None), "no snapshot after the archived events"
            take_snapshot(gateway.log, gateway.log.next_offset)
            at_work = await drop(gateway, place, kept_ms=-1)
            assert gateway.log.start_offset == 0, "retention keeps all events"
            at_work = await drop(gateway, place)
            assert at_work.error is None
            manifests = list(segments_of(gateway.log))
            assert gateway.log.start_offset == manifests[-1].end > 0
            assert archive_status(gateway.log).cleaned == manifests[-1].end
            assert state_of(gateway.log) == state_of(whole.log)
            assert_one_log(gateway.log, whole.log)
    with closing(based.gateway("other", 0, archive=False)) as gateway:
        at_work = await drop(gateway, based.archive(1))
        assert "is the archive of another history" in (at_work.error or ""), "it is the archive of another log"
        assert not list(segments_of(gateway.log))
    assert files(folder) == before, "only the worker writes to the archive"


async def test_dropping_runs_concurrently_with_following(partitions: Partitions) -> None:
    """The gateway starts before there is an archive. It drops events while it follows."""
    place, settings = partitions.archive(0), load_settings(overrides=("log.events.retention.ms=0",))
    worker = await partitions.worker("a")
    gateway = partitions.gateway("gateway")
    snapshots = gateway.snapshots(200, place)
    at_work = asyncio.create_task(Archiving(gateway.log, settings, lambda: LATER_MS, place).run())
    read = len(partitions.kafka.events[0])
    while not gateway.log.start_offset:
        if gateway.log.next_offset < 1500:
            await partitions.create(worker, 50)
        for offset in range(read, len(partitions.kafka.events[0])):
            gateway.accept(offset, partitions.kafka.events[0][offset])
        read = len(partitions.kafka.events[0])
        gateway.commit()
        snapshots.take_if_due()
        await asyncio.sleep(0.01)
    at_work.cancel()
    await asyncio.gather(at_work, return_exceptions=True)
    await worker.close()
    snapshots.close()
    gateway.close()


async def test_another_archive_replaces_the_recorded_segments(based: Partitions) -> None:
    with closing(based.gateway("gateway", archive=False)) as gateway:
        await drop(gateway, based.archive(0), kept_ms=-1)
        assert list(segments_of(gateway.log))
        take_snapshot(gateway.log, gateway.log.next_offset)
        new = Folder(based.folder / "elsewhere")
        await drop(gateway, new)
        assert (archive_status(gateway.log).url, list(segments_of(gateway.log))) == (new.url, [])
        assert gateway.log.start_offset == 0, "events that the new archive lacks are not dropped"
