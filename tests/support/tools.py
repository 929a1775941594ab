"""The tools for real servers and clients: their paths after `make tools`, and the result of a test without them.

A test whose tool is missing is skipped, with the tool's name. With CI=true it fails instead, so that a green run in CI
has run every real client.
"""

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
"""Connect, MirrorMaker 2 and Streams: the newest version whose connect-file and connect-mirror are available."""
SPARK_KAFKA = "4.2.0"
"""Spark's Kafka source: the newest available version. It works with the installed pyspark."""
S3PROXY = "2.6.0"


def absent(what: str, how: str = "run `make tools`") -> None:
    """Skip the running test because `what` is missing, or fail it in CI. Outside pytest, raises SystemExit."""
    message = f"{what} is not here: {how}"
    if "PYTEST_VERSION" not in os.environ:
        raise SystemExit(message)
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def program(name: str) -> str:
    """The path of a program, e.g. `java`; skips or fails the test if it is missing."""
    found = shutil.which(name)
    if found is None:
        absent(name, "install it")
        raise AssertionError("unreachable")
    return found


def server_classpath(version: str = KAFKA_SERVER) -> str:
    """Kafka's server and command line tools, of one of the versions above."""
    return _jars(f"kafka-server-{version}")


def client_classpath(version: str) -> str:
    """Kafka's Java client, of one of the versions above; includes the tools if that version has a server."""
    return _jars(f"kafka-client-{version}") if version == KAFKA_CLIENT_OLD else server_classpath(version)


def applications_classpath() -> str:
    """Kafka Connect with its file connectors, MirrorMaker 2 and Kafka Streams."""
    return _jars(f"kafka-applications-{KAFKA_APPLICATIONS}")


def spark_kafka_jars() -> list[Path]:
    return sorted(cached(f"java/spark-kafka-{SPARK_KAFKA}").glob("*.jar"))


def s3_classpath() -> str:
    return _jars(f"s3proxy-{S3PROXY}")


def compile_java(sources: Path, classpath: str) -> str:
    """Compile the .java files of a folder, once until one changes; returns the classpath to run them."""
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
    """A command line for a Java program, tuned for a fast start and a small heap; it uses the class data archive of its
    Kafka version, if any. `logs` is the log level."""
    archive = archive_of(classpath)
    frugal = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xlog:disable"]
    shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    level = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={logs}"
    return [program("java"), f"-Xmx{heap}", *frugal, *shared, *options, level, "-cp", classpath, *arguments]


def run_quietly(
    command: Sequence[str | Path], *, within_s: float = 300, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a client program; returns its output and exit code. After a timeout, kills it and its children."""
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
    """The path of the class data archive of a Kafka version."""
    jars = Path(classpath.partition(os.pathsep)[0]).parent
    return jars.with_name(f"{jars.name}.jsa")


def spark_archive() -> Path:
    """The path of Spark's class data archive, which is valid only for its installation folder."""
    folder = Path(pyspark.__file__).parent
    here = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    return CACHE / "java" / f"spark-{pyspark.__version__}-{here}.jsa"


def spark_java_options() -> str:
    """Java options for SPARK_SUBMIT_OPTS: a fast start, for small jobs."""
    archive = spark_archive()
    shared = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    return " ".join(["-XX:TieredStopAtLevel=1", "-Xlog:disable", *shared])


def cached(name: str) -> Path:
    """A path in the cache that `make tools` fills; skips or fails the test if it is missing."""
    path = CACHE / name
    if not path.exists():
        absent(name)
    return path


def _jars(name: str) -> str:
    return str(cached(f"java/{name}") / "*")
