"""Kafka's own command line tools and Java clients of one version, unchanged, in one JVM."""

from __future__ import annotations

import atexit
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.support import tools
from tests.support.processes import Process

SOURCES = tools.ROOT / "tests/clients/java/client"
_EXITED = ("exited", "KafkaTools$Exited: exited")
"""Printed by a tool that catches what replaces the end of its JVM."""
_LEFT_BEHIND = re.compile(r"^\[kafka-admin-client-thread .* could not be established")
"""Logged by the client of an earlier tool that would have ended with its JVM, of a server that is gone."""


class KafkaTools:
    """A JVM that runs one program after another."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._seen = 0

    def run(self, tool: str, *arguments: str) -> tuple[int, str]:
        """The exit code and the output of a tool, e.g. `kafka-topics`, or of a class with a `main`."""
        self._process.write_line("\t".join((tool, *arguments)))
        found = self._process.wait_for_line(r"^=== (-?\d+)$", within_s=300)
        lines = self._process.output.split("\n")
        mine = (each for each in lines[self._seen : -1] if each not in _EXITED and not _LEFT_BEHIND.search(each))
        output = "\n".join(mine).strip("\n")
        self._seen = len(lines)
        return int(found[1]), output

    def output(self, tool: str, *arguments: str) -> str:
        """The output of a tool that must succeed."""
        code, output = self.run(tool, *arguments)
        assert code == 0, output
        return output


def kafka_tools(version: str = tools.KAFKA_SERVER) -> KafkaTools:
    """The JVM of a version. Whoever needs it first starts it; it ends with this process."""
    return _started(version)


def run_tools(bootstrap: str, *commands: Sequence[str | Path]) -> list[tuple[int, str]]:
    """Run tools of the newest version one after another: the exit code and the output of each."""
    tools = kafka_tools()
    return [
        tools.run(f"kafka-{tool}", "--bootstrap-server", bootstrap, *map(str, arguments))
        for tool, *arguments in commands
    ]


@cache
def _started(version: str) -> KafkaTools:
    classpath = tools.compile_java(SOURCES, tools.client_classpath(version))
    process = Process(tools.java_command(classpath, "KafkaTools"), cwd=tools.CACHE)
    atexit.register(process.kill)
    return KafkaTools(process)
