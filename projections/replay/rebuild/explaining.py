"""Runs `topicwright replay explain`: explains a topic or a request as of any point in time.

`projections.queries.explain` needs the index of a log. A data directory has one. For a log in Kafka, one pass over all
events collects those of the subject. A request needs two passes, because its topics are known only after the first.

Non-goal: bounded memory. All events of the subject are in memory at once. Spark is not needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, NoReturn

import msgspec

from events.logs.log import SHARD, EventLog
from events.logs.memory_log import InMemoryLog
from events.names import CLUSTER_SHARD, shard_key
from projections.queries.explain import explain
from projections.queries.query import NotFound, Queries, Query
from projections.replay.log.log_ref import Ends, LogRef, Ref, ends_of, has_partitions
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.runner import events_of
from projections.replay.shards import rows_of
from projections.views import lines
from projections.views.events import ExplanationView


class _Row(NamedTuple):
    """Some columns of an event."""

    log_partition: int
    offset: int
    shard: str
    topic: str | None
    request_id: str | None
    value: bytes


class Excerpt(InMemoryLog):
    """A log with only some events of another log, at their original offsets and with its end."""

    def __init__(self, end: int) -> None:
        super().__init__("")
        self.next_offset = self.durable_offset = end
        self._values: dict[int, bytes] = {}
        self._shards: dict[str, list[int]] = {}
        self._requests: dict[str, list[int]] = {}

    def add(self, offset: int, shard: str, request_id: str | None, value: bytes) -> None:
        """Add an event, at a higher offset than that of all earlier events."""
        self._values[offset] = value
        self._shards.setdefault(shard, []).append(offset)
        if request_id:
            self._requests.setdefault(request_id, []).append(offset)

    def read_many(self, offsets: Sequence[int]) -> list[bytes]:
        return [self._values[offset] for offset in offsets]

    def runs(self, index: bytes, name: str, start: int = 0, end: int | None = None) -> Iterator[range]:
        offsets = (self._shards if index == SHARD else self._requests).get(name, [])
        stop = len(offsets) if end is None else bisect_left(offsets, end)
        return (range(offset, offset + 1) for offset in offsets[bisect_left(offsets, start) : stop])


def run_explain(_: object, ref: Ref, options: Options) -> Outcome:
    """Explain the topic named `options.subject` or, if no event concerns such a topic, the request with that id.

    Raises ReplayError if there is neither, or the log cannot be read.
    """
    assert options.subject is not None, "the command line requires it"
    explanations = explained(ref, options.subject, options.at)
    rows = [{"log_partition": number, **msgspec.to_builtins(one)} for number, one in explanations.items()]
    return Outcome(rows=rows, found=False, lines=list(_all_lines(explanations, has_partitions(ref))))


def explained(ref: Ref, subject: str, at: str | None = None) -> dict[int, ExplanationView]:
    """The explanation of a topic or a request as of a point in time, by log partition. A request may have topics in
    several partitions. Raises ReplayError.
    """
    ends = ends_of(ref, at)
    if isinstance(ref, LogRef):
        with frozen_log(ref.path) as log:
            return _found({ref.partition: log}, subject, at, at)
    return _found(_excerpts(ref, ends, subject), subject, None, at)


def _found(logs: Mapping[int, EventLog], subject: str, until: str | None, at: str | None) -> dict[int, ExplanationView]:
    """The explanation from each log that has events of the subject. Raises ReplayError if none has."""
    found, missing = {}, NotFound(f"no topic and no request {subject!r} is in the log")
    for partition, log in logs.items():
        try:
            found[partition] = explain(Queries([Query(log, _no_store)]), subject, until)
        except NotFound as error:
            missing = error
    if not found:
        raise ReplayError(str(missing) if at is None else f"{missing} up to {at}")
    return found


def _excerpts(ref: Ref, ends: Ends, subject: str) -> dict[int, Excerpt]:
    """The events of the subject, by log partition: those of a topic's shard, or of the shards of a request's topics."""
    own = {shard_key(subject), CLUSTER_SHARD}
    rows = list(_rows(ref, ends, lambda row: row.shard in own or row.request_id == subject))
    others = {row.shard for row in rows} - own
    if others and not any(row.topic == subject for row in rows):
        of_topics = {*others, CLUSTER_SHARD}
        rows = list(_rows(ref, ends, lambda row: row.shard in of_topics))
    logs: dict[int, Excerpt] = {}
    for row in sorted(rows, key=itemgetter(0, 1)):
        log = logs.setdefault(row.log_partition, Excerpt(ends[row.log_partition]))
        log.add(row.offset, row.shard, row.request_id, row.value)
    return logs


def _rows(ref: Ref, ends: Ends, is_wanted: Callable[[_Row], bool]) -> Iterator[_Row]:
    for batch in events_of(ref, ends, _Row._fields).batches():
        yield from filter(is_wanted, map(_Row._make, rows_of(batch)))


def _all_lines(explanations: dict[int, ExplanationView], several: bool) -> Iterator[str]:
    for partition, one in explanations.items():
        if several:
            yield f"In partition {partition}:"
        yield from lines.explanation(one)


def _no_store() -> NoReturn:
    raise AssertionError("explanations read events only, never the store")
