"""Replays on a standalone cluster, whose master and worker get this project's code from the job."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyspark
import pytest

from controller.serving import archiving
from projections.replay.log.kafka_scan import KafkaRef
from projections.replay.log.log_ref import LogRef
from tests.conftest import SPARK_SETTINGS
from tests.replay.history import open_log
from tests.store.archive.archives import archive_all, forget_all, take_snapshot, write_a_day
from tests.support.cluster import spark
from tests.support.s3_server import ENV, S3Server
from tests.support.topicwright import COMMAND

SPARK = Path(pyspark.__file__).parent
DONE_WITHIN_S = 1200
EVENTS = 400
SMALL = (
    "spark.executor.memory=512m",
    "spark.executor.cores=1",
    "spark.cores.max=2",
    "spark.driver.memory=512m",
    "spark.sql.shuffle.partitions=1",
    *(f"{name}={SPARK_SETTINGS[name]}" for name in ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")),
)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a standalone master on a free port, with one worker. This process shares their secret."""
    folder = tmp_path_factory.mktemp("spark")
    with spark(folder) as url, pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_CONF_DIR", str(folder))
        yield url


@pytest.mark.timeout(2400)
def test_spark_master_rejects_jobs_without_its_secret(master: str, history: LogRef, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    argv = [str(COMMAND), "replay", "compare", history.text, "--master", master]
    done = subprocess.run(
        argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DONE_WITHIN_S, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Spark did not start on spark://" in done.stderr, done.stderr


def run(argv: list[str], folder: Path) -> Any:
    """Run a command in a folder; returns its output, parsed as JSON."""
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=DONE_WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


JOBS = """
import json, os, sys
from projections.replay.checks.invariants import run_invariants
from projections.replay.log.log_ref import open_ref
from projections.replay.outcome import Options
from projections.replay.redecide.redecide import run_redecide
from projections.replay.spark.session import OnSpark
from projections.replay.spark.session import spark_session

def where(_):
    import controller.policy, events.catalog, projections.replay.log.columns
    for module in (controller.policy, events.catalog, projections.replay.log.columns):
        yield os.getppid(), module.__file__

master, folder, topic, *settings = sys.argv[1:]
session = spark_session(master, settings=dict(one.split("=", 1) for one in settings))
runner = OnSpark(session)
checked = run_invariants(runner, open_ref(folder), Options())
again = run_redecide(runner, open_ref(topic), Options())
found = session.sparkContext.parallelize(range(8), 8).mapPartitions(where).collect()
executors, files = len({parent for parent, _ in found}), sorted({file for _, file in found})
rows = [*checked.rows, *again.rows]
print(json.dumps({"events": checked.about["events"], "rows": rows, "executors": executors, "files": files}))
session.stop()
"""
"""Several replays in one session, because starting a session takes most of the time."""


@pytest.fixture
def archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A log whose events are in an archive on an S3 server, except the last ones."""
    for key, value in ENV.items():
        monkeypatch.setenv(key, value)
    server, folder = S3Server(tmp_path / "s3"), tmp_path / "log"
    write_a_day(folder, EVENTS)
    with server.running():
        with closing(open_log(folder)) as log:
            manifests = archive_all(log, server.url("archive"))
            take_snapshot(log, manifests[-1].end)
            assert archiving.drop(log, manifests, 10**15, 0, -1)
            forget_all(log)
        yield folder


@pytest.mark.timeout(2400)
def test_replays_of_an_s3_archive_and_an_events_topic_run_on_two_executors(
    master: str, archived: Path, in_kafka: KafkaRef, tmp_path: Path
) -> None:
    login = [f"spark.executorEnv.{key}={value}" for key, value in ENV.items()]
    shown = run([sys.executable, "-c", JOBS, master, str(archived), in_kafka.text, *SMALL, *login], tmp_path)
    assert shown["rows"] == []
    assert shown["events"] >= EVENTS
    assert shown["executors"] == 2
    files = shown["files"]
    code = re.compile(r"topicwright-code\.zip/(controller|events|projections)/")
    assert len({found[1] for file in files if (found := code.search(file))}) == 3
    assert all(map(code.search, files)), f"executors run the code that came with the job: {files}"
