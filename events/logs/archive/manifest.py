"""The description of an archive, and the log's record of its archive.

    archive.json                 the log that it belongs to (`ArchiveInfo`)
    writer.json                  the process that writes it (`Writer`)
    manifests/START.json         one a segment (`Manifest`); a segment without one does not exist
    events/START-HASH.parquet    its events (`segment`)
    index/START-HASH.index       the index of its topics and requests (`segment`)
    requests/START-HASH.index    written when the segment is dropped: its requests, as the log's state had them

A manifest is written last, after all that it names. Names contain a hash of the content, so an object is only ever
overwritten by the same one. So each segment exists once, whenever the archiving process dies.

The log records the archive in state keys:
    p                            the archive's URL and what was dropped (`ArchiveStatus`)
    p START                      the manifest of a segment (START: eight bytes)
    p START r                    the object with the requests of a dropped segment (`Stored`)
Objects that are read must have the recorded hashes: the archive is trusted no more than the disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from events.codec import UNREADABLE
from events.logs.archive.store import ArchiveError, ArchiveStore
from events.logs.log import EventLog, LogCorrupted, StateKeys

FORMAT: Final = 1
SEGMENT: Final = 1 << 16
"""The default number of events in a segment, which is one subtree of the log's Merkle tree."""
ARCHIVE_KEY: Final = b"p"
_REQUESTS: Final = b"r"
_KEY_BYTES: Final = 9
JSON_BYTES_MAX: Final = 2 << 20
"""The limit of a JSON object; the largest is a base with its 10,000 parts."""
_MANIFESTS: Final = "manifests"
_REQUESTS_FOLDER: Final = "requests"
ABOUT: Final = "archive.json"
WRITER: Final = "writer.json"


class ArchiveForeign(ArchiveError):
    """The archive belongs to another cluster, history or service."""


class ArchiveDamaged(ArchiveError, LogCorrupted):
    """The archive does not hold what was archived."""


OffsetInLog = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Hash = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Name = Annotated[str, Meta(pattern=r"\A[!-~]{1,300}\Z")]
_Size = Annotated[int, Meta(ge=0, le=1 << 30)]


class Stored(msgspec.Struct, frozen=True):
    """The SHA-256 and the size of an object."""

    sha256: _Hash
    size: _Size

    @classmethod
    def of(cls, content: bytes) -> Stored:
        return cls(sha256(content).hexdigest(), len(content))


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A segment: the events in [start, end). `tree` is the root of the Merkle tree over them alone, `event_bytes` their
    size in the log."""

    cluster_id: Name
    history: Name
    start: OffsetInLog
    end: OffsetInLog
    first_ms: int
    last_ms: int
    event_version: int
    event_bytes: OffsetInLog
    tree: _Hash
    events: Stored
    index: Stored
    format: int = FORMAT

    @property
    def name(self) -> str:
        return f"{_MANIFESTS}/{self.start:020}.json"

    @property
    def events_name(self) -> str:
        return f"events/{self.start:020}-{self.events.sha256[:16]}.parquet"

    @property
    def index_name(self) -> str:
        return f"index/{self.start:020}-{self.index.sha256[:16]}.index"

    def requests_name(self, requests: Stored) -> str:
        return f"{_REQUESTS_FOLDER}/{self.start:020}-{requests.sha256[:16]}.index"

    def find_requests(self, store: ArchiveStore) -> str | None:
        """The name of an object with its requests, None if there is none yet. Raises ArchiveAway."""
        own = re.compile(rf"{self.start:020}-[0-9a-f]{{16}}\.index")  # there may be copies under other names
        there = filter(own.fullmatch, store.names(_REQUESTS_FOLDER))
        return next((f"{_REQUESTS_FOLDER}/{name}" for name in there), None)


class ArchiveInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The log that an archive belongs to; `history` tells logs of one cluster apart (see `history_of`)."""

    cluster_id: Name
    history: Name
    format: int = FORMAT


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """The process that archives. `boot` is random at each start, `where` is for display."""

    boot: Name
    where: str
    since_ms: int


class ArchiveStatus(msgspec.Struct, frozen=True):
    """The log's own record of its archive."""

    url: str = ""
    """The archive's URL; "" without an archive."""
    history: str = ""
    """The history id of a recovered log."""
    forgotten: int = 0
    """Requests below this offset are read from the archive."""
    cleaned: int = 0
    """The log's indexes have no entries below this offset."""


_T = TypeVar("_T")


def read_archive_info(store: ArchiveStore) -> ArchiveInfo | None:
    """The log that an archive belongs to, None if there is no archive. Raises ArchiveError."""
    return read_object(store, ABOUT, ArchiveInfo)


def starts_in(store: ArchiveStore) -> list[int]:
    """The first offsets of all segments, in order. Raises ArchiveError."""
    names = (name.removesuffix(".json") for name in store.names(_MANIFESTS))
    return [int(name) for name in names if len(name) == 20 and name.isascii() and name.isdigit()]


def read_manifest(store: ArchiveStore, start: int) -> Manifest:
    """The manifest of the segment that begins at an offset. Raises ArchiveError."""
    found = find_manifest(store, start)
    if found is None:
        name = f"{_MANIFESTS}/{start:020}.json"
        raise ArchiveDamaged(f"{store.url}: {name} is missing: restore it from a copy of the archive")
    return found


def find_manifest(store: ArchiveStore, start: int) -> Manifest | None:
    """As `read_manifest`, None if there is none. Raises ArchiveError."""
    name = f"{_MANIFESTS}/{start:020}.json"
    found = read_object(store, name, Manifest)
    if found is not None and (found.start != start or found.end <= start):
        raise ArchiveDamaged(f"{store.url}: {name} is of events {found.start} to {found.end - 1}: it was changed")
    return found


def read_chain(store: ArchiveStore) -> tuple[ArchiveInfo, list[Manifest]]:
    """The log that an archive belongs to, and its segments from the first event on without a gap.

    Raises ArchiveError; ArchiveForeign if there is no archive.
    """
    about = read_archive_info(store)
    if about is None:
        raise ArchiveForeign(f"{store.url} holds no archive: name what `log.archive.url` or `backup` named")
    manifests: list[Manifest] = []
    for start in starts_in(store):
        one, end = read_manifest(store, start), manifests[-1].end if manifests else 0
        if one.start != end:
            raise ArchiveDamaged(f"{store.url} lacks the segment from offset {end} on: restore it from a copy")
        if (one.cluster_id, one.history) != (about.cluster_id, about.history):
            raise ArchiveDamaged(f"{store.url}: {one.name} is of another log: it was changed")
        manifests.append(one)
    return about, manifests


def read_stored(store: ArchiveStore, name: str, stored: Stored) -> bytes:
    """An object as archived. Raises ArchiveError; ArchiveDamaged if it is missing or changed."""
    content = store.read(name)
    if content is None:
        raise ArchiveDamaged(f"{store.url}: {name} is missing: restore it from a copy of the archive")
    if len(content) != stored.size or sha256(content).hexdigest() != stored.sha256:
        raise ArchiveDamaged(f"{store.url}: {name} is not as it was archived: restore it from a copy of the archive")
    return content


def read_object(store: ArchiveStore, name: str, kind: type[_T]) -> _T | None:
    """A JSON object, None if there is none. Raises ArchiveError."""
    content = store.read(name, JSON_BYTES_MAX)
    if content is None:
        return None
    try:
        found = msgspec.json.decode(content, type=kind)
    except UNREADABLE as error:
        raise ArchiveDamaged(f"{store.url}: {name} cannot be read: {error}") from None
    written = getattr(found, "format", FORMAT)
    if written > FORMAT:
        raise ArchiveForeign(f"{store.url} was written by a newer release (format {written}, this one has {FORMAT})")
    return found


def write_object(store: ArchiveStore, name: str, what: msgspec.Struct) -> None:
    """Write a JSON object. Raises ArchiveError."""
    store.write(name, msgspec.json.format(msgspec.json.encode(what)) + b"\n")


# --- what a log keeps


def archive_status(log: StateKeys) -> ArchiveStatus:
    """The log's own record of its archive. Raises LogError."""
    value = log.get(ARCHIVE_KEY)
    return ArchiveStatus() if value is None else _decoded(value, ArchiveStatus)


def status_changes(status: ArchiveStatus) -> dict[bytes, bytes]:
    """The state key that records it."""
    return {ARCHIVE_KEY: msgspec.msgpack.encode(status)}


def manifest_changes(manifest: Manifest) -> dict[bytes, bytes]:
    """The state key that records it."""
    return {_key(manifest.start): msgspec.msgpack.encode(manifest)}


def manifest_removals(log: StateKeys) -> dict[bytes, bytes]:
    """The state changes by which a log forgets its segments, before it archives to another place."""
    return {key: b"" for key, _ in log.scan(ARCHIVE_KEY, ARCHIVE_KEY)}


def manifests_of(log: StateKeys, start: int = 0) -> Iterator[Manifest]:
    """The recorded manifests of segments from an offset on, in order. Raises LogError."""
    for key, value in log.scan(ARCHIVE_KEY, _key(start - 1) if start else ARCHIVE_KEY):
        if value and len(key) == _KEY_BYTES:
            yield _decoded(value, Manifest)


def requests_changes(manifest: Manifest, requests: Stored) -> dict[bytes, bytes]:
    """The state key that records it."""
    return {_key(manifest.start) + _REQUESTS: msgspec.msgpack.encode(requests)}


def requests_of(log: StateKeys, manifest: Manifest) -> Stored | None:
    """The object with the requests of a segment; None while the log's state has them. Raises LogError."""
    value = log.get(_key(manifest.start) + _REQUESTS)
    return _decoded(value, Stored) if value else None


def history_of(log: EventLog) -> str:
    """The id of a log's history: a hash of its first event, which has unique ids; a recovered log has its own. "" for
    an empty log. Raises LogError."""
    own = archive_status(log).history
    if own or not log.next_offset:
        return own
    return sha256(log.read_one(0)).hexdigest()[:16]


def _decoded(value: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except UNREADABLE as error:
        raise LogCorrupted(f"what the log keeps of its archive is damaged: {error}; restore it from a copy") from None


def _key(start: int) -> bytes:
    return ARCHIVE_KEY + start.to_bytes(8, "big")
