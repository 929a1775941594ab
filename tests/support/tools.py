"""The tools that run real servers and clients: where `make tools` put them, and what a test does without them.

A test whose tool is absent is skipped with the tool's name, except where CI=true: there it fails, so that a green run
in CI always means that every real client was asked.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"

KAFKA_SERVER = "4.3.1"
KAFKA_BROKERS_OLDER = ("3.7.2", "3.9.1", "4.1.1")
"""Older servers, as brokers beside the newest."""
KAFKA_CLIENT_CONSUMER = "3.9.1"
KAFKA_CLIENT_OLD = "2.0.1"


def absent(what: str, how: str = "run `make tools`") -> None:
    """Skip the running test for want of `what`, or fail it in CI."""
    message = f"{what} is not here: {how}"
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
    """Kafka's Java client of one of the versions above."""
    return server_classpath() if version == KAFKA_SERVER else _jars(f"kafka-client-{version}")


def compile_java(sources: Path, classpath: str, classes: Path) -> str:
    """Compile every .java file of a folder into `classes`; the classpath to run them with."""
    javac = program("javac")
    files = sorted(str(each) for each in sources.glob("*.java"))
    options = ["-nowarn", "-Xlint:none", "--release", "11"]
    done = subprocess.run(
        [javac, *options, "-d", str(classes), "-cp", classpath, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return f"{classes}{os.pathsep}{classpath}"


def java_command(classpath: str, *arguments: str) -> list[str]:
    """A command line for a short-lived Java program: small, quick to start, and quiet but for warnings."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    frugal = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return [program("java"), *frugal, quiet, "-cp", classpath, *arguments]


def run_quietly(
    command: Sequence[str | Path], *, within_s: float = 120, **env: str
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


def cached(name: str) -> Path:
    """A folder or file that `make tools` leaves in the cache; skips or fails the test where it is not."""
    path = CACHE / name
    if not path.exists():
        absent(name)
    return path


def _jars(name: str) -> str:
    return str(cached(f"java/{name}") / "*")
