"""A real Apache Kafka for tests: three nodes in one JVM, from the jars that `make tools` fetched.

Node 1 is controller and broker, nodes 2 and 3 are brokers. Node 3 has `auto.create.topics.enable=false`, so that one
cluster covers both values. Racks are rack-a, rack-b and rack-c, as for simulated brokers.

`kafka_cluster` runs a process for each node, so that each can be killed and restarted, also node 1. Nodes in one JVM
start faster and need less memory.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.serving.process import new_cluster_id
from tests.support import tools
from tests.support.ports import free_ports
from tests.support.processes import Process

CLUSTER_ID = new_cluster_id()
"""Unique per run, because processes of an earlier run may still connect to a reused port."""
SOURCES = tools.ROOT / "tests/reference/java"
HEAP = "768m"
TRANSACTIONS: dict[str, Any] = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
}
"""Overrides for a cluster that supports transactions."""


@dataclass(frozen=True, slots=True)
class ReferenceKafka:
    """A running cluster; `brokers` holds HOST:PORT by node id, the first of which is also the controller."""

    process: Process
    brokers: Mapping[int, str]
    folder: Path

    @property
    def metadata(self) -> Path:
        """The metadata log of the controller, node 1."""
        return self.folder / "data1" / "__cluster_metadata-0"

    @property
    def bootstrap(self) -> str:
        return self.brokers[1]

    def stop_broker(self, node_id: int) -> None:
        """Controlled shutdown of a broker; returns when it is fenced."""
        self.process.write_line(f"stop {node_id}")
        self.process.wait_for_line(f"^stopped {node_id}", within_s=180)

    def start_broker(self, node_id: int) -> None:
        """Start a stopped broker; returns when it has caught up."""
        self.process.write_line(f"start {node_id}")
        self.process.wait_for_line(f"^started {node_id}", within_s=180)


@contextmanager
def reference_kafka(folder: Path, *, nodes: int = 3, **overrides: str) -> Iterator[ReferenceKafka]:
    """Start a cluster with its data in `folder`; underscores in names of `overrides` stand for dots."""
    brokers = write_nodes(folder, nodes, overrides)
    with Process(command(folder, *brokers), cwd=folder) as process:
        process.wait_for_line("^ready", within_s=300)
        yield ReferenceKafka(process, brokers, folder)


def command(folder: Path, *nodes: int) -> list[str | Path]:
    """The command line that runs nodes in one JVM."""
    classpath = tools.compile_java(SOURCES, tools.server_classpath())
    files = [f"{node}={folder}/node{node}.properties" for node in nodes]
    return tools.java_command(classpath, "ReferenceCluster", CLUSTER_ID, *files, heap=HEAP)


def write_nodes(folder: Path, nodes: int, overrides: Mapping[str, str]) -> dict[int, str]:
    """Write the settings of all nodes; returns their addresses."""
    folder.mkdir(parents=True)
    controller, *ports = free_ports(nodes + 1)
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    for node, port in enumerate(ports, start=1):
        lines = {**node_properties(node, port, controller, folder, nodes), **settings}
        (folder / f"node{node}.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return {node: f"127.0.0.1:{port}" for node, port in enumerate(ports, start=1)}


def node_properties(node_id: int, port: int, controller: int, folder: Path, nodes: int) -> dict[str, str]:
    """The settings of one node, with its data in `folder`."""
    here = f"BROKER://127.0.0.1:{port}"
    settings = {
        "process.roles": "broker",
        "node.id": str(node_id),
        "broker.rack": f"rack-{'abcdefghi'[node_id - 1]}",
        "listeners": here,
        "advertised.listeners": here,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "BROKER",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "initial.broker.registration.timeout.ms": "600000",  # the broker ends after this; default: one minute
        "log.dirs": str(folder / f"data{node_id}"),
        "num.partitions": "2",
        "default.replication.factor": "1",
        "auto.create.topics.enable": "false" if node_id == 3 else "true",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        "create.topic.policy.class.name": "TablePolicy",
        "num.network.threads": "1",
        "num.io.threads": "2",
        "log.cleaner.enable": "false",
    }
    if node_id == 1:
        settings["process.roles"] = "broker,controller"
        settings["listeners"] = f"{here},CONTROLLER://127.0.0.1:{controller}"
    return settings


@dataclass
class KafkaCluster:
    """A cluster whose nodes can be killed and restarted; `brokers` holds HOST:PORT by node id."""

    folder: Path
    brokers: dict[int, str]
    processes: dict[int, Process] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.brokers.values())

    def start(self, *nodes: int) -> None:
        """Start nodes that are not running; returns when they have caught up."""
        for node in nodes:
            self.processes[node] = Process(command(self.folder, node), cwd=self.folder)
        for node in nodes:
            self.processes[node].wait_for_line("^ready", within_s=300)

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            self.processes[node].kill()

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()


@contextmanager
def kafka_cluster(folder: Path, *, nodes: int = 3, **overrides: str) -> Iterator[KafkaCluster]:
    """Start a cluster with its data in `folder`; underscores in names of `overrides` stand for dots."""
    cluster = KafkaCluster(folder, write_nodes(folder, nodes, overrides))
    try:
        cluster.start(*cluster.brokers)
        yield cluster
    finally:
        cluster.stop()
