"""A rebuild from events alone equals the live state bit for bit, as of any offset or time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from controller.machine.state import DictTopics, State
from controller.store.store import TopicStore
from controller.store.stored_topics import TOPIC
from events.catalog import (
    Recorded,
    TopicDiscovered,
)
from events.names import shard_key
from projections.queries.query import Query
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options
from projections.replay.rebuild.rebuild import REQUESTS, hash_rows, rebuilt, request_rows, run_rebuild, state_hash
from projections.replay.runner import InProcess, Runner
from projections.replay.shards import Row, Shard, fold_shards
from projections.replay.spark.session import OnSpark
from projections.text.names import topic_id_text
from projections.views.requests import request_view
from tests.events import golden
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


def rows_of(ref: LogRef, view: str, end: int) -> list[Any]:
    rows: list[Any] = rebuilt(InProcess(), ref, view, {0: end}).to_pylist(maps_as_pydicts="strict")
    return rows


def test_a_rebuilt_topic_has_all_fields(history: LogRef, records: list[Recorded]) -> None:
    row = next(one for one in rows_of(history, "topics", len(records)) if one["topic"] == "late.one")
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
    assert {row["shard"]: row["state_hash"] for row in rows_of(history, "topics", end)} == stored


def test_rebuilt_requests_equal_the_projection_after_every_event(records: list[Recorded]) -> None:
    for end in range(len(records) + 1):
        rows = request_rows(shards_of(records[:end]))
        rebuilt = [dict(zip(REQUESTS.names, row, strict=True)) for row in rows]
        assert sorted(map(_texts, rebuilt)) == sorted(_expected_requests(records[:end])), f"before offset {end}"


def _texts(row: dict[str, Any]) -> tuple[str, ...]:
    names = ("request_id", "topic", "status", "error_code", "rule", "principal", "api", "requested_at_ms", "waited_ms")
    return tuple(str(row[name]) for name in names)


def _expected_requests(records: list[Recorded]) -> Iterator[tuple[str, ...]]:
    ids = dict.fromkeys(getattr(one.event, "request_id", None) for one in records)
    for request_id in ids:
        if request_id is None:
            continue
        row = request_view(one for one in records if getattr(one.event, "request_id", None) == request_id)
        assert row is not None
        for topic in row.topics:
            cells = (request_id, topic.topic, topic.status, topic.code, topic.rule, row.principal, row.api)
            requested_at = next(one.at_ms for one in records if _is_request(one, request_id, topic.topic))
            yield tuple(map(str, (*cells, requested_at, topic.waited_ms)))


def _is_request(one: Recorded, request_id: str, topic: str) -> bool:
    return getattr(one.event, "request_id", None) == request_id and getattr(one.event, "topic", None) == topic


def test_brokers_are_rebuilt(history: LogRef) -> None:
    with frozen_log(history.path) as log:
        store = TopicStore(log)
        query = Query(log, lambda: store)
        for end in range(log.next_offset + 1):
            rows = [
                (row["broker_id"], row["fenced"], row["changed_offset"]) for row in rows_of(history, "brokers", end)
            ]
            known = query.cluster_at(end).brokers.values()
            assert rows == [(one.broker_id, one.fenced, one.changed_offset) for one in known], f"before offset {end}"
        end = log.next_offset
    found = sorted(rows_of(history, "brokers", end), key=itemgetter("broker_id"))
    assert [(row["broker_id"], row["fenced"], row["endpoints"]) for row in found] == [
        (number, False, ["PLAINTEXT://localhost:9092"]) for number in (1, 2, 3)
    ]


# --- the sub-command


@pytest.mark.parametrize(
    ("options", "line", "rows"),
    [
        (Options(at="10"), "1 topic as of offset 11", ["pay.orders 3 3"]),
        (Options(at=f"{BORN_MS + 60}ms"), "1 topic as of offset 8", ["pay.orders 3 3"]),
        (Options(at="2023-11-14T22:13:20.010Z", view="brokers"), "0 brokers as of offset 0", []),
        (Options(at="38", view="brokers"), "3 brokers", ["1 live", "2 live", "3 fenced"]),
        (Options(view="requests", limit=1), "16 requests", ["day-5-"]),  # and the code, which is unpredictable
    ],
    ids=lambda given: getattr(given, "view", ""),
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


@pytest.mark.parametrize(("view", "with_spark"), [("topics", True), ("topics", False), ("brokers", False)])
def test_a_rebuilt_view_is_written_to_a_file(
    request: pytest.FixtureRequest, history: LogRef, tmp_path: Path, view: str, with_spark: bool
) -> None:
    runner: Runner = OnSpark(request.getfixturevalue("spark")) if with_spark else InProcess()
    out = tmp_path / "it's here"
    assert f"{view} as of offset" in run_rebuild(runner, history, Options(view=view, to=str(out))).lines[0]
    key = "state_hash" if view == "topics" else "incarnation"
    with frozen_log(history.path) as log:
        expected = {row[key] for row in rows_of(history, view, log.next_offset)}
    assert {
        str(row[0]) for row in duckdb.read_parquet([str(file) for file in out.iterdir()]).select(key).fetchall()
    } == expected


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


def test_adopted_topics_have_no_requests() -> None:
    taken = [one for one in golden.history(golden.ADOPTED) if isinstance(one.event, TopicDiscovered)]
    assert taken, "some topic was imported"
    assert list(request_rows(shards_of(taken))) == []


def test_decisions_of_another_controller_have_no_requests() -> None:
    log = golden.history(golden.FOLLOWED)
    assert {"orders", "pay_eu"} <= {shard for _, shard, _ in shards_of(log)}
    assert list(request_rows(shards_of(log))) == []


def test_a_change_request_ends_when_the_target_cluster_applies_it() -> None:
    rows = {row[1]: (row[3], row[4]) for row in request_rows(shards_of(golden.history("cluster"))) if row[2] == "a"}
    assert rows == {"q0": ("created", 0), "q3": ("partitions-added", 0), "q4": ("rejected", 40)}
