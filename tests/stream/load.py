"""Load on workers without a gateway: commands at a steady rate, and the arrival times of decisions."""

import random
import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from controller.machine.commands.commands import AnyCommand, CreatePartitions, CreateTopic, DeleteTopic
from controller.stream.log.codec import encode_command, key_of, partition_of
from events.logs.events_topic import Decided, decode_record
from events.names import RequestId, TopicId, TopicName

BEGINS_S = 0.5
"""A partition decides every 50 ms, so the last decision before a kill is rarely older than this."""
LED_WITHIN_S = 60.0
NOT_LED = frozenset(
    (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
)
POISON = b"\x01 no command"


class Load(threading.Thread):
    """Produces creates, changes, deletes, and some poison commands and copies. A command that Kafka does not
    acknowledge is in `failed`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: float, seed: int = 1) -> None:
        super().__init__(name="load", daemon=True)
        self.put = 0
        self.poisons = 0
        self.failed: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._names: list[str] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 0}
        )

    def run(self) -> None:
        started = time.monotonic()
        number = 0
        while not self._over.is_set():
            self._put_one(number)
            number += 1
            self._producer.poll(0)
            ahead = started + number / self._rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
        self._producer.flush(30)

    def end(self) -> None:
        """Stop producing; returns when Kafka has acknowledged all commands."""
        self._over.set()
        self.join(60)
        assert not self.failed, self.failed[:3]

    def _put_one(self, number: int) -> None:
        if number % 500 == 499:
            self.poisons += 1
            self._produce(number % self._partitions, b"", POISON)
            return
        command = self._command(number)
        key = key_of(command)
        for _ in range(2 if number % 100 == 50 else 1):  # twice, as Kafka may store it when its brokers are killed
            self._produce(partition_of(key, self._partitions), key.encode(), encode_command(command))

    def _produce(self, partition: int, key: bytes, value: bytes) -> None:
        self._producer.produce(self._topic, value, key, partition, on_delivery=self._delivered)
        self.put += 1

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failed.append(str(error))

    def _command(self, number: int) -> AnyCommand:
        stamps: dict[str, Any] = {"request_id": RequestId(f"load-{number}"), "at_ms": time.time_ns() // 1_000_000}
        if self._names and number % 5 == 3:
            name = TopicName(self._names.pop(self._chance.randrange(len(self._names))))
            return DeleteTopic(**stamps, topic=name, api="DeleteTopics")
        if self._names and number % 10 == 7:
            name = TopicName(self._chance.choice(self._names))
            return CreatePartitions(**stamps, topic=name, count=self._chance.randrange(1, 8), api="CreatePartitions")
        name = TopicName(f"t{number if self._chance.random() < 0.9 else self._chance.randrange(number + 1)}")
        self._names.append(name)
        topic_id = TopicId(number.to_bytes(16, "big"))
        return CreateTopic(
            **stamps, topic=name, topic_id=topic_id, num_partitions=2, replication_factor=2, timeout_ms=5000
        )


class Arrivals(threading.Thread):
    """Records (time, partition) of each decision, to measure pauses of partitions."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name="arrivals", daemon=True)
        self.seen: list[tuple[float, int]] = []
        self._over = threading.Event()
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, each, OFFSET_END) for each in range(partitions)])

    def run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(500, 0.1):
                value = message.value()
                if value and isinstance(decode_record(value), Decided):
                    self.seen.append((time.monotonic(), message.partition() or 0))
        self._consumer.close()

    def end(self) -> None:
        self._over.set()
        self.join(30)

    def pauses(self, marks: Sequence[float]) -> list[float]:
        """Returns, for each mark in order, the longest pause of a partition that it caused, in seconds. A pause belongs
        to the last mark before its begin, within `BEGINS_S`."""
        longest = [0.0] * len(marks)
        for partition in {each for _, each in self.seen}:
            for earlier, later in pairwise(at for at, where in self.seen if where == partition):
                if (mark := bisect_right(marks, earlier + BEGINS_S) - 1) >= 0:
                    longest[mark] = max(longest[mark], later - earlier)
        return longest


def read_topic(bootstrap: str, topic: str, partitions: int) -> list[list[bytes | None]]:
    """The values of a whole topic, by partition and offset. Offsets must be contiguous from 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    try:
        return [_read_partition(consumer, topic, each) for each in range(partitions)]
    finally:
        consumer.close()


def _read_partition(consumer: Consumer, topic: str, partition: int) -> list[bytes | None]:
    there = TopicPartition(topic, partition, 0)
    end = _end_of(consumer, there)
    consumer.assign([there])
    values: list[bytes | None] = []
    while len(values) < end:
        messages: Sequence[Message] = consumer.consume(min(5000, end - len(values)), 5)  # a larger count waits
        assert messages, f"{topic} {partition}: nothing at offset {len(values)} of {end}"
        for message in messages:
            assert message.error() is None, message.error()
            assert message.offset() == len(values), f"{topic} {partition}: a gap before {message.offset()}"
            values.append(message.value())
    return values[:end]


def _end_of(consumer: Consumer, there: TopicPartition) -> int:
    """Returns the end offset of a partition. Waits for a leader: after a restart, brokers still move leadership."""
    deadline = time.monotonic() + LED_WITHIN_S
    while True:
        try:
            return consumer.get_watermark_offsets(there, timeout=10)[1]
        except KafkaException as error:
            if error.args[0].code() not in NOT_LED or time.monotonic() > deadline:
                raise
        time.sleep(0.5)
