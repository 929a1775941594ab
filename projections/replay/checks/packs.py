"""Bringing events together by shard for the checks, in packs of columns.

What it is for: as rows, events cost more on their way through Java (to rows, shuffled, sorted, back) than in the checks
themselves. So the task that reads events keeps what checks need of them as columns, cuts those by share of the
shards, and hands on one row a share: a pack, which Java moves without looking into it. The task that gets all packs
of a share has all events of its shards. A log and an export's files are read by these tasks themselves, as columns,
which saves them a way through Java's rows too.

What needs one event alone is checked while packing, and does not travel. Partitions that events create travel beside
the events, one row each.

Memory: the columns of one share, about 500 bytes an event. A shard is never divided, so the shard with the most events
sets what a task needs.

What it does not do: it knows no check but those of single events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from events.external_decision import FOLLOW
from projections.replay.checks.arrays import NONE, Bools, Ints, coded, hashes, numbers, with_lists_coded
from projections.replay.checks.check import Violation, found
from projections.replay.checks.offsets import Run, runs
from projections.replay.checks.rows import ADOPTED, ROW_CHECKS, ROW_COLUMNS, TYPES, Rows, is_one_of, places_in
from projections.replay.checks.timeline import CLUSTER_TYPES, MIN_ISR, ClusterEvent, count_of
from projections.replay.log.log_ref import Ref, ends_of, log_of
from projections.replay.log.ranges import ranges_of
from projections.replay.spark.column_batches import gathered
from projections.replay.spark.columns import ddl
from projections.replay.spark.folding import SHARE_EVENTS
from projections.replay.spark.mapping import map_in_arrow, map_numbers
from projections.replay.spark.options import collector_off, read_range

_FEW_VALUES = ("type", "cause_command", "topic")
"""Columns that are read as dictionaries: a text once, however often it is there."""
PACK_EVENTS = 65_536
"""How many events one pack is cut of, at most; a batch more where batches are smaller."""

Batches = Iterator[pa.RecordBatch]


# --- where events come from


class FrameEvents:
    """The events in a frame."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def mapped(self, function: Callable[[Batches], Batches], columns: Sequence[str], schema: pa.Schema) -> DataFrame:
        """What `function` makes of the events, with these columns, in each task."""

        def mapped(batches: Batches) -> Batches:
            return function(_large(batches))

        return map_in_arrow(self._frame.select(*columns), mapped, ddl(schema))


class LogEvents:
    """The events of a log up to a moment, which is settled at once; they are read anew each time."""

    def __init__(self, session: SparkSession, ref: Ref, at: str | None = None) -> None:
        self._session = session
        self._log, self._ranges = log_of(ref), ranges_of(ref, 0, ends_of(ref, at), SHARE_EVENTS)

    def mapped(self, function: Callable[[Batches], Batches], columns: Sequence[str], schema: pa.Schema) -> DataFrame:
        """What `function` makes of the events, with these columns, in each task."""
        log, wanted = self._log, self._ranges

        def mapped(number: int) -> Batches:
            with collector_off():
                yield from function(_large(read_range(log, wanted[number], columns, None)))

        return map_numbers(self._session, len(wanted), mapped, schema)


class ExportEvents:
    """The events in the Parquet files of an export, below some offsets by log partition."""

    def __init__(self, session: SparkSession, files: Sequence[str], ends: Mapping[int, int] | None = None) -> None:
        self._session = session
        self._files = tuple(files)
        self._ends = ends

    def mapped(self, function: Callable[[Batches], Batches], columns: Sequence[str], schema: pa.Schema) -> DataFrame:
        """What `function` makes of the events, with these columns, in each task."""
        files, ends = self._files, self._ends

        def mapped(number: int) -> Batches:
            with collector_off():
                yield from function(_before(ends, _read(files[number], columns)))

        return map_numbers(self._session, len(files), mapped, schema)


Events = FrameEvents | LogEvents | ExportEvents


def _large(batches: Batches) -> Batches:
    return map(pa.concat_batches, gathered(batches, PACK_EVENTS))


def _read(file: str, columns: Sequence[str]) -> Batches:
    with pq.ParquetFile(file, read_dictionary=list(_FEW_VALUES)) as parquet:
        for group in range(parquet.num_row_groups):  # a batch of two would have two dictionaries
            yield from parquet.iter_batches(PACK_EVENTS, row_groups=[group], columns=list(columns), use_threads=False)


def _before(ends: Mapping[int, int] | None, batches: Batches) -> Batches:
    for batch in batches:
        if ends is None:
            yield batch
            continue
        partitions, offsets = numbers(batch["log_partition"]), numbers(batch["offset"])
        wanted = np.zeros(len(batch), bool)
        for partition, end in ends.items():
            wanted |= (partitions == partition) & (offsets < end)
        yield batch if wanted.all() else batch.filter(pa.array(wanted))


# --- what every check has to know of the whole log


LOOK_COLUMNS = ("log_partition", "offset", "at_ms", "type", "cause_command", "broker_id", "settings", "cordoned")


class Stretch(msgspec.Struct, frozen=True, array_like=True):
    """What some events of one log partition say about all of it. `reviewed_ms` is None where none is of a review."""

    log_partition: int
    events: int
    runs: list[Run]
    end_ms: int
    reviewed_ms: int | None
    cluster: list[ClusterEvent]


_STRETCHES = pa.schema([("stretch", pa.binary())])
REVIEW = "ReconcileTopics"
CAUSES_KEPT = (ADOPTED, FOLLOW, REVIEW)
"""The causes that checks look for; packs have the place in this."""


def stretches(events: Events) -> list[Stretch]:
    """What there is in the log, in no order; reads the events once, but few of their columns."""
    decode = msgspec.msgpack.Decoder(Stretch).decode
    return [decode(bytes(row.stretch)) for row in events.mapped(_looked, LOOK_COLUMNS, _STRETCHES).collect()]


def _looked(batches: Batches) -> Batches:
    for batch in batches:
        encoded = [msgspec.msgpack.encode(one) for one in _stretches_of(batch)]
        yield pa.RecordBatch.from_arrays([pa.array(encoded, pa.binary())], schema=_STRETCHES)


def _stretches_of(batch: pa.RecordBatch) -> Iterator[Stretch]:
    partitions, offsets, at_ms = (numbers(batch[name]) for name in ("log_partition", "offset", "at_ms"))
    reviewed = places_in(batch["cause_command"], (REVIEW,)) >= 0
    of_cluster = places_in(batch["type"], CLUSTER_TYPES) >= 0
    for partition in np.unique(partitions).tolist():
        here = partitions == partition
        yield Stretch(
            partition,
            int(here.sum()),
            runs(offsets[here]),
            int(at_ms[here].max()),
            int(at_ms[here & reviewed].max()) if (here & reviewed).any() else None,
            list(_cluster_events(batch, here & of_cluster)),
        )


def _cluster_events(batch: pa.RecordBatch, wanted: Bools) -> Iterator[ClusterEvent]:
    names = [name for name in LOOK_COLUMNS if name != "cause_command"]
    for row in batch.select(names).filter(pa.array(wanted)).to_pylist():
        settings = row.pop("settings")
        yield ClusterEvent(**row, settings=None if settings is None else tuple(settings))


# --- packing


_NARROW = (
    "at_ms", "deadline_ms", "timeout_ms", "partition", "first", "leader", "leader_epoch", "partition_epoch",
    "num_partitions", "replication_factor",
)  # fmt: skip
_LISTS = ("isr", "brokers", "replicas")
PACK_COLUMNS = tuple(
    dict.fromkeys((*ROW_COLUMNS, *_NARROW, *_LISTS, "partitions", "configs", "assignments", "elr", "before"))
)
"""What is read of every event."""
_PACKS = pa.schema(
    [("share", pa.int32()), *((name, pa.binary()) for name in ("events", "created", "assigned", "broken"))]
)
_NAMES_ITS_REQUEST = (
    "CreateRequested", "CreateRejected", "TopicCreated", "CreateAnswered", "PartitionsAdded", "TopicDeleted"
)  # fmt: skip


class Pack(msgspec.Struct, frozen=True):
    """Events of a share, the partitions that they create, those whose replicas they assign by hand, and what is wrong
    with single events."""

    events: pa.RecordBatch
    created: pa.RecordBatch
    assigned: pa.RecordBatch
    broken: list[Violation]


def packs(events: Events, shares: int) -> DataFrame:
    """The events in packs, all packs of a share in one partition of the frame."""

    def packed(batches: Batches) -> Batches:
        for batch in batches:
            yield from _packs_of(batch, shares)

    return events.mapped(packed, PACK_COLUMNS, _PACKS).repartitionById(shares, "share")


def unpacked(batches: Batches) -> Iterator[Pack]:
    """The packs in batches of the frame."""
    decode = msgspec.msgpack.Decoder(list[Violation]).decode
    for batch in batches:
        for row in range(len(batch)):
            events, created, assigned, broken = (column[row] for column in batch.columns[1:])
            yield Pack(_opened(events), _opened(created), _opened(assigned), decode(broken.as_buffer()))


def _packs_of(batch: pa.RecordBatch, shares: int) -> Batches:
    broken = list(found(ROW_CHECKS, Rows(batch)))
    share = _shares_of(batch["topic"], shares)
    order = np.argsort(share, kind="stable")
    order = order[share[order] >= 0]  # events that concern every topic are not packed
    events = _events(batch).take(pa.array(order))
    parts = [_parts(batch[name]) for name in ("partitions", "assignments")]
    bounds = np.searchsorted(share[order], np.arange(shares + 1))
    place = np.zeros(len(batch), np.int64)
    place[order] = np.arange(len(order))
    parts = [part.set_column(0, "event", pa.array(place[numbers(part["event"])])) for part in parts]
    for number in range(shares):
        start, end = int(bounds[number]), int(bounds[number + 1])
        ours = [events.slice(start, end - start), *(_between(part, start, end) for part in parts)]
        row = [
            pa.array([number], pa.int32()),
            *(pa.array([_closed(one)], pa.binary()) for one in ours),
            pa.array([msgspec.msgpack.encode(broken if number == 0 else [])], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(row, schema=_PACKS)


def _between(part: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """The rows of some events, which are counted anew from `start`."""
    event = numbers(part["event"])
    ours = pa.array((event >= start) & (event < end))
    return part.set_column(0, "event", pa.array(event - start)).filter(ours)


def _shares_of(topics: pa.Array, shares: int) -> Ints:
    """The share of each event; -1 for those that concern every topic."""
    encoded = topics if pa.types.is_dictionary(topics.type) else topics.dictionary_encode()
    by_name = hashes(pc.replace_substring(encoded.dictionary, ".", "_")) % shares
    return np.append(by_name.astype(np.int64), -1)[numbers(encoded.indices, -1)]


def _events(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What checks need of each event beside the partitions that it creates."""
    types = places_in(batch["type"], TYPES)
    named = pa.array(is_one_of(types, TYPES, _NAMES_ITS_REQUEST))
    created = batch["partitions"]
    columns = {name: batch[name] for name in ("log_partition", "offset", "error_code", *_NARROW)}
    columns["topic"] = batch["topic"].cast(pa.string())
    columns |= {name: with_lists_coded(batch[name]) for name in _LISTS}
    columns["type"] = pa.array(types, pa.int8())
    columns["cause"] = pa.array(places_in(batch["cause_command"], CAUSES_KEPT), pa.int8())
    columns["request_id"] = pc.if_else(named, batch["request_id"], pa.scalar(None, pa.string()))
    columns["manual"] = batch["assignments"].is_valid()
    columns["stood"] = with_lists_coded(pc.struct_field(batch["before"], "replicas"))
    columns["kraft"] = batch["elr"].is_valid()
    columns["added"] = created.value_lengths()
    columns["own_min_isr"] = _min_isr(batch["configs"])
    return pa.RecordBatch.from_pydict(columns)


def _min_isr(configs: pa.Array) -> pa.Array:
    """The value of `min.insync.replicas` in maps of configs, null where there is none that is a number."""
    values, texts = coded(pc.map_lookup(configs, pa.scalar(MIN_ISR), "first"))
    counts = [count_of(text, NONE) for text in texts]
    found = np.array([*counts, NONE], np.int64)[values]
    return pa.array(found, mask=found == NONE)


def _parts(lists: pa.Array) -> pa.RecordBatch:
    """What is in a column of lists of partitions, with the row of their event and their place in its list."""
    sizes = numbers(lists.value_lengths(), 0)
    ends = np.cumsum(sizes)
    event = np.repeat(np.arange(len(sizes)), sizes)
    each = pa.RecordBatch.from_struct_array(lists.flatten())
    columns = {"event": pa.array(event), "place": pa.array(np.arange(len(event)) - np.repeat(ends - sizes, sizes))}
    for field in each.schema:
        column = each[field.name]
        columns[field.name] = with_lists_coded(column) if pa.types.is_list(field.type) else column
    return pa.RecordBatch.from_pydict(columns)


def _closed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _opened(stream: pa.Scalar) -> pa.RecordBatch:
    with pa.ipc.open_stream(stream.as_buffer()) as opened:
        return opened.read_next_batch()


def together(packs_of_share: Iterable[Pack]) -> tuple[pa.Table, pa.Table, pa.Table]:
    """All packs of a share as one: its events, what they create, what they assign; in those two `event` is the row in
    the events."""
    events: list[pa.RecordBatch] = []
    created: list[pa.RecordBatch] = []
    assigned: list[pa.RecordBatch] = []
    rows = 0
    for pack in packs_of_share:
        events.append(pack.events)
        for part, parts in ((pack.created, created), (pack.assigned, assigned)):
            parts.append(part.set_column(0, "event", pa.array(numbers(part["event"]) + rows)))
        rows += len(pack.events)
    return pa.Table.from_batches(events), pa.Table.from_batches(created), pa.Table.from_batches(assigned)
