"""Kafka's own command line tools and Java clients of one version, unchanged, in one JVM."""

import atexit
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.support import tools
from tests.support.processes import Process

SOURCES = tools.ROOT / "tests/clients/java/client"
_EXITED = ("exited", "KafkaTools$Exited: exited")
"""Printed by a tool that catches the exception which replaces System.exit."""
_LEFT_BEHIND = re.compile(r"^\[kafka-admin-client-thread .* could not be established")
"""Logged by the admin client of an earlier tool, which outlives it in this JVM, about a stopped server."""


class KafkaTools:
    """A JVM that runs one program after another."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._seen = 0

    def run(self, tool: str, *arguments: str) -> tuple[int, str]:
        """Run a tool, e.g. `kafka-topics`, or a class with a `main`; returns exit code and output."""
        self._process.write_line("\t".join((tool, *arguments)))
        found = self._process.wait_for_line(r"^=== (-?\d+)$", within_s=300)
        lines = self._process.output.split("\n")
        end = lines.index(found[0], self._seen)  # a thread of an earlier tool may print after it
        mine = (each for each in lines[self._seen : end] if each not in _EXITED and not _LEFT_BEHIND.search(each))
        output = "\n".join(mine).strip("\n")
        self._seen = end + 1
        return int(found[1]), output

    def output(self, tool: str, *arguments: str) -> str:
        """Run a tool that must succeed; returns its output."""
        code, output = self.run(tool, *arguments)
        assert code == 0, output
        return output


def kafka_tools(version: str = tools.KAFKA_SERVER) -> KafkaTools:
    """The JVM of a version, which the first caller starts; it ends with this process."""
    return _started(version)


def run_tools(bootstrap: str, *commands: Sequence[str | Path]) -> list[tuple[int, str]]:
    """Run tools of the newest version one after another; returns the exit code and output of each."""
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


FAILED_READS = {
    "describeAcls": "SecurityDisabledException",
    "describeClassicGroups": "GroupIdNotFoundException",
    "describeConsumerGroups": "GroupIdNotFoundException",
    "describeDelegationToken": "UnsupportedByAuthenticationException",
    "describeShareGroups": "GroupIdNotFoundException",
    "describeStreamsGroups": "GroupIdNotFoundException",
    "describeTransactions": "TransactionalIdNotFoundException",
}
"""The reads that fail, also at a Kafka without ACLs, delegation tokens, groups and transactions."""


def failed_reads(bootstrap: str, topic: str) -> dict[str, str]:
    """Call every read of Java's admin client, which needs this topic; returns the exceptions by method."""
    classpath = tools.compile_java(tools.ROOT / "tests/clients/java/reads", tools.client_classpath(tools.KAFKA_SERVER))
    done = tools.run_quietly(tools.java_command(classpath, "Reads", bootstrap, topic))
    assert done.returncode == 0, done.stderr
    found = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert found.pop("left") == "[]", "the program calls every read"
    return {name: result for name, result in found.items() if "Exception" in result}
