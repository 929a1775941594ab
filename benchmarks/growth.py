"""The growth of costs with the number of topics, of partitions of one topic, and of brokers: 4 and 16 times as many.

Each figure is the processor time of the serving process, from a request until it is idle again. It includes the
resulting work (confirmations, elections, responses, compaction), and excludes other processes. An operation that is
linear in the affected items takes the same time for each at every size. Memory is the resident memory after all
operations.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.client import BenchClient
from benchmarks.servers import Running, topicwright
from benchmarks.usage import cpu_seconds, process_state
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from controller.kafka.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    MetadataRequest,
)
from tests.support.topicwright import fetch

TOPICS = (12_500, 50_000, 200_000)
PARTITIONS = (6_250, 25_000, 100_000)
BROKERS = (62, 250, 1_000)
TOUCHED = 1_000
"""The number of topics that are created, altered and deleted, in addition to all others."""
AT_ONCE = 250
PARTITIONS_AT_ONCE = 5_000
TIMEOUT_MS = 60_000
_VERSIONS = {
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.METADATA: 12,
}
_LOOK_S, _RESTING_S = 0.3, 0.03
_LOOKS = 3
"""A process is idle if it sleeps and uses this little processor time in several intervals."""


class Row(msgspec.Struct, frozen=True):
    """The figures of one operation at the three sizes, each per `unit`; for memory the total in MiB."""

    grows: str
    operation: str
    unit: str
    sizes: tuple[int, ...]
    figures: tuple[float, ...]

    @property
    def growth(self) -> float:
        """The last figure divided by the first. 1 is linear; the growth of the sizes is quadratic."""
        return self.figures[-1] / self.figures[0] if self.figures[0] else 0.0


class House:
    """A server with many topics, partitions or brokers, and the operations on it."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._client = BenchClient(running.kafka)
        self.took: dict[tuple[str, str], float] = {}

    def measure(self, operation: str, unit: str, count: int, work: Callable[[], object]) -> None:
        """Run an operation on `count` units, and record its processor time per unit."""
        self.rest()
        before = cpu_seconds(self._running.process.pid)
        work()
        self.rest()
        self.took[operation, unit] = (cpu_seconds(self._running.process.pid) - before) / count * 1e6

    def rest(self) -> None:
        """Wait until the process is idle. A process that waits for a processor is not idle."""
        pid, looks = self._running.process.pid, 0
        before = cpu_seconds(pid)
        while looks < _LOOKS:
            time.sleep(_LOOK_S)
            now = cpu_seconds(pid)
            looks = looks + 1 if now - before <= _RESTING_S and process_state(pid) == "S" else 0
            before = now

    def memory(self) -> None:
        """Record the resident memory."""
        self.took["resident memory", "MiB"] = self._running.resident_mib()

    def call(self, key: ApiKey, request: Message) -> object:
        """Send a request; fail if its response has an error."""
        response = self._client.call(key, _VERSIONS[key], request)
        for field in ("topics", "results", "responses"):
            for each in getattr(response, field, ()):
                assert each.error_code == 0, f"{each}"
        return response

    def create(self, first: int, end: int, factor: int = 1, partitions: int = 1) -> None:
        for start in range(first, end, AT_ONCE):
            names = [f"grown-{number}" for number in range(start, min(end, start + AT_ONCE))]
            topics = [CreatableTopic(name=one, num_partitions=partitions, replication_factor=factor) for one in names]
            self.call(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=tuple(topics), timeout_ms=TIMEOUT_MS))

    def alter_again(self, number: int, times: int) -> None:
        """Set a config of one topic, `times` times."""
        for _ in range(times):
            self.alter(number, number + 1)

    def alter(self, first: int, end: int) -> None:
        """Set a config of several topics."""
        config = (AlterableConfig(name="retention.ms", config_operation=0, value="60000"),)
        for start in range(first, end, AT_ONCE):
            numbers = range(start, min(end, start + AT_ONCE))
            named = [AlterConfigsResource(resource_type=2, resource_name=f"grown-{n}", configs=config) for n in numbers]
            self.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=tuple(named)))

    def delete(self, first: int, end: int) -> None:
        for start in range(first, end, AT_ONCE):
            topics = [DeleteTopicState(name=f"grown-{number}") for number in range(start, min(end, start + AT_ONCE))]
            self.call(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=tuple(topics), timeout_ms=TIMEOUT_MS))

    def enlarge(self, end: int) -> None:
        """Increase the first topic to `end` partitions, some thousand at a time."""
        for count in [*range(PARTITIONS_AT_ONCE, end, PARTITIONS_AT_ONCE), end]:
            topics = (CreatePartitionsTopic(name="grown-0", count=count),)
            self.call(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS))

    def list_all(self) -> None:
        """Get the metadata of all topics."""
        self.call(ApiKey.METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))

    def stop_broker(self, broker_id: int) -> None:
        status, body = fetch(self._running.http, f"/v1/simulated/brokers/{broker_id}/stop", method="POST")
        assert status == 200, body


def grow_topics(house: House, size: int) -> None:
    """Measure with many topics of one partition."""
    house.measure("create", "us a topic", size, lambda: house.create(0, size))
    _touch(house, size)
    house.measure("list all", "us a topic", size, house.list_all)
    house.measure("broker stop", "us a topic", size, lambda: house.stop_broker(1))


def grow_partitions(house: House, size: int) -> None:
    """Measure with one topic of many partitions."""
    house.create(0, 1)
    house.measure("add partitions", "us a partition", size, lambda: house.enlarge(size))
    house.measure("alter", "us a change", 40, lambda: house.alter_again(0, 40))
    house.measure("list all", "us a partition", size, house.list_all)
    house.measure("broker stop", "us a partition", size, lambda: house.stop_broker(1))
    house.measure("delete", "us a partition", size, lambda: house.delete(0, 1))


def grow_brokers(house: House, size: int) -> None:
    """Measure with many brokers and a thousand topics of three replicas."""
    house.create(0, TOUCHED, factor=3)
    _touch(house, TOUCHED)
    house.measure("broker stop", "us a broker", size, lambda: house.stop_broker(1))


def _touch(house: House, size: int) -> None:
    house.measure("create 1,000 more", "us a topic", TOUCHED, lambda: house.create(size, size + TOUCHED))
    house.measure("alter 1,000", "us a topic", TOUCHED, lambda: house.alter(size, size + TOUCHED))
    house.measure("delete 1,000", "us a topic", TOUCHED, lambda: house.delete(size, size + TOUCHED))


Grow = Callable[[House, int], None]
GROWTHS: dict[str, tuple[tuple[int, ...], Grow]] = {
    "topics": (TOPICS, grow_topics),
    "partitions": (PARTITIONS, grow_partitions),
    "brokers": (BROKERS, grow_brokers),
}


def run(grows: str, by: int = 1) -> list[Row]:
    """Measure one of GROWTHS, with all sizes divided by `by`."""
    sizes, grow = GROWTHS[grows]
    sizes = tuple(size // by for size in sizes)
    found = [_at(grows, size, grow) for size in sizes]
    return [Row(grows, *key, sizes, tuple(one[key] for one in found)) for key in found[0]]


def _at(grows: str, size: int, grow: Grow) -> dict[tuple[str, str], float]:
    brokers = f"simulated:{size if grows == 'brokers' else 3}"
    with TemporaryDirectory(prefix="topicwright-bench-") as folder:
        data = Path(folder) / "data"
        with topicwright(data, brokers=brokers) as running:
            house = House(running)
            grow(house, size)
            house.memory()
            running.process.kill()
        with topicwright(data, brokers=brokers) as again:
            house.took["kill -9 and ready again", "s"] = cpu_seconds(again.process.pid)
            House(again).rest()
            house.took["the stopped broker is back", "s"] = cpu_seconds(again.process.pid)
        return house.took


def table(rows: Sequence[Row]) -> str:
    """Formats the rows as Markdown tables."""
    lines: list[str] = []
    for row in rows:
        if not lines or row.grows != rows[rows.index(row) - 1].grows:
            header = " | ".join(f"{size:,} {row.grows}" for size in row.sizes)
            lines += ["", f"| | unit | {header} | last by first |", "|---" * (len(row.sizes) + 3) + "|"]
        cells = " | ".join(f"{figure:,.0f}" if figure >= 10 else f"{figure:.2g}" for figure in row.figures)
        lines.append(f"| {row.operation} | {row.unit} | {cells} | {row.growth:.2g} |")
    return "\n".join(lines[1:])


def main() -> None:
    """Run from the command line; takes about five minutes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--only", choices=GROWTHS, action="append", help="only what grows with these")
    parser.add_argument("--by", type=int, default=1, help="divide all sizes by this (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = [row for grows in options.only or GROWTHS for row in run(grows, options.by)]
    if options.json:
        sys.stdout.buffer.write(msgspec.json.encode(rows) + b"\n")
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
