"""The LOG of a replay: a data directory, or the events topic of a distributed controller.

A log of another kind needs three things: `parse_ref` to know its name, `looked_at` to give something that reads like a
`Look`, and `source.read_events` to give the stored events of a range. One of several partitions is a LogRef for each;
the frames of all, put together, go to `rebuild.topics_in`, `redecide.decided_again_in` and `invariants.violations`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from events.log import LogError
from projections.moments import BadMoment, end_at, iso, parse_moment, time_at
from projections.replay.errors import ReplayError
from projections.replay.secondary import Look, look

KAFKA = "kafka://"


class LogRef(msgspec.Struct, frozen=True):
    """A log that can be read: `text` as it was given, `path` its folder.

    `partition` numbers the logs of a job that reads several, each with offsets of its own: its events carry it as
    `log_partition`, and folds and checks keep apart what differs in it. It is 0 for a data directory.
    """

    text: str
    path: Path
    partition: int = 0

    @property
    def location(self) -> str:
        """What `spark.read.format("topicwright").load(…)` takes; absolute, because workers have other folders."""
        return str(self.path)


class Span(msgspec.Struct, frozen=True):
    """Offsets from `start` up to but not including `end`."""

    start: int
    end: int


def open_ref(text: str) -> LogRef:
    """The log that a text names, looked at once. Raises ReplayError: missing, no log, empty, damaged, from a newer
    release. A log that a service writes to is fine."""
    ref = parse_ref(text)
    with looked_at(ref) as log:
        if log.durable_offset == 0:
            raise ReplayError(f"{text} holds no events yet: there is nothing to replay")
    return ref


def parse_ref(text: str, partition: int = 0) -> LogRef:
    """The log that a text names, without looking at it. Raises ReplayError for Kafka, and for no name at all."""
    if text.startswith(KAFKA):
        raise ReplayError(
            f"{text} cannot be replayed: logs in Kafka come with the distributed runtime, which this release does not "
            "have; name the data directory of a service"
        )
    if not text:
        raise ReplayError("LOG is empty: name the data directory of a service")
    return LogRef(text, Path(os.path.abspath(text.removeprefix("file://"))), partition)


@contextmanager
def looked_at(ref: LogRef) -> Iterator[Look]:
    """The log as it is now, for reading without Spark. Raises ReplayError."""
    try:
        with look(ref.path) as log:
            yield log
    except LogError as error:
        raise ReplayError(str(error)) from error


def end_of(log: Look, at: str | None) -> int:
    """The end of the state at a moment (see `projections.moments`); None is the newest event.

    Raises ReplayError for text that is no moment, an offset that the log has not reached, and a time before its first
    event.
    """
    if at is None:
        return log.durable_offset
    try:
        end = end_at(log, parse_moment(at))
    except BadMoment as error:
        raise ReplayError(str(error)) from None
    if end == 0:
        first = time_at(log, 1)
        raise ReplayError(f"{at} is before the log begins: its first event is of {iso(first or 0)}")
    return end


def span_of(ref: LogRef, at: str | None = None) -> Span:
    """The offsets of a log up to a moment. Raises ReplayError."""
    with looked_at(ref) as log:
        return Span(0, end_of(log, at))
