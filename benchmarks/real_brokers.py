"""Creates on three Kafka brokers, led by Topicwright and then by Kafka's own controller: their duration, and how many
brokers do not know the topic, or do not lead, at the response. Then failover with many partitions.

Each create goes to the next broker in turn. After its response, every broker gets one request for the topic, and every
leader one for offsets. An error counts as a miss, and the request is repeated. Both controllers have brokers with the
same settings.

`python -m benchmarks.real_brokers [--count N] [--partitions N] [--json]`
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.client import BenchClient, frame_of
from benchmarks.figures import Figure, command_line, percentile
from controller.kafka.codec.codec import decode_response
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.clients import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from controller.kafka.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.support import tools
from tests.support.ports import free_ports
from tests.support.processes import Process
from tests.support.real_brokers import (
    CONTROLLER,
    RealBroker,
    RealCluster,
    format_directory,
    real_cluster,
    until,
    write_properties,
)

PARTITIONS, FACTOR = 3, 3
HEAP = "1g"
CREATE, METADATA, LIST_OFFSETS = 7, 9, 7
TOPICS_PER_REQUEST = 50


class Brokers:
    """Connections to all brokers, by id."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._clients = {broker_id: BenchClient(f"127.0.0.1:{port}") for broker_id, port in enumerate(ports, start=1)}

    def call(self, broker_id: int, key: ApiKey, version: int, message: Message) -> Message:
        """Send one request; returns its response."""
        (answer,), _ = self._clients[broker_id].timed([frame_of(key, version, message)])
        return decode_response(key, version, answer)[1]

    def create(self, broker_id: int, names: Sequence[str], partitions: int, factor: int) -> float:
        """Create topics through a broker; returns the ms it took."""
        topics = tuple(CreatableTopic(name=n, num_partitions=partitions, replication_factor=factor) for n in names)
        started = time.perf_counter()
        answer = self.call(
            broker_id, ApiKey.CREATE_TOPICS, CREATE, CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        )
        took = time.perf_counter() - started
        assert isinstance(answer, CreateTopicsResponse)
        assert {topic.error_code for topic in answer.topics} == {0}, answer
        return took * 1000

    def leaders(self, broker_id: int, name: str) -> dict[int, int]:
        """The leaders of a topic according to a broker; empty unless it knows all of them."""
        request = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
        answer = self.call(broker_id, ApiKey.METADATA, METADATA, request)
        assert isinstance(answer, MetadataResponse)
        (topic,) = answer.topics
        whole = not topic.error_code and all(one.leader_id >= 0 and not one.error_code for one in topic.partitions)
        return {one.partition_index: one.leader_id for one in topic.partitions} if whole else {}

    def serves(self, leader: int, name: str, partition: int) -> bool:
        """True if a broker answers as the leader."""
        one = ListOffsetsPartition(partition_index=partition, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=name, partitions=(one,)),))
        answer = self.call(leader, ApiKey.LIST_OFFSETS, LIST_OFFSETS, request)
        assert isinstance(answer, ListOffsetsResponse)
        return answer.topics[0].partitions[0].error_code == 0


@dataclass(slots=True)
class Creates:
    """Times in ms from the create to its response, and until every broker knew the topic and every leader served it;
    and the numbers of brokers that did not know it, and of leaders that did not serve, at the response."""

    answered_ms: list[float] = field(default_factory=list)
    usable_ms: list[float] = field(default_factory=list)
    unknown: int = 0
    silent: int = 0


def creates(ports: Sequence[int], count: int) -> Creates:
    """Create topics one by one, through each broker in turn."""
    brokers, found = Brokers(ports), Creates()
    prefix = f"one-{time.time_ns()}"
    for number in range(count):
        name, began = f"{prefix}-{number}", time.perf_counter()
        found.answered_ms.append(brokers.create(number % len(ports) + 1, [name], PARTITIONS, FACTOR))
        leaders: dict[int, int] = {}
        unaware = []
        for broker_id in range(1, len(ports) + 1):
            leaders = (known := brokers.leaders(broker_id, name)) or leaders
            unaware += [] if known else [broker_id]
        found.unknown += len(unaware)
        mute = [partition for partition, leader in leaders.items() if not brokers.serves(leader, name, partition)]
        found.silent += len(mute)
        for broker_id in unaware:
            while not (leaders := brokers.leaders(broker_id, name)):
                pass
        for partition in mute if not unaware else leaders:
            while not brokers.serves(leaders[partition], name, partition):
                pass
        found.usable_ms.append((time.perf_counter() - began) * 1000)
    return found


def failover(cluster: RealCluster, partitions: int) -> tuple[float, float]:
    """Returns the seconds from a broker's kill until another one knows new leaders for all partitions, and the median
    ms of a create with so many partitions."""
    ports = [broker.port for broker in cluster.brokers.values()]
    brokers = Brokers(ports)
    names = [f"many-{number}" for number in range(partitions // 10)]
    for at in range(0, len(names), TOPICS_PER_REQUEST):
        brokers.create(1, names[at : at + TOPICS_PER_REQUEST], 10, FACTOR)
    took = [brokers.create(number % 3 + 1, [f"further-{number}"], PARTITIONS, FACTOR) for number in range(20)]
    killed = 3
    cluster.brokers[killed].kill()
    started = time.perf_counter()
    until(lambda: all(killed not in brokers.leaders(1, name).values() for name in names), 300, "new leaders")
    return time.perf_counter() - started, percentile(took, 0.5)


@contextmanager
def kafkas_own(folder: Path) -> Iterator[list[int]]:
    """Three brokers with a separate Kafka controller; yields the brokers' ports."""
    controller, *ports = free_ports(4)
    place = folder / "controller"
    format_directory(place / "data", CONTROLLER)
    lines = {
        "process.roles": "controller",
        "node.id": str(CONTROLLER),
        "listeners": f"CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{controller}",
        "log.dirs": str(place / "data"),
    }
    (place / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    argv = tools.java_command(tools.server_classpath(), "kafka.Kafka", str(place / "server.properties"))
    with Process(argv, cwd=place):
        brokers = [
            RealBroker(number, port, folder / f"b{number}", tools.KAFKA_SERVER, heap=HEAP)
            for number, port in enumerate(ports, start=1)
        ]
        try:
            for broker in brokers:
                write_properties(broker, f"127.0.0.1:{controller}")
                broker.start()
            for broker in brokers:
                assert broker.process is not None
                broker.process.wait_for_line("Kafka Server started", within_s=120)
            yield ports
        finally:
            for broker in brokers:
                if broker.process is not None:
                    broker.process.kill()


def run(count: int = 1000, partitions: int = 10_000) -> list[Figure]:
    """Measure both controllers."""
    with TemporaryDirectory(prefix="topicwright-bench-") as folder:
        with real_cluster(Path(folder) / "ours", settings={"log.level": "warning"}, heap=HEAP) as cluster:
            time.sleep(5)
            ours = creates([broker.port for broker in cluster.brokers.values()], count)
        with real_cluster(Path(folder) / "many", settings={"log.level": "warning"}, heap=HEAP) as cluster:
            time.sleep(5)
            seconds, create_ms = failover(cluster, partitions)
        with kafkas_own(Path(folder) / "theirs") as ports:
            time.sleep(5)
            theirs = creates(ports, count)
    note = f"{count} creates, {PARTITIONS} partitions, factor {FACTOR}"
    out_of = f"of {count * FACTOR}"

    def row(
        what: str, reach: str, mine: Sequence[float], other: Sequence[float], part: float, note: str = ""
    ) -> Figure:
        return Figure(f"real brokers: {what}", "ms", percentile(mine, part), percentile(other, part), reach, note)

    return [
        row("create answered, median", "< 30", ours.answered_ms, theirs.answered_ms, 0.5, note),
        row("create answered, 95th percentile", "", ours.answered_ms, theirs.answered_ms, 0.95),
        row("create usable everywhere, median", "", ours.usable_ms, theirs.usable_ms, 0.5),
        row("create usable everywhere, 95th percentile", "", ours.usable_ms, theirs.usable_ms, 0.95),
        Figure("real brokers: did not know the topic", "brokers", ours.unknown, theirs.unknown, "0", out_of),
        Figure("real brokers: did not serve", "leaders", ours.silent, theirs.silent, "0", f"of {count * PARTITIONS}"),
        Figure("real brokers: kill to new leaders", "s", seconds, None, "", f"{partitions} partitions, session 9 s"),
        Figure("real brokers: create with so many partitions, median", "ms", create_ms),
    ]


if __name__ == "__main__":
    command_line(run, __doc__)
