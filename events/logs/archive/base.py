"""Writes and downloads copies of a log's state in an archive: bases of whole partitions, and snapshots.

A worker or gateway whose folder is empty downloads the newest base instead of reading its partition of the events topic
from the first record. A base holds all that the log's database holds: state, indexes, tree, and the events that are not
archived; older events are read from the archive. So a base is copied from a log that has dropped its archived events,
and grows only by some bytes an event, for the tree and the creation index. Its keys and values are those of the
database: a key of eight bytes that begins with 00 is the offset of an event. A snapshot in the archive has the pairs of
a snapshot file in the log's folder (`events.logs.snapshots`).

A copy is one Parquet file or several, with the columns `key` and `value`; the manifest lists these files.

Non-goal: authenticity, unless the manifest is signed. Whoever can write to the store can change what empty folders
start with, as whoever can write to a data folder can. `controller.store.recovering` checks a base against its
archive and its events, and `open_snapshot` a snapshot against the log.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
from msgspec.structs import replace
from rocksdict import DBRecoveryMode, WriteBatch

from events.catalog import EVENT_VERSION
from events.logs.archive.manifest import (
    ArchiveDamaged,
    ArchiveOfAnotherLog,
    Base,
    Manifest,
    ManifestWriter,
    StateCopy,
    Stored,
    read_manifest,
    read_stored,
)
from events.logs.archive.parquet import GROUP, ParquetFile, ParquetWriter
from events.logs.archive.store import ArchiveStore
from events.logs.log import EventLog, grouped, pair_size
from events.logs.rocksdb_database import Database
from events.logs.rocksdb_recovery import classify
from events.logs.snapshots import SnapshotDamaged, open_snapshot, snapshot_info, snapshot_offsets, store_snapshot

BASES_MAX: Final = 2
"""Number of bases to keep: the newest, and one for a process that is reading it, or if the newest is damaged."""
PART_BYTES: Final = 32 << 20
"""The size of a part before it is compressed."""
CACHE_BYTES: Final = 8 << 20
_FOLDER: Final = "state"
_NAME = re.compile(r"([0-9]{20})-[0-9a-f]{16}\.parquet")
_EVENT: Final = b"\0"
_KINDS: Final = frozenset((_EVENT, b"s", b"t", b"r", b"m", b"e"))
"""The first bytes of the keys in a log's database."""
_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_GROUP_BYTES: Final = 4 << 20

Pair = tuple[bytes, bytes]
_Copy = TypeVar("_Copy", bound=StateCopy)


def write_base(writer: ManifestWriter, base: Base, pairs: Iterable[Pair]) -> Base:
    """Store the `pairs` of a log's database as a base, and remove old bases. Returns the base with its parts.

    Raises ArchiveError, and what `pairs` raises.
    """
    whole = _with_parts(writer.store, base, pairs)

    def add(manifest: Manifest) -> Manifest:
        older = [one for one in manifest.bases if one.offset < whole.offset]
        return replace(manifest, bases=(*older[1 - BASES_MAX :], whole))

    _remove_unnamed(writer.store, writer.change(add))
    return whole


def bases(store: ArchiveStore, cluster_id: str, topic_id: str) -> Iterator[Base]:
    """The bases of a partition of a topic, newest first. Raises ArchiveError; ArchiveOfAnotherLog at the first base of
    another cluster or topic."""
    manifest = read_manifest(store)
    for base in reversed(manifest.bases):
        if (manifest.cluster_id, base.topic_id) != (cluster_id, topic_id):
            raise ArchiveOfAnotherLog(
                f"{store.url} has bases of the topic with id {base.topic_id} of cluster {manifest.cluster_id}, not of "
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
        if base.event_version > EVENT_VERSION:
            raise ArchiveDamaged(f"{store.url}: {base} was written by a newer release")
        _fill(fresh / "log", _groups(store, base))
        check(fresh / "log")
        shutil.rmtree(folder, ignore_errors=True)
        (fresh / "log").rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def upload_snapshots(writer: ManifestWriter, log: EventLog, too_many: Callable[[Sequence[int]], Sequence[int]]) -> None:
    """Copy snapshots of a log to its archive if missing there, and remove the archived snapshots that `too_many`
    returns. Raises ArchiveError, LogError, OSError."""
    there = {one.offset: one for one in read_manifest(writer.store).snapshots}
    for offset in sorted(set(snapshot_offsets(log)) - set(there)):
        with suppress(SnapshotDamaged), open_snapshot(log, offset) as snapshot:
            about = snapshot.about
            copy = StateCopy(offset=offset, event_version=about.event_version, last_event=about.last_event)
            there[offset] = _with_parts(writer.store, copy, snapshot.scan())
    left = sorted(set(there) - set(too_many(sorted(there))))
    stay = tuple(there[offset] for offset in left)
    _remove_unnamed(writer.store, writer.change(lambda manifest: replace(manifest, snapshots=stay)))


def download_snapshots(store: ArchiveStore, log: EventLog, pause: Callable[[], None]) -> int:
    """Copy missing snapshots to a log, newest first, and return their number. Damaged snapshots are skipped. `pause` is
    called between two snapshots. Raises ArchiveError, LogError, OSError."""
    here, added = set(snapshot_offsets(log)), 0
    for copy in reversed(read_manifest(store).snapshots):
        if copy.offset in here or not 0 < copy.offset <= log.durable_offset:
            continue
        pause()
        about = snapshot_info(log, copy.offset)
        if (about.event_version, about.last_event) == (copy.event_version, copy.last_event):
            with suppress(ArchiveDamaged):
                store_snapshot(log, about, pairs_of(store, copy))
                added += 1
    return added


def _with_parts(store: ArchiveStore, copy: _Copy, pairs: Iterable[Pair]) -> _Copy:
    """Store pairs, and return their description with its parts."""
    parts, groups = list[Stored](), grouped(pairs, _GROUP_BYTES, pair_size, GROUP)
    while True:
        writer, part_bytes = ParquetWriter(_SCHEMA, _SCHEMA.names), 0
        for group in groups:
            writer.write_group(pa.table([pa.array(one, pa.binary()) for one in zip(*group, strict=True)], _SCHEMA))
            part_bytes += sum(map(pair_size, group))
            if part_bytes >= PART_BYTES:
                break
        if part_bytes or not parts:
            content = writer.done()
            parts.append(Stored.of(content))
            store.write(copy.part_name(parts[-1]), content)
        if part_bytes < PART_BYTES:
            return replace(copy, parts=tuple(parts))


def pairs_of(store: ArchiveStore, copy: StateCopy) -> Iterator[Pair]:
    """The pairs of a copy. Raises ArchiveError."""
    return (pair for group in _groups(store, copy) for pair in group)


def _groups(store: ArchiveStore, copy: StateCopy) -> Iterator[list[Pair]]:
    """The pairs of a copy, some thousand at once. Raises ArchiveError."""
    for part in copy.parts:
        file = ParquetFile(copy.part_name(part), read_stored(store, copy.part_name(part), part))
        for group in range(len(file.group_rows)):
            table = file.read(group, _SCHEMA.names, plain=True)
            if table.schema != _SCHEMA or table["key"].null_count or table["value"].null_count:
                raise ArchiveDamaged(f"{store.url}: {file.name} cannot be read: it has other columns than a copy")
            yield list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def _remove_unnamed(store: ArchiveStore, manifest: Manifest) -> None:
    """Remove the parts that the manifest does not name: of old copies, and of a process that died."""
    named = {copy.part_name(part) for copy in (*manifest.bases, *manifest.snapshots) for part in copy.parts}
    for name in filter(_NAME.fullmatch, store.names(_FOLDER)):
        if f"{_FOLDER}/{name}" not in named:
            store.remove(f"{_FOLDER}/{name}")


def _fill(path: Path, groups: Iterable[list[Pair]]) -> None:
    try:
        path.mkdir(0o700)
        database = Database.open(path, CACHE_BYTES, DBRecoveryMode.absolute_consistency())
        try:
            for group in groups:
                database.write(_batch(database, group))
            database.sync(True)
        finally:
            database.close()
    except Exception as error:
        raise classify(error, path) from error


def _batch(database: Database, pairs: Sequence[Pair]) -> WriteBatch:
    batch = WriteBatch(raw_mode=True)
    for key, value in pairs:
        if key[:1] not in _KINDS:
            raise ArchiveDamaged(f"a base has the key {key[:20].hex()}, which is none of a log")
        if key[:1] == _EVENT:
            batch.put(key, value)
        else:
            batch.put(key, value, database.views_handle)
    return batch
