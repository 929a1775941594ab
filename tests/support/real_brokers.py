"""Kafka brokers led by Topicwright, each a separate process, so that any of them can be killed.

The brokers run from the jars that `make tools` fetched, of any of those versions. They have small heaps: three of them
and their clients can run next to other tests.
"""

import base64
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from controller.serving.process import new_cluster_id
from tests.support import tools
from tests.support.ports import free_ports
from tests.support.processes import Node, Process
from tests.support.topicwright import COMMAND, fetch

CLUSTER_ID = new_cluster_id()
"""Unique per run, because processes of an earlier run may still connect to a reused port."""
CONTROLLER = 3000
HEAP = "256m"
DATED = [
    f"-Dorg.slf4j.simpleLogger.{each}" for each in ("showDateTime=true", "dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS")
]
"""Options that print times in log lines."""

T = TypeVar("T")


@dataclass(slots=True)
class RealBroker(Node):
    """One broker. `settings` are added to those that all brokers have."""

    broker_id: int
    port: int
    folder: Path
    version: str
    settings: Mapping[str, str] = field(default_factory=dict)
    process: Process | None = None
    heap: str = HEAP

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def metadata(self) -> Path:
        """Its copy of the metadata log."""
        return self.data / "__cluster_metadata-0"

    def start(self) -> None:
        """Start the broker; does not wait until it is registered and unfenced."""
        properties = self.folder / "server.properties"
        classpath = tools.server_classpath(self.version)
        argv = tools.java_command(classpath, "kafka.Kafka", properties, heap=self.heap, logs="info", options=DATED)
        self.process = Process(argv, cwd=self.folder)

    @property
    def advertised(self) -> str:
        """The value of advertised.listeners."""
        return self.settings.get("advertised.listeners", f"PLAINTEXT://127.0.0.1:{self.port}")

    def listens(self) -> bool:
        try:
            for host, port in re.findall(r"//([^:]+):(\d+)", self.advertised):
                socket.create_connection((host, int(port)), 60).close()
        except ConnectionRefusedError:
            return False
        return True

    def stop(self, *, within_s: float = 240) -> int:
        """Controlled shutdown; returns the exit code."""
        assert self.process is not None, f"broker {self.broker_id} was never started"
        return self.process.stop(within_s=within_s)


@dataclass(slots=True)
class RealCluster:
    """Topicwright and its brokers. In Topicwright's `settings`, CONTROLLER stands for its address."""

    folder: Path
    port: int
    settings: Mapping[str, str]
    brokers: dict[int, RealBroker]
    controller: Process | None = None
    http: str = ""
    heap: str = HEAP
    authorization: str | None = None
    """The login for HTTP; None without logins."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    @property
    def address(self) -> str:
        """The controller's address, for brokers and for clients with bootstrap.controllers."""
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "topicwright-data"

    def start_controller(self) -> None:
        """Start Topicwright and wait until it answers."""
        argv: list[str | Path] = [COMMAND, "serve", "--brokers", "kraft"]
        argv += [] if "listeners" in self.settings else ["--kafka", self.address]
        argv += ["--http", "127.0.0.1:0", "--data", self.data]
        settings = {"node.id": str(CONTROLLER), "cluster.id": CLUSTER_ID, **self.settings}
        for key, value in settings.items():
            argv += ["--set", f"{key}={value.replace('CONTROLLER', self.address)}"]
        self.controller = Process(argv, cwd=self.folder)
        self.http = self.controller.wait_for_line(r"^ready kafka=\S+ http=(\S+)(?: listeners=\S+)?$", within_s=240)[1]

    def kill_controller(self) -> None:
        assert self.controller is not None, "the controller was never started"
        self.controller.kill()

    def live(self) -> set[int]:
        """The live brokers, from Topicwright's HTTP API."""
        return set(json.loads(fetch(self.http, "/v1/brokers", authorization=self.authorization)[1])["live"])

    def wait_live(self, *broker_ids: int, within_s: float = 300) -> None:
        """Wait until exactly these brokers are live (all, if none is named) and take connections.

        Kafka opens a broker's listener only after the controller has unfenced it (`BrokerServer.startup`).
        """
        wanted = set(broker_ids or self.brokers)
        until(lambda: self.live() == wanted, within_s, f"live brokers {wanted}")
        for broker_id in wanted:
            until(self.brokers[broker_id].listens, within_s, f"broker {broker_id} listens")

    def add(
        self, version: str = tools.KAFKA_SERVER, settings: Mapping[str, str] | None = None, *, start: bool = True
    ) -> RealBroker:
        broker_id = max(self.brokers, default=0) + 1
        (port,) = free_ports(1)
        folder = self.folder / f"broker{broker_id}"
        broker = self.brokers[broker_id] = RealBroker(broker_id, port, folder, version, settings or {}, heap=self.heap)
        write_properties(broker, self.address)
        if start:
            broker.start()
        return broker


def write_properties(broker: RealBroker, controller: str) -> None:
    """Write a broker's settings and format its log directory."""
    broker.data.mkdir(parents=True, exist_ok=True)
    settings = {
        "process.roles": "broker",
        "node.id": str(broker.broker_id),
        "broker.rack": f"rack-{broker.broker_id}",
        "listeners": broker.advertised,
        "advertised.listeners": broker.advertised,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"{CONTROLLER}@{controller}",
        "initial.broker.registration.timeout.ms": "600000",  # the broker ends after this; default: one minute
        "log.dirs": str(broker.data),
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "group.initial.rebalance.delay.ms": "0",
        "num.network.threads": "1",
        "num.io.threads": "2",
        "num.recovery.threads.per.data.dir": "1",
        "log.cleaner.enable": "false",
        "controller.quorum.retry.backoff.ms": "200",  # default 20: it costs CPU time while no controller leads
        **broker.settings,
    }
    if "controller.quorum.bootstrap.servers" in settings:
        del settings["controller.quorum.voters"]
    (broker.folder / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    format_directory(broker.data, broker.broker_id)


def format_directory(data: Path, broker_id: int) -> None:
    """Write the files that Kafka's storage tool writes into an empty log directory."""
    data.mkdir(parents=True, exist_ok=True)
    lines = ("version=1", f"cluster.id={CLUSTER_ID}", f"node.id={broker_id}", f"directory.id={new_directory_id()}")
    (data / "meta.properties").write_text("\n".join(lines) + "\n")


def new_directory_id() -> str:
    return base64.urlsafe_b64encode(b"\x5a" + os.urandom(15)).decode().rstrip("=")


def until(condition: Callable[[], T], within_s: float, what: str) -> T:
    """Poll a condition until its value is true; returns the value. Raises AssertionError with `what` after `within_s`.
    The interval grows, because polling clients and tools are expensive."""
    deadline, pause_s = time.monotonic() + within_s, 0.05
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.5)


@contextmanager
def real_cluster(
    folder: Path,
    *,
    brokers: int = 3,
    versions: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    broker_settings: Mapping[str, str] | None = None,
    prepare: Callable[[RealCluster], None] | None = None,
    heap: str = HEAP,
) -> Iterator[RealCluster]:
    """Run Topicwright and brokers (or one of each of `versions`) until the end of the block; all are live at its start.

    `prepare` is called before the start; `heap` is the maximum heap of each broker.
    """
    tools.server_classpath()
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    cluster = RealCluster(folder, port, settings or {}, {}, heap=heap)
    with ExitStack() as ending:
        ending.callback(_end, cluster)
        if prepare is not None:
            prepare(cluster)
        cluster.start_controller()
        for version in versions or (tools.KAFKA_SERVER,) * brokers:
            own = {key: value.replace("CONTROLLER", cluster.address) for key, value in (broker_settings or {}).items()}
            cluster.add(version, own)
        cluster.wait_live()
        yield cluster


def _end(cluster: RealCluster) -> None:
    """End everything at once, without controlled shutdowns."""
    for broker in cluster.brokers.values():
        if broker.process is not None:
            broker.process.kill()
    if cluster.controller is not None:
        cluster.controller.stop(within_s=60)
