"""Archiving next to deciding, and the signed tree heads of the log.

Closed segments of the log are written to `log.archive.url`. Archived events past retention are dropped from the data
folder. If another process archives the same log, only dropping is done here. Reading, packing and uploading run in a
thread of their own, with pauses. The notes about them are written with the log, on the loop, in slices of some
milliseconds. A failure is shown in a log line, a metric and the health output, and retried; deciding continues.

A log without a Merkle tree gets one in the background. With a signing key, a signed tree head is recorded at intervals.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from controller.brokers.port import CommandSink, stamp
from controller.machine.commands.commands import RecordHead
from controller.settings.load import ServeSettings, SettingsError
from events.codec import EventDecodeError
from events.logs.archive.store import ArchiveStore, BadArchiveUrl, is_inside, open_store
from events.logs.log import EventLog, LogError
from events.logs.rocksdb_log import RocksDbLog
from events.logs.tree_heads import BadKey, HeadSigner
from projections.queries.proving import head_of
from projections.queries.query import Query
from projections.store.tree import TreeBehind, build_some, stored_head

if TYPE_CHECKING:
    from events.logs.archive.manifest import Manifest

LOOK_S = 1.0
"""How often it is seen whether a stretch is closed."""
LOOK_AT_OTHERS_S = 10.0
"""How often it is seen whether another process has archived one."""
AGAIN_S = 10.0
"""After a failure."""
REST_S = 0.002
_T = TypeVar("_T")


class _Stopped(Exception):
    """The service is stopping."""


class Keeping(msgspec.Struct, frozen=True):
    """What of the archived events stays: those of the last `ms`, up to so many `bytes` (-1 sets no limit), and the
    newest `events` of the log in any case."""

    ms: int
    bytes: int = -1
    events: int = 0


NextBase = Callable[[Callable[[], None]], Callable[[], None] | None]
"""What puts the next base beside the archive, in another thread, None where none is due; it is given what rests."""


class Archiving:
    """Archives a log, and drops what is archived and old."""

    def __init__(
        self,
        log: RocksDbLog,
        settings: ServeSettings,
        boot: str,
        where: str,
        clock_ms: Callable[[], int],
        place: ArchiveStore,
        keeping: Keeping,
        next_base: NextBase = lambda _: None,
        *,
        others: bool = False,
    ) -> None:
        """`boot` is drawn for each, `where` says to people which process it is. With `others` another process archives
        the same log, and what it has put there is taken over: nothing is written to the place."""
        from events.logs.archive.manifest import Writer, archive_status, manifests_of  # takes pyarrow
        from events.logs.archive.writing import ArchiveFollower, Archiver
        from projections.replay.spark.column_batches import Columns
        from projections.replay.spark.columns import COLUMNS
        from projections.store.tree import range_root

        self._log, self._place, self._clock_ms = log, place, clock_ms
        self._keeping, self._next_base = keeping, next_base
        self._others, self._work = others, "dropping what is archived" if others else "archiving"
        root, known = partial(range_root, log), lambda: list(manifests_of(log))
        self._archiver: Archiver | ArchiveFollower = (
            ArchiveFollower(log, place, root, known)
            if others
            else Archiver(
                log,
                place,
                Writer(boot=boot, where=where, since_ms=clock_ms()),
                lambda: Columns(tuple(COLUMNS)),
                root,
                self._rest,
                known,
                segment_events=1 << (settings.log_archive_interval_events.bit_length() - 1),
            )
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._stopping = threading.Event()
        self._lines = structlog.get_logger("topicwright")
        self._manifests = list(manifests_of(log)) if archive_status(log).url else []
        self.trouble: str | None = None
        """Why nothing is archived now; None when all is well."""

    async def run(self) -> None:
        """Archive for as long as the service runs."""
        try:
            while True:
                wait_s = await self._once()
                await asyncio.sleep(wait_s)
        finally:
            self._stopping.set()
            self._thread.shutdown(wait=False, cancel_futures=True)

    def gauges(self) -> list[tuple[str, str, float]]:
        """How far it is."""
        archived = self._manifests[-1].end if self._manifests else 0
        return [
            ("log_archived_offset", "Events below this offset are archived.", archived),
            ("log_start_offset", "Events below this offset are in the archive alone.", self._log.start_offset),
            ("log_archive_paused", "1 while nothing can be archived.", float(self.trouble is not None)),
        ]

    async def _once(self) -> float:
        """Do what there is to do; how long to wait then."""
        try:
            self._check_kept()
            manifest = await self._apart(self._archiver.step)
            self._note(manifest)
            if manifest is None:
                await self._drop()
        except _Stopped:
            return LOOK_S
        except (LogError, EventDecodeError, OSError) as error:
            self._archiver.read_again()
            if str(error) != self.trouble:
                self._lines.warning(f"{self._work} is paused", why=str(error))
            self.trouble = str(error)
            return AGAIN_S
        if self.trouble is not None:
            self._lines.info(f"{self._work} goes on")
            self.trouble = None
        return 0 if manifest is not None else LOOK_AT_OTHERS_S if self._others else LOOK_S

    def _check_kept(self) -> None:
        """What was archive_status last may be gone with other writes that were not synced when the disk failed."""
        from events.logs.archive.manifest import manifests_of

        last = self._manifests[-1] if self._manifests else None
        if last is not None and next(manifests_of(self._log, last.start), None) != last:
            self._manifests = list(manifests_of(self._log))
            self._archiver.read_again()

    def _note(self, manifest: Manifest | None) -> None:
        """Write with the log what was archived, and where."""
        from events.logs.archive.manifest import archive_status, manifest_changes, manifest_removals, note

        state: dict[bytes, bytes] = {}
        before = archive_status(self._log)
        if self._archiver.is_new_archive:
            state |= manifest_removals(self._log)
            self._manifests, self._archiver.is_new_archive = [], False
        if before.url != self._place.url:
            state |= note(replace(before, url=self._place.url))
        if manifest is not None:
            state |= manifest_changes(manifest)
        if state:
            self._log.note(state)
        if manifest is not None:
            self._manifests.append(manifest)
        if manifest is not None and not self._others:
            self._lines.info("archived", events=f"{manifest.start} to {manifest.end - 1}", bytes=manifest.events.size)

    async def _drop(self) -> None:
        from projections.store.archived import retention

        log, keeping = self._log, self._keeping
        may_go = [one for one in self._manifests if one.end <= log.durable_offset - keeping.events]
        if retention.drop(log, may_go, self._clock_ms(), keeping.ms, keeping.bytes):
            self._lines.info("archived events dropped", start=log.start_offset)
        while (leaving := retention.IndexCleanup.next(log, self._manifests)) is not None:
            await self._apart(partial(leaving.take_over if self._others else leaving.archive, self._place))
            leaving.forget()
            runs = await self._apart(partial(log.archive.runs_of, leaving.manifest))
            for piece in leaving.slices(runs):
                piece()
                await asyncio.sleep(REST_S)
        write_base = self._next_base(self._rest)
        if write_base is not None:
            await self._apart(write_base)

    async def _apart(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _rest(self) -> None:
        if self._stopping.wait(REST_S):
            raise _Stopped


def dropping(log: RocksDbLog, settings: ServeSettings, clock_ms: Callable[[], int], place: ArchiveStore) -> Archiving:
    """What drops the old events of a log that another process archives."""
    keeping = Keeping(settings.log_events_retention_ms, settings.log_events_retention_bytes)
    return Archiving(log, settings, "", "", clock_ms, place, keeping, others=True)


def archiving(
    log: RocksDbLog, settings: ServeSettings, boot: str, where: str, clock_ms: Callable[[], int]
) -> Archiving | None:
    """What archives a log; None where the settings name no place. Raises SettingsError."""
    place = archive_store(settings)
    if place is None:
        return None
    if is_inside(place, log.path):
        raise SettingsError(
            f"setting log.archive.url is not allowed: {place.url} is in the data folder; name a place beside it"
        )
    keeping = Keeping(settings.log_events_retention_ms, settings.log_events_retention_bytes)
    return Archiving(log, settings, boot, where, clock_ms, place, keeping)


def archive_store(settings: ServeSettings) -> ArchiveStore | None:
    """The place that `log.archive.url` names, None where it names none. Raises SettingsError."""
    if settings.log_archive_url is None:
        return None
    try:
        import pyarrow  # noqa: F401  # what archives, and what reads an archive, takes it
    except ImportError as error:
        raise SettingsError(
            f"setting log.archive.url takes {error.name}, which is not installed: pip install 'topicwright[replay]'"
        ) from None
    try:
        return open_store(settings.log_archive_url)
    except BadArchiveUrl as error:
        raise SettingsError(f"setting log.archive.url is not allowed: {error}") from None


REST_S = 0.01
"""Between two slices of a tree that is made: the loop does other work at least half of the time."""
AGAIN_S = 1.0


def head_signer(settings: ServeSettings) -> HeadSigner | None:
    """What signs the heads of the log; None without a key. Raises SettingsError."""
    path = settings.log_signing_key_location
    if path is None:
        return None
    try:
        return HeadSigner.read(Path(path))
    except BadKey as error:
        raise SettingsError(f"setting log.signing.key.location={path} is not allowed: {error}") from None


async def build_tree(log: EventLog) -> None:
    """Make the tree of a log that has none over its older events, in slices on the loop that writes the log."""
    logger = structlog.get_logger("topicwright")
    begun = False
    while True:
        try:
            if not build_some(log):
                break
            if not begun:
                begun = True
                logger.info("making the tree of the log", events=log.next_offset, done=stored_head(log)[0])
        except LogError:  # who writes the log says so, and reads it anew
            await asyncio.sleep(AGAIN_S)
        await asyncio.sleep(REST_S)
    if begun:
        logger.info("the tree of the log is made", events=log.next_offset)


async def sign_heads(controller: CommandSink, part: Query, signer: HeadSigner, every_s: float) -> None:
    """Keep a signed head as an event every so often, where there are new events to sign for."""
    kept = 0
    while True:
        await asyncio.sleep(every_s)
        if part.log.durable_offset <= kept:
            continue
        try:
            head = signer.signed(head_of(part, controller.now_ms()))
        except (TreeBehind, LogError):
            continue
        controller.submit_internal(
            RecordHead(
                **stamp(controller, "head"),
                size=head.size,
                root=bytes.fromhex(head.root),
                signed_at_ms=head.at_ms,
                public_key=head.public_key,
                signature=head.signature,
            )
        )
        await controller.decided()
        kept = head.size + 1  # the event that keeps the head needs no other
