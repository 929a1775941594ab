"""Rebuilds a log from its archive, for `topicwright recover`: the events, and from these the state and indexes.

Nothing in the archive is trusted: each file must have the hash and each segment the tree root of its manifest, and the
segments must follow each other from the first event on. The log equals the original except for commit boundaries.

Non-goal: the metadata log of KRaft brokers, which is not in an archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from controller.store.recorder import Recorder
from controller.store.store import TopicStore
from controller.store.tree import root_over
from events.catalog import Cause, Recorded
from events.logs.archive.manifest import ArchiveDamaged, ArchiveStatus, Segment, read_stored, status_changes
from events.logs.archive.segment import SegmentFile
from events.logs.archive.store import ArchiveError, ArchiveStore
from events.logs.log import EventLog

EVENTS_PER_COMMIT = 500
COMMITS_PER_FLUSH = 50

PointInTime = int | datetime
"""A point in time: the offset of an event, or a time with its zone."""


class NotReached(ArchiveError):
    """The archive has no event at the requested point in time."""


def recover(
    log: EventLog,
    place: ArchiveStore,
    segments: Sequence[Segment],
    at: PointInTime | None,
    history: str,
    progress: Callable[[int], object] = lambda _: None,
) -> Recorded:
    """Write the events of an archive to an empty log, up to the end of the last command at a point in time (None: all),
    and give the log a new history id. Returns the last event.

    Raises ArchiveError, LogError, CannotApply.
    """
    recorder, more = Recorder(log, TopicStore(log)), status_changes(ArchiveStatus(history=history))
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
        raise NotReached(f"{place.url} has no event at this point in time: it begins later, or is empty")
    if isinstance(at, int) and at > last.offset:
        raise NotReached(f"offset {at} is not reached yet: the newest event in {place.url} is at {last.offset}")
    _commit(recorder, more)
    log.flush()
    return last


def segment_files(place: ArchiveStore, segments: Sequence[Segment]) -> Iterator[SegmentFile]:
    """The files of segments, verified by the manifest. Raises ArchiveError."""
    for segment in segments:
        file = SegmentFile(segment, read_stored(place, segment.name, segment.events))
        if root_over(file.each_value()).hex() != segment.tree:
            raise ArchiveDamaged(f"{place.url}: {segment.name} does not hold the events of its manifest")
        yield file


def archived(place: ArchiveStore, segments: Sequence[Segment]) -> Iterator[tuple[Recorded, bytes]]:
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
