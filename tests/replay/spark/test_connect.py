"""Replays through a Spark Connect server, which gets this project's code only from the session."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from projections.replay.log.log_ref import LogRef
from tests.conftest import SPARK_SETTINGS
from tests.support.processes import Process

SPARK = Path(pyspark.__file__).parent
STARTED_WITHIN_S = 600
DONE_WITHIN_S = 1200


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Spark Connect server on a free port, in a working folder without this project."""
    folder = tmp_path_factory.mktemp("connect")
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder),
        **SPARK_SETTINGS,
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


JOBS = """
import json, sys
from controller.cli.main import main
from projections.replay.spark.session import spark_session

def where(batches):
    import pyarrow as pa
    import controller.policy, events.catalog, projections.replay.log.columns
    modules = (controller.policy, events.catalog, projections.replay.log.columns)
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [module.__file__ for module in modules]})

server, log, out = sys.argv[1:]
for one in (["compare", log], ["invariants", log], ["export", log, "--to", out]):
    assert main(["replay", *one, "--master", server, "--json"]) == 0
session = spark_session(server)
rows = session.range(1).mapInArrow(where, "file string").collect()
print(json.dumps([row.file for row in rows]))
session.stop()
"""
"""Several replays in one process, each with its own session."""


@pytest.mark.timeout(2400)
def test_replays_of_a_valid_log_pass_through_spark_connect(server: str, history: LogRef, tmp_path: Path) -> None:
    out = tmp_path / "export"
    argv = [sys.executable, "-c", JOBS, server, history.text, str(out)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=DONE_WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    compared, checked, export, files = map(json.loads, done.stdout.splitlines())
    for answer in (compared, checked):
        assert (answer["found"], answer["rows"]) == (False, [])
    (row,) = export["rows"]
    written = [offset for file in out.glob("events-*") for offset in pq.read_table(file)["offset"].to_pylist()]
    assert sorted(written) == list(range(row["added"])) != [], "workers write the files"
    assert len(files) == 3
    code = re.compile(r"topicwright-code\.zip/(controller|events|projections)/")
    assert all(map(code.search, files)), f"workers run the code that came with the session: {files}"
