"""A commit as one RocksDB batch, and the keys of what is in it (`rocksdb_database` describes them)."""

from __future__ import annotations

import struct

from rocksdict import WriteBatch

from events.logs.log import Commit
from events.logs.rocksdb_database import Database, run_prefix
from events.logs.rocksdb_recovery import NEXT_KEY

pack = struct.Struct(">Q").pack
STATE = b"s"
SHARD = b"t"
REQUEST = b"r"


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
