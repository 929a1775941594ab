"""The one rule by which everybody reads a partition of the events topic: workers, gateways and replay.

Several workers may write a partition for a while, each believing that it owns it, and a command may be decided twice.
What counts is settled by the order of the topic alone:

- a fence counts if its epoch is exactly one more than the last that counted; of two that claim the same epoch the first
  in the topic wins, and the writer of the other finds out by reading;
- a decision counts if it has the epoch of the last fence that counted, and its command is the next one. One of an
  earlier command was decided before and is ignored; one of a later command means that something is missing: stop;
- the first fence says which command is the next one. A later fence that knows of more commands than were decided means
  that something is missing: stop;
- an offset without a record is no loss by itself: the marker that ends a transaction takes one, and so do the records
  of a transaction that was aborted. Readers read what is committed (`isolation.level=read_committed`). Where records
  were compacted away, later ones show it: one is of a later command, or of a later epoch than the next. Kafka itself
  refuses to read below the first record of a partition.

Events of what counts are numbered from 0 without gaps within the partition. A partition is therefore a whole log, and
all that holds for a log (its first event is `SettingsChanged`, offsets are contiguous) holds for each.

Pure: no clock, no I/O.
"""

from __future__ import annotations

import msgspec

from events.catalog import Fact
from events.logs.kafka_record import Decided, Fence, RecordError, decode_record
from events.logs.log import LogCorrupted


class Position(Fact, frozen=True):
    """How far a partition is folded."""

    kafka_offset: int = 0
    """The next record of the events topic to take."""
    epoch: int = 0
    """That of the last fence that counted; 0 before the first."""
    writer: str = ""
    """The worker that wrote that fence."""
    next_source: int = 0
    """The offset of the next command to be decided."""
    next_event: int = 0
    """The number of the next event."""


START = Position()
KEEP_ALL = "the events topic must keep everything (cleanup.policy=delete, retention.ms=-1, retention.bytes=-1)"


class Taken(msgspec.Struct, frozen=True, gc=False):
    """A record that counts. `first_event` is the number of its first event; `source_offset` is None for a fence."""

    first_event: int
    events: tuple[bytes, ...]
    source_offset: int | None = None
    answers: bytes = b""
    fault: str = ""


class PartitionFold:
    """Takes the records of one partition in their order and says which count."""

    def __init__(self, partition: int, position: Position = START) -> None:
        self.partition = partition
        self.ignored = 0
        """Records that did not count, since this fold was made."""
        self._kafka_offset = position.kafka_offset
        self._epoch = position.epoch
        self._writer = position.writer
        self._next_source = position.next_source
        self._next_event = position.next_event
        self._skipped: tuple[int, int] | None = None
        """The last offsets without a record: the first of them, and the next one with a record."""
        self._is_after_skipped = False
        """True if no record has counted since."""

    @property
    def position(self) -> Position:
        """Where the fold has come to, but not past offsets without a record before the next record that counts."""
        offset = self._skipped[0] if self._skipped and self._is_after_skipped else self._kafka_offset
        return Position(offset, self._epoch, self._writer, self._next_source, self._next_event)

    @property
    def kafka_offset(self) -> int:
        """The next record of the events topic to take."""
        return self._kafka_offset

    @property
    def epoch(self) -> int:
        """The epoch of the last fence that counted."""
        return self._epoch

    @property
    def writer(self) -> str:
        """The writer of the last fence that counted."""
        return self._writer

    @property
    def next_source(self) -> int:
        """The offset of the next command to be decided."""
        return self._next_source

    @property
    def next_event(self) -> int:
        """The number of the next event."""
        return self._next_event

    def take(self, kafka_offset: int, value: bytes) -> Taken | None:
        """Take the record at an offset; None if it does not count.

        Raises LogCorrupted when a record or a command is missing, RecordError for a record that cannot be read. The
        fold stays where it was then.
        """
        where = f"events partition {self.partition}, record {kafka_offset}"
        if kafka_offset < self._kafka_offset:
            raise LogCorrupted(f"{where}: it was taken before")
        try:
            record = decode_record(value)
        except RecordError as error:
            raise type(error)(f"{where}: {error}") from None
        is_gap = kafka_offset > self._kafka_offset
        skipped = (self._kafka_offset, kafka_offset) if is_gap and not self._is_after_skipped else self._skipped
        why = self._why_incomplete(record, after_skipped=skipped is not None)
        if why is not None:
            missing = "" if skipped is None else f", perhaps from {skipped[0]} to {skipped[1] - 1}"
            raise LogCorrupted(f"{where}: {why}: records are missing{missing}; {KEEP_ALL}")
        taken = self._fenced(record) if isinstance(record, Fence) else self._decided(record)
        self._skipped, self._is_after_skipped = skipped, taken is None and (is_gap or self._is_after_skipped)
        self._kafka_offset = kafka_offset + 1
        if taken is None:
            self.ignored += 1
        return taken

    def _why_incomplete(self, record: Fence | Decided, *, after_skipped: bool) -> str | None:
        """How a record shows that others before it are missing; None if it does not."""
        is_fence = isinstance(record, Fence)
        expected = self._epoch + is_fence
        if after_skipped and record.epoch > expected:
            return f"it is of epoch {record.epoch}, and the last fence is of {self._epoch}"
        source = record.next_source if isinstance(record, Fence) else record.source_offset
        if record.epoch == expected and self._epoch and source > self._next_source:
            knows = f"it knows of {source} commands that were decided" if is_fence else f"it decides command {source}"
            return f"{knows}, and the next one is {self._next_source}"
        return None

    def take_own(self, source_offset: int) -> None:
        """Pass over a decision that this process wrote itself under the epoch that counts, as the next record; of its
        events `take_own_events` tells."""
        assert source_offset == self._next_source, "what was decided was the next command"
        self._kafka_offset += 1
        self._next_source += 1

    def take_own_events(self, events: int) -> None:
        """Pass over so many events of its own decision."""
        self._next_event += events

    def pass_over(self, records: int) -> None:
        """Pass over so many further records, which are known not to count."""
        self._kafka_offset += records
        self.ignored += records

    def _fenced(self, fence: Fence) -> Taken | None:
        if fence.epoch != self._epoch + 1:
            return None
        if self._epoch == 0:
            self._next_source = fence.next_source
        self._epoch, self._writer = fence.epoch, fence.writer
        return self._counted(Taken(self._next_event, fence.events))

    def _decided(self, record: Decided) -> Taken | None:
        if record.epoch != self._epoch or self._epoch == 0 or record.source_offset < self._next_source:
            return None
        self._next_source += 1
        return self._counted(Taken(self._next_event, record.events, record.source_offset, record.answers, record.fault))

    def _counted(self, taken: Taken) -> Taken:
        self._next_event += len(taken.events)
        return taken
