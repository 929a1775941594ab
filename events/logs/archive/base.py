"""Copies in an archive, from which empty folders start: bases of whole partitions, and snapshots.

    bases/OFFSET.json                what it is of, and its parts (`Base`), written last
    bases/OFFSET-HASH.part           a piece of its file, of at most PART_BYTES
    snapshots/OFFSET-HASH.snapshot   a snapshot as it is in the folder (`events.logs.snapshots`)

A worker or gateway whose folder is empty downloads the newest base instead of reading its partition from the first
record. A base holds all that the log's database holds: state, indexes, tree, and the events that are not archived;
older events are read from the archive. So it is taken of a log that has dropped its archived events, and its size grows
only by some bytes an event, for the tree and the creation index. The file has the format of a snapshot; its pairs are
the database's own. A key of eight bytes that begins with 00 is an event's offset.

Non-goal: authenticity. Whoever can write to the store can change what empty folders start with, as whoever can write to
a data folder can. `projections.store.archived.bases` checks a base against its archive and its events, and
`open_snapshot` a snapshot against the log.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from rocksdict import DBRecoveryMode, WriteBatch

from events.catalog import EVENT_VERSION
from events.logs.archive.manifest import (
    FORMAT,
    ArchiveDamaged,
    ArchiveForeign,
    Name,
    OffsetInLog,
    Stored,
    history_of,
    read_object,
    read_stored,
    write_object,
)
from events.logs.archive.store import ArchiveError, ArchiveStore
from events.logs.log import EventLog
from events.logs.rocksdb_database import Database
from events.logs.rocksdb_recovery import classify
from events.logs.snapshots import (
    Snapshot,
    SnapshotDamaged,
    SnapshotInfo,
    add_snapshot,
    snapshot_content,
    snapshot_offsets,
    write_snapshot,
)

KEPT: Final = 2
"""Number of bases to keep: the newest, and one for a process that is reading it, or if the newest is damaged."""
PART_BYTES: Final = 16 << 20
PAIRS_PER_WRITE: Final = 1000
CACHE_BYTES: Final = 8 << 20
_BASES: Final = "bases"
_NAME = re.compile(r"([0-9]{20})(?:\.json|-[0-9a-f]{16}\.part)")
_EVENT: Final = b"\0"
_KINDS: Final = frozenset((_EVENT, b"s", b"t", b"r", b"m", b"e"))
"""The first bytes of the keys in a log's database."""

Pair = tuple[bytes, bytes]


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of a log up to `offset`, with the events from `start` on.

    Reading continues at the record `kafka_offset` of the partition of the topic with the id `topic_id`.
    """

    cluster_id: Name
    topic_id: Name
    history: Name
    start: OffsetInLog
    offset: OffsetInLog
    kafka_offset: OffsetInLog
    event_version: int
    parts: Annotated[tuple[Stored, ...], Meta(max_length=10_000)] = ()
    format: int = FORMAT

    @property
    def name(self) -> str:
        """The name of the object that describes it."""
        return f"{_BASES}/{self.offset:020}.json"

    def part_name(self, part: Stored) -> str:
        return f"{_BASES}/{self.offset:020}-{part.sha256[:16]}.part"

    @property
    def size(self) -> int:
        """The size of its file in bytes."""
        return sum(part.size for part in self.parts)


def base_of(log: EventLog, topic_id: str, kafka_offset: int) -> Base:
    """The description of a base of a log as it is now; reading continues at this record. Raises LogError."""
    return Base(
        cluster_id=log.cluster_id,
        topic_id=topic_id,
        history=history_of(log),
        start=log.start_offset,
        offset=log.next_offset,
        kafka_offset=kafka_offset,
        event_version=EVENT_VERSION,
    )


def write_base(store: ArchiveStore, base: Base, pairs: Iterable[Pair]) -> Base:
    """Store a base of these pairs, in key order, and remove old bases. Returns it with its parts.

    The write is atomic. Raises ArchiveError, OSError, and what `pairs` raises.
    """
    parts: list[Stored] = []
    with TemporaryFile(prefix="topicwright-base-") as file:
        write_snapshot(file, SnapshotInfo(base.cluster_id, base.offset, base.event_version, 0), pairs)
        file.seek(0)
        while content := file.read(PART_BYTES):
            parts.append(Stored.of(content))
            store.write(base.part_name(parts[-1]), content)
    whole = msgspec.structs.replace(base, parts=tuple(parts))
    write_object(store, whole.name, whole)
    _remove_old(store, whole)
    return whole


def offsets_of_bases(store: ArchiveStore) -> list[int]:
    """The offsets of all bases. Raises ArchiveAway."""
    names = (name.removesuffix(".json") for name in store.names(_BASES))
    return [int(name) for name in names if len(name) == 20 and name.isascii() and name.isdigit()]


def read_base(store: ArchiveStore, offset: int) -> Base:
    """The base at an offset. Raises ArchiveError; ArchiveDamaged if this release cannot read it."""
    name = f"{_BASES}/{offset:020}.json"
    base = read_object(store, name, Base)
    if base is None or base.offset != offset or base.event_version > EVENT_VERSION:
        raise ArchiveDamaged(f"{store.url}: {name} is not a base that this release can read")
    return base


def bases(store: ArchiveStore, cluster_id: str, topic_id: str) -> Iterator[Base]:
    """The bases of a partition of a topic, newest first; unreadable ones are skipped. Raises ArchiveAway, and
    ArchiveForeign at the first of another cluster or topic."""
    for offset in reversed(offsets_of_bases(store)):
        with suppress(ArchiveDamaged):
            base = read_base(store, offset)
            if (base.cluster_id, base.topic_id) != (cluster_id, topic_id):
                raise ArchiveForeign(
                    f"{store.url} has bases of the topic with id {base.topic_id} of cluster {base.cluster_id}, not of "
                    f"{topic_id} of {cluster_id}: name another place"
                )
            yield base


def download_base(
    store: ArchiveStore, base: Base, folder: Path, check: Callable[[Path], None] = lambda _: None
) -> None:
    """Download a base into a log folder. The folder appears once it is complete and `check`, which gets its temporary
    path, has passed. Raises ArchiveError, LogError, OSError."""
    fresh = folder.with_name(folder.name + ".fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(0o700, parents=True)
    try:
        path = fresh / "base"
        with path.open("xb") as file:
            for part in base.parts:
                file.write(read_stored(store, base.part_name(part), part))
        try:
            with Snapshot(path) as snapshot:
                _fill(fresh / "log", snapshot.scan())
        except SnapshotDamaged as error:
            raise ArchiveDamaged(f"{store.url}: {base.name} is damaged: {error}") from None
        check(fresh / "log")
        shutil.rmtree(folder, ignore_errors=True)
        (fresh / "log").rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _fill(path: Path, pairs: Iterable[Pair]) -> None:
    try:
        path.mkdir(0o700)
        database = Database(path, CACHE_BYTES, DBRecoveryMode.absolute_consistency())
        try:
            for batch in _batches(database, pairs):
                database.write(batch)
            database.sync(True)
        finally:
            database.close()
    except (ArchiveError, SnapshotDamaged):
        raise
    except Exception as error:
        raise classify(error, path) from error


def _batches(database: Database, pairs: Iterable[Pair]) -> Iterator[WriteBatch]:
    batch, room = WriteBatch(raw_mode=True), PAIRS_PER_WRITE
    for key, value in pairs:
        if key[:1] not in _KINDS:
            raise ArchiveDamaged(f"a base has the key {key[:20].hex()}, which is none of a log")
        if key[:1] == _EVENT:
            batch.put(key, value)
        else:
            batch.put(key, value, database.views_handle)
        room -= 1
        if not room:
            yield batch
            batch, room = WriteBatch(raw_mode=True), PAIRS_PER_WRITE
    yield batch


def _remove_old(store: ArchiveStore, newest: Base) -> None:
    """Remove the oldest bases, descriptions first."""
    stay = [offset for offset in offsets_of_bases(store) if offset <= newest.offset][-KEPT:]
    for found in filter(None, map(_NAME.fullmatch, store.names(_BASES))):
        if int(found[1]) < min(stay):
            store.remove(f"{_BASES}/{found[0]}")


_SNAPSHOTS = "snapshots"
_SNAPSHOT_NAME = re.compile(r"(\d{20})-([0-9a-f]{16})\.snapshot")


def upload_snapshots(store: ArchiveStore, log: EventLog, too_many: Callable[[Sequence[int]], Sequence[int]]) -> None:
    """Copy snapshots of a log to its archive if missing there, and remove those that `too_many` names. Raises
    ArchiveAway, OSError."""
    there = _there(store)
    for offset in snapshot_offsets(log):
        if offset not in there:
            content = snapshot_content(log, offset)
            there[offset] = f"{_SNAPSHOTS}/{offset:020}-{_hash(content)}.snapshot"
            store.write(there[offset], content)
    for offset in too_many(sorted(there)):
        store.remove(there[offset])


def download_snapshots(store: ArchiveStore, log: EventLog, rest: Callable[[], None]) -> int:
    """Copy missing snapshots to a log, newest first, and return their number. Damaged ones are skipped. `rest` is
    called between two. Raises ArchiveAway, OSError."""
    here, added = set(snapshot_offsets(log)), 0
    for offset, name in sorted(_there(store).items(), reverse=True):
        if offset in here or offset > log.durable_offset:
            continue
        rest()
        content = store.read(name)
        if content is not None and name.endswith(f"-{_hash(content)}.snapshot"):
            add_snapshot(log, offset, content)
            added += 1
    return added


def _there(store: ArchiveStore) -> dict[int, str]:
    found = filter(None, map(_SNAPSHOT_NAME.fullmatch, store.names(_SNAPSHOTS)))
    return {int(one[1]): f"{_SNAPSHOTS}/{one[0]}" for one in found}


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:16]
