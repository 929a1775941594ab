"""The tools that run real servers and clients: where `make tools` put them, and what a test does without them.

A test whose tool is absent is skipped with the tool's name, except where CI=true: there it fails, so that a green run
in CI always means that every real client was run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"

KAFKA_SERVER = "4.4.0"
KAFKA_SERVERS_OTHER = ("3.7.2", "3.9.1", "4.1.1", "4.3.1")
"""Other versions of Kafka servers that tests start next to `KAFKA_SERVER`."""
KAFKA_CLIENT_CONSUMER = "3.9.1"
KAFKA_CLIENT_OLD = "2.0.1"
KAFKA_APPLICATIONS = "4.3.1"
"""Connect, MirrorMaker 2 and Streams: the newest version whose connect-file and connect-mirror Maven has here."""
SPARK_KAFKA = "4.2.0"
"""Spark's Kafka source: the newest version that Maven has here. It works with the pyspark that is installed."""
S3PROXY = "2.6.0"


def absent(what: str, how: str = "run `make tools`") -> None:
    """Skip the running test for want of `what`, or fail it in CI; a program that is no test ends with that line."""
    message = f"{what} is not here: {how}"
    if "PYTEST_VERSION" not in os.environ:
        raise SystemExit(message)
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def program(name: str) -> str:
    """The path of a program, e.g. `java`; skips or fails the test where there is none."""
    found = shutil.which(name)
    if found is None:
        absent(name, "install it")
        raise AssertionError("unreachable")
    return found


def server_classpath(version: str = KAFKA_SERVER) -> str:
    """Kafka's server and command line tools, of one of the versions above."""
    return _jars(f"kafka-server-{version}")


def client_classpath(version: str) -> str:
    """Kafka's Java client of one of the versions above, with the tools if there is a server of it."""
    return _jars(f"kafka-client-{version}") if version == KAFKA_CLIENT_OLD else server_classpath(version)


def applications_classpath() -> str:
    """Kafka Connect with its file connectors, MirrorMaker 2 and Kafka Streams."""
    return _jars(f"kafka-applications-{KAFKA_APPLICATIONS}")


def spark_kafka_jars() -> list[Path]:
    return sorted(cached(f"java/spark-kafka-{SPARK_KAFKA}").glob("*.jar"))


def s3_classpath() -> str:
    return _jars(f"s3proxy-{S3PROXY}")


def compile_java(sources: Path, classpath: str) -> str:
    """The classpath to run every .java file of a folder with; compiled once for all tests, until a file changes."""
    javac = program("javac")
    files = sorted(sources.glob("*.java"))
    made_from = hashlib.sha256("\0".join([classpath, *(each.read_text(encoding="utf-8") for each in files)]).encode())
    classes = CACHE / "classes" / f"{sources.name}-{made_from.hexdigest()[:16]}"
    if not classes.exists():
        classes.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=classes.parent) as folder:
            beside = Path(folder) / "classes"
            options = ["-nowarn", "-Xlint:none", "--release", "11", "-d", str(beside), "-cp", classpath]
            done = subprocess.run([javac, *options, *map(str, files)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            with suppress(OSError):  # another process was first
                beside.rename(classes)
    return f"{classpath}{os.pathsep}{classes}"


def java_command(
    classpath: str, *arguments: str | Path, heap: str = "256m", logs: str = "warn", options: Sequence[str] = ()
) -> list[str | Path]:
    """A command line for a Java program: small and quick to start, with the classes that `make tools` has archived for
    a version of Kafka; `logs` is from which level on it logs."""
    archive = archive_of(classpath)
    frugal = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xlog:disable"]
    shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    level = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={logs}"
    return [program("java"), f"-Xmx{heap}", *frugal, *shared, *options, level, "-cp", classpath, *arguments]


def run_quietly(
    command: Sequence[str | Path], *, within_s: float = 300, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a client program to its end and return what it printed; its own children die with it when it hangs."""
    with subprocess.Popen(
        [str(each) for each in command],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=within_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def archive_of(classpath: str) -> Path:
    """Where the classes of a version of Kafka are archived, as its first program has left them."""
    jars = Path(classpath.partition(os.pathsep)[0]).parent
    return jars.with_name(f"{jars.name}.jsa")


def spark_archive() -> Path:
    """Where the classes of Spark are archived: for the very folder in which it is installed, and no other."""
    folder = Path(pyspark.__file__).parent
    here = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    return CACHE / "java" / f"spark-{pyspark.__version__}-{here}.jsa"


def spark_java_options() -> str:
    """Options of the Java that Spark runs in, for SPARK_SUBMIT_OPTS: quick to start, for jobs over little."""
    archive = spark_archive()
    shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return " ".join(["-XX:TieredStopAtLevel=1", "-Xlog:disable", *shared])


def cached(name: str) -> Path:
    """A folder or file that `make tools` leaves in the cache; skips or fails the test where it is not."""
    path = CACHE / name
    if not path.exists():
        absent(name)
    return path


def _jars(name: str) -> str:
    return str(cached(f"java/{name}") / "*")
