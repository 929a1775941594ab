"""A producer with acks=all that never stops, a group that reads along, and whoever reads all of it at the end: what was
acknowledged is there."""

from __future__ import annotations

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
    """Writes numbers to a topic's partitions in turn until the block ends; `acked` are those that were acknowledged,
    by partition, with their offsets."""

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
        """How many were acknowledged so far."""
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
                "linger.ms": 200,  # fewer requests: brokers take the processors from the controllers
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
    """The last lines that a client's librdkafka has logged, in order; of what it says again and again, the last."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self._lines: dict[str, str] = {}

    @property
    def lines(self) -> list[str]:
        """Each with its time."""
        return list(self._lines.values())

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._lines.pop(text, None)
        self._lines[text] = self.format(record)
        if len(self._lines) > LINES:
            del self._lines[next(iter(self._lines))]


class Member(threading.Thread):
    """One consumer of a group, until it is `ended`; its records go to `read`, by partition and offset."""

    def __init__(self, bootstrap: str, topic: str, read: dict[int, dict[int, int]]) -> None:
        super().__init__(daemon=True)
        self.ended, self.said = threading.Event(), Said()
        self._address, self._topic, self._read = bootstrap, topic, read

    def run(self) -> None:
        log = logging.Logger("member")
        log.addHandler(self.said)
        settings = {"group.id": GROUP, "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
        settings |= {"fetch.min.bytes": 100_000}  # a fetch every half second, and not one for each record
        settings |= {"bootstrap.servers": self._address, "debug": "cgrp,topic,metadata"}  # fetch would be most of it
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
    """A consumer group of one that reads a topic until the block ends, and commits; `read` are the values by partition
    and offset. What was read and not committed when a coordinator went may come again."""

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
        """Leave the member to itself, and have a fresh one join the group."""
        self._member.ended.set()  # nobody waits for it: a consumer that knows of no broker may close for minutes
        self._member = Member(self._bootstrap, self._topic, self.read)
        self._member.start()

    def has_begun(self, within_s: float = 240) -> None:
        deadline = time.monotonic() + within_s
        while not self.read:
            self._before(deadline, f"the group has read nothing in {within_s} s")
            time.sleep(0.1)

    def catches_up(self, churn: Churn, within_s: float = 240) -> None:
        """Wait until all that was acknowledged until now is read; it has to be so, without gaps. Both may go on."""
        deadline = time.monotonic() + within_s
        wanted = {partition: dict(acked) for partition, acked in list(churn.acked.items())}
        while any(acked.keys() - self.read[partition].keys() for partition, acked in wanted.items()):
            self._before(deadline, f"the group has not read all that was acknowledged in {within_s} s")
            time.sleep(0.1)
        for partition, acked in wanted.items():
            found = dict(self.read[partition])
            assert sorted(found) == list(range(len(found))), f"the group read partition {partition} with gaps"
            assert acked.items() <= found.items(), f"the group read others in {partition}"

    def _before(self, deadline: float, late: str) -> None:
        if time.monotonic() > deadline:
            error = AssertionError(late)
            error.add_note("\n".join(["its member logged", *self.said]))
            raise error
