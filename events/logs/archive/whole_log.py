"""Reads a log in RocksDB and its archive as one log; `RocksDbLog` extends it with writing.

Method. Offsets below `start_offset` are read from the archive, all others from RocksDB. A log that drops events raises
`start_offset` first, so a reader that misses an event then reads it from the archive. A run is a range of consecutive
events with the same index key: a shard key or a request id, here called a name.

Non-goals: writing, and access to the archive before a caller reads archived events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from heapq import merge
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from events.logs import log
from events.logs.log import REQUEST, SHARD
from events.logs.rocksdb_database import (
    PAGE_BYTES_MAX,
    PAGE_BYTES_MIN,
    RETAINED,
    STATE,
    Database,
    Frozen,
    Page,
    pack,
    run_prefix,
)
from events.logs.rocksdb_recovery import classify

if TYPE_CHECKING:
    from events.logs.archive.archive import Archive

P = ParamSpec("P")
T = TypeVar("T")
_Pair = tuple[bytes, bytes]
_Paging = Callable[[Database, bytes, bytes, int], Page]

_PAST_RUNS = b"\1"
"""Sorts after all runs of a name (offsets begin with 00) and before names that continue with a NUL (00 FF)."""


class WholeLog:
    """The reading side of a log in RocksDB; `EventLog` describes the methods."""

    path: Path
    next_offset: int
    start_offset = 0
    _database: Database | None
    _failure: str | None
    _archive: Archive | None = None

    @property
    def archive(self) -> Archive:
        """The events below `start_offset`. Raises LogError."""
        if self._archive is None:
            from events.logs.archive.archive import Archive  # loads pyarrow

            self._archive = Archive(self)
        return self._archive

    def read(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        stop = log.end_of_range(start, end, self.next_offset)
        self._readable()
        return self._each_event(start, stop)

    def read_many(self, offsets: Sequence[int]) -> list[bytes]:
        for offset in offsets:
            if not 0 <= offset < self.next_offset:
                raise IndexError(f"no event at offset {offset}: {self.path} ends at {self.next_offset}")
        keys = [pack(offset) for offset in offsets]
        found = dict(zip(offsets, self._read(lambda database: database.get_event(keys)), strict=True))
        missing = sorted(offset for offset, value in found.items() if value is None)
        if missing:
            found |= self._older(missing)
        return [value for offset in offsets if (value := found[offset]) is not None]

    def runs(self, index: bytes, name: str, start: int = 0, end: int | None = None) -> Iterator[range]:
        stop = log.end_of_range(start, end, self.next_offset)
        self._readable()
        return self._each_run(run_prefix(index, name), start, stop)

    def shard_keys(self, after: str = "") -> Iterator[str]:
        self._readable()
        here = self._each_shard(run_prefix(SHARD, after))
        if not self.start_offset:
            return here
        older = map(_name_of, self.archive.names(SHARD, run_prefix(SHARD, after), self.start_offset))
        return (key for key, _ in groupby(merge(here, older)))

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._readable().get_view(STATE + key)
        except Exception as error:
            raise classify(error, self.path) from error
        return value

    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        self._readable()
        return self._each_state(prefix, start_after)

    def index_runs(self, of_requests: bool) -> Iterator[tuple[str, int, int]]:
        """Each run in the index of shard keys, or of request ids: name, first and last offset."""
        kind, start = REQUEST if of_requests else SHARD, self.start_offset
        for segment in self.archive.segments(0, start) if start else ():
            for key, runs in self.archive.index(segment).each():
                if key.startswith(kind):
                    yield from ((_name_of(key), run.start, run.stop - 1) for run in runs)
        for key, value in self._each_view(kind, bytes((kind[0] + 1,))):
            last = int.from_bytes(key[-8:], "big")
            if last >= start:  # earlier ones are of dropped events, which the archive indexes
                yield _name_of(key[:-8]), max(start, int.from_bytes(value, "big")), last

    def retained_events(self) -> Iterator[tuple[int, bytes]]:
        """The events before `start_offset` that are still in the database. `read_many` returns these, `read` the
        archive's."""
        for key, value in self._each_view(pack(0), pack(self.start_offset), Database.event_page):
            yield int.from_bytes(key, "big"), value
        for key, value in self._each_view(RETAINED, bytes((RETAINED[0] + 1,))):
            yield int.from_bytes(key[1:], "big"), value

    def frozen_scan(self, prefixes: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """As `scan` for some prefixes, of one point in time. Call it on the writing thread. Another thread may iterate;
        it must exhaust or close the iterator."""
        frozen = self._read(Database.frozen_views)
        scans = [self._each_state(prefix, None, frozen.page) for prefix in prefixes]
        return _closing(frozen, chain.from_iterable(scans))

    def frozen_pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """All pairs of one point in time, in key order: the events by offset, then everything else. Threads as in
        `frozen_scan`."""
        frozen = self._read(Database.frozen_views)
        events = ((pack(offset), value) for offset, value in self._each_event(self.start_offset, self.next_offset))
        return _closing(frozen, chain(events, self._each_view(b"\1", b"\xff", frozen.page)))

    def _read(self, call: Callable[Concatenate[Database, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Call a method of the database; RocksDB's errors become LogErrors."""
        try:
            return call(self._readable(), *args, **named)
        except Exception as error:
            raise classify(error, self.path) from error

    def _readable(self) -> Database:
        if self._database is None:
            why = "" if self._failure is None else f" until it has recovered from: {self._failure}"
            raise log.LogClosed(f"the log in {self.path} is closed{why}")
        return self._database

    def _each_event(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        expected, upper = start, pack(stop)
        while expected < stop:
            if expected < (first := min(stop, self.start_offset)):
                yield from self.archive.read(expected, first)
                expected = first
                continue
            for key, value in self._read(Database.event_page, pack(expected), upper)[0] or ((b"", b""),):
                if key != pack(expected):
                    if expected < self.start_offset:
                        break
                    raise self._missing(expected)
                yield expected, value
                expected += 1

    def _older(self, offsets: list[int]) -> dict[int, bytes]:
        """The events at offsets that the database lacks, in order, so that each group of the archive is read once.
        Raises LogCorrupted, ArchiveError."""
        kept = self._read(lambda database: database.get_view([RETAINED + pack(offset) for offset in offsets]))
        found = {offset: value for offset, value in zip(offsets, kept, strict=True) if value is not None}
        archived = [offset for offset in offsets if offset not in found]
        if archived and archived[-1] >= self.start_offset:
            raise self._missing(next(offset for offset in archived if offset >= self.start_offset))
        return found | {offset: value for one in archived for offset, value in self.archive.read(one, one + 1)}

    def _each_run(self, prefix: bytes, start: int, stop: int) -> Iterator[range]:
        while start < stop:
            first = self.start_offset
            if start < first:
                yield from self.archive.runs(prefix, start, min(stop, first))
                start = first
                continue
            for key, value in self._each_view(prefix + pack(start), prefix + _PAST_RUNS):
                begin, end = int.from_bytes(value, "big"), int.from_bytes(key[-8:], "big") + 1
                if begin >= stop or first != self.start_offset:
                    break
                yield range(max(start, begin), min(stop, end))
                start = end
            if first == self.start_offset:  # else events were dropped meanwhile, and runs may be missing
                return

    def _each_shard(self, run: bytes) -> Iterator[str]:
        below = SHARD[:-1] + bytes((SHARD[-1] + 1,))
        while keys := self._read(Database.first_view_keys, run + _PAST_RUNS, below, _PAST_RUNS):
            for key in keys:
                yield _name_of(key[:-8])
            run = keys[-1][:-8]

    def _each_state(
        self, prefix: bytes, start_after: bytes | None, page: _Paging = Database.view_page
    ) -> Iterator[_Pair]:
        lower, upper = log.key_range(STATE + prefix, None if start_after is None else STATE + start_after)
        assert upper is not None, "the leading byte of a state key has a successor"
        for key, value in self._each_view(lower, upper, page):
            yield key[1:], value

    def _each_view(self, lower: bytes, upper: bytes, page: _Paging = Database.view_page) -> Iterator[_Pair]:
        last, room = False, PAGE_BYTES_MIN
        while not last:
            pairs, last = self._read(page, lower, upper, room)
            yield from pairs
            if pairs:
                lower = pairs[-1][0] + b"\0"
            room = min(4 * room, PAGE_BYTES_MAX)

    def _missing(self, offset: int) -> log.LogCorrupted:
        return log.LogCorrupted(
            f"{self.path} is damaged: event {offset} is missing, though the log ends at {self.next_offset}; "
            "restore the folder from a copy"
        )


def _closing(frozen: Frozen, pairs: Iterable[_Pair]) -> Iterator[_Pair]:
    with closing(frozen):
        yield from pairs


def archived_requests(whole: log.EventLog, end: int) -> Iterator[tuple[int, log.StateKeys]]:
    """For each archived segment that begins before `end`, newest first: its start offset, and the state keys of the
    requests that began in it."""
    if not isinstance(whole, WholeLog) or not whole.start_offset:
        return iter(())
    return whole.archive.requests(min(end, whole.start_offset))


def _name_of(key: bytes) -> str:
    """The name in an index key without its offset."""
    return key[1:-1].replace(b"\0\xff", b"\0").decode("utf-8", "surrogatepass")
