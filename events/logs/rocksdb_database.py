"""The RocksDB database under `RocksDbLog`: its two column families, tuning, and paged reads.

The column families:

- the default one holds the events and nothing else: key = offset, 8 bytes big-endian; value = the event's bytes.
  A key is written once, and deleted only together with all earlier ones, after they were archived. So the number of
  entries of each table file must equal the width of its offset range, and listing the files reveals a gap anywhere.
- `views` holds state and indexes; the first byte of a key is its kind:
      s + state key                        a state value
      t + shard key + 00 + last offset     a run of consecutive events of one shard; value = its first offset
      r + request id + 00 + last offset    a run of consecutive events of one request; value = its first offset
      m + name                             format, cluster, events (identity), next (next_offset, in every commit),
                                           start (the first offset with an event)
      e + offset                           an earlier event that was retained, at the offset of a snapshot
  Offsets are 8 bytes big-endian. Text is UTF-8; a NUL in it is written 00 FF, so that 00 and an offset (which begins
  with 00) can only be the end of the text. The key of a run has its last offset, so that a forward seek finds the first
  run that reaches an offset. A backward seek would skip the keys of dropped events one by one, a microsecond each.

Two families, because events need no filter and never change, while views are overwritten all the time; and for the
check of gaps. Both share one write-ahead log (one sync) and are flushed together, so they always recover to one point.

Measured on two shared cores (1,500 events of 160 bytes, 300 index entries and 600 state values in a batch): two
families cost 4.6 us a topic, a single one with prefixes 5.4.

Limits: the write buffers together take three times as much as the block cache, from 8 to 48 MiB. The write-ahead log to
replay at a start takes about 64 MiB (27 MiB of it took 0.13 s). The block cache, with index and filter blocks, has the
size `cache_bytes`; at most 512 table files are open.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self
from weakref import WeakSet

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

STATE = b"s"
RETAINED = b"e"
"""The key prefix of an event that was retained when the events around it were dropped."""
NEXT_KEY = b"mnext"
START_KEY = b"mstart"
VIEWS = "views"
Page = tuple[list[tuple[bytes, bytes]], bool]
"""Pairs in key order, and whether they are the last in the range."""
_MIB = 1 << 20
PAGE_BYTES_MIN, PAGE_BYTES_MAX = 16 * 1024, 256 * 1024
"""Limits of a page. The first is small, because many readers want only the first pairs; the largest takes some
milliseconds to read."""
_NAMES_AT_ONCE = 250
"""The maximum number of keys that one call of `first_view_keys` returns."""
_ENTRY_BYTES = 64
"""The cost of a pair besides its value: limits a page of very small values."""


VIEW_BLOCK_BYTES = 8 * 1024
BUFFERS_BYTES_MIN, BUFFERS_BYTES_MAX = 8 * _MIB, 48 * _MIB
"""Smaller buffers are flushed to files more often, which costs a worker a twelfth more of a core. Each partition of a
log in Kafka has its own buffers."""


pack = struct.Struct(">Q").pack


def run_prefix(kind: bytes, name: str) -> bytes:
    """The key prefix of all runs of a shard key or request id (`name`)."""
    text = name.encode("utf-8", "surrogatepass")
    return kind + (text.replace(b"\0", b"\0\xff") if b"\0" in text else text) + b"\0"


class EventFile(NamedTuple):
    """A table file of events; `entries` is 0 if RocksDB has not read its properties (it reads those of the first files
    only)."""

    first: int
    last: int
    entries: int
    deletions: int
    name: str


class Database:
    """An open database.

    A RocksDB iterator or column family keeps the database and its lock open even after `close`. So iterators live only
    inside one call, `close` waits for it, and RocksDB's errors lose their tracebacks (see `rocksdb_recovery`), which
    would hold iterators too.
    """

    def __init__(self, path: Path, opened: Rdict) -> None:
        """`path` is the log's folder, which error messages name."""
        self.path = path
        self._readers = Readers()
        self._frozen: WeakSet[Frozen] = WeakSet()
        self._events = opened
        self._views = opened.get_column_family(VIEWS)
        self.get_event: Callable[[Any], Any] = self._events.get
        """Get the event under a key, or the events under a list of keys; None for missing ones."""
        self.get_view: Callable[[Any], Any] = self._views.get
        self.views_handle = self._events.get_column_family_handle(VIEWS)
        self.sync = self._events.flush_wal
        self._write_options = WriteOptions()

    @classmethod
    def open(cls, path: Path, cache_bytes: int, recovery: DBRecoveryMode, *, read_only: bool = False) -> Self:
        """Open, creating what is missing unless `read_only`. Raises what RocksDB raises."""
        # RocksDB's LRU cache has 64 shards. The bloom filter of a file of a million views is larger than a shard, so it
        # would not be cached. Each read of a view would then read the filter again: a millisecond instead of 5 µs.
        cache = Cache.new_hyper_clock_cache(cache_bytes, VIEW_BLOCK_BYTES)
        buffers = min(max(3 * cache_bytes, BUFFERS_BYTES_MIN), BUFFERS_BYTES_MAX)
        events = _options(cache, buffers, recovery, bloom=False)
        views = _options(cache, buffers, recovery, bloom=True)
        access = AccessType.read_only(False) if read_only else AccessType.read_write()
        return cls(path, Rdict(str(path), events, column_families={VIEWS: views}, access_type=access))

    def write(self, batch: WriteBatch) -> None:
        """Apply a batch atomically, without syncing."""
        self._events.write(batch, self._write_options)

    def tail(self) -> int:
        """The offset after the last event."""
        with self._readers:
            at = self._events.iter()
            at.seek_to_last()
            return int.from_bytes(at.key(), "big") + 1 if is_valid(at) else 0

    def event_files(self) -> list[EventFile]:
        """The table files of events, in order."""
        files = [
            EventFile(
                int.from_bytes(each["start_key"], "big"),
                int.from_bytes(each["end_key"], "big"),
                each["num_entries"],
                each["num_deletions"],
                each["name"].strip("/"),
            )
            for each in self._events.live_files()
            if len(each["start_key"]) == 8 and each["start_key"][0] == 0
        ]
        return sorted(files)

    def events_reach(self, start: int, end: int) -> int:
        """The first missing offset from `start` on; `end` if none is missing below it."""
        while start < end:
            page, last = self.event_page(start.to_bytes(8, "big"), end.to_bytes(8, "big"))
            for key, _ in page:
                if int.from_bytes(key, "big") != start:
                    return start
                start += 1
            if last:
                return start
        return end

    def event_page(self, lower: bytes, upper: bytes, room: int = PAGE_BYTES_MAX) -> Page:
        """Events from key `lower` on, below `upper`, of about `room` bytes."""
        return self._page(self._events, lower, upper, room)

    def view_page(self, lower: bytes, upper: bytes, room: int = PAGE_BYTES_MAX) -> Page:
        """Views from key `lower` on, below `upper`, of about `room` bytes."""
        return self._page(self._views, lower, upper, room)

    def frozen_views(self) -> Frozen:
        """All views at this point in time, to be closed by the caller."""
        frozen = Frozen(self._views.iter(), self._readers)
        self._frozen.add(frozen)
        return frozen

    def first_view_keys(self, lower: bytes, below: bytes, past: bytes) -> list[bytes]:
        """The first key of each name with runs, from `lower` on, below `below`; some hundred of them. `past` sorts
        after all offsets of a name."""
        keys: list[bytes] = []
        with self._readers:
            at = self._views.iter()
            at.seek(lower)
            while len(keys) < _NAMES_AT_ONCE and is_valid(at) and (key := at.key()) < below:
                keys.append(key)
                at.seek(key[:-8] + past)
        return keys

    def close(self) -> None:
        """Close the database and release its lock, without syncing."""
        with self._readers.excluded():
            for frozen in self._frozen:
                frozen.close()
            del self.views_handle
            _close(self._views)
            _close(self._events)

    def _page(self, family: Rdict, lower: bytes, upper: bytes, room: int) -> Page:
        options = ReadOptions()
        options.set_iterate_upper_bound(upper)
        page: list[tuple[Any, Any]] = []
        with self._readers:
            pairs = family.items(from_key=lower, read_opt=options)
            for pair in pairs:
                page.append(pair)
                room -= len(pair[1]) + _ENTRY_BYTES
                if room <= 0:
                    return page, False
            rest = family.iter(options)
            rest.seek(page[-1][0] + b"\0" if page else lower)
            if is_valid(rest):  # rocksdict's `items` ends silently at a block that cannot be read
                raise OSError(f"Corruption: reading ended early, before key {rest.key().hex()}")
        return page, True


class Frozen:
    """The views of a database at one point in time. RocksDB keeps the old data until `close`.

    It is an iterator, which sees the data of its creation. Iterators over rocksdict's own `Snapshot` see later writes
    (0.3.29).
    """

    def __init__(self, at: RdictIter, readers: Readers) -> None:
        self._at: RdictIter | None = at
        self._readers = readers
        self._own = threading.Lock()

    def page(self, _: Database, lower: bytes, upper: bytes, room: int) -> Page:
        """As `Database.view_page`. Raises DbClosedError once it or the database is closed."""
        page: list[tuple[bytes, bytes]] = []
        with self._readers, self._own:
            at = self._at
            if at is None:
                raise DbClosedError("closed")
            at.seek(lower)
            while is_valid(at) and (key := at.key()) < upper:
                if room <= 0:
                    return page, False
                page.append((key, at.value()))
                room -= len(page[-1][1]) + _ENTRY_BYTES
                at.next()
        return page, True

    def close(self) -> None:
        """Release the old data."""
        with self._own:
            self._at = None


class Readers:
    """Counts the calls that are reading. Readers do not exclude each other: a lock would make the event loop wait for
    each reader."""

    def __init__(self) -> None:
        self._inside = 0
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            if not self._inside:
                self._changed.notify_all()

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Wait until no call is reading, and block new ones until the `with` block ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._inside)
            yield


def is_valid(at: RdictIter) -> bool:
    """True if an iterator is on a key. Raises if RocksDB could not read."""
    if at.valid():
        return True
    at.status()
    return False


def _close(family: Rdict) -> None:
    """Close once no other thread is inside a call: rocksdict raises "Already borrowed" until then.

    rocksdict flushes the buffers to table files on closing, so that the next start has nothing to replay. If that
    fails, it closes all the same, and the write-ahead log has their contents.
    """
    waiting = threading.Event()
    while True:
        try:
            family.close()
        except RuntimeError as error:
            if "borrowed" not in str(error):
                raise
            waiting.wait(0.001)
        except Exception:
            return
        else:
            return


def _options(cache: Cache, buffers_bytes: int, recovery: DBRecoveryMode, *, bloom: bool) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_wal_recovery_mode(recovery)
    options.set_paranoid_checks(True)
    options.set_atomic_flush(True)
    options.set_write_buffer_size(buffers_bytes // 3)
    options.set_max_write_buffer_number(3)
    options.set_db_write_buffer_size(buffers_bytes)
    options.set_max_total_wal_size(64 * _MIB)
    options.set_level_zero_slowdown_writes_trigger(40)
    options.set_level_zero_stop_writes_trigger(60)
    options.set_max_open_files(512)
    options.set_max_background_jobs(2)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bottommost_compression_type(DBCompressionType.zstd())
    options.set_max_log_file_size(4 * _MIB)
    options.set_keep_log_file_num(4)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    tables = BlockBasedOptions()
    tables.set_block_cache(cache)
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
    tables.set_block_size(VIEW_BLOCK_BYTES if bloom else 16 * 1024)
    if bloom:
        tables.set_bloom_filter(10, False)
    options.set_block_based_table_factory(tables)
    return options
