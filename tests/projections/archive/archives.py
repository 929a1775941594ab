"""Logs with archives, for tests: a day's log, archived in small stretches, of which the oldest are dropped."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from events.catalog import EVENT_VERSION
from events.logs.archive.manifest import (
    Manifest,
    Writer,
    manifests_of,
    note,
    note_manifest,
    noted,
)
from events.logs.archive.place import Place, open_place
from events.logs.archive.writing import Archiver
from events.logs.log import EventLog
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import about_at, put_snapshot
from projections.queries.query import Query
from projections.replay.spark.column_batches import Columns
from projections.replay.spark.columns import COLUMNS
from projections.store.archived import retention
from projections.store.refolding import Refold
from projections.store.store import TopicStore
from projections.store.tree import root_over
from tests.replay.history import Day, live_a_day, open_log

STRETCH = 128
WRITER = Writer(boot="boot", where="here", since_ms=0)


def write_a_day(folder: Path, events: int = 1000) -> None:
    """A log of at least so many events."""

    async def write() -> None:
        log = open_log(folder)
        day = await Day(log).start()
        await live_a_day(day)
        while log.next_offset < events:
            await day.create(*(f"more.{log.next_offset + number}" for number in range(20)))
            await day.settled()
        await day.controller.stop()
        log.close()

    asyncio.run(write())


def archiver(log: EventLog, place: Place, writer: Writer = WRITER, stretch: int = STRETCH) -> Archiver:
    """An archiver of a log, in small stretches."""
    return Archiver(
        log,
        place,
        writer,
        lambda: Columns(tuple(COLUMNS)),
        lambda start, end: root_over(value for _, value in log.read(start, end)),
        lambda: None,
        known=lambda: list(manifests_of(log)),
        stretch_events=stretch,
    )


def archive_all(log: RocksDbLog, url: Path | str, writer: Writer = WRITER) -> list[Manifest]:
    """Archive what is closed, and note it."""
    at_work = archiver(log, open_place(str(url)), writer)
    log.note(note(replace(noted(log), url=str(url))))
    while (manifest := at_work.step()) is not None:
        log.note(note_manifest(manifest))
    return list(manifests_of(log))


def forget_all(log: RocksDbLog) -> None:
    """Take what was dropped out of the indexes."""
    while (leaving := retention.Leaving.next(log, manifests_of(log))) is not None:
        leaving.archive(open_place(noted(log).url))
        leaving.forget()
        for piece in leaving.slices(log.archive.runs_of(leaving.manifest)):
            piece()


def take_snapshot(log: RocksDbLog, offset: int) -> None:
    """Keep a snapshot of the log at an offset, or where the command there ends."""
    refold = Refold(log, lambda: None)
    at = refold.go_to(offset)
    put_snapshot(log, about_at(log, at), query_of_log(log).snapshot_pairs(at, refold.pairs()))


def query_of_log(log: RocksDbLog) -> Query:
    """Queries on it."""
    store = TopicStore(log)
    return Query(log, lambda: store)


def open_any(folder: Path) -> RocksDbLog:
    """The log in a folder, whatever its cluster."""
    return RocksDbLog.open(folder, cluster_id=None, event_version=EVENT_VERSION, new_cluster_id=lambda: "none")
