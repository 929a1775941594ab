"""Verifies what a new data folder begins with: the events of an archive, or a base. Nothing in an archive is trusted.

`recover` rebuilds a log from its archive, for `topicwright recover`: the events, and from these the state and indexes.
Each file must have the hash and each segment the tree root of its manifest, and the segments must follow each other
from the first event on. The log equals the original except for commit boundaries.

A base (`events.logs.archive.base`) is a copy of a log's database. Anyone who can write to the archive can change it. A
tree head stored elsewhere reveals changed events, but only if the base's Merkle tree is the tree of its events. So
`check_tree` compares this tree with the events and with the archive's manifest before a folder begins with the base.
That takes a second or two for ten million events. No tree head covers the state: `wrong_state` rebuilds it from all
events, for `topicwright verify`.

Non-goal: the metadata log of KRaft brokers, which is not in an archive.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from controller.store.recorder import Recorder
from controller.store.snapshotting import StateRebuild, state_keys
from controller.store.store import TopicStore
from controller.store.tree import BLOCK, HEAD, STORED_LEVEL, LogTree, range_root, root_over, stored_head
from events.catalog import Cause, Recorded
from events.logs.archive import manifest as manifests
from events.logs.archive.segment import SegmentFile
from events.logs.archive.store import ArchiveError, ArchiveStore
from events.logs.log import EventLog, LogCorrupted
from events.logs.merkle import node_hash

EVENTS_PER_COMMIT = 500
COMMITS_PER_FLUSH = 50

PointInTime = int | datetime
"""A point in time: the offset of an event, or a time with its zone."""


def recover(
    log: EventLog,
    place: ArchiveStore,
    segments: Sequence[manifests.Segment],
    at: PointInTime | None,
    history: str,
    progress: Callable[[int], object] = lambda _: None,
) -> Recorded:
    """Write the events of an archive to an empty log, up to the end of the last command at a point in time (None: all),
    and give the log a new history id. Returns the last event.

    Raises ArchiveError, LogError, CannotApply.
    """
    recorder, more = Recorder(log, TopicStore(log)), manifests.status_changes(manifests.ArchiveStatus(history=history))
    last: Recorded | None = None
    count = 0
    for record, value in _until(archived(place, segments), at):
        if count >= EVENTS_PER_COMMIT and (last is None or record.cause != last.cause):
            _commit(recorder, more)
            more, count = {}, 0
            if record.offset % (EVENTS_PER_COMMIT * COMMITS_PER_FLUSH) < EVENTS_PER_COMMIT:
                log.flush()
            progress(record.offset)
        recorder.record_encoded((record,), (value,))
        last, count = record, count + 1
    if last is None:
        raise ArchiveError(f"{place.url} has no event at this point in time: it begins later, or is empty")
    if isinstance(at, int) and at > last.offset:
        raise ArchiveError(f"offset {at} is not reached yet: the newest event in {place.url} is at {last.offset}")
    _commit(recorder, more)
    log.flush()
    return last


def segment_files(place: ArchiveStore, segments: Sequence[manifests.Segment]) -> Iterator[SegmentFile]:
    """The files of segments, verified by the manifest. Raises ArchiveError."""
    for segment in segments:
        file = SegmentFile(segment, manifests.read_stored(place, segment.name, segment.events))
        if root_over(file.each_value()).hex() != segment.tree:
            raise manifests.ArchiveDamaged(f"{place.url}: {segment.name} does not hold the events of its manifest")
        yield file


def archived(place: ArchiveStore, segments: Sequence[manifests.Segment]) -> Iterator[tuple[Recorded, bytes]]:
    """The events of segments, verified by the manifest. Raises ArchiveError."""
    return (record for file in segment_files(place, segments) for record in file.records())


def _until(events: Iterator[tuple[Recorded, bytes]], at: PointInTime | None) -> Iterator[tuple[Recorded, bytes]]:
    cause: Cause | None = None
    at_ms = round(at.timestamp() * 1000) if isinstance(at, datetime) else None
    for record, value in events:
        past = record.at_ms > at_ms if at_ms is not None else isinstance(at, int) and record.offset > at
        if past and record.cause != cause:
            return
        cause = record.cause
        yield record, value


def _commit(recorder: Recorder, more: dict[bytes, bytes]) -> None:
    recorder.commit(more)
    recorder.store.became_durable(recorder.state)


def check_tree(log: EventLog, base: manifests.Base, place: ArchiveStore) -> None:
    """Raise ArchiveDamaged unless the Merkle tree of a base's log matches its events and the archive's manifest.
    Raises ArchiveError."""
    segments = manifests.read_manifest(place).segments
    try:
        if log.next_offset != base.offset or log.start_offset != base.start:
            raise LogCorrupted(f"it holds the events from {log.start_offset} to {log.next_offset - 1}")
        _check_own(log)
        _check_segments(log, segments)
    except (LogCorrupted, msgspec.DecodeError) as error:
        raise manifests.ArchiveDamaged(
            f"{place.url}: {base} is damaged: {error}; restore it from a copy of the archive"
        ) from None


def _check_own(log: EventLog) -> None:
    """Check every subtree against the two below it or the local events, and the head against the highest."""
    size, _ = stored_head(log)
    below = _level(log, STORED_LEVEL, size)
    for index in range(-(-log.start_offset // BLOCK), size // BLOCK):
        events = log.read(index * BLOCK, (index + 1) * BLOCK)
        if root_over(value for _, value in events) != below[index]:
            raise LogCorrupted(f"events {index * BLOCK} to {(index + 1) * BLOCK - 1} are not those of its tree")
    for level in range(STORED_LEVEL + 1, size.bit_length()):
        here = _level(log, level, size)
        if here != [node_hash(*pair) for pair in zip(below[::2], below[1::2], strict=False)]:
            raise LogCorrupted(f"its tree is inconsistent at level {level}")
        below = here
    LogTree(log)


def _level(log: EventLog, level: int, size: int) -> list[bytes]:
    found = [value for _, value in log.scan(HEAD + bytes((level,)))]
    if len(found) != size >> level:
        raise LogCorrupted(f"its tree has {len(found)} hashes at level {level}, of {size} events")
    return found


def _check_segments(log: EventLog, archived: Iterable[manifests.Segment]) -> None:
    known = {one.start: one for one in manifests.segments_of(log)}
    for one in archived:
        if known.get(one.start, one) != one:
            raise LogCorrupted(f"its record of the segment at {one.start} differs from the archive's manifest")
        if one.end <= log.next_offset and range_root(log, one.start, one.end).hex() != one.tree:
            raise LogCorrupted(f"events {one.start} to {one.end - 1} differ from the archived ones")


def wrong_state(log: EventLog, refold: StateRebuild) -> Iterator[str]:
    """A finding for each state key that does not match the events. Moves `refold` to the log's end. Raises LogError."""
    refold.go_to(log.next_offset)
    expected, here = dict(refold.pairs()), dict(state_keys(log))
    for key in sorted(expected.keys() | here.keys()):
        if expected.get(key) != here.get(key):
            what = (
                "is missing" if key not in here else "is not expected" if key not in expected else "has another value"
            )
            yield f"its state does not match its events: {key!r} {what}"
