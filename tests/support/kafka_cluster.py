"""A real Apache Kafka with a process for each node, so that one can be killed and come back.

Node 1 is controller and broker; it can be killed too, and the others wait for it. For all else
`tests.support.reference_kafka` has the same nodes in one JVM, which starts faster and eats less.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import tools
from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.reference_kafka import CLUSTER_ID, HEAP, SOURCES, node_properties


@dataclass
class KafkaCluster:
    """A cluster whose nodes come and go; `brokers` holds HOST:PORT by node id."""

    folder: Path
    classpath: str
    brokers: dict[int, str]
    processes: dict[int, Process] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.brokers.values())

    def start(self, *nodes: int) -> None:
        """Start nodes that do not run, or run no more; they have caught up when this returns."""
        for node in nodes:
            file = f"{node}={self.folder}/node{node}.properties"
            argv = tools.java_command(self.classpath, "ReferenceCluster", CLUSTER_ID, file, heap=HEAP)
            self.processes[node] = Process(argv, cwd=self.folder)
        for node in nodes:
            self.processes[node].wait_for_line("^ready", within_s=300)

    def kill(self, *nodes: int) -> None:
        """kill -9."""
        for node in nodes:
            self.processes[node].kill()

    def stop(self) -> None:
        """End every node."""
        for process in self.processes.values():
            process.kill()


@contextmanager
def kafka_cluster(folder: Path, *, nodes: int = 3, **overrides: str) -> Iterator[KafkaCluster]:
    """Start a cluster with its data in `folder`; underscores in names of `overrides` stand for dots."""
    folder.mkdir(parents=True)
    classpath = tools.compile_java(SOURCES, tools.server_classpath())
    controller, *ports = free_ports(nodes + 1)
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    for node, port in enumerate(ports, start=1):
        lines = {**node_properties(node, port, controller, folder, nodes), **settings}
        (folder / f"node{node}.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    cluster = KafkaCluster(folder, classpath, {node: f"127.0.0.1:{port}" for node, port in enumerate(ports, start=1)})
    try:
        cluster.start(*cluster.brokers)
        yield cluster
    finally:
        cluster.stop()
