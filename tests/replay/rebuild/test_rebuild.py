"""A rebuild from events alone equals the live state bit for bit, as of any offset or time."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from controller.machine.state import DictTopics, State
from controller.store.stored_topics import TOPIC
from events.catalog import Recorded
from events.names import shard_key
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options
from projections.replay.rebuild.rebuild import hash_rows, rebuilt, run_rebuild, state_hash
from projections.replay.runner import InProcess, Runner
from projections.replay.shards import Row, Shard, fold_shards
from projections.replay.spark.session import OnSpark
from projections.text.names import topic_id_text
from tests.machine.rig import fold
from tests.replay.history import BORN_MS, shards_of

_encode = msgspec.msgpack.encode


def hashes(records: list[Recorded]) -> dict[str, str]:
    """The hash of each topic's state after these events, by a plain loop in log order."""
    topics = fold(records, State(DictTopics())).topics
    assert isinstance(topics, DictTopics)
    return {key: state_hash(_encode(topic)) for key, topic in topics.items()}


def test_rebuilt_topics_equal_the_state_machine_after_every_event(records: list[Recorded]) -> None:
    for end in range(len(records) + 1):
        assert hashes_of_shards(records[:end]) == hashes(records[:end]), f"before offset {end}"


def hashes_of_shards(records: list[Recorded]) -> dict[str, str]:
    """The same hashes, by folding each shard."""
    return {shard: found for _, shard, found in hash_rows(shards_of(records))}


def rows_of(ref: LogRef, end: int) -> list[Any]:
    rows: list[Any] = rebuilt(InProcess(), ref, {0: end}).to_pylist(maps_as_pydicts="strict")
    return rows


def test_a_rebuilt_topic_has_all_fields(history: LogRef, records: list[Recorded]) -> None:
    row = next(one for one in rows_of(history, len(records)) if one["topic"] == "late.one")
    topic = fold(records).topics.get(shard_key("late.one"))
    assert topic is not None
    assert row["topic_id"] == topic_id_text(topic.topic_id)
    assert row["configs"] == {"retention.ms": "5000"} == dict(topic.configs)
    assert [list(one.replicas) for one in topic.partitions] == [one["replicas"] for one in row["partitions"]]
    assert [one.partition_epoch for one in topic.partitions] == [one["partition_epoch"] for one in row["partitions"]]
    assert (row["num_partitions"], row["replication_factor"], row["waiting_request"]) == (2, 3, None)
    assert (row["created_offset"], row["ready_at_ms"]) == (topic.created_offset, topic.ready_at_ms)


def test_rebuilt_state_hashes_equal_the_stored_state(history: LogRef) -> None:
    with frozen_log(history.path) as log:
        stored = {key[1:].decode(): state_hash(value) for key, value in log.scan(TOPIC)}
        end = log.next_offset
    assert {row["shard"]: row["state_hash"] for row in rows_of(history, end)} == stored


# --- the sub-command


@pytest.mark.parametrize(
    ("options", "line", "rows"),
    [
        (Options(at="10"), "1 topic as of offset 11", ["pay.orders 3 3"]),
        (Options(at=f"{BORN_MS + 60}ms"), "1 topic as of offset 8", ["pay.orders 3 3"]),
        (Options(at="2023-11-14T22:13:20.010Z"), "0 topics as of offset 0", []),
        (Options(limit=1), "7 topics", ["late.one 2 3"]),
    ],
)
def test_rebuild_prints_a_summary_and_a_table(history: LogRef, options: Options, line: str, rows: list[str]) -> None:
    outcome = run_rebuild(InProcess(), history, options)
    assert not outcome.found
    assert outcome.lines[0].startswith(line)
    assert (len(outcome.lines) == 1) is (options.limit > 1)
    shown = [] if outcome.table is None else [" ".join(map(str, row)) for row in outcome.table.rows]
    assert len(shown) == len(rows)
    assert all(row.startswith(start) for row, start in zip(shown, rows, strict=True)), shown


def test_rebuild_with_all_rows_ignores_the_limit(history: LogRef) -> None:
    outcome = run_rebuild(InProcess(), history, Options(limit=1, all_rows=True))
    assert [row["topic"] for row in outcome.rows] == sorted(row["topic"] for row in outcome.rows)
    assert outcome.rows[0]["partitions"][0]["replicas"] == [1, 2, 3]
    assert msgspec.json.decode(msgspec.json.encode(outcome.rows)) == outcome.rows


@pytest.mark.parametrize("with_spark", [True, False])
def test_rebuilt_topics_are_written_to_files(
    request: pytest.FixtureRequest, history: LogRef, tmp_path: Path, with_spark: bool
) -> None:
    runner: Runner = OnSpark(request.getfixturevalue("spark")) if with_spark else InProcess()
    out = tmp_path / "it's here"
    assert "the topics as of offset" in run_rebuild(runner, history, Options(to=str(out))).lines[0]
    with frozen_log(history.path) as log:
        expected = {row["state_hash"] for row in rows_of(history, log.next_offset)}
    files = duckdb.read_parquet([str(file) for file in out.iterdir()])
    assert {row[0] for row in files.select("state_hash").fetchall()} == expected


# --- folding


def test_a_fold_receives_each_shard_once_in_offset_order(
    spark: SparkSession, history: LogRef, records: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = len(records)

    def offsets(shards: Iterable[Shard]) -> Iterator[Row]:
        return ((shard, [offset for offset, _ in events]) for _, shard, events in shards)

    schema = pa.schema([("shard", pa.string()), ("offsets", pa.list_(pa.int64()))])
    expected = list(offsets(shards_of(records)))
    for runner, buckets in ((InProcess(), 1), (OnSpark(spark), 1), (OnSpark(spark), 3)):
        monkeypatch.setattr("projections.replay.shards.BUCKET_EVENTS", -(-end // buckets))
        rows = fold_shards(runner, history, {0: end}, offsets, schema).to_pylist()
        assert sorted((row["shard"], row["offsets"]) for row in rows) == expected
    some = fold_shards(InProcess(), history, {0: end}, offsets, schema, only=frozenset({"late_one"})).to_pylist()
    assert [row["shard"] for row in some] == ["late_one"]
