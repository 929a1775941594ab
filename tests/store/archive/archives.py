"""Logs with archives of small segments, whose oldest events are dropped."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from controller.serving import archiving
from controller.serving.archiver import Archiver
from controller.store.snapshotting import StateRebuild
from controller.store.store import TopicStore
from events.logs.archive.manifest import (
    ManifestWriter,
    Segment,
    Writer,
    archive_status,
    segment_changes,
    segments_of,
    status_changes,
)
from events.logs.archive.store import ArchiveStore, open_store
from events.logs.log import Commit, EventLog, read_one, request_offsets, shard_offsets, shard_runs
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import snapshot_info, store_snapshot
from projections.queries.query import Query
from tests.replay.history import Day, live_a_day, open_log

SEGMENT = 128
WRITER = Writer(boot="boot", where="here", since_ms=0)
OTHER = Writer(boot="other", where="process 7 of elsewhere", since_ms=1)


def write_a_day(folder: Path, events: int = 1000) -> None:
    """Write a log of at least `events` events."""
    log = open_log(folder)
    live_on(log, events)
    log.close()


def live_on(log: RocksDbLog, events: int) -> None:
    """Extend a log to at least `events` events."""

    async def write() -> None:
        day = await Day(log).start()
        await live_a_day(day)
        while log.next_offset < events:
            await day.create(*(f"more.{log.next_offset + number}" for number in range(20)))
            await day.settled()
        await day.controller.stop()

    asyncio.run(write())


def archiver(log: EventLog, place: ArchiveStore, writer: Writer = WRITER) -> Archiver:
    """Returns an archiver with small segments."""
    return Archiver(
        log, place, ManifestWriter(place, writer), known=lambda: list(segments_of(log)), segment_events=SEGMENT
    )


def archive_all(log: RocksDbLog, url: Path | str, writer: Writer = WRITER) -> list[Segment]:
    """Archive all complete segments, and record them in the log."""
    at_work = archiver(log, open_store(str(url)), writer)
    log.write(Commit(own=status_changes(replace(archive_status(log), url=str(url)))))
    while (segment := at_work.step()) is not None:
        log.write(Commit(own=segment_changes(segment)))
    return list(segments_of(log))


def forget_all(log: RocksDbLog) -> None:
    """Remove all dropped segments from the indexes."""
    while (dropped := archiving.next_to_clean_up(log, segments_of(log))) is not None:
        for step in archiving.clean_up(log, dropped, log.archive.index(dropped)):
            step()


def take_snapshot(log: RocksDbLog, offset: int) -> None:
    """Take a snapshot at the first command boundary from `offset` on."""
    refold = StateRebuild(log, lambda: None)
    at = refold.go_to(offset)
    store_snapshot(log, snapshot_info(log, at), query_of_log(log).snapshot_pairs(at, refold.pairs()))


def query_of_log(log: RocksDbLog) -> Query:
    store = TopicStore(log)
    return Query(log, lambda: store)


def open_any(folder: Path) -> RocksDbLog:
    """Open the log in a folder, of any cluster."""
    return RocksDbLog(folder, cluster_id=None, new_cluster_id=lambda: "none")


def assert_one_log(log: RocksDbLog, whole: RocksDbLog) -> None:
    """Every read returns the same from both logs."""
    end = whole.next_offset
    assert list(log.read()) == list(whole.read())
    assert [read_one(log, offset) for offset in range(0, end, 7)] == whole.read_many(range(0, end, 7))
    assert log.read_many([end - 1, 3, 200, 3]) == whole.read_many([end - 1, 3, 200, 3])
    keys = ["", *whole.shard_keys()]
    assert list(log.shard_keys()) == keys[1:]
    assert list(log.shard_keys("more_2")) == [key for key in keys if key > "more_2"]
    for key in keys:
        for start, stop in ((0, None), (100, 450), (end - 20, end), (5, 90)):
            expected = list(shard_offsets(whole, key, start, stop))
            assert list(shard_offsets(log, key, start, stop)) == expected, (key, start, stop)
    for name in {one for one, _, _ in whole.index_runs(of_requests=True)}:
        assert list(request_offsets(log, name)) == list(request_offsets(whole, name)), name
        assert list(request_offsets(log, name, 300)) == list(request_offsets(whole, name, 300)), name
    for start, stop in ((50, end - 5), (5, 90), (end - 20, end)):
        runs, expected_runs = (shard_runs(one, keys, start, stop) for one in (log, whole))
        for mine, its in zip(runs, expected_runs, strict=False):
            assert [offset for run in mine or () for offset in run] == [offset for run in its or () for offset in run]
