"""Starts Topicwright as a process, and a real Kafka from the jars of `make tools`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.usage import resident_mib
from tests.support.processes import Process
from tests.support.reference_kafka import reference_kafka

TOPICWRIGHT = Path(sys.executable).parent / "topicwright"


class Running:
    """A running Topicwright."""

    def __init__(self, process: Process, kafka: str, http: str) -> None:
        self.process = process
        self.kafka = kafka
        self.http = http

    def resident_mib(self) -> float:
        """Resident memory of the process in MiB."""
        return resident_mib(self.process.pid)


@contextmanager
def topicwright(
    data: Path, *settings: str, program: Path = TOPICWRIGHT, brokers: str = "simulated:3"
) -> Iterator[Running]:
    """Serve on free ports with the log in `data`."""
    argv: list[str | Path] = [
        program, "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data", data,
        "--brokers", brokers,
    ]  # fmt: skip
    for setting in ("log.level=warning", *settings):
        argv += ["--set", setting]
    with Process(argv, cwd=data.parent) as process:
        found = process.wait_for_line(r"^ready kafka=(\S+) http=(\S+)", within_s=120)
        yield Running(process, found[1], found[2])


@contextmanager
def kafka() -> Iterator[str]:
    """One combined node of a real Kafka; yields its address."""
    with (
        TemporaryDirectory(prefix="topicwright-bench-") as folder,
        reference_kafka(Path(folder) / "kafka", nodes=1) as running,
    ):
        yield running.bootstrap
