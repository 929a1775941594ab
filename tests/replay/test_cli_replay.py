"""`topicwright replay`: output, exit codes and error messages."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from controller.cli import main, replay
from controller.store.stored_topics import TOPIC
from events.logs.log import read_one
from projections.replay.log.log_ref import LogRef
from projections.replay.log.secondary import frozen_log
from projections.replay.spark import session as session_module
from tests.replay.damage import put_event, put_view
from tests.replay.history import open_log

DONE_WITHIN_S = 1200


class Ended(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


class Lent:
    """The tests' Spark session, which commands must not stop."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop(self) -> None:
        return None


@pytest.fixture
def run(spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process, with the tests' Spark session."""
    monkeypatch.setattr(session_module, "spark_session", lambda *_: Lent(spark))
    return _runner(capsys)


@pytest.fixture
def run_without_spark(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command that must end before it starts Spark."""

    def never(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session_module, "spark_session", never)
    return _runner(capsys)


def _runner(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_it(*arguments: object) -> Ended:
        try:
            code = main.main(["replay", *map(str, arguments)])
        except SystemExit as end:
            code = int(end.code or 0)
        return Ended(code, *capsys.readouterr())

    return run_it


def command(*arguments: object, env: dict[str, str] | None = None, cwd: Path | None = None) -> Ended:
    """Run a command as a separate process."""
    argv = [sys.executable, "-m", "controller.cli.main", "replay", *map(str, arguments)]
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=DONE_WITHIN_S,
        check=False,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )
    return Ended(done.returncode, done.stdout, done.stderr)


# --- separate processes


def test_replay_hides_spark_logs_and_removes_temporary_folders(history: LogRef, tmp_path: Path) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    place = {"TMPDIR": str(temp), "SPARK_LOCAL_DIRS": str(temp), "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temp}"}
    ended = command("rebuild", history.text, "--at", 10, "--json", "--master", "local[1]", env=place, cwd=tmp_path)
    assert ended.code == 0, ended.err
    shown = json.loads(ended.out)
    assert [row["topic"] for row in shown["rows"]] == ["pay.orders"]
    assert not shown["found"]
    assert ended.err == "", "Spark's own log is off"
    left = [one.name for one in temp.iterdir() if not one.name.startswith("hsperfdata")]
    assert left == [], "temporary folders are removed"
    assert list(tmp_path.iterdir()) == [temp]


def test_spark_log_flag_prints_the_spark_log(history: LogRef, tmp_path: Path) -> None:
    ended = command("rebuild", history.text, "--spark-log", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "log4j" in ended.err
    assert " WARN " in ended.err
    assert ended.out.startswith("TOPIC ")
    assert "\n7 topics as of offset " in ended.out


def test_registering_replay_does_not_import_spark() -> None:
    script = (
        "import sys, argparse; from controller.cli import replay; "
        "replay.register(argparse.ArgumentParser().add_subparsers()); import projections.replay; "
        "print([name for name in sys.modules if name.startswith(('pyspark', 'pyarrow', 'py4j', 'plotly'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


# --- findings


def test_replay_with_findings_exits_with_1(run: Run, own_history: LogRef) -> None:
    with frozen_log(own_history.path) as log:
        stored = log.get(TOPIC + b"slow_one")
    put_view(own_history.path, b"s" + TOPIC + b"late_one", stored)
    ended = run("compare", own_history.text, "--json")
    assert ended.code == 1
    shown = json.loads(ended.out)
    assert shown["found"]
    assert [row["shard"] for row in shown["rows"]] == ["late_one"]
    assert run("compare", own_history.text).code == 1


def test_every_replay_of_a_damaged_log_exits_with_2(run: Run, own_history: LogRef, tmp_path: Path) -> None:
    put_event(own_history.path, 20, b"\xc1")
    for arguments in (
        ("rebuild",),
        ("compare",),
        ("invariants",),
        ("redecide",),
        ("backtest", "--set", "num.partitions=3"),
        ("export", "--to", tmp_path / "out"),
        ("report", "--to", tmp_path / "report.html"),
    ):
        ended = run(arguments[0], own_history.text, *arguments[1:])
        assert ended.code == 2, arguments
        assert ended.out == "", arguments
        assert ended.err.startswith("topicwright: event at offset 20: not an event"), (arguments, ended.err)
    assert list(tmp_path.glob("report*")) == []


def test_rebuild_of_an_inapplicable_event_exits_with_2(run: Run, own_history: LogRef) -> None:
    log = open_log(own_history.path)
    ready = next(offset for offset, value in log.read() if b"TopicReady" in value)
    again = read_one(log, ready)
    log.close()
    put_event(own_history.path, ready + 1, again)
    ended = run("rebuild", own_history.text)
    assert ended.code == 2
    assert ended.err.startswith(f"topicwright: event TopicReady at offset {ready + 1} cannot be applied"), ended.err


# --- errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("rebuild", "missing"), "/missing does not exist: name the folder"),
        (("rebuild", "folder"), "/folder holds no log"),
        (("rebuild", "file"), "/file is not a folder"),
        (("rebuild", ""), "LOG is empty"),
        (("rebuild", "empty"), "topicwright: empty holds no events yet: there is nothing to replay"),
        (("compare", "kafka://localhost/events"), "is not a log in Kafka: use kafka://HOST:PORT[,HOST:PORT]/TOPIC"),
        (("compare", "LOG", "--data", "folder"), "--data is for a log in Kafka"),
        (("rebuild", "LOG", "--kafka-properties", "file"), "--kafka-properties is for a log in Kafka, which "),
        (("rebuild", "kafka://localhost:1/events", "--kafka-properties", "nothing"), "nothing cannot be read"),
        (("rebuild", "LOG", "--at", "100000"), "topicwright: offset 100000 is not reached yet: the newest event is at"),
        (("rebuild", "LOG", "--at", "1999-12-31"), "is before the log begins"),
        (("rebuild", "LOG", "--at", "noon"), "argument --at: 'noon' is not a valid point in time: use an offset"),
        (("compare", "LOG", "--at", "3"), "error: unknown flag --at"),
        (("watch", "LOG", "--at", "3"), "error: unknown flag --at"),
        (("rebuild", "LOG", "--to", "folder"), "topicwright: folder already exists: name a new folder"),
        (("report", "LOG", "--to", "no/page.html"), "no/page.html cannot be written: name a file in an "),
        (("report", "LOG", "--to", "folder"), "folder cannot be written: name a file in an existing folder"),
        (("export", "LOG", "--to", "empty"), "topicwright: empty holds files that are not an export"),
        (("invariants", "LOG", "--export", "empty"), "topicwright: empty holds files that are not an export"),
        (("rebuild", "LOG", "--conf", "nonsense"), "argument --conf: 'nonsense' is not KEY=VALUE"),
        (("rebuild", "LOG", "--limit", "-1"), "argument --limit"),
        (("rebuild", "LOG", "--master", "foo"), "argument --master: 'foo' is not a Spark master: it must be local, "),
        (("backtest", "LOG", "--set", "nonsense"), "argument --set: 'nonsense' is not KEY=VALUE"),
        (("backtest", "LOG"), "topicwright: nothing to test: give --rules FILE, --policy CLASS or --set KEY=VALUE"),
        (("backtest", "LOG", "--set", "num.partitons=3"), "no decision depends on it: did you mean num.partitions?"),
        (("backtest", "LOG", "--set", "num.partitions=0"), "--set num.partitions=0 is not allowed; allowed: "),
        (("backtest", "LOG", "--set", "delete.topic.enable=perhaps"), "=perhaps is not allowed; allowed: "),
        (("backtest", "LOG", "--set", "log.level=debug"), "--set log.level=debug: no decision depends on it: "),
        (("backtest", "LOG", "--policy", "no.such.Policy"), "no.such.Policy"),
        (("backtest", "LOG", "--policy", "tests.replay.redecide.policies.Nobody"), "has no 'Nobody'"),
        (("export", "LOG"), "the following arguments are required: --to"),
        (("rebuild", "LOG", "--local", "--master", "local"), "--master configures Spark, which --local does not use"),
        (("rebuild", "LOG", "--local", "--conf", "a=b"), "--conf configures Spark, which --local does not use"),
        (("report", "LOG", "--local"), "unknown flag --local"),
        (("dream", "LOG"), "argument WHAT: unknown value 'dream'"),
        ((), "the following arguments are required: WHAT"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_invalid_usage_is_reported_before_spark_starts(
    run_without_spark: Run,
    history: LogRef,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    open_log(tmp_path / "empty").close()
    ended = run_without_spark(*(history.text if one == "LOG" else one for one in arguments))
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


def test_every_replay_subcommand_has_a_function() -> None:
    from importlib import import_module

    for name, one in replay.COMMANDS.items():
        assert callable(getattr(import_module(f"projections.replay.{one.module}"), f"run_{name}")), name


def test_spark_start_failure_is_reported_without_a_java_stack_trace() -> None:
    written = (
        "26/11/22 22:02:21 WARN StandaloneSchedulerBackend: Application ID is not initialized yet.\n"
        "26/11/22 22:02:21 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: Giving up.\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
    )
    assert session_module.why_not_started(written) == "Application has been killed. Reason: Giving up."
    thrown = 'Exception in thread "main" org.apache.spark.SparkException: no such master\n\tat org.apache.spark.X\n'
    assert session_module.why_not_started(thrown) == "no such master"
    assert session_module.why_not_started("\tat org.apache.spark.X\n") == ""
