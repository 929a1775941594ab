"""Maintains the history of a log for `serve`, workers and gateways: archive, retention and signed tree heads.

Closed segments of the log are uploaded to `log.archive.url`. Archived events past retention are then deleted from the
data folder. If another process archives the same log, this one only deletes. A separate thread reads, packs and
uploads, with pauses. The log's database lists the archived segments; the event loop updates it, a few milliseconds at a
time. A failure is reported in a log line, a metric and the health response, and retried; deciding continues.

Events are dropped as whole archived segments, and only if a snapshot covers them: then neither the current state nor
any later one needs the events. The log reads dropped events from its archive. Snapshots, the last event
before each snapshot, the Merkle subtrees and the creation index stay forever: together a few bytes an event.

`drop` removes the events in one write; from then on readers find them, and the requests that began among them, in the
archive. Then, for each segment, `clean_up` removes its index entries and its requests from the log in slices. The
log stores the progress (`ArchiveStatus`), so this continues after a crash.

With a signing key, a signed tree head is recorded at intervals.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
from msgspec.structs import replace

from controller.brokers.port import CommandSink, stamp
from controller.machine.commands.commands import RecordHead
from controller.serving.process import wall_ms
from controller.settings.load import ServeSettings, SettingsError
from controller.store import request_index
from events.catalog import HeadSigned
from events.codec import EventDecodeError
from events.logs.archive import manifest as manifests
from events.logs.archive.store import ArchiveStore, BadArchiveUrl, is_inside, open_store, within
from events.logs.log import Commit, LogError, grouped
from events.logs.rocksdb_log import RocksDbLog
from events.logs.snapshots import newest_snapshot, snapshot_offsets
from events.logs.tree_heads import BadKey, HeadSigner
from projections.queries.proving import head_of
from projections.queries.query import Query

if TYPE_CHECKING:
    from events.logs.archive.segment import SegmentIndex

POLL_S = 1.0
"""Interval of polling for a closed segment."""
POLL_OTHERS_S = 10.0
"""Interval of polling for a segment that another process archived."""
RETRY_S = 10.0
PAUSE_S: Final = 0.002
_T = TypeVar("_T")


class Archiving:
    """Uploads the closed segments of one log to an archive, and drops archived events past retention from the log."""

    def __init__(
        self,
        log: RocksDbLog,
        settings: ServeSettings,
        clock_ms: Callable[[], int],
        store: ArchiveStore,
        writer: manifests.ManifestWriter | None = None,
        retained_events: int = 0,
    ) -> None:
        """Without a `writer` another process archives the same log: its segments are adopted, and nothing is written to
        the store. The newest `retained_events` stay in the log, whatever the settings' limits of time and size are."""
        from controller.serving.archiver import Archiver  # imports pyarrow

        self._log, self._settings, self._clock_ms, self._store = log, settings, clock_ms, store
        self._retained_events = retained_events
        self._follows, self._work = writer is None, "dropping archived events" if writer is None else "archiving"
        segment_events = 1 << (settings.log_archive_interval_events.bit_length() - 1)
        self._archiver = Archiver(
            log,
            store,
            writer,
            known=lambda: list(manifests.segments_of(log)),
            segment_events=segment_events,
            pause=self._pause,
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._stopping = threading.Event()
        self._lines = structlog.get_logger("topicwright")
        self._segments = list(manifests.segments_of(log)) if manifests.archive_status(log).url else []
        self.error: str | None = None
        """The error that pauses archiving; None if there is none."""

    async def run(self) -> None:
        """Archive until cancelled."""
        try:
            while True:
                wait_s = await self._once()
                await asyncio.sleep(wait_s)
        finally:
            self._stopping.set()
            self._thread.shutdown(wait=False, cancel_futures=True)

    def gauges(self) -> list[tuple[str, str, float]]:
        archived = self._segments[-1].end if self._segments else 0
        return [
            ("log_archived_offset", "Events below this offset are archived.", archived),
            ("log_start_offset", "Events below this offset are in the archive alone.", self._log.start_offset),
            ("log_archive_paused", "1 while nothing can be archived.", float(self.error is not None)),
        ]

    async def _once(self) -> float:
        """Archive a segment or record another process's, or drop events. Returns the seconds to wait afterwards."""
        try:
            self._check_recorded()
            segment = await self._in_thread(self._archiver.step)
            self._record(segment)
            if segment is None:
                await self._drop()
        except (LogError, EventDecodeError, OSError) as error:
            self._archiver.read_again()
            if str(error) != self.error:
                self._lines.warning(f"{self._work} is paused", why=str(error))
            self.error = str(error)
            return RETRY_S
        if self.error is not None:
            self._lines.info(f"{self._work} continues")
            self.error = None
        return 0 if segment is not None else POLL_OTHERS_S if self._follows else POLL_S

    def _check_recorded(self) -> None:
        """The last recorded segment may be lost together with other unsynced writes when the disk failed."""
        last = self._segments[-1] if self._segments else None
        if last is not None and next(manifests.segments_of(self._log, last.start), None) != last:
            self._segments = list(manifests.segments_of(self._log))
            self._archiver.read_again()

    def _record(self, segment: manifests.Segment | None) -> None:
        """Record a segment and its archive in the log."""
        state: dict[bytes, bytes | None] = {}
        before = manifests.archive_status(self._log)
        if self._archiver.is_new_archive:
            state |= manifests.segment_removals(self._log)
            self._segments, self._archiver.is_new_archive = [], False
        if before.url != self._store.url:
            state |= manifests.status_changes(replace(before, url=self._store.url))
        if segment is not None:
            state |= manifests.segment_changes(segment)
        if state:
            self._log.write(Commit(own=state))
        if segment is not None:
            self._segments.append(segment)
        if segment is not None and not self._follows:
            self._lines.info("archived", events=f"{segment.start} to {segment.end - 1}", bytes=segment.events.size)

    async def _drop(self) -> None:
        log, settings = self._log, self._settings
        old = [one for one in self._segments if one.end <= log.durable_offset - self._retained_events]
        now_ms = self._clock_ms()
        if drop(log, old, now_ms, settings.log_events_retention_ms, settings.log_events_retention_bytes):
            self._lines.info("archived events dropped", start=log.start_offset)
        while (dropped := next_to_clean_up(log, self._segments)) is not None:
            index = await self._in_thread(partial(log.archive.index, dropped))
            for remove_slice in clean_up(log, dropped, index):
                remove_slice()
                await asyncio.sleep(PAUSE_S)
        write_base = self._next_base()
        if write_base is not None:
            await self._in_thread(write_base)

    def _next_base(self) -> Callable[[], None] | None:
        """The upload of the next base, to be run in another thread; None if none is due. A base is a copy of the log's
        database, with which an empty data folder starts (`events.logs.archive.base`). Only workers write bases."""
        return None

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _pause(self) -> None:
        if self._stopping.wait(PAUSE_S):
            raise CancelledError


def archiving(log: RocksDbLog, settings: ServeSettings, boot: str, signer: HeadSigner | None) -> Archiving | None:
    """Archives a log; None if the settings name no archive. `boot` is unique to the process. Raises SettingsError."""
    store = archive_store(settings)
    if store is None:
        return None
    if is_inside(store, log.path):
        raise SettingsError(
            f"setting log.archive.url is invalid: {store.url} is in the data folder; name a place outside it"
        )
    where = f"process {os.getpid()} of {socket.gethostname()}"
    writer = manifests.ManifestWriter(store, manifests.Writer(boot=boot, where=where, since_ms=wall_ms()), signer)
    return Archiving(log, settings, wall_ms, store, writer)


def archive_store(settings: ServeSettings, partition: int | None = None) -> ArchiveStore | None:
    """The archive at `log.archive.url`, or that of a partition below this URL; None if the setting is empty. Raises
    SettingsError."""
    url = settings.log_archive_url
    if url is None:
        return None
    try:
        open_store(url)
        return open_store(url if partition is None else within(url, f"partition-{partition:05}"))
    except BadArchiveUrl as error:
        raise SettingsError(f"setting log.archive.url is invalid: {error}") from None


def head_signer(settings: ServeSettings) -> HeadSigner | None:
    """Returns the signer of the log's tree heads; None without a key in the settings. Raises SettingsError."""
    path = settings.log_signing_key_location
    if path is None:
        return None
    try:
        return HeadSigner.read(Path(path))
    except BadKey as error:
        raise SettingsError(f"setting log.signing.key.location={path} is invalid: {error}") from None


async def sign_heads(controller: CommandSink, part: Query, signer: HeadSigner, every_s: float) -> None:
    """Record a signed tree head at intervals, if there are new events."""
    signed = 0
    while True:
        await asyncio.sleep(every_s)
        if part.log.durable_offset <= signed:
            continue
        try:
            head = signer.signed(head_of(part, controller.now_ms()))
        except LogError:
            continue
        recorded = HeadSigned(head.size, bytes.fromhex(head.root), head.at_ms, head.public_key, head.signature)
        controller.submit_internal(RecordHead(**stamp(controller, "head"), head=recorded))
        await controller.decided()
        signed = head.size + 1  # the event that records this head does not require a new head


# --- retention

Run = tuple[bytes, range]
"""An index key, and a range of offsets whose events the index lists under this key."""
EVENTS_PER_SLICE = 1000
"""A slice takes some milliseconds of the writing thread."""


def first_kept(
    segments: Sequence[manifests.Segment], start: int, snapshot: int, now_ms: int, kept_ms: int, kept_bytes: int
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


def drop(log: RocksDbLog, segments: Sequence[manifests.Segment], now_ms: int, kept_ms: int, kept_bytes: int) -> bool:
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


def next_to_clean_up(log: RocksDbLog, segments: Iterable[manifests.Segment]) -> manifests.Segment | None:
    """The next segment whose events were dropped, and not yet its index entries. Raises LogError."""
    cleaned = manifests.archive_status(log).cleaned
    return next((one for one in segments if cleaned <= one.start and one.end <= log.start_offset), None)


def clean_up(log: RocksDbLog, segment: manifests.Segment, index: SegmentIndex) -> Iterator[Callable[[], object]]:
    """Steps for the writing thread that remove a dropped segment from the log's indexes, each about `EVENTS_PER_SLICE`
    events. `index` is the index of the segment. The steps raise LogError."""
    for some in grouped(_pieces(index), EVENTS_PER_SLICE, lambda run: len(run[1])):
        yield partial(log.forget, some)
    requests = index.scan(request_index.REQUEST)
    while archived := list(islice(requests, EVENTS_PER_SLICE // 4)):
        yield partial(_forget_requests, log, archived)
    yield lambda: log.write(
        Commit(own=manifests.status_changes(replace(manifests.archive_status(log), cleaned=segment.end)))
    )


def _forget_requests(log: RocksDbLog, archived: Iterable[tuple[bytes, bytes]]) -> None:
    same = {key: request_index.decode_request(value) for key, value in archived if log.get(key) == value}
    log.forget((), [each for key, request in same.items() for each in (key, *request_index.facets_of(request))])


def _pieces(index: SegmentIndex) -> Iterator[Run]:
    """The keys of an index with their offset ranges, each range of at most `EVENTS_PER_SLICE` events."""
    for name, runs in index.each():
        for run in runs:
            for first in range(run.start, run.stop, EVENTS_PER_SLICE):
                yield name, range(first, min(first + EVENTS_PER_SLICE, run.stop))
