"""Replays through Spark Connect: a server of its own, which has this project's code from the session alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from projections.replay.export import exported_files
from projections.replay.log_ref import LogRef
from tests.support.processes import Process

SPARK = Path(pyspark.__file__).parent
STARTED_WITHIN_S = 120
DONE_WITHIN_S = 240


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Spark Connect server on a free port; it works in a folder without this project."""
    folder = tmp_path_factory.mktemp("connect")
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    argv: list[str | Path] = [SPARK / "bin" / "spark-submit", "--master", "local[2]"]
    argv += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        argv += ["--conf", f"{name}={value}"]
    env = {"SPARK_HOME": str(SPARK), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    with Process([*argv, "spark-internal"], cwd=folder, env=env) as running:
        port = running.wait_for_line(r"Spark Connect server started at: \S*:(\d+)", within_s=STARTED_WITHIN_S)[1]
        yield f"sc://127.0.0.1:{port}"


def run(argv: list[str], folder: Path) -> Any:
    """Run Python in a folder; what it prints, as JSON."""
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=folder,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=DONE_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["compare", "invariants"])
def test_a_clean_log_passes(server: str, history: LogRef, tmp_path: Path, name: str) -> None:
    argv = ["-m", "controller.cli_replay", name, history.text, "--master", server, "--json"]
    answer = run(argv, tmp_path)
    assert (answer["found"], answer["rows"]) == (False, [])


@pytest.mark.timeout(600)
def test_workers_write_an_export(server: str, history: LogRef, tmp_path: Path) -> None:
    out = str(tmp_path / "export")
    argv = ["-m", "controller.cli_replay", "export", history.text, "--output", out, "--master", server, "--json"]
    (row,) = run(argv, tmp_path)["rows"]
    written = [offset for file in exported_files(Path(out)) for offset in pq.read_table(file)["offset"].to_pylist()]
    assert written == list(range(row["added"])) != []


WHERE = """
import json, sys
from projections.replay.session import spark_session

def where(batches):
    import pyarrow as pa
    import controller.policy, events.catalog, projections.replay.columns
    modules = (controller.policy, events.catalog, projections.replay.columns)
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [module.__file__ for module in modules]})

session = spark_session(sys.argv[1])
rows = session.range(1).mapInArrow(where, "file string").collect()
print(json.dumps([row.file for row in rows]))
session.stop()
"""


@pytest.mark.timeout(600)
def test_workers_run_the_code_that_came_with_the_session(server: str, tmp_path: Path) -> None:
    files = run(["-c", WHERE, server], tmp_path)
    assert len(files) == 3
    assert all(re.search(r"topicwright-code\.zip/(controller|events|projections)/", file) for file in files), files
