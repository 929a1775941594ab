"""The one rule by which everybody reads a partition of the events topic: workers, fronts and replay.

Several workers may write a partition for a while, each believing that it owns it, and a command may be decided twice.
What counts is settled by the order of the topic alone:

- a fence counts if its epoch is exactly one more than the last that counted; of two that claim the same epoch the first
  in the topic wins, and the writer of the other finds out by reading;
- a decision counts if it has the epoch of the last fence that counted, and its command is the next one. One of an
  earlier command was decided before and is ignored; one of a later command means that something is missing: stop.

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

    @property
    def position(self) -> Position:
        """Where the fold has come to."""
        return Position(self._kafka_offset, self._epoch, self._writer, self._next_source, self._next_event)

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
        if kafka_offset != self._kafka_offset:
            raise LogCorrupted(
                f"events partition {self.partition}: records {self._kafka_offset} to {kafka_offset - 1} are missing; "
                "the events topic must keep everything (cleanup.policy=delete, retention.ms=-1, retention.bytes=-1)"
                if kafka_offset > self._kafka_offset
                else f"events partition {self.partition}: record {kafka_offset} was taken before"
            )
        try:
            record = decode_record(value)
        except RecordError as error:
            raise type(error)(f"events partition {self.partition}, record {kafka_offset}: {error}") from None
        taken = self._fenced(record) if isinstance(record, Fence) else self._decided(kafka_offset, record)
        self._kafka_offset = kafka_offset + 1
        if taken is None:
            self.ignored += 1
        return taken

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
        self._epoch, self._writer = fence.epoch, fence.writer
        return self._counted(Taken(self._next_event, fence.events))

    def _decided(self, kafka_offset: int, record: Decided) -> Taken | None:
        if record.epoch != self._epoch or self._epoch == 0 or record.source_offset < self._next_source:
            return None
        if record.source_offset > self._next_source:
            raise LogCorrupted(
                f"events partition {self.partition}, record {kafka_offset}: it decides command {record.source_offset}, "
                f"and the next one is {self._next_source}: commands are missing"
            )
        self._next_source += 1
        return self._counted(Taken(self._next_event, record.events, record.source_offset, record.answers, record.fault))

    def _counted(self, taken: Taken) -> Taken:
        self._next_event += len(taken.events)
        return taken
