"""The invariants: a clean log passes them all, and each catches the faults that were planted for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from events.catalog import Recorded
from events.codec import encode_event
from projections.replay.checks_packs import ExportEvents
from projections.replay.column_batches import Columns
from projections.replay.columns import COLUMNS
from projections.replay.invariants import CHECKS, look, violations
from tests.events import golden
from tests.replay import planted_partitions, planted_topics
from tests.replay.planted import FAULTS, KINDS, clean
from tests.replay.planted_real import REAL_FAULTS

PLANTED = (planted_partitions, planted_topics)
"""The modules that plant FAULTS when they are imported."""


def frame(spark: SparkSession, logs: Sequence[Sequence[Recorded]]) -> DataFrame:
    """Several logs as if each were one log partition."""
    tables = []
    for log_partition, log in enumerate(logs):
        made = Columns(tuple(COLUMNS))
        for record in log:
            made.add(record, encode_event(record.at_ms, record.cause, record.event))
        table = pa.Table.from_batches([made.batch()])
        tables.append(table.set_column(0, "log_partition", pa.array([log_partition] * len(log), pa.int32())))
    return spark.createDataFrame(pa.concat_tables(tables))


@pytest.fixture(scope="module")
def planted(spark: SparkSession) -> DataFrame:
    """The clean log (0), and the faults after it."""
    logs = [clean(), *(plant(clean()) for _, plant in FAULTS), golden.history("real")]
    logs += [plant(golden.history("real")) for _, plant in REAL_FAULTS]
    logs.append(golden.history(golden.ADOPTED))
    return frame(spark, logs)


@pytest.fixture(scope="module")
def found(spark: SparkSession, planted: DataFrame) -> dict[int, list[Row]]:
    """All violations of each log."""
    by_log: dict[int, list[Row]] = {number: [] for number in range(len(FAULTS) + len(REAL_FAULTS) + 3)}
    for row in violations(spark, look(planted), settle_ms=0).collect():
        by_log[row.log_partition].append(row)
    return by_log


def test_a_clean_log_passes(found: dict[int, list[Row]]) -> None:
    assert found[0] == []
    assert {type(record.event) for record in clean()} == KINDS


def test_a_log_of_real_brokers_passes(found: dict[int, list[Row]]) -> None:
    assert found[len(FAULTS) + 1] == []


def test_a_log_that_begins_with_a_cluster_taken_over_passes(found: dict[int, list[Row]]) -> None:
    assert found[len(FAULTS) + len(REAL_FAULTS) + 2] == []


@pytest.mark.parametrize("number", range(len(REAL_FAULTS)), ids=[plant.__name__ for _, plant in REAL_FAULTS])
def test_a_fault_planted_among_real_brokers_is_caught(found: dict[int, list[Row]], number: int) -> None:
    rows = found[len(FAULTS) + 2 + number]
    assert {row["check"] for row in rows} == {REAL_FAULTS[number][0]}, rows


@pytest.mark.parametrize(
    ("number", "check"),
    [(number, check) for number, (check, _) in enumerate(FAULTS, 1)],
    ids=[plant.__name__ for _, plant in FAULTS],
)
def test_a_planted_fault_is_caught(found: dict[int, list[Row]], number: int, check: str) -> None:
    assert {row["check"] for row in found[number]} == {check}, found[number]


def test_an_export_tells_the_same(
    spark: SparkSession, planted: DataFrame, found: dict[int, list[Row]], tmp_path: Path
) -> None:
    planted.write.parquet(str(tmp_path / "events"))
    files = [str(file) for file in (tmp_path / "events").glob("*.parquet")]
    rows = violations(spark, look(ExportEvents(spark, files)), settle_ms=0).collect()
    assert sorted(map(str, rows)) == sorted(str(row) for some in found.values() for row in some)


def test_an_export_is_checked_up_to_a_moment(spark: SparkSession, planted: DataFrame, tmp_path: Path) -> None:
    planted.write.parquet(str(tmp_path / "events"))
    files = [str(file) for file in (tmp_path / "events").glob("*.parquet")]
    log = look(ExportEvents(spark, files, {0: 40, 1: 3}))
    assert {partition: one.events for partition, one in log.extents.items()} == {0: 40, 1: 3}
    assert violations(spark, log, settle_ms=None).count() == 0


def test_the_number_of_shares_changes_nothing(
    spark: SparkSession, planted: DataFrame, found: dict[int, list[Row]]
) -> None:
    rows = violations(spark, look(planted), settle_ms=0, shares=3).collect()
    assert sorted(map(str, rows)) == sorted(str(row) for some in found.values() for row in some)


def test_every_check_has_a_fault() -> None:
    assert {check for check, _ in FAULTS} == set(CHECKS)
