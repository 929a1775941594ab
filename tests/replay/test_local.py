"""Replays without Spark give the same answers: every sub-command that supports it, on sound and on damaged logs."""

from __future__ import annotations

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
from controller.cli import replay
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
    *(
        ("rebuild", Options(view=view, all_rows=rows))
        for view in ("topics", "requests", "brokers")
        for rows in (True, False)
    ),
    ("rebuild", Options(at="10")),
    ("compare", Options()),
    ("invariants", Options()),
    ("invariants", Options(at="20", all_rows=True)),
    ("redecide", Options()),
    ("backtest", Options(settings=(("enable.under.replicated.topic.creation", "true"),))),
    ("backtest", Options(policies=("tests.replay.redecide.policies.FewPartitions",))),
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
        outcome(runner, "export", history, Options(more={"export": str(tmp_path / name)}))
        files = sorted((tmp_path / name).rglob("*.parquet"))
        tables.append(pa.concat_tables([pq.read_table(file) for file in files]).sort_by("offset"))
    assert tables[0].equals(tables[1])
    checked = outcome(InProcess(), "invariants", history, Options(more={"export": str(tmp_path / "here")}))
    assert not checked["found"]


def test_local_replays_of_an_events_topic_equal_spark(spark: SparkSession, in_kafka: KafkaRef) -> None:
    for name in ("rebuild", "invariants", "redecide"):
        here = outcome(InProcess(), name, in_kafka, Options())
        assert not here["found"], here["lines"]
        assert here == outcome(OnSpark(spark), name, in_kafka, Options())


@pytest.mark.parametrize(
    ("module", "named"), [("pyarrow.compute", "pyarrow"), ("pyspark.sql", "Spark"), ("py4j", "Spark")]
)
def test_a_missing_replay_dependency_is_named(module: str, named: str) -> None:
    error = replay._no_spark(ModuleNotFoundError(f"No module named '{module}'", name=module))
    assert str(error).startswith(f"replay needs {named}: install topicwright[replay]")


BLOCKED = """
import json, sys

class NotInstalled:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas", "plotly"):
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, NotInstalled())
from controller.cli import main
for words in json.loads(sys.argv[1]):
    code = main.main(words)
    if code not in (0, 1):
        sys.exit(f"{words}: {code}")
"""


def test_local_replay_requires_neither_spark_nor_pandas(history: LogRef, tmp_path: Path) -> None:
    commands = []
    for name, command in COMMANDS.items():
        if command.spark:
            words = ["replay", name, history.text, "--local"]
            words += ["--set", "num.partitions=3"] if name == "backtest" else []
            words += ["--to", str(tmp_path / name)] if name in ("export", "views") else []
            commands.append(words)
    commands.append(["replay", "sql", history.text, "select count(*) from topic_lives"])
    env = {**os.environ, "JAVA_HOME": "/nowhere"}
    argv = [sys.executable, "-c", BLOCKED, json.dumps(commands)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_generated_log_passes_every_invariant(tmp_path: Path) -> None:
    Generator(tmp_path / "log", seed=1, skewed=False).write(events=3000, topics=200)
    found = outcome(InProcess(), "invariants", open_ref(str(tmp_path / "log")), Options())
    assert not found["found"], found["lines"]
