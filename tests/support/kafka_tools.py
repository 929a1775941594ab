"""Kafka's own command line tools of one version, unchanged, in one JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import tools
from tests.support.processes import Process

SOURCES = tools.ROOT / "tests/clients/java/kafka_tools"


_EXITED = ("exited", "KafkaTools$Exited: exited")
"""Printed by a tool that catches what replaces the end of its JVM."""


class KafkaTools:
    """A JVM that runs one tool after another."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._seen = 0

    def run(self, tool: str, *arguments: str) -> tuple[int, str]:
        """The exit code of a tool, and what it prints."""
        self._process.write_line("\t".join((tool, *arguments)))
        found = self._process.wait_for_line(r"^=== (-?\d+)$", within_s=240)
        lines = self._process.output.split("\n")
        output = "\n".join(each for each in lines[self._seen : -1] if each not in _EXITED).strip("\n")
        self._seen = len(lines)
        return int(found[1]), output


@contextmanager
def kafka_tools(folder: Path, version: str = tools.KAFKA_SERVER) -> Iterator[KafkaTools]:
    """Start the JVM, with its working directory in `folder`."""
    classpath = tools.compile_java(SOURCES, tools.server_classpath(version))
    with Process(tools.java_command(classpath, "KafkaTools"), cwd=folder) as process:
        yield KafkaTools(process)
