"""Replays without Spark give the same answers: every sub-command that supports it, on sound and on damaged logs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from benchmarks.generate import Generator
from controller.cli.replay import COMMANDS
from controller.store.stored_topics import TOPIC
from events.logs.log import read_one
from projections.replay.log.kafka_scan import KafkaRef
from projections.replay.log.log_ref import LogRef, Ref, open_ref
from projections.replay.log.secondary import frozen_log
from projections.replay.outcome import Options, Outcome
from projections.replay.runner import InProcess, Runner
from projections.replay.spark.session import OnSpark
from tests.replay.damage import put_event, put_view

WAYS: list[tuple[str, Options]] = [
    ("rebuild", Options()),
    ("rebuild", Options(all_rows=True)),
    ("rebuild", Options(at="10")),
    ("compare", Options()),
    ("invariants", Options()),
    ("invariants", Options(at="20", all_rows=True)),
    ("redecide", Options()),
    ("backtest", Options(settings=(("enable.under.replicated.topic.creation", "true"),))),
    (
        "backtest",
        Options(settings=(("create.topic.policy.class.name", "tests.replay.redecide.policies.FewPartitions"),)),
    ),
    ("backtest", Options(settings=(("topic.rules.file", "examples/rules/pack.toml"),))),
]


def outcome(runner: Runner, name: str, ref: Ref, options: Options) -> Any:
    run: Callable[..., Outcome] = getattr(import_module(f"projections.replay.{COMMANDS[name].module}"), f"run_{name}")
    return msgspec.to_builtins(run(runner, ref, options)._asdict())


@pytest.mark.parametrize(("name", "options"), WAYS, ids=lambda one: one if isinstance(one, str) else "")
def test_local_replays_equal_spark(spark: SparkSession, history: LogRef, name: str, options: Options) -> None:
    assert outcome(InProcess(), name, history, options) == outcome(OnSpark(spark), name, history, options)


def test_local_replays_find_the_same_damage_as_spark(spark: SparkSession, own_history: LogRef) -> None:
    with frozen_log(own_history.path) as log:
        stored, event = log.get(TOPIC + b"slow_one"), read_one(log, 20)
    put_view(own_history.path, b"s" + TOPIC + b"late_one", stored)
    put_event(own_history.path, 15, event)
    for name in ("compare", "invariants", "redecide"):
        here = outcome(InProcess(), name, own_history, Options())
        assert here["found"], name
        assert here == outcome(OnSpark(spark), name, own_history, Options())


def test_local_export_equals_spark_export(spark: SparkSession, history: LogRef, tmp_path: Path) -> None:
    tables = []
    for name, runner in (("here", InProcess()), ("spark", OnSpark(spark))):
        outcome(runner, "export", history, Options(export=str(tmp_path / name)))
        files = sorted((tmp_path / name).rglob("*.parquet"))
        tables.append(pa.concat_tables([pq.read_table(file) for file in files]).sort_by("offset"))
    assert tables[0].equals(tables[1])
    checked = outcome(InProcess(), "invariants", history, Options(export=str(tmp_path / "here")))
    assert not checked["found"]


def test_local_replays_of_an_events_topic_equal_spark(spark: SparkSession, in_kafka: KafkaRef) -> None:
    for name in ("rebuild", "invariants", "redecide"):
        here = outcome(InProcess(), name, in_kafka, Options())
        assert not here["found"], here["lines"]
        assert here == outcome(OnSpark(spark), name, in_kafka, Options())


BLOCKED = """
import json, sys

class NotInstalled:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("faust", "mcp", "pandas", "plotly", "py4j", "pyspark"):
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, NotInstalled())
from controller.cli import main
for words in json.loads(sys.argv[1]):
    code = main.main(words)
    if code not in (0, 1, 2):
        sys.exit(f"{words}: {code}")
"""


def _without_extras(commands: list[list[str]]) -> tuple[int, str]:
    """The exit code and the errors of a process that runs these commands without the packages of all extras."""
    argv, env = [sys.executable, "-c", BLOCKED, json.dumps(commands)], {**os.environ, "JAVA_HOME": "/nowhere"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False, env=env)
    return done.returncode, done.stderr


def test_a_missing_extra_is_named(history: LogRef, tmp_path: Path) -> None:
    for extra, missing, *words in (
        ("spark", "py4j", "replay", "invariants", history.text),
        ("report", "plotly", "replay", "report", history.text, "--to", str(tmp_path / "report.html")),
        ("mcp", "mcp", "mcp"),
        ("faust", "faust", "worker", "--bootstrap", "127.0.0.1:1", "--data", str(tmp_path / "worker")),
    ):
        code, printed = _without_extras([words])
        assert code == 0, printed
        instead = "add --local, or " if extra == "spark" else ""
        expected = f" needs {missing}, which is not installed: {instead}pip install 'topicwright[{extra}]'"
        assert expected in printed, words


def test_local_replay_requires_neither_spark_nor_pandas(history: LogRef, tmp_path: Path) -> None:
    commands = []
    for name, command in COMMANDS.items():
        if command.spark:
            words = ["replay", name, history.text, "--local"]
            words += ["--set", "num.partitions=3"] if name == "backtest" else []
            words += ["--to", str(tmp_path / name)] if name in ("export", "views") else []
            commands.append(words)
    commands.append(["replay", "sql", history.text, "select count(*) from topic_lives"])
    assert _without_extras(commands) == (0, "")


def test_a_generated_log_passes_every_invariant(tmp_path: Path) -> None:
    Generator(tmp_path / "log", seed=1, skewed=False).write(events=3000, topics=200)
    found = outcome(InProcess(), "invariants", open_ref(str(tmp_path / "log")), Options())
    assert not found["found"], found["lines"]
