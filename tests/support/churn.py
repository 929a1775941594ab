"""A producer with acks=all that never stops, a group that reads along, and whoever reads all of it at the end: what was
acknowledged is there."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

QUIET = {"log_level": 0}


class Churn:
    """Writes numbers to a topic's partitions in turn until the block ends; `acked` are those that were acknowledged,
    by partition, with their offsets."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._bootstrap = bootstrap
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acked: dict[int, dict[int, int]] = defaultdict(dict)
        self.acked_somewhere: dict[int, set[int]] = defaultdict(set)
        self.failed: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(150)

    @property
    def count(self) -> int:
        """How many were acknowledged so far."""
        return sum(map(len, (*self.acked.values(), *self.acked_somewhere.values())))

    def goes_on(self, within_s: float = 240, records: int = 50) -> None:
        """Wait until so many more are acknowledged."""
        wanted = self.count + records
        deadline = time.monotonic() + within_s
        while self.count < wanted:
            assert time.monotonic() < deadline, f"{wanted - self.count} of {records} not acknowledged in {within_s} s"
            time.sleep(0.05)

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                **QUIET,
            }
        )
        number = 0
        while not self._ended.is_set():
            partition = number % self._partitions
            producer.produce(self._topic, str(number).encode(), partition=partition, on_delivery=self._delivered)
            number += 1
            producer.poll(0.02)  # more would keep the processors from the controllers
        producer.flush(120)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert isinstance(value, bytes), "it was delivered"
        assert partition is not None, "it was delivered"
        if offset is None:  # acknowledged as one that the broker has already: its offset is not in the answer again
            self.acked_somewhere[partition].add(int(value))
        else:
            self.acked[partition][offset] = int(value)

    def lost(self) -> dict[int, list[int]]:
        """Read everything: what was acknowledged and is not there at its offset, by partition; and gaps in offsets."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "everything",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **QUIET,
        }
        consumer = Consumer(settings)
        found: dict[int, dict[int, int]] = defaultdict(dict)
        consumer.assign([TopicPartition(self._topic, each, 0) for each in range(self._partitions)])
        ended: set[int] = set()
        deadline = time.monotonic() + 240
        while len(ended) < self._partitions and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                ended.add(message.partition() or 0)
                continue
            value = message.value()
            assert isinstance(value, bytes), "records have values"
            found[message.partition() or 0][message.offset() or 0] = int(value)
        consumer.close()
        lost = {
            partition: [offset for offset, value in acked.items() if found[partition].get(offset) != value]
            for partition, acked in self.acked.items()
        }
        for partition, offsets in found.items():
            assert sorted(offsets) == list(range(len(offsets))), f"partition {partition} has gaps"
        for partition, values in self.acked_somewhere.items():
            lost.setdefault(partition, []).extend(values - set(found[partition].values()))
        return {partition: offsets for partition, offsets in lost.items() if offsets}


class Reading:
    """A consumer group of one that reads a topic until the block ends, and commits; `read` are the values by partition
    and offset. What was read and not committed when a coordinator went may come again."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.read: dict[int, dict[int, int]] = defaultdict(dict)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(60)

    def has_begun(self, within_s: float = 240) -> None:
        """Wait until something is read."""
        deadline = time.monotonic() + within_s
        while not self.read:
            assert time.monotonic() < deadline, f"the group has read nothing in {within_s} s"
            time.sleep(0.1)

    def catches_up(self, churn: Churn, within_s: float = 240) -> None:
        """Wait until all that was acknowledged until now is read; it has to be so, without gaps. Both may go on."""
        deadline = time.monotonic() + within_s
        wanted = {partition: dict(acked) for partition, acked in list(churn.acked.items())}
        while any(acked.keys() - self.read[partition].keys() for partition, acked in wanted.items()):
            assert time.monotonic() < deadline, f"the group has not read all that was acknowledged in {within_s} s"
            time.sleep(0.1)
        for partition, acked in wanted.items():
            found = dict(self.read[partition])
            assert sorted(found) == list(range(len(found))), f"the group read partition {partition} with gaps"
            assert acked.items() <= found.items(), f"the group read others in {partition}"

    def _run(self) -> None:
        settings = {"group.id": "reading-along", "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **settings, **QUIET})
        consumer.subscribe([self._topic])
        while not self._ended.is_set():
            for message in consumer.consume(500, 0.1):
                value, partition, offset = message.value(), message.partition(), message.offset()
                if (
                    message.error() is None
                    and isinstance(value, bytes)
                    and partition is not None
                    and offset is not None
                ):
                    self.read[partition][offset] = int(value)
        consumer.close()
