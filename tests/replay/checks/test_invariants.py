"""The invariants: sound logs pass them all, and each catches the faults that were planted for it.

The auditor of the machine's tests is another witness of the same rules. Both are put to every golden log and to every
planted fault, and a rule that both have goes by one name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from events.catalog import CreateRequested, Recorded, TopicCreated
from events.codec import decode_event, encode_event
from projections.replay.checks.invariants import CHECKS, look, violations
from projections.replay.checks.packs import ExportEvents
from projections.replay.spark.column_batches import Columns
from projections.replay.spark.columns import COLUMNS
from tests.events import golden
from tests.machine.audit import planted_partitions, planted_topics, rules
from tests.machine.audit.auditor import audit
from tests.machine.audit.planted import FAULTS, clean
from tests.machine.audit.planted_partitions import REAL_FAULTS, while_cordoned
from tests.machine.audit.real_auditor import RealAuditor

PLANTED = (planted_partitions, planted_topics)
"""The modules that plant FAULTS when they are imported."""
GOLDEN = (*golden.HISTORIES, golden.ADOPTED, golden.FOLLOWED, *(f"{name}-0.1" for name in golden.OLDER))


def golden_log(name: str) -> list[Recorded]:
    """The events of a golden file."""
    return [decode_event(offset, value) for offset, value in enumerate(golden.lines_of(name))]


def placed_on_a_cordoned_broker(log: list[Recorded]) -> list[Recorded]:
    """The first topic that is placed without a manual assignment, on a broker that was to get nothing."""
    manual = {one.event.request_id for one in log if isinstance(one.event, CreateRequested) and one.event.assignments}
    at, created = next(
        (number, one.event)
        for number, one in enumerate(log)
        if isinstance(one.event, TopicCreated)
        and one.event.request_id not in manual
        and min(one.event.partitions[0].replicas) > 0
    )
    return while_cordoned(log, at, created.partitions[0].replicas[0])


FAULTY = {
    "placed_on_a_cordoned_broker": ("replicas-live", placed_on_a_cordoned_broker(clean())),
    **{plant.__name__: (check, plant(clean())) for check, plant in FAULTS},
    **{plant.__name__: (check, plant(golden_log("real"))) for check, plant in REAL_FAULTS},
}
"""Logs with one fault, with the check that must see it."""
SOUND = {
    "clean": clean(),
    **{name: golden_log(name) for name in GOLDEN},
}
LOGS: dict[tuple[str, str], list[Recorded]] = {
    **{("sound", name): log for name, log in SOUND.items()},
    **{("faulty", name): log for name, (_, log) in FAULTY.items()},
}
"""Every log, in one frame: each as if it were a log partition."""

Found = dict[tuple[str, str], list[Row]]


def frame_of(spark: SparkSession, logs: Iterable[Sequence[Recorded]]) -> DataFrame:
    """The events of several logs, each as if it were one log partition."""
    batches = []
    for log_partition, log in enumerate(logs):
        made = Columns(tuple(COLUMNS), log_partition)
        for record in log:
            made.add(record, encode_event(record.at_ms, record.cause, record.event))
        batches.append(made.batch())
    return spark.createDataFrame(pa.Table.from_batches(batches))


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """The events of all logs."""
    return frame_of(spark, LOGS.values())


@pytest.fixture(scope="module")
def found(spark: SparkSession, frame: DataFrame) -> Found:
    """All violations of each log."""
    by_log: Found = {name: [] for name in LOGS}
    names = list(LOGS)
    for row in violations(spark, look(frame), settle_ms=0).collect():
        by_log[names[row.log_partition]].append(row)
    return by_log


@pytest.fixture(scope="module")
def files(frame: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same events in the files of an export."""
    folder = tmp_path_factory.mktemp("export") / "events"
    frame.write.parquet(str(folder))
    return [str(file) for file in folder.glob("*.parquet")]


def _audited(log: list[Recorded], settled: bool) -> set[str]:
    return {violation.check for violation in audit(log, settled, of=RealAuditor)}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_log_passes_both(found: Found, name: str) -> None:
    assert found["sound", name] == []
    assert _audited(SOUND[name], settled=name not in ("real", "cluster", golden.ADOPTED, golden.FOLLOWED)) == set()


@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_is_caught_by_its_check_alone_and_by_the_auditor(found: Found, name: str) -> None:
    check, log = FAULTY[name]
    rows = found["faulty", name]
    assert {row["check"] for row in rows} == {check}, rows
    assert check in _audited(log, settled=True)


def test_both_have_the_same_rules() -> None:
    assert set(CHECKS) == set(rules.CHECKS) - set(rules.OF_THE_AUDITOR)
    assert {check for check, _ in FAULTS} == set(CHECKS)


def test_an_export_gives_the_same(spark: SparkSession, files: list[str], found: Found) -> None:
    rows = violations(spark, look(ExportEvents(spark, files)), settle_ms=0, shares=3).collect()
    assert sorted(map(str, rows)) == sorted(str(row) for some in found.values() for row in some), "in any shares"


def test_an_export_is_checked_up_to_a_moment(spark: SparkSession, files: list[str]) -> None:
    log = look(ExportEvents(spark, files, {0: 40, 1: 3}))
    assert {partition: one.events for partition, one in log.extents.items()} == {0: 40, 1: 3}
    assert violations(spark, log, settle_ms=None).count() == 0
