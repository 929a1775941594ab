"""The invariants: sound logs pass them all, and each catches the faults that were planted for it.

The auditor of the machine's tests is another witness of the same rules. Both are put to every golden log and to every
planted fault, and a rule that both have goes by one name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from events.catalog import CreateRequested, Recorded, TopicCreated
from events.codec import decode_event, encode_event
from projections.replay.checks.checking import COLUMNS, Checked, check, check_in_buckets
from projections.replay.checks.history import database, load
from projections.replay.checks.invariants import CHECKS
from projections.replay.checks.rules import parsed, read_invariants
from projections.replay.log.columns import Columns, arrow_schema
from projections.replay.outcome import ReplayError
from projections.replay.runner import Source
from projections.replay.spark.session import OnSpark
from tests.events import golden
from tests.machine.audit import planted_cluster, planted_partitions, planted_topics
from tests.machine.audit.auditor import audit
from tests.machine.audit.planted import clean
from tests.machine.audit.planted_partitions import REAL_FAULTS, while_cordoned

GOLDEN = (*golden.HISTORIES, golden.ADOPTED, golden.FOLLOWED)


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
    **{
        name: (check, plant(clean()))
        for table in (planted_cluster.FAULTS, planted_partitions.FAULTS, planted_topics.FAULTS)
        for check, faults in table.items()
        for name, plant in faults.items()
    },
    **{
        name: (check, plant(golden_log("real")))
        for check, faults in REAL_FAULTS.items()
        for name, plant in faults.items()
    },
}
"""Logs with one fault, with the check that must see it."""
ALSO_FOUND = {
    "a_rejection_called_success": "answer-as-decided",  # the answer is not the rejection's
    "created_though_rejected": "answer-as-decided",  # the later answer is of the creation
    "partitions_that_leave_a_gap": "topic-exists",  # a partition in the gap is filled, and was never created
}
"""Faults that break another invariant too."""
SOUND = {
    "clean": clean(),
    **{name: golden_log(name) for name in GOLDEN},
}
LOGS: dict[tuple[str, str], list[Recorded]] = {
    **{("sound", name): log for name, log in SOUND.items()},
    **{("faulty", name): log for name, (_, log) in FAULTY.items()},
}
"""Every log, in one frame: each as if it were a log partition."""

Row = dict[str, Any]
Found = dict[tuple[str, str], list[Row]]


def batches_of(logs: Iterable[Sequence[Recorded]]) -> list[pa.RecordBatch]:
    """The events of several logs, each as if it were one log partition."""
    batches = []
    for log_partition, log in enumerate(logs):
        made = Columns(COLUMNS, log_partition)
        for record in log:
            made.add(record, encode_event(record.at_ms, record.cause, record.event))
        batches.append(made.batch())
    return batches


def checked(logs: Iterable[Sequence[Recorded]], settle_ms: int | None = 0) -> Checked:
    """What DuckDB finds in logs in this process."""
    with database(threads=1) as history:
        load(history, batches_of(logs), arrow_schema(COLUMNS))
        return check(history, settle_ms=settle_ms)


def rows_of(found: Checked) -> list[Row]:
    """All violations."""
    return [dict(row) for one in found.found for row in one.violations]


@pytest.fixture(scope="module")
def found() -> Found:
    """All violations of each log."""
    by_log: Found = {name: [] for name in LOGS}
    names = list(LOGS)
    for row in rows_of(checked(LOGS.values())):
        by_log[names[row["log_partition"]]].append(row)
    return by_log


def _audited(log: list[Recorded], settled: bool) -> set[str]:
    return {violation.check for violation in audit(log, settled)}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_log_passes_both(found: Found, name: str) -> None:
    assert found["sound", name] == []
    assert _audited(SOUND[name], settled=name not in ("real", "cluster", golden.ADOPTED, golden.FOLLOWED)) == set()


@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_is_caught_by_its_check_alone_and_by_the_auditor(found: Found, name: str) -> None:
    check, log = FAULTY[name]
    rows = found["faulty", name]
    assert {row["check"] for row in rows} == {check, ALSO_FOUND.get(name, check)}, rows
    assert check in _audited(log, settled=True)


def test_every_invariant_has_a_fault_that_both_find() -> None:
    assert {check for check, _ in FAULTY.values()} == set(CHECKS)


def test_spark_finds_the_same_in_any_buckets(spark: SparkSession, found: Found) -> None:
    batches = batches_of(LOGS.values())
    parts = [batches[:9], batches[9:]]

    def events(columns: Sequence[str]) -> Source:
        return Source(parts, lambda some: (batch.select(columns) for batch in some), arrow_schema(columns))

    rows = rows_of(check_in_buckets(OnSpark(spark), events, settle_ms=0, buckets=3))
    assert sorted(map(str, rows)) == sorted(str(row) for some in found.values() for row in some)


def test_the_first_violations_are_shown_and_all_are_counted() -> None:
    log = [*clean(), *clean()[1:]]
    with database(threads=1) as history:
        load(history, batches_of([log]), arrow_schema(COLUMNS))
        first = check(history, limit=2).found[0]
    assert (first.check, len(first.violations)) == ("offsets-contiguous", 2)
    assert first.times == len(clean()) - 1


def test_a_gap_and_a_repetition_after_it_are_both_found() -> None:
    log = clean()
    with_both = [*log[:10], *log[11:13], log[12], *log[13:]]
    (found,) = checked([with_both], settle_ms=None).found[:1]
    assert found.check == "offsets-contiguous"
    assert [row["offset"] for row in found.violations] == [11, 12]


def test_a_key_twice_in_a_map_is_damage() -> None:
    log = [
        replace(one, event=replace(one.event, configs=(("a", "1"), ("a", "2"))))
        if isinstance(one.event, TopicCreated)
        else one
        for one in clean()
    ]
    with pytest.raises(ReplayError, match=r"an event is damaged: .* duplicate key"):
        checked([log])


def test_users_write_invariants_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "own.sql"
    file.write_text(
        "-- names-are-long: a topic's name has two letters\nselect topic from topic_lives where len(topic) = 1;"
    )
    with database(threads=1) as history:
        load(history, batches_of([clean()]), arrow_schema(COLUMNS))
        (only,) = check(history, read_invariants(file)).found
    assert (only.check, only.violations[0]["topic"]) == ("names-are-long", "a")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select 1", "has no name"),
        ("-- Some words\nselect 1", "has no name"),
        ("-- twice: one\nselect 1;\n-- twice: another\nselect 2", "two invariants of this name"),
        ("-- wrong: sql\nselect from where", "syntax error"),
    ],
)
def test_invalid_invariants_are_refused(text: str, said: str) -> None:
    with pytest.raises(ReplayError, match=said):
        parsed(text)


def test_a_query_that_fails_names_its_invariant() -> None:
    with database(threads=1) as history:
        load(history, [], arrow_schema(COLUMNS))
        with pytest.raises(ReplayError, match=r"mine: Catalog Error.*no_such_views"):
            check(history, parsed("-- mine: fails\nselect * from no_such_views"))
