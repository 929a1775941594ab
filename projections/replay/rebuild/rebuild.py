"""Rebuilds topics, brokers and requests as of any offset or time, from events alone (`topicwright replay rebuild`).

Topics are folded with the machine's `apply`, so the result equals the live state byte for byte. `state_hash` is the
SHA-256 of the topic's bytes in the live store, joined if the store has them in several blocks
(`controller.store.stored_topics`). Requests and brokers are folded by `projections.views`. Few events concern brokers,
so they are folded in this process. All events of a request for one topic are in the shard of that topic, so its
outcome for the topic is folded with the topic. Spark's workers run the folds, for `rebuild` and for `compare`.

Non-goal: reading the live state; `compare` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from secrets import token_hex  # noqa: TID251 - for the name of a file
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import astuple

from controller.machine.apply import apply_topic
from controller.machine.state import Topic
from controller.store.stored_topics import decode_topic, encode_topic
from events import catalog
from events.codec import decode_event
from events.external_decision import FOLLOW
from events.names import TopicName
from projections.replay.log.columns import PARTITION, arrow_schema
from projections.replay.log.kafka_scan import Stored
from projections.replay.log.log_ref import Ends, Ref, as_of, ends_of, offsets_row
from projections.replay.outcome import Options, Outcome, Table
from projections.replay.runner import WRITTEN, Batches, Runner, check_new, check_written, new_folder
from projections.replay.shards import (
    AT_FIRST,
    BEGUN,
    Beginning,
    Job,
    Row,
    Shard,
    as_batches,
    cluster_events,
    fold_shards,
    newest_snapshot,
)
from projections.text.names import error_name, topic_id_text
from projections.text.points_in_time import iso
from projections.text.wording import many
from projections.views.brokers import NO_CLUSTER, fold_cluster
from projections.views.requests import RequestTopicView, fold_request_topic

REQUESTS = arrow_schema(
    ("log_partition", "request_id", "topic", "status", "error_code", "message", "rule", "principal", "client_id", "api",
     "requested_at_ms", "requested_offset", "waited_ms", "last_offset"),
    status=pa.string(), requested_at_ms=pa.int64(), requested_offset=pa.int64(), last_offset=pa.int64(),
)  # fmt: skip
"""One row for each topic of a request; `projections.views.requests` has the values of `status`."""
_REQUEST_ENDS = catalog.CreateAnswered | catalog.ChangeRejected | catalog.ChangeCarriedOut
_CHANGES = catalog.PartitionsAdded | catalog.TopicDeleted | catalog.TopicConfigsChanged
"""These events end their request unless a target cluster carries out decisions; then ChangeCarriedOut ends it."""


def request_rows(shards: Iterable[Shard]) -> Iterator[Row]:
    """The requests of each shard, as rows of REQUESTS. A request is returned when it is answered, so only open requests
    are in memory."""
    for log_partition, _, events in shards:
        waiting: dict[tuple[str, TopicName], tuple[RequestTopicView, Row]] = {}
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
            known, client = waiting.get(key, (None, ()))
            if known is None:
                if isinstance(event, catalog.ChangeCarriedOut):
                    continue  # answered before it was discovered in the cluster
                api = event.api if hasattr(event, "api") else event.request.api
                client = event.principal, event.client_id, api, record.at_ms, offset
            view = fold_request_topic(known, record)
            if isinstance(event, _REQUEST_ENDS) or (isinstance(event, _CHANGES) and not carried_out):
                waiting.pop(key, None)
                yield _request_row(log_partition, request_id, view, client)
            else:
                waiting[key] = view, client
        for (request_id, _topic), (view, client) in waiting.items():
            yield _request_row(log_partition, request_id, view, client)


def _request_row(log_partition: int, request_id: str, view: RequestTopicView, client: Row) -> Row:
    outcome = view.topic, view.status, view.code, view.message, view.rule
    return log_partition, request_id, *outcome, *client, view.waited_ms, view.offset


TOPICS = arrow_schema(
    ("log_partition", "topic", "shard", "topic_id", "num_partitions", "replication_factor", "partitions", "configs",
     "created_at_ms", "created_offset", "ready_at_ms", "waiting_request", "state_hash"),
    created_at_ms=pa.int64(), created_offset=pa.int64(), ready_at_ms=pa.int64(), waiting_request=pa.string(),
    state_hash=pa.string(),
)  # fmt: skip
"""`waiting_request` is the unanswered create request, if any."""
HASHES = arrow_schema(("log_partition", "shard", "state_hash"), state_hash=pa.string())


def state_hash(stored: bytes) -> str:
    """The SHA-256 of a topic's bytes in the store."""
    return sha256(stored).hexdigest()


def topic_rows(shards: Iterable[Shard]) -> Iterator[Row]:
    """The topic of each shard that has one, as a row of TOPICS."""
    for log_partition, shard, events in shards:
        topic = folded(events)
        if topic is not None:
            yield _topic_row(log_partition, shard, topic)


def hash_rows(shards: Iterable[Shard]) -> Iterator[Row]:
    """The hash of the topic of each shard that has one, as a row of HASHES."""
    for log_partition, shard, events in shards:
        topic = folded(events)
        if topic is not None:
            yield log_partition, shard, state_hash(encode_topic(topic))


def folded(events: Iterable[Stored]) -> Topic | None:
    """The topic after the events of a shard. Raises CannotApply, EventDecodeError."""
    topic: Topic | None = None
    for offset, value in events:
        topic = decode_topic([value]) if offset == BEGUN else apply_topic(topic, decode_event(offset, value))
    return topic


def _topic_row(log_partition: int, shard: str, topic: Topic) -> Row:
    return (
        log_partition,
        topic.name,
        shard,
        topic_id_text(topic.topic_id),
        len(topic.partitions),
        topic.replication_factor,
        [astuple(one)[: PARTITION.num_fields] for one in topic.partitions],
        topic.configs,
        topic.created_at_ms,
        topic.created_offset,
        topic.ready_at_ms,
        None if topic.pending_create is None else topic.pending_create.request_id,
        state_hash(encode_topic(topic)),
    )


BROKERS = arrow_schema(
    ("log_partition", "broker_id", "broker_epoch", "rack", "endpoints", "incarnation", "fenced", "registered_at_ms",
     "changed_at_ms", "changed_offset", "reason"),
    endpoints=pa.list_(pa.string()), incarnation=pa.string(), fenced=pa.bool_(), registered_at_ms=pa.int64(),
    changed_at_ms=pa.int64(), changed_offset=pa.int64(),
)  # fmt: skip
FROM_SCRATCH = "from_scratch"
_FOLDS: Mapping[str, tuple[Job, pa.Schema]] = {"topics": (topic_rows, TOPICS), "requests": (request_rows, REQUESTS)}


def rebuilt(runner: Runner, ref: Ref, view: str, ends: Ends, begin: Beginning = AT_FIRST) -> pa.Table:
    """The rows of the view `topics`, `requests` or `brokers`, with the schema of that view; `begin` is the snapshot to
    start from, for topics only."""
    if view == "brokers":
        return pa.Table.from_batches(as_batches(_broker_rows(ref, ends), BROKERS), BROKERS)
    return fold_shards(runner, ref, ends, *_FOLDS[view], begin=begin)


def _broker_rows(ref: Ref, ends: Ends) -> Iterator[Row]:
    for number, stored in cluster_events(ref, ends).items():
        for broker in reduce(fold_cluster, (decode_event(*one) for one in stored), NO_CLUSTER).brokers.values():
            endpoints = [f"{one.name}://{one.host}:{one.port}" for one in broker.endpoints]
            known = {"log_partition": number, "endpoints": endpoints}
            yield tuple(known[name] if name in known else getattr(broker, name) for name in BROKERS.names)


# --- the sub-command


check_rebuild = check_new


def run_rebuild(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay rebuild`: print a view as of a point in time, or write it to a folder."""
    ends = ends_of(ref, options.at)
    begin = beginning(ref, ends, options) if options.view == "topics" else AT_FIRST
    if options.to is not None:
        return begun_at(_written(runner, ref, options, ends, begin), begin, ends)
    table = rebuilt(runner, ref, options.view, ends, begin)
    if options.view == "topics" and not options.all_rows:
        table = table.drop_columns(["partitions"])
    rows = sorted(table.to_pylist(maps_as_pydicts="strict"), key=itemgetter(*_ORDER[options.view]))
    shown = _table(rows[: options.limit], options.view, of_log=list(ends) != [0])
    return begun_at(Outcome(rows, False, list(_lines(rows, options, ends)), offsets_row(ends), shown), begin, ends)


def beginning(ref: Ref, ends: Ends, options: Options) -> Beginning:
    """The newest intact snapshot, unless `options.more` says `from_scratch`. Raises ReplayError."""
    return AT_FIRST if options.more.get(FROM_SCRATCH) else newest_snapshot(ref, ends)


def begun_at(outcome: Outcome, begin: Beginning, ends: Ends) -> Outcome:
    """Add the offset of the snapshot at which the fold began, if any, to an outcome: a line and `snapshot_offset`."""
    if begin is AT_FIRST:
        return outcome
    left = many(sum(ends.values()) - begin.offset, "event")
    line = f"begun at the snapshot of offset {begin.offset - 1}, with {left} after it; --from-scratch trusts none"
    about = {**outcome.about, "snapshot_offset": begin.offset - 1}
    return outcome._replace(lines=[*outcome.lines, line], about=about)


_ORDER = {
    "topics": ("log_partition", "shard"),
    "requests": ("log_partition", "requested_offset"),
    "brokers": ("log_partition", "broker_id"),
}


def _written(runner: Runner, ref: Ref, options: Options, ends: Ends, begin: Beginning) -> Outcome:
    """Write a view to a new folder; the tasks that fold it write the files. Raises ReplayError."""
    folder = Path(options.to or "").absolute()
    with new_folder(folder):
        if options.view in _FOLDS:
            job, schema = _FOLDS[options.view]

            def written(shards: Iterator[Shard]) -> Iterable[Row]:
                return [_write(as_batches(job(shards), schema), schema, folder)]

            files = fold_shards(runner, ref, ends, written, WRITTEN, begin=begin)["file"].to_pylist()
        else:
            table = rebuilt(runner, ref, options.view, ends)
            files = [_write(iter(table.to_batches()), table.schema, folder)[0]]
        check_written(folder, files, "*")
    line = f"{options.view} as of {as_of(ends)} are in {options.to}"
    return Outcome([{"view": options.view, **offsets_row(ends), "output": options.to}], False, [line])


def _write(batches: Batches, schema: pa.Schema, folder: Path) -> Row:
    """Write a Parquet file; returns its name."""
    file = folder / f"part-{token_hex(8)}.parquet"
    with pq.ParquetWriter(file, schema) as parquet:
        for batch in batches:
            parquet.write_batch(batch)
    return (file.name,)


def _lines(rows: Sequence[Mapping[str, Any]], options: Options, ends: Ends) -> Iterator[str]:
    yield f"{many(len(rows), options.view[:-1])} as of {as_of(ends)}"
    if len(rows) > options.limit:
        yield f"… showing the first {options.limit}; -o json prints all, --to writes all to a folder"


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
    error = error_name(row["error_code"]) if row["error_code"] else "-"
    return row["request_id"], row["topic"], row["status"], error, row["rule"] or "-", row["principal"]


def _broker_cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    state = "fenced" if row["fenced"] else "live"
    return row["broker_id"], state, iso(row["changed_at_ms"]), row["reason"], row["rack"] or "-"


_TABLES: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], tuple[object, ...]]]] = {
    "topics": (("TOPIC", "PARTITIONS", "FACTOR", "CREATED", "READY", "STATE"), _topic_cells),
    "requests": (("REQUEST", "TOPIC", "OUTCOME", "ERROR", "RULE", "BY"), _request_cells),
    "brokers": (("BROKER", "STATE", "SINCE", "WHY", "RACK"), _broker_cells),
}
