"""Decisions over Kafka: commands a second for one and two workers, and the latency from a command to its events.

Both drivers run the same engine. Throughput: the commands topic is filled first, so that only Kafka and the workers
run. The times are the workers' record timestamps. Latency: one command at a time at a low rate, from just before it is
sent until its decision arrives at a consumer. Kafka is one combined node, replication factor 1, on the same machine.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from benchmarks.figures import Figure, percentile, show
from benchmarks.servers import TOPICWRIGHT, kafka
from benchmarks.usage import cpu_seconds
from controller.machine.commands.commands import CreateTopic
from controller.settings.load import load_settings
from controller.stream.log.codec import encode_command, key_of, partition_of
from controller.stream.log.topics import prepare_topics
from events.logs.events_topic import Decided, decode_record
from events.names import RequestId, TopicId, TopicName
from tests.support.processes import Process

PARTITIONS = 4
LATENCIES = 200
WANTED = {("plain", 1): "20,000", ("faust", 1): "3,000"}


class Topics:
    """A new pair of commands and events topics, and workers on them."""

    def __init__(self, bootstrap: str, folder: Path, driver: str) -> None:
        self.bootstrap = bootstrap
        self.driver = driver
        name = f"bench-{driver}-{time.time_ns()}"
        self.commands, self.events, self.group = f"{name}.commands", f"{name}.events", f"{name}.workers"
        self._folder = folder / name
        topics = f"stream.commands.topic={self.commands}", f"stream.events.topic={self.events}"
        settings = load_settings(overrides=(*topics, "stream.replication.factor=1"))
        prepare_topics({"bootstrap.servers": bootstrap}, settings, self._folder)

    @contextmanager
    def workers(self, count: int) -> Iterator[list[Process]]:
        """Yields `count` workers that are ready."""
        settings = {
            "stream.commands.topic": self.commands,
            "stream.events.topic": self.events,
            "stream.group.id": self.group,
            "log.level": "warning",
        }
        with ExitStack() as held:
            started = []
            for number in range(count):
                argv: list[str | Path] = [TOPICWRIGHT, "worker", "--bootstrap", self.bootstrap, "--http", "127.0.0.1:0"]
                argv += ["--driver", self.driver, "--data", self._folder / str(number), "--brokers", "simulated:3"]
                for key, value in settings.items():
                    argv += ["--set", f"{key}={value}"]
                started.append(held.enter_context(Process(argv, cwd=self._folder.parent)))
            for process in started:
                process.wait_for_line(r"^ready http=", within_s=120)
            yield started

    def fill(self, count: int, first: int = 0) -> None:
        """Send `count` creates of topics with one partition and one replica."""
        producer = self._producer(linger_ms=20)
        for number in range(first, first + count):
            _put(producer, self.commands, create(number))
            producer.poll(0)
        producer.flush()

    def consumer(self) -> Consumer:
        """A consumer without an assignment."""
        return Consumer({"bootstrap.servers": self.bootstrap, "group.id": "none", "enable.auto.commit": False})

    @property
    def begins(self) -> list[TopicPartition]:
        """The start of each partition of the events topic."""
        return [TopicPartition(self.events, each, 0) for each in range(PARTITIONS)]

    def ends(self) -> list[TopicPartition]:
        """The current end of each partition of the events topic."""
        consumer, ends = self.consumer(), self.begins
        for each in ends:
            each.offset = consumer.get_watermark_offsets(each, timeout=10)[1]
        consumer.close()
        return ends

    def decided(self, count: int, since: list[TopicPartition]) -> float:
        """Wait until `count` requests are decided; returns decisions a second, from the first to the last."""
        consumer = self.consumer()
        consumer.assign(since)
        times: list[int] = []
        seen = records = 0
        while seen < count:
            for message in consumer.consume(5000, 1.0):
                value = message.value()
                record = decode_record(value) if value else None
                if isinstance(record, Decided):
                    times.append(message.timestamp()[1])
                    records += 1
                    seen += b"CreateRequested" in b"".join(record.events)
        consumer.close()
        return records / max(0.001, (max(times) - min(times)) / 1000)

    def latencies_ms(self, count: int, rate: float) -> list[float]:
        """Times from sending a command until its decision arrives, one command at a time."""
        consumer, producer = self.consumer(), self._producer(linger_ms=0)
        consumer.assign([TopicPartition(self.events, each, OFFSET_END) for each in range(PARTITIONS)])
        consumer.poll(2.0)
        took_ms = []
        for number in range(count):
            command = create(1_000_000 + number)
            started = time.perf_counter()
            _put(producer, self.commands, command)
            producer.poll(0)
            self._await(consumer, command.request_id.encode())
            took_ms.append((time.perf_counter() - started) * 1000)
            time.sleep(max(0.0, 1 / rate - took_ms[-1] / 1000))
        producer.flush()
        consumer.close()
        return took_ms

    def echoes_ms(self, topic: str, count: int, rate: float) -> list[float]:
        """Times from producing a record until a consumer has it, without workers. A command takes two such hops to
        become events."""
        consumer, producer = self.consumer(), self._producer(linger_ms=0)
        consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        consumer.poll(2.0)
        took_ms = []
        for number in range(count):
            value = b"echo-%d-" % number
            started = time.perf_counter()
            producer.produce(topic, value, partition=0)
            producer.poll(0)
            self._await(consumer, value)
            took_ms.append((time.perf_counter() - started) * 1000)
            time.sleep(max(0.0, 1 / rate - took_ms[-1] / 1000))
        producer.flush()
        consumer.close()
        return took_ms

    @staticmethod
    def _await(consumer: Consumer, request_id: bytes) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and request_id in (message.value() or b""):
                return
        raise AssertionError(f"{request_id!r} was not decided")

    def _producer(self, linger_ms: int) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": 1_000_000,
            }
        )


def create(number: int) -> CreateTopic:
    """A request for a topic of one partition and one replica."""
    return CreateTopic(
        request_id=RequestId(f"bench-{number}-"),
        at_ms=time.time_ns() // 1_000_000,
        topic=TopicName(f"bench-{number}"),
        topic_id=TopicId(number.to_bytes(16, "big")),
        num_partitions=1,
        replication_factor=1,
        timeout_ms=60_000,
    )


def _put(producer: Producer, topic: str, command: CreateTopic) -> None:
    key = key_of(command)
    producer.produce(topic, encode_command(command), key.encode(), partition_of(key, PARTITIONS))


def run(drivers: Sequence[str] = ("plain", "faust"), count: int = 40_000) -> list[Figure]:
    """Measure the drivers on one Kafka."""
    with TemporaryDirectory(prefix="topicwright-bench-") as held, kafka() as bootstrap:
        return [
            figure
            for driver in drivers
            for workers in (1, 2)
            for figure in measured(bootstrap, Path(held), driver, workers, count if driver == "plain" else count // 4)
        ]


def measured(bootstrap: str, folder: Path, driver: str, workers: int, count: int) -> Iterator[Figure]:
    """Measures the throughput of a driver with `workers` workers; with one worker also the latency."""
    topics, label = Topics(bootstrap, folder, driver), f"{driver}, {workers} worker{'s' if workers > 1 else ''}"
    with topics.workers(workers):
        topics.fill(100)
        topics.decided(100, topics.begins)
    topics.fill(count, first=100)
    since = topics.ends()
    with topics.workers(workers) as processes:
        before = sum(cpu_seconds(each.pid) for each in processes)
        rate = topics.decided(count, since)
        core_us = (sum(cpu_seconds(each.pid) for each in processes) - before) / count * 1e6
        took = topics.latencies_ms(LATENCIES, 50) if workers == 1 else []
    note = "commands that workers put themselves are counted, but have no processor time of their own"
    yield Figure(label, "commands/s", rate, reach=WANTED.get((driver, workers), ""), note=note, core_us=core_us)
    if took:
        hops = [topics.echoes_ms(topic, LATENCIES, 50) for topic in (topics.commands, topics.events)]
        for name, part in (("median", 0.5), ("99 %", 0.99)):
            two = sum(percentile(each, part) for each in hops)
            ratio = f"{percentile(took, part) / two:.2f} of two hops, a record produced and consumed each"
            work = f"{label}: command to event, {name}"
            yield Figure(work, "ms", percentile(took, part), two, "1.3 of Kafka's" if part == 0.5 else "", ratio)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--driver", choices=("plain", "faust"), action="append", help="only these")
    parser.add_argument("--commands", type=int, default=40_000, help="%(default)s")
    options = parser.parse_args()
    show(run(options.driver or ("plain", "faust"), options.commands), options.json)


if __name__ == "__main__":
    main()
