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

from projections.replay.log_ref import KafkaRef, LogRef
from tests.support.processes import Process
from tests.support.tools import ROOT

SPARK = Path(pyspark.__file__).parent
STARTED_WITHIN_S = 120
DONE_WITHIN_S = 240
SMALL = ("spark.executor.memory=512m", "spark.executor.cores=1", "spark.cores.max=1", "spark.driver.memory=512m")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a standalone master on a free port, with one worker."""
    folder = tmp_path_factory.mktemp("spark")
    deploy, spark_class = "org.apache.spark.deploy", SPARK / "bin" / "spark-class"
    env = {"SPARK_HOME": str(SPARK), "SPARK_WORKER_DIR": str(folder / "work"), "SPARK_LOCAL_DIRS": str(folder)}
    ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with Process([spark_class, f"{deploy}.master.Master", *ports], cwd=folder, env=env) as running:
        url = running.wait_for_line(r"Starting Spark master at (spark://\S+)", within_s=STARTED_WITHIN_S)[1]
        size = ["--cores", "2", "--memory", "1g", url]
        with Process([spark_class, f"{deploy}.worker.Worker", *ports, *size], cwd=folder, env=env) as worker:
            worker.wait_for_line("Successfully registered with master", within_s=STARTED_WITHIN_S)
            yield url


def run(argv: list[str], folder: Path) -> Any:
    """Run a command in a folder; what it prints, as JSON."""
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=DONE_WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])  # spark-submit mixes standard error into it


@pytest.mark.timeout(600)
def test_a_replay_on_the_cluster(master: str, history: LogRef, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "controller.cli_replay", "rebuild", history.text, "--master", master, "--json"]
    for setting in SMALL:
        argv += ["--conf", setting]
    shown = run(argv, tmp_path)
    assert [row["topic"] for row in shown["rows"]][:2] == ["late.one", "pay.orders"]


@pytest.mark.timeout(600)
def test_a_log_in_kafka_on_the_cluster(master: str, in_kafka: KafkaRef, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "controller.cli_replay", "redecide", in_kafka.text, "--master", master, "--json"]
    for setting in SMALL:
        argv += ["--conf", setting]
    answer = run(argv, tmp_path)
    assert (answer["found"], answer["rows"]) == (False, [])


WHERE = """
import json, sys
from projections.replay.session import spark_session

def where(_):
    import controller.policy, events.catalog, projections.replay.columns
    for module in (controller.policy, events.catalog, projections.replay.columns):
        yield module.__file__

session = spark_session(sys.argv[1], settings=dict(one.split("=") for one in sys.argv[2:]))
print(json.dumps(session.sparkContext.parallelize([1], 1).mapPartitions(where).collect()))
session.stop()
"""


@pytest.mark.timeout(600)
def test_executors_run_the_code_that_came_with_the_job(master: str, tmp_path: Path) -> None:
    files = run([sys.executable, "-c", WHERE, master, *SMALL], tmp_path)
    assert len(files) == 3
    assert all(re.search(r"topicwright-code\.zip/(controller|events|projections)/", file) for file in files), files


@pytest.mark.timeout(600)
def test_a_replay_through_spark_submit(master: str, history: LogRef, tmp_path: Path) -> None:
    argv = [str(SPARK / "bin" / "spark-submit"), "--master", master]
    for setting in SMALL:
        argv += ["--conf", setting]
    shown = run([*argv, str(ROOT / "controller" / "cli_replay.py"), "compare", history.text, "--json"], tmp_path)
    assert (shown["found"], shown["rows"]) == (False, [])
