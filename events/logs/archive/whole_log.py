"""Reading a log and its archive as one.

Method. Offsets below `start_offset` are read from the archive, all others from RocksDB. A log that drops events moves
`start_offset` first, so a reader that misses an event reads again.

Non-goals: writing, and access to the archive before somebody needs its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from heapq import merge
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from events.logs import log
from events.logs.rocksdb_database import PAGE_BYTES_MAX, PAGE_BYTES_MIN, Database, Frozen, Page
from events.logs.rocksdb_keys import KEPT, REQUEST, SHARD, STATE, pack, run_prefix
from events.logs.rocksdb_recovery import classify

if TYPE_CHECKING:
    from events.logs.archive.archive import Archive

P = ParamSpec("P")
T = TypeVar("T")
_Pair = tuple[bytes, bytes]
_Paging = Callable[[Database, bytes, bytes, int], Page]

_PAST_RUNS = b"\1"
"""Sorts after all runs of a name (offsets begin with 00) and before names that continue with a NUL (00 FF)."""
_RUNS_MAX = 1000
"""The maximum number of runs read from an archive at once."""


class WholeLog:
    """The reading side of a log in RocksDB; `EventLog` describes the methods."""

    _path: Path
    _database: Database | None
    _failure: str | None
    _next_offset: int
    _start_offset = 0
    _archive: Archive | None = None

    @property
    def path(self) -> Path:
        return self._path

    @property
    def start_offset(self) -> int:
        return self._start_offset

    @property
    def archive(self) -> Archive:
        """The events below `start_offset`."""
        if self._archive is None:
            self._archive = _archive_of(self)
        return self._archive

    @property
    def next_offset(self) -> int:
        return self._next_offset

    def read(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        log.check_range(start, end)
        self._readable()
        stop = self._next_offset if end is None else min(end, self._next_offset)
        return self._each_event(start, stop)

    def read_one(self, offset: int) -> bytes:
        self._check_reached(offset)
        value: bytes | None = self._read(lambda database: database.get_event(pack(offset)))
        return self._older([offset])[offset] if value is None else value

    def read_many(self, offsets: Sequence[int]) -> list[bytes]:
        values = dict(zip(offsets, self._read(Database.get_events, [pack(offset) for offset in offsets]), strict=True))
        values |= self._older([offset for offset, value in values.items() if value is None])
        return [value for offset in offsets if (value := values[offset]) is not None]

    def shard_offsets(self, shard_key: str, start: int = 0, end: int | None = None) -> Iterator[int]:
        log.check_range(start, end)
        self._readable()
        stop = self._next_offset if end is None else min(end, self._next_offset)
        return self._each_in_runs(run_prefix(SHARD, shard_key), start, stop)

    def shard_runs(self, shard_keys: Sequence[str], start: int, end: int) -> list[list[range] | None]:
        prefixes, stop = [run_prefix(SHARD, key) for key in shard_keys], min(end, self._next_offset)
        while True:
            first = self._start_offset
            found: list[list[range] | None] = [[] for _ in prefixes]
            if first < stop:  # else the local index has only remnants of dropped events
                found = self._read(Database.runs, prefixes, first, max(start, first), stop)
            if first == self._start_offset:
                return (
                    found
                    if start >= first
                    else _with_older(found, (self.archive.runs(prefix, start, min(first, stop)) for prefix in prefixes))
                )

    def shard_keys(self, after: str = "") -> Iterator[str]:
        self._readable()
        here = self._each_shard(run_prefix(SHARD, after))
        if not self._start_offset:
            return here
        older = map(_name_of, self.archive.names(SHARD, run_prefix(SHARD, after)))
        return (key for key, _ in groupby(merge(here, older)))

    def request_offsets(self, request_id: str, start: int = 0) -> Iterator[int]:
        self._readable()
        return self._each_in_runs(run_prefix(REQUEST, request_id), start, self._next_offset)

    def archived_requests(self, end: int) -> Iterator[tuple[int, log.StateKeys]]:
        if not self._start_offset:
            return iter(())
        return ((manifest.start, pairs) for manifest, pairs in self.archive.requests(end))

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._readable().get_view(STATE + key)
        except Exception as error:
            raise classify(error, self._path) from error
        return value

    def scan(self, prefix: bytes = b"", start_after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        self._readable()
        lower, upper = log.key_range(STATE + prefix, None if start_after is None else STATE + start_after)
        assert upper is not None, "the leading byte of a state key has a successor"
        return self._each_pair(lower, upper)

    def index_runs(self, of_requests: bool) -> Iterator[tuple[str, int, int]]:
        """Each run in the index by shard, or by request: name, first and last offset."""
        kind, start = REQUEST if of_requests else SHARD, self._start_offset
        for segment in self.archive.segments(0, start) if start else ():
            for key, run in self.archive.runs_of(segment):
                if key.startswith(kind):
                    yield _name_of(key), run.start, run.stop - 1
        for key, value in self._each_view(kind, bytes((kind[0] + 1,))):
            first = int.from_bytes(key[-8:], "big")
            if first >= start:  # others are of events that were dropped
                yield _name_of(key[:-8]), first, int.from_bytes(value, "big")

    def retained_events(self) -> Iterator[tuple[int, bytes]]:
        """The events before `start_offset` that retained_events in the database. `read_one` returns these, `read` the
        archive's."""
        for key, value in self._each_view(pack(0), pack(self._start_offset), Database.event_page):
            yield int.from_bytes(key, "big"), value
        for key, value in self._each_view(KEPT, bytes((KEPT[0] + 1,))):
            yield int.from_bytes(key[1:], "big"), value

    def frozen_scan(self, prefixes: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """As `scan` for some prefixes, of one point in time. Call it on the writing thread. Another thread may iterate;
        it must exhaust or close the iterator."""
        frozen = self._read(Database.frozen_views)
        return self._each_frozen(frozen, [log.key_range(STATE + prefix, None) for prefix in prefixes])

    def frozen_pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """All pairs of one point in time, in key order: the events by offset, then everything else. Threads as in
        `frozen_scan`."""
        frozen = self._read(Database.frozen_views)
        return self._each_of_all(frozen, self._start_offset, self._next_offset)

    def _each_of_all(self, frozen: Frozen, start: int, end: int) -> Iterator[_Pair]:
        with closing(frozen):
            for offset, value in self._each_event(start, end):
                yield pack(offset), value
            yield from self._each_view(b"\1", b"\xff", frozen.page)

    def _read(self, call: Callable[Concatenate[Database, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Call with the database; errors of RocksDB become LogErrors."""
        try:
            return call(self._readable(), *args, **named)
        except Exception as error:
            raise classify(error, self._path) from error

    def _readable(self) -> Database:
        if self._database is None:
            why = "" if self._failure is None else f" until it has recovered from: {self._failure}"
            raise log.LogClosed(f"the log in {self._path} is closed{why}")
        return self._database

    def _each_event(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        expected, upper = start, pack(stop)
        while expected < stop:
            if expected < (first := min(stop, self._start_offset)):
                yield from self.archive.read(expected, first)
                expected = first
                continue
            for key, value in self._read(Database.event_page, pack(expected), upper)[0] or ((b"", b""),):
                if key != pack(expected):
                    if expected < self._start_offset:
                        break
                    raise self._missing(expected)
                yield expected, value
                expected += 1

    def _older(self, offsets: Sequence[int]) -> dict[int, bytes]:
        """The events at offsets that the database lacks. Raises LogCorrupted, ArchiveError."""
        found = {}
        if offsets:
            retained_events = zip(
                offsets, self._read(Database.get_views, [KEPT + pack(offset) for offset in offsets]), strict=True
            )
            found = {offset: value for offset, value in retained_events if value is not None}
        for offset in sorted(offsets):  # so that each group of events in the archive is read once
            self._check_reached(offset)
            if offset not in found:
                if offset >= self._start_offset:
                    raise self._missing(offset)
                (found[offset],) = self.archive.read_many([offset])
        return found

    def _check_reached(self, offset: int) -> None:
        if not 0 <= offset < self._next_offset:
            raise IndexError(f"no event at offset {offset}: {self._path} ends at {self._next_offset}")

    def _each_in_runs(self, prefix: bytes, start: int, stop: int) -> Iterator[int]:
        while start < stop:
            if start < (first := min(stop, self._start_offset)):
                yield from chain.from_iterable(self.archive.runs(prefix, start, first))
                start = first
                continue
            first = self._start_offset
            before = self._read(Database.last_run, prefix, first, start)
            for key, value in self._each_view(prefix + pack(start if before is None else before), prefix + pack(stop)):
                if first != self._start_offset:  # what is found here may be less than there was
                    break
                run = range(max(start, int.from_bytes(key[-8:], "big")), min(stop, int.from_bytes(value, "big") + 1))
                yield from run
                start = max(start, run.stop)
            else:
                if first == self._start_offset:
                    return

    def _each_shard(self, run: bytes) -> Iterator[str]:
        below = SHARD[:-1] + bytes((SHARD[-1] + 1,))
        while keys := self._read(Database.first_view_keys, run + _PAST_RUNS, below, _PAST_RUNS):
            for key in keys:
                yield _name_of(key[:-8])
            run = keys[-1][:-8]

    def _each_frozen(self, frozen: Frozen, ranges: Sequence[tuple[bytes, bytes | None]]) -> Iterator[_Pair]:
        with closing(frozen):
            for lower, upper in ranges:
                assert upper is not None, "the leading byte of a state key has a successor"
                yield from self._each_pair(lower, upper, frozen.page)

    def _each_pair(self, lower: bytes, upper: bytes, page: _Paging = Database.view_page) -> Iterator[_Pair]:
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
            f"{self._path} is damaged: event {offset} is missing, though the log ends at {self._next_offset}; "
            "restore the folder from a copy"
        )


def _archive_of(whole: WholeLog) -> Archive:
    """The archive of a log. Raises LogError."""
    try:
        from events.logs.archive.archive import Archive  # needs pyarrow, which is optional without an archive
    except ImportError as error:
        raise log.LogError(
            f"{whole.path}: its events below {whole.start_offset} are archived, and reading them takes {error.name}, "
            "which is not installed: pip install 'topicwright[replay]'"
        ) from None
    return Archive(whole)


def _with_older(here: Iterable[list[range] | None], older: Iterable[Iterator[range]]) -> list[list[range] | None]:
    """The local runs of several names, with the archive's runs before them.

    If there are too many, returns fewer names, and [None] if the first name alone has too many.
    """
    found: list[list[range] | None] = []
    room = _RUNS_MAX
    for newer, before in zip(here, older, strict=False):
        runs = list(islice(before, room + 1))
        room -= len(runs)
        if newer is None or room < 0:
            return found or [None]
        found.append(runs + newer)
    return found


def _name_of(key: bytes) -> str:
    """The name in an index key without its offset."""
    return key[1:-1].replace(b"\0\xff", b"\0").decode("utf-8", "surrogatepass")
