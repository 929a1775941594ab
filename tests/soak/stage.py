"""The processes of a soak: two Kafka controllers, a Topicwright voter that leads them, brokers, workers, a gateway.

Segments and intervals are small, so that snapshots, archiving and retention happen many times in minutes.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from tests.soak.nodes import Node
from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.quorum_cluster import QuorumCluster, quorum_cluster
from tests.support.real_brokers import until
from tests.support.topicwright import COMMAND

STREAM_PARTITIONS: Final = 2
NAMES: Final = "soak"
ARCHIVE_EVENTS: Final = 256
KAFKA: Final[Mapping[str, str]] = {"metadata.log.max.record.bytes.between.snapshots": "100000"}
LOG: Final[Mapping[str, str]] = {
    "log.snapshot.interval.events": "1000",
    "log.archive.interval.events": str(ARCHIVE_EVENTS),
    "log.events.retention.bytes": "200000",
    "store.cache.bytes": "4194304",
    "log.level": "warning",
}
DISK_MIB: Final[Mapping[str, Mapping[str, float]]] = {
    "voter": {"__cluster_metadata-0": 2.0, "": 48.0},
    "worker": {"": 64.0},
    "gateway": {"": 64.0},
}
"""Limits in MiB for each kind of Topicwright node: direct entry of its folder → limit; "" is the whole folder."""
VOTER: Final[Mapping[str, str]] = {**KAFKA, **LOG, "metadata.max.retention.bytes": "400000"}


@dataclass(slots=True)
class Stage:
    """The nodes and the gateway's address, which is empty without workers."""

    folder: Path
    cluster: QuorumCluster
    nodes: list[Node]
    gateway: str = ""
    streams: dict[str, Process] = field(default_factory=dict)

    @property
    def voter(self) -> Node:
        """The Topicwright voter."""
        return next(each for each in self.nodes if each.kind == "voter" and each.ours)

    @property
    def ours(self) -> list[Node]:
        return [each for each in self.nodes if each.ours]

    def live(self) -> set[int]:
        """The unfenced brokers; empty while the voter does not respond."""
        with suppress(OSError):
            return set(msgspec.json.decode(self.voter.get("/v1/brokers"))["live"])
        return set()

    def add(self, what: str, name: str, *more: str | Path) -> Node:
        """Start a worker or a gateway; does not wait until it is ready."""
        data = self.folder / name
        settings = {
            "stream.commands.topic": f"{NAMES}.commands",
            "stream.events.topic": f"{NAMES}.events",
            "stream.gateways.topic": f"{NAMES}.gateways",
            "stream.group.id": f"{NAMES}.workers",
            "stream.partitions": str(STREAM_PARTITIONS),
            "log.archive.url": str(self.folder / "stream-archive"),
            **LOG,
        }
        argv: list[str | Path] = [COMMAND, what, "--bootstrap", self.cluster.bootstrap, *more]
        argv += ["--http", "127.0.0.1:0", "--data", data]
        for key, value in settings.items():
            argv += ["--set", f"{key}={value}"]

        def begin() -> None:
            self.streams[name] = Process(argv, cwd=self.folder)

        node = Node(name, what, lambda: self.streams.get(name), begin, lambda: True, data)
        node.works = node.is_ready
        self.nodes.append(node)
        begin()
        return node

    def not_well(self) -> list[str]:
        """The names of the nodes that do not work now."""
        return [each.name for each in self.nodes if not each.works()]


@contextmanager
def stage(folder: Path, *, brokers: int, workers: int) -> Iterator[Stage]:
    """Start all processes and wait until they work; ends them with the block."""
    archive = folder / "voter-archive"
    ours = {**VOTER, "log.archive.url": str(archive)}
    factor = {"offsets.topic.replication.factor": str(brokers)}
    with (
        quorum_cluster(
            folder,
            ours=1,
            leads=True,
            brokers=brokers,
            settings={**KAFKA, **factor},
            our_settings=[f"{key}={value}" for key, value in ours.items()],
        ) as cluster,
        ExitStack() as ending,
    ):
        made = Stage(folder, cluster, [])
        for node_id, member in cluster.members.items():
            is_ours = member in cluster.ours
            made.nodes.append(
                Node(
                    f"voter {node_id}" if is_ours else f"Kafka's controller {node_id}",
                    "voter",
                    lambda member=member: member.process,  # type: ignore[misc]
                    partial(cluster.start, node_id),
                    lambda: cluster.ready(is_busy=True) is not None,
                    member.metadata.parent,
                    is_ours,
                )
            )
        for broker_id, broker in cluster.brokers.items():
            made.nodes.append(
                Node(
                    f"broker {broker_id}",
                    "broker",
                    lambda broker=broker: broker.process,  # type: ignore[misc]
                    broker.start,
                    lambda broker=broker, broker_id=broker_id: broker_id in made.live() and broker.listens(),  # type: ignore[misc]
                    broker.folder,
                    False,
                )
            )
        ending.callback(_end, made.streams)
        for number in range(workers):
            made.add("worker", f"worker-{number}", "--brokers", "simulated:3")
        if workers:
            made.gateway = f"127.0.0.1:{free_ports(1)[0]}"
            made.add("gateway", "gateway", "--kafka", made.gateway)
        until(lambda: not made.not_well(), 300, "all nodes work")
        yield made


def _end(streams: Mapping[str, Process]) -> None:
    for process in streams.values():
        process.kill()
