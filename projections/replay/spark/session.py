"""The Spark session of a replay, with this project's code on every worker.

The master URL names where Spark runs: `local[*]` (the default) in this process and its children, `spark://HOST:PORT` on
a standalone cluster, `sc://HOST:PORT` through Spark Connect. Under `spark-submit`, its master applies instead.

The packages `controller`, `events` and `projections` are sent to the workers as a zip. Their dependencies (msgspec,
rocksdict, pyarrow) must be installed there, and so must the interpreter: PYSPARK_PYTHON is its path, by default that of
this process.

Spark's Java process and its workers write to this process's standard error. Without `--spark-log` this output is
redirected, and shown only if Spark does not start.

`OnSpark` runs functions in the tasks with `mapInArrow`. It reads a log from a frame of part numbers, not through the
data source: for a Python data source Spark starts three more processes, which adds four seconds to the first result.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from projections.replay.outcome import ReplayError, message_of
from projections.replay.runner import PLACE, SHARD, Batches, Function, Source

DEFAULT_MASTER = "local[*]"
CONNECT = "sc://"
JAVA_AT_LEAST = 17
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')  # Java 8 calls itself 1.8
_PACKAGES = ("controller", "events", "projections")
_JAVA_OPTIONS = "-XX:+UseParallelGC"
"""Arrow batches are large objects. Java's default collector tracks them concurrently, which costs a quarter of a core
more than this one when rebuilding."""
_FEW_CORES = 4
_CORES = os.cpu_count() or 1
_HERE = _JAVA_OPTIONS if _CORES > _FEW_CORES else "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""On a machine with few cores, parallel collection gains nothing, and the serial collector's heap grows less. The
optimizing compiler would take cores from the workers for longer than most replays run."""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16777216",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.python.authenticate.socketTimeout": "120s",  # a worker starts within 15 s, but not on a crowded machine
    "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
}
"""Settings for every master."""
_LOCAL = {
    "spark.driver.extraJavaOptions": _HERE,
    "spark.driver.memory": f"{512 + 64 * _CORES}m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}
"""More settings if Spark runs on this machine alone."""
_STANDARD_ERROR_BYTES = 100_000
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The environment variable that is set if spark-submit has already started Java."""


def spark_session(
    master: str | None = None, spark_log: bool = False, settings: dict[str, str] | None = None
) -> SparkSession:
    """A session that can replay; `settings` are Spark's, over those of this module.

    `master` None is `local[*]`, or spark-submit's own. With `spark_log` Spark's log goes to standard error, at the
    level that log4j2.properties sets: warnings, if SPARK_CONF_DIR has no such file.
    Raises ReplayError for a missing Java, a wrong JAVA_HOME, or a master that cannot be reached.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is not None and master.startswith(CONNECT):
        return _connected(master)
    submitted = _SUBMITTED in os.environ
    if not submitted:
        check_java()
    url = master if master is not None else (None if submitted else DEFAULT_MASTER)
    of_master = {} if url is None else {"spark.master": url, **(_LOCAL if url.startswith("local") else {})}
    chosen: dict[str, Any] = {**_SETTINGS, **of_master, **(settings or {})}
    with _standard_error_aside(aside=not spark_log) as stderr_text:
        try:
            session = SparkSession.builder.appName("topicwright replay").config(map=chosen).getOrCreate()
        except Exception as error:
            why = why_not_started(stderr_text()) or message_of(error)
            raise ReplayError(f"Spark did not start on {url or 'its master'}: {why}") from error
    if not spark_log:
        session.sparkContext.setLogLevel("OFF")
    ship(session)
    return session


def why_not_started(written: str) -> str:
    """Java's output about why it ended, without its stack trace; "" if there is none."""
    found = _SPARKS_ERROR.search(written) or _JAVAS_ERROR.search(written)
    return found[1].strip()[:600] if found else ""


_SPARKS_ERROR = re.compile(r" ERROR [\w.$]+: (.+)")
_JAVAS_ERROR = re.compile(
    r'^\s*(?:Exception in thread (?:"[^"]*" )?|Caused by: |Error: )(?:[\w.]+(?:Exception|Error): )?(.+)', re.MULTILINE
)


def is_connect(session: SparkSession) -> bool:
    """True if a session reaches Spark through Spark Connect, and so has no Java process of its own."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def ship(session: SparkSession, modules: Iterable[str] = _PACKAGES, name: str = "topicwright-code") -> None:
    """Send the code of these packages and modules (by default this project's) to the workers of a session. Needed only
    for sessions that `spark_session` did not make."""
    with TemporaryDirectory() as temporary:
        # executors fetch the zip whenever they join, so it lies in a folder that Spark removes when it ends
        folder = Path(temporary if is_connect(session) else SparkFiles.getRootDirectory(), "zip")
        folder.mkdir(exist_ok=True)
        code = zipped([root for module in modules for root in roots_of(module)], folder / f"{name}.zip")
        if is_connect(session):
            session.addArtifacts(str(code), pyfile=True)
        else:
            session.sparkContext.addPyFile(str(code))


def check_java() -> None:
    """Raise ReplayError unless Spark will find a Java that it supports."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise ReplayError(f"no Java found: Spark needs Java {JAVA_AT_LEAST} or later on PATH, or in JAVA_HOME")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        where = f"JAVA_HOME={home} is wrong: {java}" if home else java
        raise ReplayError(
            f"{where} cannot be run ({error.strerror}): point JAVA_HOME at Java {JAVA_AT_LEAST}"
        ) from None
    found = _JAVA_VERSION.search(done.stderr + done.stdout)
    if done.returncode or found is None:
        raise ReplayError(f"{java} -version failed: {(done.stderr or done.stdout).strip()[:200]}")
    if int(found[1]) < JAVA_AT_LEAST:
        raise ReplayError(f"{java} is Java {found[1]}: Spark needs {JAVA_AT_LEAST} or later")


def _connected(url: str) -> SparkSession:
    try:
        session = SparkSession.builder.remote(url).getOrCreate()
    except ImportError as error:
        raise ReplayError(
            f"{url} needs Spark Connect's client: install pyspark[connect] ({message_of(error)})"
        ) from error
    except Exception as error:
        raise ReplayError(f"no Spark Connect server answers at {url}: {message_of(error)}") from error
    for name, value in _SETTINGS.items():
        if name.startswith("spark.sql."):
            session.conf.set(name, value)
    ship(session)
    return session


def roots_of(module: str) -> list[Path]:
    """The folders of a package, or the file of a module. Raises ImportError."""
    found = import_module(module)
    return [Path(path) for path in getattr(found, "__path__", ()) or [found.__file__ or ""]]


def zipped(roots: Iterable[Path], target: Path) -> Path:
    """Write a zip from which Python can import these packages and modules."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as code:
        for root in roots:
            for file in [root] if root.is_file() else sorted(root.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    code.write(file, file.relative_to(root.parent))
    return target


@contextmanager
def _standard_error_aside(*, aside: bool) -> Iterator[Callable[[], str]]:
    """Redirect the standard error of child processes that start meanwhile to a file. Yields a function that returns the
    last bytes of that file, as text."""
    if not aside:
        yield lambda: ""
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with TemporaryFile() as file:

        def written() -> str:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _STANDARD_ERROR_BYTES))
            return file.read().decode(errors="replace")

        os.dup2(file.fileno(), 2)
        try:
            yield written
        finally:
            os.dup2(kept, 2)
            os.close(kept)


class OnSpark:
    """A `Runner` with a task for each part of a source, or for each bucket."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def fold(
        self, source: Source, function: Function, schema: pa.Schema, buckets: int = 0, ordered: bool = False
    ) -> pa.Table:
        stored = 0 < buckets <= len(source.buckets) and not ordered
        parts = source.buckets if stored else source.parts
        tasks = buckets if stored else len(parts)

        def of_task(numbers: Batches) -> Source:
            return source._replace(parts=[parts[number] for batch in numbers for number in batch["id"].to_pylist()])

        numbers = self._session.range(0, len(parts), 1, tasks)
        if buckets and not stored:
            frame = numbers.mapInArrow(lambda ids: of_task(ids).batches(), from_arrow_schema(source.schema))
            frame = frame.repartition(buckets, *SHARD)
            if ordered:
                frame = frame.sortWithinPartitions(*PLACE)
            frame = frame.mapInArrow(function, from_arrow_schema(schema))
        else:
            frame = numbers.mapInArrow(lambda ids: function(of_task(ids).rows()), from_arrow_schema(schema))
        return frame.toArrow().cast(schema)

    def ship(self, modules: Iterable[str]) -> None:
        """Send the modules to the workers, unless the workers run on this machine.

        Installed packages are not sent. They must be installed on the workers, like this project's dependencies.
        """
        master = "" if is_connect(self._session) else self._session.conf.get("spark.master", "") or ""
        if master.startswith(("local[", "local,")):
            return
        for name in modules:
            if not any("site-packages" in root.parts for root in roots_of(name)):
                ship(self._session, [name], name)
