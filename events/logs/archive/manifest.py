"""Reads and writes the manifest of an archive, and the log's own record of its archive.

    manifest.json                the log of the archive, the process that writes it, and a list of its objects
    events/START-HASH.parquet    a segment: its events, and in the footer the index of them (`segment`)
    state/OFFSET-HASH.parquet    a part of a base or of a snapshot (`base`)

The manifest is replaced last, after the objects that it lists are written. An object that it does not list is not part
of the archive. Names contain a hash of the content, so an object is only ever overwritten with the same content, and
each segment exists once, even if an archiving process dies. If the log has a signing key, the manifest is signed with
it (Ed25519): over the line `topicwright archive 1` and the manifest as compact JSON with an empty signature.

The log records the archive in state keys:
    p                            the archive's URL and what was dropped (`ArchiveStatus`)
    p START                      a segment (START: eight bytes)
Each object that is read must have its recorded hash: the archive is trusted no more than the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import pairwise
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from events.catalog import EVENT_VERSION
from events.codec import UNREADABLE
from events.logs.archive.store import ArchiveError, ArchiveStore
from events.logs.log import EventLog, LogCorrupted, StateKeys, read_one
from events.logs.tree_heads import HeadSigner, HexHash, Name, OffsetInLog, verifies

FORMAT: Final = 1
SEGMENT: Final = 1 << 16
"""The default number of events in a segment, which is one subtree of the log's Merkle tree."""
ARCHIVE_KEY: Final = b"p"
MANIFEST: Final = "manifest.json"
MANIFEST_BYTES_MAX: Final = 32 << 20
"""The maximum size of a manifest; a segment takes about 500 bytes."""
_SIGNED: Final = b"topicwright archive 1\n"


class ArchiveOfAnotherLog(ArchiveError):
    """The archive belongs to another cluster, history or service."""


class ArchiveDamaged(ArchiveError, LogCorrupted):
    """The archive does not hold what was archived."""


_Size = Annotated[int, Meta(ge=0, le=1 << 30)]


class Stored(msgspec.Struct, frozen=True):
    """The SHA-256 and the size of an object, or of its end."""

    sha256: HexHash
    size: _Size

    @classmethod
    def of(cls, content: bytes) -> Stored:
        return cls(sha256(content).hexdigest(), len(content))


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The events in [start, end). `tree` is the root of the Merkle tree over them alone, `event_bytes` their size in
    the log. `footer` is the end of the file `events`."""

    start: OffsetInLog
    end: OffsetInLog
    first_ms: int
    last_ms: int
    event_version: int
    event_bytes: OffsetInLog
    tree: HexHash
    events: Stored
    footer: Stored

    @property
    def name(self) -> str:
        return f"events/{self.start:020}-{self.events.sha256[:16]}.parquet"


class StateCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of the state keys of the log at `offset`, in parts. `last_event` is as in `SnapshotInfo`."""

    offset: OffsetInLog
    event_version: int = EVENT_VERSION
    last_event: int = 0
    parts: Annotated[tuple[Stored, ...], Meta(max_length=10_000)] = ()

    def part_name(self, part: Stored) -> str:
        return f"state/{self.offset:020}-{part.sha256[:16]}.parquet"

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(part.size for part in self.parts)


class Base(StateCopy, frozen=True, kw_only=True):
    """A copy of a log up to `offset`, with the events from `start` on.

    A process that starts with the base continues at record `kafka_offset` of its partition of the topic `topic_id`.
    """

    topic_id: Name
    start: OffsetInLog
    kafka_offset: OffsetInLog

    def __str__(self) -> str:
        return f"the base at {self.offset}"


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """The process that archives. `boot` is a random id of each start of the process, `where` is for display."""

    boot: Name
    where: str
    since_ms: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of an archive; `history` tells logs of one cluster apart (see `history_of`)."""

    cluster_id: Name
    history: Name
    writer: Writer
    segments: tuple[Segment, ...] = ()
    """From the first event on, without a gap."""
    bases: tuple[Base, ...] = ()
    snapshots: tuple[StateCopy, ...] = ()
    """The snapshots in the archive; bases and snapshots are in the order of their offsets."""
    public_key: Annotated[bytes, Meta(max_length=32)] = b""
    signature: Annotated[bytes, Meta(max_length=64)] = b""
    format: int = FORMAT

    @property
    def end(self) -> int:
        """The first offset that is not archived."""
        return self.segments[-1].end if self.segments else 0

    @property
    def signed_text(self) -> bytes:
        return _SIGNED + msgspec.json.encode(replace(self, signature=b""))

    def is_signed_by(self, public_key: bytes) -> bool:
        return verifies(public_key, self.signature, self.signed_text)


class ArchiveStatus(msgspec.Struct, frozen=True):
    """The log's own record of its archive."""

    url: str = ""
    """The archive's URL; "" without an archive."""
    history: str = ""
    """The history id of a recovered log."""
    cleaned: int = 0
    """The log's indexes have no entries below this offset."""


_T = TypeVar("_T")


def find_manifest(store: ArchiveStore) -> Manifest | None:
    """The manifest of an archive, None if there is no archive. Raises ArchiveError."""
    content = store.read(MANIFEST, MANIFEST_BYTES_MAX)
    if content is None:
        return None
    try:
        found = msgspec.json.decode(content, type=Manifest)
    except UNREADABLE as error:
        raise ArchiveDamaged(f"{store.url}: {MANIFEST} cannot be read: {error}") from None
    if found.format > FORMAT:
        raise ArchiveOfAnotherLog(
            f"{store.url} was written by a newer release (format {found.format}, this one has {FORMAT})"
        )
    end = 0
    for one in found.segments:
        if one.start != end or one.end <= end:
            raise ArchiveDamaged(f"{store.url} lacks the segment from offset {end} on: restore it from a copy")
        end = one.end
    for copies in (found.bases, found.snapshots):
        if any(one.offset >= later.offset for one, later in pairwise(copies)):
            raise ArchiveDamaged(f"{store.url}: {MANIFEST} was changed: its copies of the state are out of order")
    return found


def read_manifest(store: ArchiveStore) -> Manifest:
    """The manifest of an archive that must exist. Raises ArchiveError; ArchiveOfAnotherLog if there is no archive."""
    found = find_manifest(store)
    if found is None:
        raise ArchiveOfAnotherLog(f"{store.url} holds no archive: name what `log.archive.url` or `backup` named")
    return found


class ManifestWriter:
    """Changes the manifest of an archive until another process registers as its writer."""

    def __init__(self, store: ArchiveStore, writer: Writer, signer: HeadSigner | None = None) -> None:
        self.store, self.writer = store, writer
        self._signer = signer

    def register(self, manifest: Manifest) -> None:
        """Write a manifest, and register as its writer. Raises ArchiveError."""
        self._write(replace(manifest, writer=self.writer))

    def change(self, by: Callable[[Manifest], Manifest]) -> Manifest:
        """Change the manifest and return it. Raises ArchiveError; ArchiveOfAnotherLog if another process is
        its writer."""
        now = read_manifest(self.store)
        if now.writer.boot != self.writer.boot:
            raise ArchiveOfAnotherLog(
                f"another service archives to {self.store.url}: {now.writer.where}; give each a place of its own, and "
                "restart the one that is to go on there"
            )
        return self._write(by(now))

    def _write(self, manifest: Manifest) -> Manifest:
        key = b"" if self._signer is None else self._signer.public_key
        manifest = replace(manifest, public_key=key, signature=b"")
        if self._signer is not None:
            manifest = replace(manifest, signature=self._signer.sign(manifest.signed_text))
        content = msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"
        if len(content) > MANIFEST_BYTES_MAX:
            raise ArchiveError(
                f"{self.store.url} is full: its manifest has no room for more segments. Set log.archive.url to a new "
                "place, and raise log.archive.interval.events"
            )
        self.store.write(MANIFEST, content)
        return manifest


def read_stored(store: ArchiveStore, name: str, stored: Stored, start: int = 0) -> bytes:
    """An object as archived, or its end from `start` on. Raises ArchiveError; ArchiveDamaged if it is missing or
    changed."""
    content = store.read(name, start=start)
    if content is None:
        raise ArchiveDamaged(f"{store.url}: {name} is missing: restore it from a copy of the archive")
    if len(content) != stored.size or sha256(content).hexdigest() != stored.sha256:
        raise ArchiveDamaged(f"{store.url}: {name} is not as it was archived: restore it from a copy of the archive")
    return content


# --- the log's record


def archive_status(log: StateKeys) -> ArchiveStatus:
    """The log's own record of its archive. Raises LogError."""
    value = log.get(ARCHIVE_KEY)
    return ArchiveStatus() if value is None else _decoded(value, ArchiveStatus)


def status_changes(status: ArchiveStatus) -> dict[bytes, bytes]:
    """The state key that records this status, with its value."""
    return {ARCHIVE_KEY: msgspec.msgpack.encode(status)}


def segment_changes(segment: Segment) -> dict[bytes, bytes]:
    """The state key that records this segment, with its value."""
    return {_key(segment.start): msgspec.msgpack.encode(segment)}


def segment_removals(log: StateKeys) -> dict[bytes, None]:
    """The state changes that delete the log's record of its segments, before it archives to another store."""
    return {key: None for key, _ in log.scan(ARCHIVE_KEY, ARCHIVE_KEY)}


def segments_of(log: StateKeys, start: int = 0) -> Iterator[Segment]:
    """The recorded segments from an offset on, in order. Raises LogError."""
    for _, value in log.scan(ARCHIVE_KEY, _key(start - 1) if start else ARCHIVE_KEY):
        yield _decoded(value, Segment)


def history_of(log: EventLog) -> str:
    """The id of a log's history: a hash of its first event, which has unique ids; a recovered log has its own. "" for
    an empty log. Raises LogError."""
    own = archive_status(log).history
    if own or not log.next_offset:
        return own
    return sha256(read_one(log, 0)).hexdigest()[:16]


def _decoded(value: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except UNREADABLE as error:
        raise LogCorrupted(f"what the log keeps of its archive is damaged: {error}; restore it from a copy") from None


def _key(start: int) -> bytes:
    return ARCHIVE_KEY + start.to_bytes(8, "big")
