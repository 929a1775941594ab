"""Drops archived events past retention from a log, and their index entries. `serving.archiving` calls it.

Events are dropped as whole archived segments, and only if a snapshot covers them: then neither the current state nor
any later one needs the events. The log reads dropped events from its archive. Snapshots, the last event
before each snapshot, the Merkle subtrees and the creation index stay forever: together a few bytes an event.

`drop` removes the events in one write; from then on readers find them, and the requests that began among them, in the
archive. Then, for each segment, `clean_up` removes its index entries and its requests from the log in slices. The
log stores the progress (`ArchiveStatus`), so this continues after a crash.

Non-goals: reading a clock, or choosing threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from controller.store import request_index
from events.logs.archive.manifest import Segment, archive_status, status_changes
from events.logs.log import Commit, grouped
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import newest_snapshot, snapshot_offsets

if TYPE_CHECKING:
    from events.logs.archive.segment import SegmentIndex


Run = tuple[bytes, range]
"""An index key, and a range of offsets whose events the index lists under this key."""
EVENTS_PER_SLICE = 1000
"""A slice takes some milliseconds of the writing thread."""


def first_kept(
    segments: Sequence[Segment], start: int, snapshot: int, now_ms: int, kept_ms: int, kept_bytes: int
) -> int:
    """The offset below which a log that begins at `start` may drop events: those older than `kept_ms`, and the oldest
    beyond `kept_bytes`; -1 sets no limit. `snapshot` is the offset of the newest snapshot."""
    here = [one for one in segments if one.start >= start and one.end <= snapshot]
    size = sum(one.event_bytes for one in segments if one.start >= start)
    for one in here:
        too_old = kept_ms >= 0 and now_ms - one.last_ms > kept_ms
        if not too_old and not (kept_bytes >= 0 and size > kept_bytes):
            return one.start
        size -= one.event_bytes
    return here[-1].end if here else start


def drop(log: RocksDbLog, segments: Sequence[Segment], now_ms: int, kept_ms: int, kept_bytes: int) -> bool:
    """Drop archived events past retention, on the writing thread; True if any event was. Raises LogError, OSError."""
    start, end = log.start_offset, log.durable_offset - 1
    if first_kept(segments, start, end, now_ms, kept_ms, kept_bytes) == start:  # regardless of snapshots
        return False
    to = first_kept(segments, start, min(newest_snapshot(log) or 0, end), now_ms, kept_ms, kept_bytes)
    if to <= start:
        return False
    stay = {offset - 1 for offset in snapshot_offsets(log) if start < offset <= to}
    stay |= {to - 1, 0} if not start else {to - 1}  # the request of a topic created at `to`; the first event
    log.drop_before(to, sorted(stay))
    return True


def next_to_clean_up(log: RocksDbLog, segments: Iterable[Segment]) -> Segment | None:
    """The next segment whose events were dropped, and not yet its index entries. Raises LogError."""
    cleaned = archive_status(log).cleaned
    return next((one for one in segments if cleaned <= one.start and one.end <= log.start_offset), None)


def clean_up(log: RocksDbLog, segment: Segment, index: SegmentIndex) -> Iterator[Callable[[], object]]:
    """Steps for the writing thread that remove a dropped segment from the log's indexes, each about `EVENTS_PER_SLICE`
    events. `index` is the index of the segment. The steps raise LogError."""
    for some in grouped(_pieces(index), EVENTS_PER_SLICE, lambda run: len(run[1])):
        yield partial(log.forget, some)
    requests = index.scan(request_index.REQUEST)
    while archived := list(islice(requests, EVENTS_PER_SLICE // 4)):
        yield partial(_forget_requests, log, archived)
    yield lambda: log.write(Commit(own=status_changes(replace(archive_status(log), cleaned=segment.end))))


def _forget_requests(log: RocksDbLog, archived: Iterable[tuple[bytes, bytes]]) -> None:
    same = {key: request_index.decode_request(value) for key, value in archived if log.get(key) == value}
    log.forget((), [each for key, request in same.items() for each in (key, *request_index.facets_of(request))])


def _pieces(index: SegmentIndex) -> Iterator[Run]:
    """The keys of an index with their offset ranges, each range of at most `EVENTS_PER_SLICE` events."""
    for name, runs in index.each():
        for run in runs:
            for first in range(run.start, run.stop, EVENTS_PER_SLICE):
                yield name, range(first, min(first + EVENTS_PER_SLICE, run.stop))
