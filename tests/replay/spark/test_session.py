"""Starting Spark: with the installed Java, quietly, and with this project's code; and its errors."""

import os
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from projections.replay.outcome import ReplayError, message_of
from projections.replay.spark.session import check_java, is_connect, roots_of, spark_session, zipped


def _java(folder: Path, script: str) -> Path:
    """A folder with a `java` that runs a shell script."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return folder


def test_a_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReplayError, match="no Java found: Spark needs Java 17 or later"):
        check_java()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (None, r"JAVA_HOME=\S+ is wrong: \S+/bin/java cannot be run \(No such file"),
        ("echo 'openjdk version \"11.0.2\" 2019' >&2", r"bin/java is Java 11: Spark needs 17 or later"),
        ("echo 'java version \"1.8.0_392\"' >&2", r"bin/java is Java 8: Spark needs 17 or later"),
        ("echo broken >&2; exit 3", r"bin/java -version failed: broken"),
        ("echo hello", r"bin/java -version failed: hello"),
    ],
)
def test_invalid_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, says: str) -> None:
    home = tmp_path / "java" if script is None else _java(tmp_path / "java", script)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(ReplayError, match=says):
        spark_session("local[1]")


def test_spark_connect_requires_its_client_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ReplayError, match=r"sc://localhost:1 needs Spark Connect's client: install pyspark\[connect\]"):
        spark_session("sc://localhost:1")


def test_spark_workers_run_the_same_python_and_receive_the_code(spark: SparkSession) -> None:
    def where(_: Iterable[int]) -> Iterable[tuple[str, bool]]:
        yield sys.executable, any(path.endswith("topicwright-code.zip") for path in sys.path)

    found = spark.sparkContext.parallelize([1], 1).mapPartitions(where).collect()
    assert found == [(os.environ["PYSPARK_PYTHON"], True)]
    assert not is_connect(spark)


def test_packages_and_modules_are_zipped_for_spark_workers(tmp_path: Path) -> None:
    lone = tmp_path / "lone.py"
    lone.write_text("LIMIT = 4\n")
    with zipfile.ZipFile(zipped([*roots_of("events"), *roots_of("projections"), lone], tmp_path / "code.zip")) as code:
        names = code.namelist()
    needed = {
        "projections/replay/spark/source.py",
        "projections/replay/checks/views.sql",
        "events/catalog.py",
        "lone.py",
    }
    assert needed <= set(names)
    assert {name.split("/")[0] for name in names} == {"events", "projections", "lone.py"}
    assert not [name for name in names if "__pycache__" in name]


def test_an_exception_of_a_spark_worker_is_reported_in_one_line() -> None:
    text = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "source.py", line 9, in read
    raise error
events.codec.EventDecodeError: event at offset 7: unknown event type 'X'

    at org.apache.spark.api.python.BasePythonRunner"""
    assert message_of(RuntimeError(text)) == "event at offset 7: unknown event type 'X'"
    assert message_of(RuntimeError("Traceback\nValueError: no such\n  thing")) == "ValueError: no such"
    assert message_of(RuntimeError("just\nso")) == "just so"
    assert message_of(RuntimeError()) == "RuntimeError"
    assert len(message_of(RuntimeError("x" * 5000))) == 600
