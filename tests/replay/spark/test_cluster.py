"""Replays on a standalone cluster: a master and a worker of their own, which have this project's code from the job."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from projections.replay.log.log_ref import KafkaRef, LogRef
from tests.conftest import SPARK_SETTINGS
from tests.support.cluster import spark
from tests.support.tools import ROOT
from tests.support.topicwright import COMMAND

SPARK = Path(pyspark.__file__).parent
DONE_WITHIN_S = 1200
SMALL = (
    "spark.executor.memory=512m",
    "spark.executor.cores=1",
    "spark.cores.max=1",
    "spark.driver.memory=512m",
    "spark.sql.shuffle.partitions=1",
    *(f"{name}={SPARK_SETTINGS[name]}" for name in ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")),
)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a standalone master on a free port, with one worker; this process shares their secret."""
    folder = tmp_path_factory.mktemp("spark")
    with spark(folder) as url, pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_CONF_DIR", str(folder))
        yield url


@pytest.mark.timeout(2400)
def test_who_does_not_share_its_secret_runs_nothing(master: str, history: LogRef, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    argv = [str(COMMAND), "replay", "compare", history.text, "--master", master]
    done = subprocess.run(
        argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DONE_WITHIN_S, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Spark did not start on spark://" in done.stderr, done.stderr


def run(argv: list[str], folder: Path) -> Any:
    """Run a command in a folder; what it prints, as JSON."""
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=DONE_WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])  # spark-submit mixes standard error into it


JOBS = """
import json, sys
from projections.replay.log.log_ref import open_ref
from projections.replay.outcome import Options
from projections.replay.rebuild.rebuild import run_rebuild
from projections.replay.redecide.redecide import run_redecide
from projections.replay.spark.session import OnSpark
from projections.replay.spark.session import spark_session

def where(_):
    import controller.policy, events.catalog, projections.replay.log.columns
    for module in (controller.policy, events.catalog, projections.replay.log.columns):
        yield module.__file__

master, folder, topic, *settings = sys.argv[1:]
session = spark_session(master, settings=dict(one.split("=") for one in settings))
runner = OnSpark(session)
rebuilt = run_rebuild(runner, open_ref(folder), Options())
again = run_redecide(runner, open_ref(topic), Options())
files = session.sparkContext.parallelize([1], 1).mapPartitions(where).collect()
print(json.dumps({"topics": [row["topic"] for row in rebuilt.rows], "differ": again.rows, "files": files}))
session.stop()
"""
"""Several replays in one session: most of the time goes to starting one."""


@pytest.mark.timeout(2400)
def test_a_log_and_a_topic_on_the_cluster(master: str, history: LogRef, in_kafka: KafkaRef, tmp_path: Path) -> None:
    shown = run([sys.executable, "-c", JOBS, master, history.text, in_kafka.text, *SMALL], tmp_path)
    assert shown["topics"][:2] == ["late.one", "pay.orders"]
    assert shown["differ"] == []
    files = shown["files"]
    assert len(files) == 3
    code = re.compile(r"topicwright-code\.zip/(controller|events|projections)/")
    assert all(map(code.search, files)), f"executors run the code that came with the job: {files}"


@pytest.mark.timeout(2400)
def test_a_replay_through_spark_submit(master: str, history: LogRef, tmp_path: Path) -> None:
    argv = [str(SPARK / "bin" / "spark-submit"), "--master", master]
    for setting in SMALL:
        argv += ["--conf", setting]
    shown = run([*argv, str(ROOT / "controller" / "cli" / "replay.py"), "compare", history.text, "--json"], tmp_path)
    assert (shown["found"], shown["rows"]) == (False, [])
