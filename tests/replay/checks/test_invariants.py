"""The invariants of the replay: sound logs pass all of them, and each finds the faults planted for it."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from events.catalog import CreateRequested, CreationRefused, Recorded, TopicCreated, TopicVanished
from events.codec import decode_event
from events.logs.log import LogCorrupted
from projections.replay.checks import checking
from projections.replay.checks.checking import Result, Save, check, check_here, check_in_buckets
from projections.replay.checks.growth import FILE, write_checkpoint
from projections.replay.checks.history import COLUMNS, history_of
from projections.replay.checks.invariants import CHECKS, check_invariants, run_invariants
from projections.replay.checks.rules import COLUMNS as VIOLATION
from projections.replay.checks.rules import (
    Found,
    Invariant,
    across_topics,
    invariants,
    parsed,
    read_invariants,
    together,
)
from projections.replay.export import exported
from projections.replay.log.columns import arrow_schema
from projections.replay.log.log_ref import LogRef, ends_of
from projections.replay.outcome import Options, Outcome, ReplayError
from projections.replay.runner import InProcess, Source, events_of
from projections.replay.spark.session import OnSpark
from tests.events import golden
from tests.machine.audit import planted_cluster, planted_partitions, planted_topics
from tests.machine.audit.auditor import batches_of, checked
from tests.machine.audit.planted import at, changed, clean
from tests.machine.audit.planted_partitions import REAL_FAULTS, while_cordoned
from tests.replay.checks.damaged import damaged
from tests.replay.written import written

GOLDEN = (*golden.HISTORIES, golden.ADOPTED, golden.FOLLOWED)


def golden_log(name: str) -> list[Recorded]:
    """The events of a golden file."""
    return [decode_event(offset, value) for offset, value in enumerate(golden.lines_of(name))]


def placed_on_a_cordoned_broker(log: list[Recorded]) -> list[Recorded]:
    """The first topic placed without a manual assignment gets a cordoned broker."""
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
    "a_topic_that_never_was_vanishes": (
        "topic-exists",
        changed(CLUSTER := golden_log("cluster"), at(CLUSTER, TopicVanished), topic="never"),
    ),
}
"""Logs with one fault, and the check that must find it."""
ALSO_FOUND = {
    "a_rejection_called_success": "answer-as-decided",  # the answer differs from the rejection
    "created_though_rejected": "answer-as-decided",  # the later answer belongs to the creation
    "partitions_that_leave_a_gap": "topic-exists",  # a partition in the gap becomes complete, and was never created
}
"""Faults that also violate another invariant."""
SOUND = {"clean": clean(), **{name: golden_log(name) for name in GOLDEN}}
OF_THE_NEXT_CHANGE = ("epochs-never-go-back", "placeholders-filled")
"""Invariants that a later change of a faulty partition may violate."""
LOGS: dict[tuple[str, str], list[Recorded]] = {
    **{("sound", name): log for name, log in SOUND.items()},
    **{("faulty", name): log for name, (_, log) in FAULTY.items()},
}
"""All logs in one frame, each as a log partition."""

Row = dict[str, Any]
Violations = dict[tuple[str, str], list[Row]]


def rows_of(result: Result) -> list[Row]:
    """All violations."""
    return [{name: row[name] for name in VIOLATION} for row in result.rows]


def found_in(result: Result, limit: int | None = None, more: Sequence[Invariant] = ()) -> list[Found]:
    """The violated invariants."""
    return together(result.rows, (*invariants(), *more), limit)


@pytest.fixture(scope="module")
def found() -> Violations:
    """All violations of each log."""
    by_log: Violations = {name: [] for name in LOGS}
    names = list(LOGS)
    for row in rows_of(checked(LOGS.values())):
        by_log[names[row["log_partition"]]].append(row)
    return by_log


@pytest.mark.parametrize("name", SOUND)
def test_a_valid_log_passes_all_invariants(found: Violations, name: str) -> None:
    assert found["sound", name] == []


@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_violates_only_its_invariant(found: Violations, name: str) -> None:
    check, rows = FAULTY[name][0], found["faulty", name]
    first = min((row["offset"] for row in rows if row["check"] == check), default=len(FAULTY[name][1]))
    others = {row["check"] for row in rows if row["offset"] <= first or row["check"] not in OF_THE_NEXT_CHANGE}
    assert others == {check, ALSO_FOUND.get(name, check)}, rows


def test_every_invariant_has_a_planted_fault() -> None:
    assert {check for check, _ in FAULTY.values()} == set(CHECKS)


def test_random_damage_violates_an_invariant_unless_it_is_another_possible_history() -> None:
    made = [damaged(seed) for seed in range(60)]
    found = {row["log_partition"] for row in checked(one.log for one in made).rows}
    possible = [one.done for number, one in enumerate(made) if number not in found]
    assert len(possible) == 9, possible  # two events swapped that concern different topics, or another refusal
    assert all(len(done) == 1 for done in possible), possible


def test_spark_finds_the_same_violations_for_any_number_of_buckets(
    spark: SparkSession, found: Violations, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = batches_of(LOGS.values())
    parts = [batches[:9], batches[9:]]

    def events(columns: Sequence[str]) -> Source:
        return Source(parts, lambda some: (batch.select(columns) for batch in some), arrow_schema(columns))

    monkeypatch.setattr(checking, "SETTLE_MS", 0)
    monkeypatch.setattr(checking, "BUCKET_EVENTS", sum(map(len, batches)) * 2 // 5)
    rows = rows_of(check_in_buckets(OnSpark(spark), events))
    assert sorted(map(str, rows)) == sorted(str(row) for some in found.values() for row in some)


def test_cause_exists_finds_a_refusal_of_the_target_cluster_that_a_deletion_caused() -> None:
    log = golden_log("cluster")
    refused = at(log, CreationRefused)
    log[refused] = replace(log[refused], cause=replace(log[refused].cause, command="DeleteTopic"))
    assert "cause-exists" in {one.check for one in found_in(checked([log], settle_ms=None))}


def test_violations_are_limited_and_all_are_counted() -> None:
    log = [*clean(), *clean()[1:]]
    with history_of(batches_of([log]), arrow_schema(COLUMNS), in_task=True) as history:
        first = found_in(check(history, limit=2), 2)[0]
    assert (first.check, len(first.violations)) == ("offsets-contiguous", 2)
    assert first.times == len(clean()) - 1


def test_offsets_contiguous_finds_a_gap_and_a_later_repetition() -> None:
    log = clean()
    with_both = [*log[:10], *log[11:13], log[12], *log[13:]]
    (found,) = found_in(checked([with_both], settle_ms=None))[:1]
    assert found.check == "offsets-contiguous"
    assert [row["offset"] for row in found.violations] == [11, 12]


def test_a_duplicate_map_key_is_damage() -> None:
    log = [
        replace(one, event=replace(one.event, configs=(("a", "1"), ("a", "2"))))
        if isinstance(one.event, TopicCreated)
        else one
        for one in clean()
    ]
    with pytest.raises(ReplayError, match=r"an event is damaged, and DuckDB cannot load it: .* duplicate key"):
        checked([log])


def test_an_error_of_reading_is_raised_as_it_is() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from batches_of([clean()])
        raise LogCorrupted("a block of the log is damaged")

    with pytest.raises(LogCorrupted, match=r"^a block"), history_of(batches(), arrow_schema(COLUMNS), in_task=True):
        pass


def test_invariants_of_users_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "own.sql"
    file.write_text(
        "-- names-are-long: a topic's name has two letters\nselect topic from topic_lives where len(topic) = 1;"
    )
    with history_of(batches_of([clean()]), arrow_schema(COLUMNS), in_task=True) as history:
        (only,) = found_in(check(history, read_invariants(file)), more=read_invariants(file))
    assert (only.check, only.violations[0]["topic"]) == ("names-are-long", "a")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select 1", "has no name"),
        ("-- Some words\nselect 1", "has no name"),
        ("-- twice: one\nselect 1;\n-- twice: another\nselect 2", "duplicate invariant names: twice"),
        ("-- wrong: sql\nselect from where", "syntax error"),
    ],
)
def test_invalid_invariants_are_rejected(text: str, said: str) -> None:
    with pytest.raises(ReplayError, match=said):
        parsed(text)


def test_a_failing_sql_query_names_its_invariant() -> None:
    with (
        history_of([], arrow_schema(COLUMNS), in_task=True) as history,
        pytest.raises(ReplayError, match=r"mine: Catalog Error.*no_such_views"),
    ):
        check(history, parsed("-- mine: fails\nselect * from no_such_views"))


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("select topic, 'x' as seen, 'y' as expected from topic_lives where since > 3", ""),
        ("select topic, count(*) from topic_lives group by topic", ""),
        ("select topic, count(*) from topic_lives group by all", ""),
        ("select lag(since) over (partition by shard order by since) from topic_lives", ""),
        ("select l.topic from topic_lives l join requests r on r.topic = l.topic", ""),
        ("select count(*) from topic_lives", "an aggregate that is not grouped by topic"),
        ("select distinct on (seen) len(topic) as seen from topic_lives limit 3", "a limit"),
        ("select topic from topic_lives where since = (select max(since) from topic_lives)", "a subquery"),
        ("select lag(topic) over (order by since) from topic_lives", "a window that is not partitioned by topic"),
        ("select a.topic from topic_lives a, topic_lives b where a.since = b.until", "a join that is not on topic"),
        ("select topic from topic_lives where since in (select until from topic_lives)", "a subquery that is not on"),
        ("select topic from topic_lives where topic not in (select topic from requests)", ""),
        (
            "select since from topic_lives except select until from topic_lives",
            "a comparison of rows without their topic",
        ),
        ("select topic from topic_lives l join broker_spans b on l.since = b.since", ""),
        ("select count(*) from broker_spans", ""),
    ],
)
def test_across_topics_detects_queries_that_join_topics(query: str, why: str) -> None:
    assert across_topics(query).startswith(why)
    assert bool(across_topics(query)) == bool(why)


OWN: list[tuple[str, str]] = [
    (
        "-- few: there are few topics\nselect count(*) as seen, 3 as expected from topic_lives having count(*) > 3",
        "few has an aggregate",
    ),
    ("-- mine: fails\nselect topic, sinse as seen from topic_lives", r'(?s)mine: Binder.*"sinse".*"since".*LINE 1.*\^'),
    ("-- mine: fails\nselect topic from topic_lifes", r"(?s)mine: Catalog.*topic_lives"),
    ("-- mine: deletes\ndelete from log.events", "is no query"),
    ("-- mine: no violation\nselect topic, topic as seen from topic_lives", "mine has no column expected"),
    ("-- a comment alone", "own.sql has no check: write"),
    ("select topic from topic_lives", "has no name: write the comment"),
]


@pytest.mark.parametrize(("text", "why"), OWN)
def test_a_check_that_cannot_run_is_rejected_before_spark_starts(
    history: LogRef, tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "own.sql"
    file.write_text(text)
    with pytest.raises(ReplayError, match=why):
        check_invariants(history, Options(checks=file))


@pytest.mark.parametrize("runner", ["here", "in_buckets"])
def test_own_checks_read_every_column_of_the_events(history: LogRef, tmp_path: Path, runner: str) -> None:
    own = parsed(
        "-- mine: nobody creates\nselect topic, principal as seen, 'nobody' as expected from events"
        " where type = 'CreateRequested' and client_id = 'terraform'"
    )
    events, every = partial(events_of, history, ends_of(history)), (*invariants(), *own)
    run = check_here(events, every) if runner == "here" else check_in_buckets(InProcess(), events, every)
    assert {row["seen"] for row in run.rows} >= {"User:ann"}


def test_a_check_across_topics_runs_locally(history: LogRef, tmp_path: Path) -> None:
    file = tmp_path / "own.sql"
    file.write_text(OWN[0][0])
    options = Options(local=True, checks=file)
    check_invariants(history, options)
    assert run_invariants(InProcess(), history, options).found


# --- checks of new events only


def exported_log(folder: Path, log: Sequence[Recorded], events: int) -> Outcome:
    """Update an export to the first `events` events of a log, and check it."""
    if not (folder / "log").exists():
        written(folder / "log", log)
    options = Options(export=str(folder / "export"), at=str(events - 1), all_rows=True)
    return run_invariants(InProcess(), LogRef(str(folder / "log"), folder / "log"), options)


@pytest.mark.parametrize("seed", [8, 22, 64, 161])
def test_incremental_check_of_a_grown_log_equals_a_full_check(tmp_path: Path, seed: int) -> None:
    log = damaged(seed).log
    for events in (len(log) // 3, 49, 50, len(log) - 5, len(log)):
        grown = exported_log(tmp_path, log, events)
        whole = run_invariants(
            InProcess(), LogRef(str(tmp_path / "log"), tmp_path / "log"), Options(at=str(events - 1), all_rows=True)
        )
        assert list(grown.rows) == list(whole.rows)
        assert grown.about == whole.about
    assert "are new" in grown.lines[-2]


def test_incremental_check_of_a_sound_log_reads_no_topic_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projections.replay.checks.growth._AGAIN", None)
    for events in (30, 51, 70, 115, 118):  # each at the end of a decision
        assert not exported_log(tmp_path, clean(), events).found


def test_a_check_in_buckets_writes_the_same_checkpoint(tmp_path: Path) -> None:
    log = damaged(64).log
    exported_log(tmp_path, log, len(log))
    events = partial(exported, str(tmp_path / "export"), {0: len(log)})

    def checkpoint(name: str, check: Any) -> list[list[Any]]:
        (folder := tmp_path / name).mkdir()
        save = Save(str(folder), partial(write_checkpoint, str(folder), "rules"))
        assert check(events, save=save).rows != []
        assert [file.name for file in folder.iterdir()] == [FILE], "the files of the buckets are removed"
        with duckdb.connect(folder / FILE) as stored:
            tables = ("carried", "requests", "runs", "found")
            return [stored.sql(f"from {table} order by all").fetchall() for table in tables]

    assert checkpoint("whole", check_here) == checkpoint("buckets", partial(check_in_buckets, InProcess()))


def test_changed_invariants_discard_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported_log(tmp_path, clean(), 50)
    assert "are new" in exported_log(tmp_path, clean(), 60).lines[-2]
    monkeypatch.setattr("projections.replay.checks.invariants.rules_hash", lambda _: "newer")
    assert "are new" not in exported_log(tmp_path, clean(), 70).lines[-2]


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    exported_log(tmp_path, clean(), 50)
    file = tmp_path / "export" / FILE
    content = file.read_bytes()
    for damaged_content in (b"", content[:-300_000], content[:12_300] + b"x" + content[12_301:]):
        file.write_bytes(damaged_content)
        with pytest.raises(
            ReplayError, match=rf"{FILE} of the last check cannot be used: .*; if no check runs, remove it"
        ):
            exported_log(tmp_path, clean(), 60)
    file.unlink()
    assert "are new" not in exported_log(tmp_path, clean(), 60).lines[-2]
    assert "are new" in exported_log(tmp_path, clean(), 60).lines[-2]
