"""Rebuilds topics as of any offset or time, from events alone (`topicwright replay rebuild`).

Topics are folded with the machine's `apply`, so the result equals the live state byte for byte. `state_hash` is the
SHA-256 of the topic's bytes in the live store, joined if the store has them in several blocks
(`controller.store.stored_topics`). Spark's workers run the folds, for `rebuild` and for `compare`.

Non-goals: reading the live state (`compare` reads it), and brokers and requests, which the views of `replay sql` have.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from events.codec import decode_event
from projections.replay.log.columns import PARTITION, arrow_schema
from projections.replay.log.kafka_scan import Stored
from projections.replay.log.log_ref import Ends, Ref, as_of, ends_of, offsets_row
from projections.replay.outcome import Options, Outcome, Table
from projections.replay.runner import WRITTEN, Runner, check_new, new_folder
from projections.replay.shards import AT_FIRST, BEGUN, Beginning, Row, Shard, as_batches, fold_shards, newest_snapshot
from projections.text.names import topic_id_text
from projections.text.points_in_time import iso
from projections.text.wording import many

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
        if (topic := folded(events)) is not None:
            yield _topic_row(log_partition, shard, topic)


def hash_rows(shards: Iterable[Shard]) -> Iterator[Row]:
    """The hash of the topic of each shard that has one, as a row of HASHES."""
    for log_partition, shard, events in shards:
        if (topic := folded(events)) is not None:
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


# --- the sub-command


check_rebuild = check_new


def run_rebuild(runner: Runner, ref: Ref, options: Options) -> Outcome:
    """Run `topicwright replay rebuild`: print the topics as of a point in time, or write them to a folder."""
    ends = ends_of(ref, options.at)
    begin = beginning(ref, ends, options)
    if options.to is not None:
        return begun_at(_written(runner, ref, options.to, ends, begin), begin, ends)
    table = rebuilt(runner, ref, ends, begin)
    if not options.all_rows:
        table = table.drop_columns(["partitions"])
    rows = sorted(table.to_pylist(maps_as_pydicts="strict"), key=itemgetter("log_partition", "shard"))
    shown = _table(rows[: options.limit], of_log=list(ends) != [0])
    return begun_at(Outcome(rows, False, list(_lines(rows, options, ends)), offsets_row(ends), shown), begin, ends)


def rebuilt(runner: Runner, ref: Ref, ends: Ends, begin: Beginning = AT_FIRST) -> pa.Table:
    """The topics, as rows of TOPICS; `begin` is the snapshot to start from. Raises ReplayError."""
    return fold_shards(runner, ref, ends, topic_rows, TOPICS, begin=begin)


def beginning(ref: Ref, ends: Ends, options: Options) -> Beginning:
    """The newest intact snapshot, unless `options.from_scratch`. Raises ReplayError."""
    return AT_FIRST if options.from_scratch else newest_snapshot(ref, ends)


def begun_at(outcome: Outcome, begin: Beginning, ends: Ends) -> Outcome:
    """Add the offset of the snapshot at which the fold began, if any, to an outcome: a line and `snapshot_offset`."""
    if begin is AT_FIRST:
        return outcome
    left = many(sum(ends.values()) - begin.offset, "event")
    line = f"begun at the snapshot of offset {begin.offset - 1}, with {left} after it; --from-scratch trusts none"
    about = {**outcome.about, "snapshot_offset": begin.offset - 1}
    return outcome._replace(lines=[*outcome.lines, line], about=about)


def _written(runner: Runner, ref: Ref, to: str, ends: Ends, begin: Beginning) -> Outcome:
    """Write the topics to a new folder; the tasks that fold them write the files. Raises ReplayError."""
    folder = Path(to).absolute()

    def written(shards: Iterator[Shard]) -> Iterator[Row]:
        file = f"part-{token_hex(8)}.parquet"
        with pq.ParquetWriter(folder / file, TOPICS) as parquet:
            for batch in as_batches(topic_rows(shards), TOPICS):
                parquet.write_batch(batch)
        yield (file,)

    with new_folder(folder) as files:
        files |= {*fold_shards(runner, ref, ends, written, WRITTEN, begin=begin)["file"].to_pylist()}
    return Outcome([{**offsets_row(ends), "output": to}], False, [f"the topics as of {as_of(ends)} are in {to}"])


def _lines(rows: Sequence[Mapping[str, Any]], options: Options, ends: Ends) -> Iterator[str]:
    yield f"{many(len(rows), 'topic')} as of {as_of(ends)}"
    if len(rows) > options.limit:
        yield f"… showing the first {options.limit}; -o json prints all, --to writes all to a folder"


def _table(rows: Sequence[Mapping[str, Any]], *, of_log: bool) -> Table | None:
    header = (*(["PARTITION"] if of_log else []), "TOPIC", "PARTITIONS", "FACTOR", "CREATED", "READY", "STATE")
    cells = [[*([row["log_partition"]] if of_log else []), *_cells(row)] for row in rows]
    return Table(header, cells) if rows else None


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    ready = "-" if row["ready_at_ms"] is None else iso(row["ready_at_ms"])
    size = row["num_partitions"], row["replication_factor"]
    return row["topic"], *size, iso(row["created_at_ms"]), ready, row["state_hash"][:16]
