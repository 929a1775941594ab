"""One partition of the events topic, copied into a local RocksDB log by a worker or a gateway.

A partition is a whole log, so everything for the log of the embedded controller (the machine, its store, queries,
explanations) works on it. The log is a cache, and Kafka holds the truth. So it is never synced; after a crash it is
used as found, and the rest is read again. An unusable cache is replaced, and removed once its replacement is usable. A
cache is never replaced if it may have events that Kafka lacks, because it may be their last copy. Events, the resulting
state, and the position in the topic are committed in one atomic write.

A worker also writes to the topic: `record_decision` applies a decision before Kafka has it. If Kafka stores its record
at the expected offset, `commit` stores it in the log. If not, the partition is closed and reopened at the last commit.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Self

import msgspec
import structlog
from msgspec.structs import replace

from controller.machine.commands.access import ClusterCommand
from controller.machine.commands.commands import AnyCommand, TopicCommand
from controller.machine.decision import Answer
from controller.serving.process import PARTITION_BYTES
from controller.store.recorder import Recorder, cause_of
from controller.store.recovering import check_tree
from controller.store.snapshotting import Snapshotting
from controller.store.store import TopicStore
from controller.store.tree import LogTree
from controller.stream.log.codec import RECENT_EVENTS, RecentRequests, decode_answers, encode_answers, size_of_answers
from events.catalog import Event, Fact, Recorded
from events.codec import decode_event, encode_event
from events.logs.archive.manifest import Base, archive_status, status_changes
from events.logs.archive.store import ArchiveError, ArchiveStore
from events.logs.events_topic import START, Decided, PartitionReader, Position, encode_record
from events.logs.log import Commit, LogCorrupted, LogError, LogFromNewerVersion, LogOfAnotherCluster
from events.logs.rocksdb_log import RocksDbLog
from events.names import Offset
from projections.queries.query import Query
from projections.replay.log.secondary import FrozenLog

POSITION = b"k"
"""The state key of the position and its topic's id."""
RECORD_BYTES_MAX = 8 << 20
"""The maximum size of a record, enough for a topic of about 100,000 partitions."""
ROOM_BYTES = 1 << 16
"""Space in a record besides its events and answers."""
_encode = msgspec.msgpack.Encoder().encode


class RecordTooLarge(Exception):
    """A decision has more bytes than a record can hold (RECORD_BYTES_MAX)."""


class CacheAhead(LogError):
    """A folder may have events that Kafka lacks."""

    def __init__(self, folder: Path, why: str) -> None:
        super().__init__(
            f"{folder} {why}: it may be the last copy of its events, so it is not replaced. If Kafka lost them, stop "
            "all workers and gateways and write them back with `topicwright restore-topic`; otherwise choose another "
            "--data, or remove this folder"
        )


class FirstRecordsDeleted(LogCorrupted):
    """Kafka no longer has the first records of a partition, and there is no base."""

    def __init__(self, partition: int, first: int, why_no_base: str) -> None:
        super().__init__(
            f"events partition {partition} begins at record {first} in Kafka, and there is no base to start from: "
            f"{why_no_base}. Set log.archive.url to where workers archive, or restore the topic"
        )


class StoredPosition(Fact, frozen=True):
    """The position of a folder in its events topic."""

    topic_id: str
    position: Position


class PartitionState:
    """The log, state and position of one partition. One process writes its folder, one thread at a time.

    After an exception of `accept` only `close` may follow; after one of `record_decision` the state is unchanged.
    """

    def __init__(
        self, log: RocksDbLog, partition: int, topic_id: str, *, answers: bool, partitions_cached: int
    ) -> None:
        self.partition = partition
        self.log = log
        self.store = TopicStore(log, partitions_cached)
        self.reader = PartitionReader(partition, self.committed_position)
        self._recorder = Recorder(log, self.store)
        self.state = self._recorder.state
        self.topic_id = topic_id
        self._answers = answers
        self.on_records: Callable[[Sequence[Recorded]], None] = lambda records: None
        """Called with the events of each accepted record."""
        self._recent: RecentRequests | None = None
        self._values: list[bytes] = []
        """The events of the next record. `_record_bytes` is their size and that of their answers."""
        self._record_bytes = 0

    @property
    def last_ms(self) -> int:
        """The time of the newest event; the next event must not be earlier."""
        return self._recorder.last_ms

    @classmethod
    def open(
        cls,
        data: Path,
        partition: int,
        *,
        cluster_id: str,
        topic_id: str,
        answers: bool = False,
        memory_bytes: int = 32 << 20,
        archive: ArchiveStore | None = None,
        first_record: int = 0,
    ) -> Self:
        """Open the partition's folder in `data`. A missing one is created from the newest base in its archive, or
        empty.

        `cluster_id` is Kafka's, `topic_id` the events topic's, and `first_record` the first offset that the
        Kafka partition still has. A folder is replaced if it is damaged, of a newer release, or ends before
        `first_record`. With `answers`, `accept` returns the answers of a record. Half of `memory_bytes` is for
        RocksDB's block cache, half for decoded topics.

        Raises FirstRecordsDeleted if nothing can replace such a folder; CacheAhead if it has events of another cluster
        or events topic; LogLocked if another process has it open; LogError. In the first two cases the folder stays.
        """
        folder, cache_bytes = data / f"partition-{partition:05}", memory_bytes // 2
        check = partial(_check, folder, topic_id, first_record)
        log, why_not = None, NO_ARCHIVE
        if (folder / "CURRENT").exists():
            log = _opened(folder, cluster_id, cache_bytes, check)
        if log is None:
            why_not = _start_from_base(folder, archive, cluster_id, topic_id, first_record, check)
            if why_not and first_record:
                raise FirstRecordsDeleted(partition, first_record, why_not)
            if why_not and folder.exists():
                shutil.rmtree(folder)
            log = RocksDbLog(folder, cluster_id=cluster_id, cache_bytes=cache_bytes)
        if archive is not None and (answers or not why_not) and log.start_offset:  # older events are in the archive
            log.write(Commit(own=status_changes(replace(archive_status(log), url=archive.url))))
        partitions_cached = max(1, cache_bytes // PARTITION_BYTES)
        return cls(log, partition, topic_id, answers=answers, partitions_cached=partitions_cached)

    @property
    def committed_position(self) -> Position:
        """The committed position. Raises LogError."""
        stored = stored_position(self.log)
        return START if stored is None else stored.position

    # --- reading

    def check_end(self, end: int) -> None:
        """Raise CacheAhead if the folder is ahead of Kafka's partition, which ends at `end`."""
        if self.reader.kafka_offset > end:
            why = f"ends before record {self.reader.kafka_offset}, and Kafka has only records before {end}"
            raise CacheAhead(self.log.path, why)

    def accept(self, kafka_offset: int, value: bytes) -> tuple[Answer, ...] | None:
        """Process a record of the events topic. Returns its answers, none unless requested; None if it does not count.

        Its events are in `state` at once, and in `store`'s durable view after `commit`. Raises LogCorrupted,
        RecordError, EventDecodeError, and CannotApply for events that do not fit.
        """
        taken = self.reader.read(kafka_offset, value)
        if taken is None:
            return None
        first = self.reader.next_event - len(taken.events)
        records = tuple(decode_event(number, event) for number, event in enumerate(taken.events, first))
        self._record(records, taken.events)
        self.on_records(records)
        if not self._answers or not isinstance(taken, Decided):
            return ()
        return decode_answers(taken.answers, self.state.topics)

    # --- writing

    def detect_duplicates(self) -> None:
        """Detect duplicate commands from here on. Everything accepted must be committed before."""
        if self._recent is None:
            assert self.log.next_offset == self.reader.next_event, "the log has all events"
            self._recent = RecentRequests()
            start = max(0, self.log.next_offset - RECENT_EVENTS)
            for number, value in self.log.read(start):
                self._recent.add(decode_event(number, value))

    def is_duplicate(self, command: TopicCommand | ClusterCommand) -> bool:
        """True if a recent decision was on the same command. Call `detect_duplicates` before."""
        assert self._recent is not None, "detect_duplicates was called before"
        return self._recent.contains(command, self.reader.next_event)

    def record_decision(
        self, command: AnyCommand, events: Sequence[Event], answers: Sequence[Answer]
    ) -> list[Recorded]:
        """Apply a decision, as a part of the topic's next record. Raises RecordTooLarge; if it raises, nothing is
        changed."""
        cause = cause_of(command)
        values = [encode_event(command.at_ms, cause, event) for event in events]
        size = self._record_bytes + sum(map(len, values)) + size_of_answers(answers, has_events=bool(events))
        if size > RECORD_BYTES_MAX - ROOM_BYTES:
            raise RecordTooLarge(f"its events and answers take {size} bytes, more than a record may")
        first = self.reader.next_event
        records = [Recorded(Offset(number), command.at_ms, cause, event) for number, event in enumerate(events, first)]
        self._record(records, values)
        self.reader.count_own_events(len(events))
        self._values += values
        self._record_bytes = size
        return records

    def end_record(self, source_offset: int, answers: Sequence[Answer] = (), fault: str = "") -> bytes:
        """The topic's next record: the decisions on the command at `source_offset` with their answers, or the `fault`
        for which it is skipped."""
        values, self._values, self._record_bytes = tuple(self._values), [], 0
        encoded = encode_answers(answers, self.state.topics, has_events=bool(values))
        self.reader.skip_own(source_offset)
        return encode_record(Decided(self.reader.epoch, source_offset, values, encoded, fault))

    def commit(self) -> None:
        """Commit the records accepted or decided since the last commit. Raises LogError."""
        position = _encode(StoredPosition(self.topic_id, self.reader.position))
        self.log.write(replace(self._recorder.take_commit(), own={POSITION: position}))
        self.log.mark_durable()  # in Kafka
        self.store.became_durable(self.state)

    def query(self) -> Query:
        return Query(self.log, lambda: self.store, self.partition)

    def snapshots(self, interval_events: int, archive: ArchiveStore | None = None) -> Snapshotting:
        """The snapshots of the partition from now on; copies missing ones from an archive."""
        snapshots = Snapshotting(self.log, interval_events, self.query().snapshot_pairs)
        snapshots.begin(archive=archive)
        return snapshots

    def close(self) -> None:
        """Close the folder; uncommitted events are lost."""
        self.log.close()

    def _record(self, records: Sequence[Recorded], values: Sequence[bytes]) -> None:
        self._recorder.record_encoded(records, values)
        if self._recent is not None:
            for record in records:
                self._recent.add(record)


def events_in(data: Path) -> int:
    """The number of events in a folder's partitions. Raises LogError."""
    return sum(FrozenLog(folder.parent).next_offset for folder in data.glob("partition-*/CURRENT"))


def _opened(folder: Path, cluster_id: str, cache_bytes: int, check: Callable[[RocksDbLog], None]) -> RocksDbLog | None:
    """The log in a folder; None if it must be replaced. Raises LogError."""
    try:
        log = RocksDbLog(folder, cluster_id=cluster_id, cache_bytes=cache_bytes)
        with ExitStack() as unless_usable:
            unless_usable.callback(log.close)
            check(log)
            unless_usable.pop_all()
            return log
    except LogOfAnotherCluster as error:
        raise CacheAhead(folder, f"is of Kafka cluster {error.found}, and this one is {error.expected}") from error
    except (LogCorrupted, LogFromNewerVersion) as error:
        structlog.get_logger("topicwright").warning("cache replaced", folder=str(folder), why=str(error))
        return None


def stored_position(log: RocksDbLog) -> StoredPosition | None:
    """The position stored in a partition's folder; None in an empty one. Raises msgspec.DecodeError."""
    value = log.get(POSITION)
    return None if value is None else msgspec.msgpack.decode(value, type=StoredPosition)


def _check(folder: Path, topic_id: str, first_record: int, log: RocksDbLog) -> None:
    """Raise LogCorrupted for an unusable cache, and CacheAhead. `folder` is the place of the opened cache."""
    try:
        stored = stored_position(log)
    except msgspec.DecodeError as error:
        raise LogCorrupted(f"its position in the events topic cannot be read: {error}") from None
    if stored is None:
        if log.next_offset or first_record:
            raise LogCorrupted("it has no position in the events topic")
        return
    if stored.topic_id != topic_id:
        of = f"is of the events topic with id {stored.topic_id}, and the one in Kafka has {topic_id}"
        raise CacheAhead(folder, of) if log.next_offset else LogCorrupted(of)
    events, end = stored.position.next_event, stored.position.kafka_offset
    if events != log.next_offset:
        raise LogCorrupted(f"it has {log.next_offset} events, but its position is after {events} events")
    if end < first_record:
        raise LogCorrupted(f"it ends before record {end}, and Kafka has only records from {first_record} on")
    LogTree(log)


NO_ARCHIVE = "no log.archive.url is set"


def _start_from_base(
    folder: Path,
    place: ArchiveStore | None,
    cluster_id: str,
    topic_id: str,
    first_record: int,
    check: Callable[[RocksDbLog], None],
) -> str:
    """Replace a partition's folder by the newest usable base. Returns "", or the reason if no base is usable. A log
    line says why a base is skipped; this only costs time."""
    if place is None:
        return NO_ARCHIVE
    from events.logs.archive.base import bases, download_base  # imports pyarrow

    def check_base(base: Base, downloaded: Path) -> None:
        """Raise LogCorrupted unless the base can be used, and its tree matches its events and the archive."""
        with closing(RocksDbLog(downloaded, cluster_id=cluster_id)) as log:
            check_tree(log, base, place)
            check(log)

    lines = structlog.get_logger("topicwright")
    why = f"{place.url} has none"
    try:
        for base in bases(place, cluster_id, topic_id):
            if base.kafka_offset < first_record:
                why = "the newest is older"
                break
            try:
                download_base(place, base, folder, partial(check_base, base))
            except LogCorrupted as error:
                why = str(error)
                lines.warning("base skipped", why=why)
                continue
            lines.info("started from a base", folder=str(folder), events=base.offset, bytes=base.size)
            return ""
    except (ArchiveError, LogError, OSError) as error:
        why = str(error)
    lines.info("no base to start from", folder=str(folder), why=why)
    return why
