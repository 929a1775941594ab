"""A quorum of Kafka's own controllers as processes, for voters to join."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import tools
from tests.support.kafka_tools import kafka_tools
from tests.support.network import Network
from tests.support.ports import free_ports
from tests.support.processes import Node, Process
from tests.support.real_brokers import CLUSTER_ID, new_directory_id, until

FIRST_ID = 3001


@dataclass(slots=True)
class Controller(Node):
    node_id: int
    port: int
    folder: Path
    directory_id: str
    process: Process | None = None
    reached_at: int = 0
    """The advertised port, if it differs from the listener's port."""

    @property
    def own_address(self) -> str:
        """The listener's address."""
        return f"127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """The advertised address."""
        return f"127.0.0.1:{self.reached_at or self.port}"

    @property
    def metadata(self) -> Path:
        """Its copy of the metadata log."""
        return self.folder / "data" / "__cluster_metadata-0"

    def listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
            return True
        return False


@dataclass(slots=True)
class KafkaQuorum:
    """Kafka's controllers, of one version. With `kraft_version` 0 the settings name the voters, including `others` as
    ID@HOST:PORT."""

    folder: Path
    version: str
    kraft_version: int
    controllers: tuple[Controller, ...]
    others: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    release: str | None = None
    """The release whose metadata.version the cluster begins with; None for that of `version`."""

    @property
    def bootstrap(self) -> str:
        return ",".join(each.address for each in self.controllers)

    @property
    def static_voters(self) -> str:
        """controller.quorum.voters."""
        return ",".join([*(f"{each.node_id}@{each.address}" for each in self.controllers), *self.others])

    def start(self, controller: Controller) -> None:
        """Start a controller; does not wait until it takes part in the quorum."""
        properties = controller.folder / "controller.properties"
        argv = tools.java_command(tools.server_classpath(self.version), "kafka.Kafka", properties, logs="info")
        controller.process = Process(argv, cwd=controller.folder)

    def format(self, controller: Controller) -> None:
        """Write the controller's settings and format its folder with Kafka's storage tool."""
        controller.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "process.roles": "controller",
            "node.id": str(controller.node_id),
            "listeners": f"CONTROLLER://{controller.own_address}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "log.dirs": str(controller.folder / "data"),
            **self.settings,
        }
        if self.kraft_version:
            settings["controller.quorum.bootstrap.servers"] = self.bootstrap
            settings["advertised.listeners"] = f"CONTROLLER://{controller.address}"  # 3.7 rejects this setting
        else:
            settings["controller.quorum.voters"] = self.static_voters
        properties = controller.folder / "controller.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = ["format", "-t", CLUSTER_ID, "-c", str(properties)]
        if self.kraft_version:
            voters = ",".join(f"{each.node_id}@{each.address}:{each.directory_id}" for each in self.controllers)
            command += ["--initial-controllers", voters]
        if self.release is not None:
            command += ["--release-version", self.release]
        kafka_tools(self.version).output("kafka.tools.StorageTool", *command)


@contextmanager
def kafka_quorum(
    folder: Path,
    *,
    count: int = 2,
    version: str = tools.KAFKA_SERVER,
    kraft_version: int = 1,
    others: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
    network: Network | None = None,
    release: str | None = None,
) -> Iterator[KafkaQuorum]:
    """Run `count` Kafka controllers until the end of the block; they listen at its start. With a `network`, connections
    to them use it."""
    ports = free_ports(count)
    controllers = tuple(
        Controller(FIRST_ID + n, port, folder / f"controller{n}", new_directory_id()) for n, port in enumerate(ports)
    )
    if network is not None:
        for each in controllers:
            each.reached_at = network.way_to(each.node_id, each.port, each.pid)
    quorum = KafkaQuorum(folder, version, kraft_version, controllers, others, settings or {}, release)
    try:
        for each in controllers:
            quorum.format(each)
            quorum.start(each)
        until(lambda: all(each.listens() for each in controllers), 240, "all listen")
        yield quorum
    finally:
        for each in controllers:
            if each.process is not None:
                each.process.kill()
