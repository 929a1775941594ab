"""A continuous producer with acks=all, a consumer group, and a final read: no acknowledged record may be lost."""

import logging
import threading
import time
from collections import defaultdict
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.real_brokers import until

QUIET = {"log_level": 0}
GROUP = "reading-along"
LINES = 2000


class Churn:
    """Writes numbers to a topic's partitions in turn until the block ends. `acked` has the acknowledged ones by
    partition and offset."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic = topic
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
        """The number of acknowledged records."""
        return sum(map(len, (*self.acked.values(), *self.acked_somewhere.values())))

    def goes_on(self, within_s: float = 240, records: int = 50) -> None:
        wanted = self.count + records
        until(lambda: self.count >= wanted, within_s, f"{records} more records are acknowledged")

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 200,  # fewer requests, so that brokers leave CPU time to the controllers
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                **QUIET,
            }
        )
        number = 0
        while not self._ended.is_set():
            partition = number % self._partitions
            producer.produce(self.topic, str(number).encode(), partition=partition, on_delivery=self._delivered)
            number += 1
            producer.poll(0.02)  # a higher rate would take CPU time from the controllers
        producer.flush(120)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert isinstance(value, bytes), "a delivered record has a value"
        assert partition is not None, "a delivered record has a partition"
        if offset is None:  # acknowledged as a duplicate, without its offset
            self.acked_somewhere[partition].add(int(value))
        else:
            self.acked[partition][offset] = int(value)

    def lost(self) -> dict[int, list[int]]:
        """Read everything; returns the lost records by partition. Raises AssertionError for gaps in offsets."""
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "everything",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **QUIET,
        }
        consumer = Consumer(settings)
        found: dict[int, dict[int, int]] = defaultdict(dict)
        consumer.assign([TopicPartition(self.topic, each, 0) for each in range(self._partitions)])
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


class Said(logging.Handler):
    """The last log lines of a client's librdkafka, in order; of repeated lines only the last."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self._lines: dict[str, str] = {}

    @property
    def lines(self) -> list[str]:
        """The lines with their times."""
        return list(self._lines.values())

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._lines.pop(text, None)
        self._lines[text] = self.format(record)
        if len(self._lines) > LINES:
            del self._lines[next(iter(self._lines))]


class Member(threading.Thread):
    """One consumer of a group, until `ended` is set; its values go to `read`, by partition and offset."""

    def __init__(self, bootstrap: str, topic: str, read: dict[int, dict[int, int]]) -> None:
        super().__init__(daemon=True)
        self.ended, self.said = threading.Event(), Said()
        self._address, self._topic, self._read = bootstrap, topic, read

    def run(self) -> None:
        log = logging.Logger("member")
        log.addHandler(self.said)
        settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
        settings |= {"fetch.min.bytes": 100_000}  # one fetch every half second instead of one per record
        settings |= {"bootstrap.servers": self._address, "debug": "cgrp,topic,metadata"}  # `fetch` would fill the log
        consumer = Consumer(settings, logger=log)
        consumer.subscribe([self._topic])
        while not self.ended.is_set():
            for message in consumer.consume(500, 0.1):
                value, partition, offset = message.value(), message.partition(), message.offset()
                if (
                    message.error() is None
                    and isinstance(value, bytes)
                    and partition is not None
                    and offset is not None
                ):
                    self._read[partition][offset] = int(value)
        consumer.close()


class Reading:
    """A consumer group with one member that reads a topic and commits until the block ends. `read` has the values by
    partition and offset. After the loss of a coordinator, uncommitted records may be read twice."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.read: dict[int, dict[int, int]] = defaultdict(dict)
        self._member = Member(bootstrap, topic, self.read)

    def __enter__(self) -> Self:
        self._member.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._member.ended.set()
        self._member.join(60)

    @property
    def said(self) -> list[str]:
        return self._member.said.lines

    def begin_anew(self) -> None:
        """End the member without waiting, and start a new one."""
        self._member.ended.set()  # not joined: without a known broker, closing a consumer may take minutes
        self._member = Member(self._bootstrap, self._topic, self.read)
        self._member.start()

    def has_begun(self, within_s: float = 240) -> None:
        deadline = time.monotonic() + within_s
        while not self.read:
            self._before(deadline, f"the group has read nothing in {within_s} s")
            time.sleep(0.1)

    def catches_up(self, churn: Churn, within_s: float = 240) -> None:
        """Wait until all records acknowledged so far are read, and check them for gaps; neither side stops."""
        deadline = time.monotonic() + within_s
        wanted = {partition: dict(acked) for partition, acked in list(churn.acked.items())}
        while any(acked.keys() - self.read[partition].keys() for partition, acked in wanted.items()):
            self._before(deadline, f"the group has not read all that was acknowledged in {within_s} s")
            time.sleep(0.1)
        for partition, acked in wanted.items():
            found = dict(self.read[partition])
            assert sorted(found) == list(range(len(found))), f"the group read partition {partition} with gaps"
            assert acked.items() <= found.items(), f"the group read other records in partition {partition}"

    def _before(self, deadline: float, late: str) -> None:
        if time.monotonic() > deadline:
            error = AssertionError(late)
            error.add_note("\n".join(["its member logged", *self.said]))
            raise error
