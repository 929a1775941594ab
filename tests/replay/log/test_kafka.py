"""A log in Kafka: every partition equals the same history in a data folder, whatever else the topic holds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from events.catalog import CreateAnswered, Recorded, TopicCreated
from events.errors import UserError
from events.names import shard_key
from projections.replay.checks.invariants import run_invariants
from projections.replay.export import exported, run_export
from projections.replay.log.columns import COLUMNS
from projections.replay.log.kafka_ref import kafka_topic
from projections.replay.log.kafka_scan import KafkaRef, scan
from projections.replay.log.log_ref import Ends, LogRef, Ref, ends_of
from projections.replay.outcome import Options, ReplayError
from projections.replay.rebuild.rebuild import rebuilt, run_rebuild
from projections.replay.redecide.backtest import run_backtest
from projections.replay.redecide.redecide import run_redecide
from projections.replay.report import run_report
from projections.replay.runner import InProcess
from projections.replay.runner import events_of as columns_of
from projections.text.points_in_time import iso
from tests.machine.audit.planted import at, changed, without
from tests.replay.kafka_history import IGNORED_IN_EACH, as_records, in_partitions, make_topic, url
from tests.replay.written import read as events_of
from tests.replay.written import records_of, written
from tests.support.reference_kafka import ReferenceKafka

Parts = list[list[Recorded]]


@pytest.fixture(scope="session")
def parts(history: LogRef) -> Parts:
    """The histories of the partitions."""
    return in_partitions(records_of(history), 2)


@pytest.fixture(scope="session")
def folders(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> list[LogRef]:
    """The same histories in data folders."""
    folder = tmp_path_factory.mktemp("parts")
    return [replace(written(folder / str(number), part), partition=number) for number, part in enumerate(parts)]


def rows(ref: Ref, ends: Ends) -> list[dict[str, Any]]:
    """The events of a log before `ends`, in order."""
    return [row for batch in columns_of(ref, ends, tuple(COLUMNS)).batches() for row in batch.to_pylist()]


def topic_of(kafka: ReferenceKafka, partitions: Sequence[Sequence[Recorded]]) -> KafkaRef:
    """A reference to a new topic with these histories."""
    name = make_topic(kafka.bootstrap, [as_records(part) for part in partitions])
    return scan(kafka_topic(url(kafka, name)))


# --- reading


@pytest.mark.parametrize("size", [50_000, 7])
def test_events_topic_and_data_directory_have_the_same_events(
    spark: SparkSession, in_kafka: KafkaRef, folders: list[LogRef], parts: Parts, size: int
) -> None:
    ref = scan(in_kafka.topic, segment_events=size)
    ends = {n: len(part) for n, part in enumerate(parts)}
    assert {one.partition: one.end for one in ref.partitions} == ends
    expected = [row for one in folders for row in rows(one, ends)]
    assert rows(ref, ends) == expected
    reader = spark.read.format("topicwright").option("rangeevents", size)
    frame = reader.load(ref.text)
    assert frame.rdd.getNumPartitions() >= sum(max(1, len(part) // (2 * size)) for part in parts)
    found = frame.select("log_partition", "offset", "value").orderBy("log_partition", "offset").collect()
    assert [bytes(row.value) for row in found] == [row["value"] for row in expected]


def test_the_events_topic_contains_ignored_records(in_kafka: KafkaRef) -> None:
    for one in in_kafka.partitions:
        (part,) = one.parts
        assert part.kafka_end > IGNORED_IN_EACH
        assert one.cluster[0][0] == 0


def test_spark_reads_an_events_topic_with_options(spark: SparkSession, in_kafka: KafkaRef, parts: Parts) -> None:
    def read(**options: object) -> list[dict[str, Any]]:
        return events_of(in_kafka.text, columns="log_partition,offset,shard", **options)

    def keys(found: list[dict[str, Any]]) -> list[tuple[int, int]]:
        return [(one["log_partition"], one["offset"]) for one in found]

    counts = [len(part) for part in parts]
    assert keys(read(rangeevents=9)) == [(p, n) for p, count in enumerate(counts) for n in range(count)]
    assert keys(read(startoffset=5, endoffset=12, rangeevents=3)) == [(p, n) for p in (0, 1) for n in range(5, 12)]
    assert keys(read(at=4)) == [(p, n) for p in (0, 1) for n in range(5)]
    assert keys(read(logpartition=1, at=2)) == [(1, 0), (1, 1), (1, 2)]
    assert {one["shard"] for one in read(shards="pay.orders,-")} == {"pay_orders", ""}
    reader = spark.read.format("topicwright").options(**{"kafka.client.id": "someone", "at": "0"})
    assert sorted((row.log_partition, row.offset) for row in reader.load(in_kafka.text).collect()) == [(0, 0), (1, 0)]
    most = max(counts)
    assert keys(read(endoffset=most)) == keys(read())
    for options, says in (
        ({"endoffset": most + 1}, f"endoffset={most + 1} is past the end"),
        ({"at": most}, f"offset {most} is not reached yet"),
        ({"at": "1999-12-31"}, "1999-12-31 is before the log begins: its first event is of 20"),
        ({"logpartition": 2}, "has no partition 2: it has partitions 0 to 1"),
        ({"kafka.group.id": "mine"}, "group.id cannot be set here"),
    ):
        with pytest.raises(UserError) as refused:
            read(**options)
        assert says in str(refused.value), options


def test_a_time_resolves_to_an_offset_of_each_partition(in_kafka: KafkaRef, parts: Parts) -> None:
    ref = scan(in_kafka.topic, segment_events=11)
    for record in parts[0][:: len(parts[0]) // 7]:
        wanted = {n: sum(one.at_ms <= record.at_ms for one in part) for n, part in enumerate(parts)}
        assert ends_of(ref, f"{record.at_ms}ms") == wanted
    with pytest.raises(ReplayError, match=f"its first event is of {iso(parts[0][0].at_ms)}"):
        ends_of(ref, f"{parts[0][0].at_ms - 1}ms")


def test_an_offset_ends_at_the_end_of_its_command_in_each_partition(
    in_kafka: KafkaRef, folders: list[LogRef], parts: Parts
) -> None:
    ref, inside = scan(in_kafka.topic, segment_events=11), 0
    for offset in range(0, max(map(len, parts)), 5):
        last = [min(offset, len(part) - 1) for part in parts]
        wanted = {n: ends_of(folders[n], str(last[n]))[n] for n in range(len(parts))}
        assert ends_of(ref, str(offset)) == wanted
        inside += any(wanted[n] > last[n] + 1 for n in wanted)
    assert inside > 3


# --- rebuilt state


def test_topics_rebuilt_from_kafka_equal_those_of_data_directories(in_kafka: KafkaRef, folders: list[LogRef]) -> None:
    def topics(ref: Ref) -> list[dict[str, Any]]:
        table = rebuilt(InProcess(), ref, ends_of(in_kafka))
        found: list[dict[str, Any]] = table.sort_by(
            [("log_partition", "ascending"), ("shard", "ascending")]
        ).to_pylist()
        return found

    assert topics(in_kafka) == [row for one in folders for row in topics(one)]


def test_rebuilt_rows_name_their_log_partition(in_kafka: KafkaRef, tmp_path: Path) -> None:
    topics = run_rebuild(InProcess(), in_kafka, Options(all_rows=True))
    assert [row["log_partition"] for row in topics.rows] == sorted(row["log_partition"] for row in topics.rows)
    assert {row["log_partition"] for row in topics.rows} == {0, 1}
    early = run_rebuild(InProcess(), in_kafka, Options(at="12"))
    assert early.lines[0].endswith(" as of offsets 14 of partition 0, 12 of partition 1")
    to = Options(to=str(tmp_path / "out"))
    assert run_rebuild(InProcess(), in_kafka, to).rows[0]["offsets"] == {
        str(partition): end - 1 for partition, end in ends_of(in_kafka).items()
    }


# --- damage


def test_a_violation_names_its_log_partition(kafka44: ReferenceKafka, parts: Parts) -> None:
    for number, part in enumerate(parts):
        answered = at(part, CreateAnswered, nth=1)
        ref = topic_of(kafka44, [without(part, answered) if n == number else one for n, one in enumerate(parts)])
        checked = run_invariants(InProcess(), ref, Options())
        assert checked.found
        assert {(row["check"], row["log_partition"]) for row in checked.rows} == {("one-answer", number)}
        assert f" of partition {number}, topic {checked.rows[0]['topic']}: " in "\n".join(checked.lines)


def test_redecide_names_the_log_partition_of_a_changed_decision(kafka44: ReferenceKafka, parts: Parts) -> None:
    created = at(parts[1], TopicCreated)
    deadline_ms = parts[1][created].event.deadline_ms + 1  # type: ignore[union-attr]
    ref = topic_of(kafka44, [parts[0], changed(parts[1], created, deadline_ms=deadline_ms)])
    again = run_redecide(InProcess(), ref, Options())
    assert [(row["log_partition"], row["topic"]) for row in again.rows] == [(1, parts[1][created].event.topic)]  # type: ignore[union-attr]


# --- commands


def test_a_backtest_covers_the_requests_of_all_log_partitions(in_kafka: KafkaRef, history: LogRef) -> None:
    tried = Options(settings=(("delete.topic.enable", "false"),))
    mine, theirs = run_backtest(InProcess(), in_kafka, tried), run_backtest(InProcess(), history, tried)
    assert mine.found
    assert [(row["change"], row["count"], row["requests"]) for row in mine.rows] == [
        (row["change"], row["count"], row["requests"]) for row in theirs.rows
    ]


def test_an_export_has_a_folder_for_each_log_partition(in_kafka: KafkaRef, parts: Parts, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = run_export(InProcess(), in_kafka, Options(at="30", export=str(out)))
    added = [row["added"] for row in first.rows]
    assert added == [31, 32], "up to the end of the command"
    second = run_export(InProcess(), in_kafka, Options(export=str(out)))
    assert [row["added"] for row in second.rows] == [len(part) - n for part, n in zip(parts, added, strict=True)]
    ends = ends_of(in_kafka)
    stored = [row for batch in exported(str(out), ends, tuple(COLUMNS)).batches() for row in batch.to_pylist()]
    assert sorted(stored, key=lambda row: (row["log_partition"], row["offset"])) == rows(in_kafka, ends)
    checked = run_invariants(InProcess(), in_kafka, Options(export=str(out)))
    assert not checked.found, "\n".join(checked.lines)


def test_a_report_counts_the_events_of_all_log_partitions(in_kafka: KafkaRef, parts: Parts, tmp_path: Path) -> None:
    done = run_report(None, in_kafka, Options(to=str(tmp_path / "page.html")))
    assert not done.found
    assert f"{sum(map(len, parts)):,} events from " in (tmp_path / "page.html").read_text()
    topics = {shard_key(one.event.topic) for part in parts for one in part if isinstance(one.event, TopicCreated)}
    assert len(topics) > 3
