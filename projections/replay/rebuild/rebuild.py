"""Rebuilds topics, brokers and requests as of any offset or time, from events alone.

Topics are folded with the machine's `apply`, so the result equals the live state byte for byte. `state_hash` is the
SHA-256 of the topic's bytes in the live store, joined if the store has them in several blocks
(`projections.store.stored_topics`). Requests and brokers are folded with the projections' own folds.

Method. Spark folds topics in buckets of shards, called shares (see `packed`). It folds requests shard by shard (see
`folding`), because the events of a request for one topic are all in that topic's shard. Few events concern brokers, so
they are folded here, without Spark.

Non-goal: the live state; `compare` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from events import catalog
from events.codec import decode_event
from events.external_decision import FOLLOW
from events.names import TopicName
from projections.replay.errors import ReplayError
from projections.replay.log.log_ref import End, Ends, Ref, as_of, ends_of, offsets_row
from projections.replay.outcome import Options, Outcome, Table
from projections.replay.rebuild.beginning import AT_FIRST, Beginning, beginning, said
from projections.replay.rebuild.folded_topics import TOPICS, topics_of_share
from projections.replay.spark.folding import Row, Stored, cluster_events, fold_shards, shards_frame, shares_for
from projections.replay.spark.local import refuse_local
from projections.replay.spark.packed import fold_packs, packs_frame
from projections.text.moments import iso
from projections.text.names import error_word
from projections.text.wording import many
from projections.views.brokers import NO_CLUSTER, ClusterRow, fold_cluster
from projections.views.requests import RequestTopicView, fold_request_topic

REQUESTS = pa.schema(
    [
        ("log_partition", pa.int32()),
        ("request_id", pa.string()),
        ("topic", pa.string()),
        ("status", pa.string()),
        ("error_code", pa.int32()),
        ("message", pa.string()),
        ("rule", pa.string()),
        ("principal", pa.string()),
        ("client_id", pa.string()),
        ("api", pa.string()),
        ("requested_at_ms", pa.int64()),
        ("requested_offset", pa.int64()),
        ("waited_ms", pa.int64()),
        ("last_offset", pa.int64()),
    ]
)
"""One row for each topic of a request; `projections.views.requests` has the values of `status`."""

BROKERS = pa.schema(
    [
        ("log_partition", pa.int32()),
        ("broker_id", pa.int32()),
        ("broker_epoch", pa.int64()),
        ("rack", pa.string()),
        ("endpoints", pa.list_(pa.string())),
        ("incarnation", pa.string()),
        ("fenced", pa.bool_()),
        ("registered_at_ms", pa.int64()),
        ("changed_at_ms", pa.int64()),
        ("changed_offset", pa.int64()),
        ("reason", pa.string()),
    ]
)

VIEWS = ("topics", "brokers", "requests")
FORMATS = ("parquet", "json")
_REQUEST_ENDS = catalog.CreateAnswered | catalog.ChangeRejected | catalog.ChangeCarriedOut
_CHANGES = catalog.PartitionsAdded | catalog.TopicDeleted | catalog.TopicConfigsChanged
"""These events end their request unless a target cluster carries out decisions; then ChangeCarriedOut ends it."""


def rebuilt_topics(spark: SparkSession, ref: Ref, end: End, begin: Beginning = AT_FIRST) -> DataFrame:
    """The topics that existed at offset `end`, one row each (TOPICS); `begin` may be a snapshot."""
    shares = begin.shares(end)
    return topics_in(packs_frame(spark, ref, end, shares, begin.offset), shares)


def topics_in(packs: DataFrame, shares: int) -> DataFrame:
    """Fold packs of events into topics (TOPICS). The frame may have the events of several logs."""
    return fold_packs(packs, topics_of_share, TOPICS, shares)


def rebuilt_requests(spark: SparkSession, ref: Ref, end: End) -> DataFrame:
    """The requests before offset `end` with their outcomes, one row for each request and topic (REQUESTS)."""
    return fold_shards(shards_frame(spark, ref, end), requests_of_shard, REQUESTS, shares_for(end))


def rebuilt_brokers(spark: SparkSession, ref: Ref, end: End) -> DataFrame:
    """The brokers registered at offset `end` according to each log partition, one row each (BROKERS)."""
    rows = [row for number, cluster in rebuilt_clusters(ref, end).items() for row in _broker_rows(number, cluster)]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=BROKERS))


def rebuilt_clusters(ref: Ref, end: End) -> dict[int, ClusterRow]:
    """Brokers and settings at offset `end`, by log partition."""
    return {number: _cluster_of(stored) for number, stored in cluster_events(ref, end).items()}


def rebuilt_cluster(ref: Ref, end: End) -> ClusterRow:
    """Brokers and settings at offset `end` according to the first log partition."""
    clusters = rebuilt_clusters(ref, end)
    return clusters[min(clusters)]


def _cluster_of(stored: Sequence[Stored]) -> ClusterRow:
    cluster = NO_CLUSTER
    for offset, value in stored:
        cluster = fold_cluster(cluster, decode_event(offset, value))
    return cluster


def rebuilt(spark: SparkSession, ref: Ref, view: str, end: End, begin: Beginning = AT_FIRST) -> DataFrame:
    """The frame of one of VIEWS; `begin` applies to topics only. Raises ReplayError for an unknown view."""
    match view:
        case "topics":
            return rebuilt_topics(spark, ref, end, begin)
        case "requests":
            return rebuilt_requests(spark, ref, end)
        case "brokers":
            return rebuilt_brokers(spark, ref, end)
        case _:
            raise ReplayError(f"{view!r} cannot be rebuilt; allowed: {', '.join(VIEWS)}")


def check_rebuild(ref: Ref, options: Options) -> None:
    """Check, before Spark starts, that the output folder does not exist yet. Raises ReplayError."""
    if options.output is not None:
        _check_is_new(options.output)


def _check_is_new(folder: str) -> None:
    if Path(folder).exists():
        raise ReplayError(f"{folder} already exists: name a new folder")


def run_rebuild(session: SparkSession, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay rebuild`: print a view as of a point in time, or write it to a folder."""
    ends = ends_of(ref, options.at)
    begin = beginning(ref, ends, options) if options.view == "topics" else AT_FIRST
    frame = rebuilt(session, ref, options.view, ends, begin)
    if options.output is not None:
        return said(_written(session, frame, options, ends), begin, ends)
    if options.view == "topics" and not options.all_rows:
        frame = frame.drop("partitions")
    # Sorted here, where all rows arrive anyway: Spark's sort would sample the frame first, and so fold twice.
    rows = sorted((row.asDict(recursive=True) for row in frame.collect()), key=itemgetter(*_ORDER[options.view]))
    table = _table(rows[: options.limit], options.view, of_log=list(ends) != [0])
    return said(Outcome(rows, False, list(_lines(rows, options, ends)), offsets_row(ends), table), begin, ends)


_ORDER = {
    "topics": ("log_partition", "shard"),
    "requests": ("log_partition", "requested_offset"),
    "brokers": ("log_partition", "broker_id"),
}


def _written(session: SparkSession, frame: DataFrame, options: Options, ends: Ends) -> Outcome:
    if options.format not in FORMATS:
        raise ReplayError(f"unknown format {options.format!r}; allowed: {' or '.join(FORMATS)}")
    assert options.output is not None, "a folder is given"
    _check_is_new(options.output)
    refuse_local(session, "rebuild --output")
    frame.write.mode("errorifexists").format(options.format).save(options.output)
    line = f"{options.view} as of {as_of(ends)} are in {options.output} ({options.format})"
    return Outcome([{"view": options.view, **offsets_row(ends), "output": options.output}], False, [line])


def _lines(rows: Sequence[Mapping[str, Any]], options: Options, ends: Ends) -> Iterator[str]:
    yield f"{many(len(rows), options.view[:-1])} as of {as_of(ends)}"
    if len(rows) > options.limit:
        yield f"… showing the first {options.limit}; -o json prints all, --output writes all to a folder"


def _table(rows: Sequence[Mapping[str, Any]], view: str, *, of_log: bool) -> Table | None:
    header, cells = _TABLES[view]
    if of_log:
        return Table(("PARTITION", *header), [(row["log_partition"], *cells(row)) for row in rows])
    return Table(header, list(map(cells, rows))) if rows else None


def _topic_cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    ready = "-" if row["ready_at_ms"] is None else iso(row["ready_at_ms"])
    size = row["num_partitions"], row["replication_factor"]
    return row["topic"], *size, iso(row["created_at_ms"]), ready, row["state_hash"][:16]


def _request_cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    error = error_word(row["error_code"]) if row["error_code"] else "-"
    return row["request_id"], row["topic"], row["status"], error, row["rule"] or "-", row["principal"]


def _broker_cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    state = "fenced" if row["fenced"] else "live"
    return row["broker_id"], state, iso(row["changed_at_ms"]), row["reason"], row["rack"] or "-"


_TABLES: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], tuple[object, ...]]]] = {
    "topics": (("TOPIC", "PARTITIONS", "FACTOR", "CREATED", "READY", "STATE"), _topic_cells),
    "requests": (("REQUEST", "TOPIC", "OUTCOME", "ERROR", "RULE", "BY"), _request_cells),
    "brokers": (("BROKER", "STATE", "SINCE", "WHY", "RACK"), _broker_cells),
}


# --- the folds, which run in the workers


class _Open(msgspec.Struct):
    """A request for a topic that is not answered yet, with its client and time."""

    row: RequestTopicView
    principal: str
    client_id: str | None
    api: str
    at_ms: int
    offset: int


def requests_of_shard(_: str, events: Iterator[Stored]) -> Iterator[Row]:
    """The requests in a shard's events, as rows of REQUESTS. Each is returned when it is answered, so only open ones
    are in memory."""
    waiting: dict[tuple[str, TopicName], _Open] = {}
    carried_out = False
    for offset, value in events:
        record = decode_event(offset, value)
        event: Any = record.event
        request_id: str | None = getattr(event, "request_id", None)
        if record.cause.command == FOLLOW and not isinstance(event, catalog.CreateAnswered):
            continue  # decided by another controller, so requested there
        carried_out = carried_out or isinstance(event, catalog.TopicDiscovered)
        if request_id is None:
            continue
        key = (request_id, event.topic)
        known = waiting.get(key)
        if known is None and (isinstance(event, catalog.ChangeCarriedOut) or _is_adopted(event)):
            continue  # answered before the topic was discovered in the cluster; or adopted without a request
        row = fold_request_topic(None if known is None else known.row, record)
        if known is None:
            api = event.api if hasattr(event, "api") else event.asked.api
            known = waiting[key] = _Open(row, event.principal, event.client_id, api, record.at_ms, offset)
        known.row = row
        if isinstance(event, _REQUEST_ENDS) or (isinstance(event, _CHANGES) and not carried_out):
            yield _request_row(request_id, waiting.pop(key))
    for (request_id, _topic), open_one in waiting.items():
        yield _request_row(request_id, open_one)


def _is_adopted(event: Any) -> bool:
    """True if a topic already existed when its cluster was adopted."""
    return isinstance(event, catalog.TopicCreated) and event.is_adopted


def _request_row(request_id: str, open_: _Open) -> Row:
    row = open_.row
    return (
        request_id,
        row.topic,
        row.status,
        row.code,
        row.message,
        row.rule,
        open_.principal,
        open_.client_id,
        open_.api,
        open_.at_ms,
        open_.offset,
        row.waited_ms,
        row.offset,
    )


def _broker_rows(log_partition: int, cluster: ClusterRow) -> list[dict[str, Any]]:
    return [
        {
            "log_partition": log_partition,
            **{name: getattr(broker, name) for name in BROKERS.names if name not in ("log_partition", "endpoints")},
            "endpoints": [f"{one.name}://{one.host}:{one.port}" for one in broker.endpoints],
        }
        for broker in cluster.brokers.values()
    ]
