"""What is written as one RocksDB batch, and the keys of what is in it (`rocksdb_database` describes them): a commit,
and what drops the oldest events once they are archived.

They are dropped in two steps. First, in one write, the events go, and from then on their offsets are read from the
archive (`drop`). Then, a segment at a time, what the index has of them goes (`forget`), which nobody reads any more by
then. A few events stay, under keys of their own: those before a snapshot's offset, by which it is known to be one of
this log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocksdict import WriteBatch

from events.logs.log import Commit
from events.logs.rocksdb_database import Database
from events.logs.rocksdb_recovery import NEXT_KEY, START_KEY
from events.logs.rocksdb_runs import pack, run_prefix

STATE = b"s"
SHARD = b"t"
REQUEST = b"r"
KEPT = b"e"


def batch_of(commit: Commit, first: int, database: Database) -> tuple[WriteBatch, int]:
    """The RocksDB batch of a commit whose events begin at `first`, and the next offset after it."""
    batch, views = WriteBatch(raw_mode=True), database.views_handle
    put = batch.put
    shard = request = None
    shard_key = request_key = b""
    offset = first
    for entry in commit.entries:
        here = pack(offset)
        put(here, entry.value)
        if entry.shard_key != shard:
            if shard is not None:
                put(shard_key, pack(offset - 1), views)
            shard = entry.shard_key
            shard_key = run_prefix(SHARD, shard) + here
        if entry.request_id != request:
            if request:
                put(request_key, pack(offset - 1), views)
            request = entry.request_id
            request_key = run_prefix(REQUEST, request) + here
        offset += 1
    put(shard_key, pack(offset - 1), views)
    if request:
        put(request_key, pack(offset - 1), views)
    for key, value in commit.state.items():
        if value is None:
            batch.delete(STATE + key, views)
        else:
            put(STATE + key, value, views)
    put(NEXT_KEY, pack(offset), views)
    return batch, offset


def drop(database: Database, start: int, to: int, kept: Mapping[int, bytes], names: Iterable[bytes]) -> WriteBatch:
    """The batch by which the events from `start` on, below `to`, go, but for some, which are `kept`. `names` are the
    keys of the index under which the event at `to` is: a run that began before it begins there."""
    batch, views = WriteBatch(raw_mode=True), database.views_handle
    batch.delete_range(pack(start), pack(to))
    for offset, value in kept.items():
        batch.put(KEPT + pack(offset), value, views)
    for name in names:
        run = database.last_run(name, start, to)
        if run is not None and run < to:
            last = database.get_view(name + pack(run))
            if last is not None and last >= pack(to):
                batch.put(name + pack(to), last, views)
    batch.put(START_KEY, pack(to), views)
    return batch


def forget(database: Database, runs: Iterable[tuple[bytes, range]], state: Iterable[bytes]) -> WriteBatch:
    """The batch by which the index has nothing more of some runs of events under the keys of names, and the state
    nothing under some keys. What is one run now may have been written as several."""
    batch, views = WriteBatch(raw_mode=True), database.views_handle
    for name, run in runs:
        for offset in run:
            batch.delete(name + pack(offset), views)
    for key in state:
        batch.delete(STATE + key, views)
    return batch


def kept(database: Database, offsets: Iterable[int]) -> list[bytes | None]:
    """The events at some offsets that stayed when those around them went."""
    return database.get_views([KEPT + pack(offset) for offset in offsets])
