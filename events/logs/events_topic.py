"""The events topic of a distributed controller: its records, and the rule by which all readers read it.

Records. A worker writes one record a command, with all its events, and one when it takes over a partition. A record is
a MessagePack array that begins with its kind; it holds events as `events.codec` encodes them. An unknown kind or field
is an error: skipping it would give another history than the one that was written.

The rule. Several workers may write a partition for a while, before the old owner learns of the takeover, and a command
may be decided twice. The order of the records in the partition alone determines which records count:

- A fence counts if its epoch is exactly one more than the last that counted. If two workers write the same epoch, the
  first in the topic wins; the other worker finds out by reading.
- A decision counts if it has the epoch of the last fence that counted and its command is the next one. A decision of an
  earlier command is a duplicate and is ignored. After a decision of a later command the reader stops: records are
  missing.
- The first fence has the offset of the next command (`next_source`). If a later fence has a higher offset than the
  decisions lead to, the reader stops: records are missing.
- An offset without a record is no loss by itself: transaction markers take one, and so do the records of aborted
  transactions. Readers use `isolation.level=read_committed`. If records were compacted away, a later one skips a
  command or an epoch. Kafka itself refuses to read below the first record.

Events that count are numbered from 0 without gaps within the partition. So each partition is a complete log: its first
event is `SettingsChanged`, and its offsets are contiguous.

Pure: no clock, no I/O.
"""

import msgspec

from events.catalog import EVENT_VERSION, Fact
from events.codec import UNREADABLE
from events.logs.log import LogCorrupted


class RecordError(Exception):
    """Bytes in the events topic that this release cannot read. The message says why."""


class Fence(Fact, frozen=True, tag="fence"):
    """From here on only `writer` writes this partition, under `epoch`. The module docstring says when it counts."""

    epoch: int
    """One more than the previous fence's; 1 for the first."""
    writer: str
    """Identifies the worker: unique to one takeover of the partition by one process."""
    release: str
    """The writer's release of Topicwright."""
    event_version: int
    """The newest event version that the writer may write."""
    events: tuple[bytes, ...] = ()
    """`SettingsChanged`, if the writer's settings or release differ from the partition's."""
    next_source: int = 0
    """The offset of the next command to decide, as far as the writer knew."""


class Decided(Fact, frozen=True, tag="decided"):
    """A command was decided. Without events it changed nothing, and the record only marks it as decided."""

    epoch: int
    source_offset: int
    """The command's offset in the same partition of the commands topic."""
    events: tuple[bytes, ...]
    answers: bytes = b""
    """The answers of the decision, encoded by `controller.stream.log.codec`; empty for none."""
    fault: str = ""
    """Why the command could not be decided and was skipped."""


Record = Fence | Decided

encode_record = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def decode_record(value: bytes) -> Record:
    """The record in `value`. Raises RecordError, also for a fence of a newer event version."""
    try:
        record = _decoder.decode(value)
    except UNREADABLE as error:
        why = f"not a record of this release ({error}); a newer release may have written it"
        raise RecordError(why) from None
    if isinstance(record, Fence) and record.event_version > EVENT_VERSION:
        raise RecordError(
            f"written by release {record.release} in event version {record.event_version}; "
            f"this release reads up to {EVENT_VERSION}: run {record.release}, or a later one"
        )
    return record


class Position(Fact, frozen=True):
    """The position of a reader in a partition, with the input of the rule in the module docstring."""

    kafka_offset: int = 0
    """The next record of the events topic."""
    epoch: int = 0
    """The epoch of the last fence that counted; 0 before the first."""
    writer: str = ""
    """The worker that wrote that fence."""
    next_source: int = 0
    """The offset of the next command to decide."""
    next_event: int = 0
    """The number of the next event."""


START = Position()
KEEP_ALL = "the events topic must keep everything (cleanup.policy=delete, retention.ms=-1, retention.bytes=-1)"


class PartitionReader:
    """Reads the records of one partition in order and decides which count."""

    def __init__(self, partition: int, position: Position = START) -> None:
        self.partition = partition
        self.ignored = 0
        """Number of records that did not count."""
        self.kafka_offset = position.kafka_offset
        self.epoch = position.epoch
        self.writer = position.writer
        self.next_source = position.next_source
        self.next_event = position.next_event
        self._skipped: tuple[int, int] | None = None
        """The last gap without records: its first offset, and the next offset with a record."""
        self._is_after_skipped = False
        """True if no record has counted since."""

    @property
    def position(self) -> Position:
        """The position after the last record read. At a gap it stays before the gap until a later record counts."""
        offset = self._skipped[0] if self._skipped and self._is_after_skipped else self.kafka_offset
        return Position(offset, self.epoch, self.writer, self.next_source, self.next_event)

    def read(self, kafka_offset: int, value: bytes) -> Record | None:
        """Read the record at an offset; None if it does not count. Its events are the last ones before `next_event`.

        Raises LogCorrupted if a record or command is missing, RecordError for an unreadable record. Then the
        position does not change.
        """
        where = f"events partition {self.partition}, record {kafka_offset}"
        if kafka_offset < self.kafka_offset:
            raise LogCorrupted(f"{where}: it was read before")
        try:
            record = decode_record(value)
        except RecordError as error:
            raise RecordError(f"{where}: {error}") from None
        is_gap = kafka_offset > self.kafka_offset
        skipped = (self.kafka_offset, kafka_offset) if is_gap and not self._is_after_skipped else self._skipped
        why = self._why_incomplete(record, after_skipped=skipped is not None)
        if why is not None:
            missing = "" if skipped is None else f", perhaps from {skipped[0]} to {skipped[1] - 1}"
            raise LogCorrupted(f"{where}: {why}: records are missing{missing}; {KEEP_ALL}")
        counts = self._fenced(record) if isinstance(record, Fence) else self._decided(record)
        self._skipped, self._is_after_skipped = skipped, not counts and (is_gap or self._is_after_skipped)
        self.kafka_offset = kafka_offset + 1
        if not counts:
            self.ignored += 1
            return None
        self.next_event += len(record.events)
        return record

    def _why_incomplete(self, record: Fence | Decided, *, after_skipped: bool) -> str | None:
        """Why a record proves that earlier ones are missing; None if it does not."""
        is_fence = isinstance(record, Fence)
        expected = self.epoch + is_fence
        if after_skipped and record.epoch > expected:
            return f"it is of epoch {record.epoch}, and the last fence is of {self.epoch}"
        source = record.next_source if isinstance(record, Fence) else record.source_offset
        if record.epoch == expected and self.epoch and source > self.next_source:
            knows = f"it knows of {source} commands that were decided" if is_fence else f"it decides command {source}"
            return f"{knows}, and the next one is {self.next_source}"
        return None

    def skip_own(self, source_offset: int) -> None:
        """Skip the next record, a decision that this process wrote under the current epoch. `count_own_events` counts
        its events."""
        assert source_offset == self.next_source, "what was decided was the next command"
        self.kafka_offset += 1
        self.next_source += 1

    def count_own_events(self, events: int) -> None:
        self.next_event += events

    def skip(self, records: int) -> None:
        """Skip records that are known not to count."""
        self.kafka_offset += records
        self.ignored += records

    def _fenced(self, fence: Fence) -> bool:
        if fence.epoch != self.epoch + 1:
            return False
        if self.epoch == 0:
            self.next_source = fence.next_source
        self.epoch, self.writer = fence.epoch, fence.writer
        return True

    def _decided(self, record: Decided) -> bool:
        if record.epoch != self.epoch or self.epoch == 0 or record.source_offset < self.next_source:
            return False
        self.next_source += 1
        return True
