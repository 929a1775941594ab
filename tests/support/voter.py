"""`topicwright join` as a process in a quorum of Kafka's own controllers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controller.quorum.folder import PARTITION
from tests.support.kafka_quorum import KafkaQuorum
from tests.support.network import Network
from tests.support.ports import free_ports
from tests.support.processes import Node, Process
from tests.support.topicwright import COMMAND

VOTER = 3009


class Voter(Node):
    """A voter with a fixed port and folder, reached over a `network` if there is one."""

    def __init__(
        self,
        quorum: KafkaQuorum,
        folder: Path,
        port: int,
        *settings: str,
        node_id: int = VOTER,
        network: Network | None = None,
    ) -> None:
        self.quorum, self.folder, self.port, self.settings, self.node_id = quorum, folder, port, settings, node_id
        self.process: Process | None = None
        self.own_address = f"127.0.0.1:{port}"
        self.address = self.own_address
        if network is not None:
            self.address = f"127.0.0.1:{network.way_to(node_id, port, self.pid)}"

    @property
    def metadata(self) -> Path:
        """Its copy of the metadata log."""
        return self.folder / PARTITION

    def start(self, node_id: int | None = None) -> Process:
        """Start the voter, or restart it, optionally with another node id; does not wait until it votes."""
        if self.process is not None:
            self.process.stop()
        argv: list[str | Path] = [COMMAND, "join", "--bootstrap-controller", self.quorum.bootstrap]
        argv += ["--data", self.folder, "--listen", self.own_address, "--http", "127.0.0.1:0"]
        if self.address != self.own_address:
            argv += ["--set", f"advertised.listeners=CONTROLLER://{self.address}"]
        for each in (f"node.id={node_id or self.node_id}", *self.settings):
            argv += ["--set", each]
        self.process = Process(argv, cwd=self.folder.parent)
        return self.process

    def votes(self) -> None:
        assert self.process is not None
        self.process.wait_for_line(rf"^ready voter={self.node_id} ", within_s=120)


@contextmanager
def voter(
    quorum: KafkaQuorum,
    folder: Path,
    *settings: str,
    port: int = 0,
    node_id: int = VOTER,
    network: Network | None = None,
) -> Iterator[Voter]:
    """A voter that is stopped at the end of the block; call `start` to start it."""
    one = Voter(quorum, folder, port or free_ports(1)[0], *settings, node_id=node_id, network=network)
    try:
        yield one
    finally:
        if one.process is not None:
            one.process.stop(within_s=60)
