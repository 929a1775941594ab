"""Kafka as a gateway uses it, through librdkafka in threads: following the events topic, and sending commands.

Following. Partitions are assigned manually and read from where the gateway's local copies end, without a consumer
group or committed offsets. Records are handed to the event loop in batches. The same consumer reads the events and the
gateways' heartbeats, so a gateway that receives its own heartbeat receives events too.

Sending. The producer is idempotent, and all in-sync replicas acknowledge a command. Deliveries are reported on the
event loop. A command that Kafka did not acknowledge in time may still have arrived: nobody can know before Kafka is
back.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from controller.stream.log.partition import RECORD_BYTES_MAX

RECORDS_PER_BATCH, BATCH_BYTES = 500, 128 * 1024
"""Limits of a batch, which the loop processes in some ten milliseconds. A record of a reconciliation has a thousand
events, and as many bytes as hundreds of creates."""
BATCHES_AHEAD = 4
"""Batches that may wait for the event loop before reading pauses."""
POLL_S = 0.2

Place = tuple[str, int]
"""A topic and a partition."""
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
"""librdkafka reports these only if a topic is missing for longer than brokers need to learn of a new one."""


class Record(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int
    value: bytes


class FollowedEvents(msgspec.Struct, frozen=True, gc=False):
    """Records in order, and the partitions that were read up to their end."""

    records: tuple[Record, ...]
    ended: frozenset[Place]


class FollowingFailed(Exception):
    """Reading cannot go on. The message says why and what to do."""


class Follower:
    """Reads partitions from given offsets.

    Calls `take` on the event loop with every batch, and `fail` with a permanent error. Waits for temporary ones, such
    as unreachable brokers.
    """

    def __init__(
        self,
        properties: Mapping[str, str | int | float | bool],
        *,
        take: Callable[[FollowedEvents], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._properties = dict(properties)
        self._take = take
        self._fail = fail
        self._stopped = threading.Event()
        self._room = threading.Semaphore(BATCHES_AHEAD)
        self._thread: threading.Thread | None = None

    def start(self, topic: str, offsets: Sequence[int], newest_of: str) -> None:
        """Read every partition of `topic` from its offset, and new records of partition 0 of `newest_of`."""
        self._loop = asyncio.get_running_loop()
        places = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
        places.append(TopicPartition(newest_of, 0, OFFSET_END))
        self._thread = threading.Thread(target=self._run, args=(places,), name="follow", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._stopped.set()
        self._room.release()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self, places: list[TopicPartition]) -> None:
        consumer = Consumer(
            {
                **self._properties,
                "group.id": "topicwright-gateway",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.error.backoff.ms": 50,
            }
        )
        try:
            consumer.assign(places)
            while not self._stopped.is_set():
                self._read(consumer)
        except Exception as error:
            self._on_loop(partial(self._fail, error))
        finally:
            consumer.close()

    def _read(self, consumer: Consumer) -> None:
        first = consumer.poll(POLL_S)
        if first is None:
            return
        batch = _batch([first, *consumer.consume(RECORDS_PER_BATCH - 1, 0)])
        *early, last = _parts(batch.records)
        for part in early:
            self._enqueue(FollowedEvents(part, frozenset()))
        if last or batch.ended:
            self._enqueue(FollowedEvents(last, batch.ended))

    def _enqueue(self, batch: FollowedEvents) -> None:
        self._room.acquire()
        self._on_loop(partial(self._deliver, batch))

    def _deliver(self, batch: FollowedEvents) -> None:
        self._room.release()
        if not self._stopped.is_set():
            self._take(batch)

    def _on_loop(self, work: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(work)


def _batch(messages: Sequence[Message]) -> FollowedEvents:
    records: list[Record] = []
    ended: set[tuple[str, int]] = set()
    for message in messages:
        error = message.error()
        topic, partition = str(message.topic()), int(message.partition() or 0)
        if error is None:
            value = message.value()
            records.append(Record(topic, partition, int(message.offset() or 0), bytes(value or b"")))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add((topic, partition))
        else:
            _raise_if_final(error, topic, partition)
    return FollowedEvents(tuple(records), frozenset(ended))


def _parts(records: Sequence[Record]) -> list[tuple[Record, ...]]:
    """Records in order, in parts of at most `BATCH_BYTES` or one record; the last part may be empty."""
    parts: list[tuple[Record, ...]] = []
    part: list[Record] = []
    room = BATCH_BYTES
    for record in records:
        if part and len(record.value) > room:
            parts.append(tuple(part))
            part, room = [], BATCH_BYTES
        part.append(record)
        room -= len(record.value)
    return [*parts, tuple(part)]


def _raise_if_final(error: KafkaError, topic: str, partition: int) -> None:
    """Raise FollowingFailed for permanent errors."""
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise FollowingFailed(
            f"partition {partition} of {topic} no longer has the next records: {error.str()}; it must keep "
            "everything (cleanup.policy=delete, retention.ms=-1, retention.bytes=-1) that no base in the archive has; "
            "started again, this gateway begins with the newest base, where there is one"
        )
    if error.code() in _GONE:
        raise FollowingFailed(
            f"partition {partition} of {topic} no longer exists ({error.str()}): it must not be deleted"
        )
    if error.fatal() or error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION):
        raise FollowingFailed(f"partition {partition} of {topic} cannot be read: {error.str()}") from KafkaException(
            error
        )


FLUSH_S = 2.0  # at the end, for what Kafka has not acknowledged

Done = Callable[[int, KafkaError | None], None]
"""Called with the record's offset, or the error that prevented an acknowledgement."""


class NotProduced(Exception):
    """A record was not sent. The message says why; `too_large` if only a smaller one would be accepted."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


class CommandProducer:
    """Produces the commands and heartbeats of this gateway."""

    def __init__(self, properties: Mapping[str, str | int | float | bool], *, within_ms: int) -> None:
        """`within_ms` limits the delivery of a record."""
        self._producer = Producer(
            {
                **properties,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": within_ms,
                "request.timeout.ms": min(5000, within_ms),
                "message.max.bytes": RECORD_BYTES_MAX,
                "retry.backoff.ms": 50,
                "sticky.partitioning.linger.ms": 0,
            }
        )
        self._reports: deque[tuple[Done, int, KafkaError | None]] = deque()
        self._woken = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="produce", daemon=True)

    def start(self) -> None:
        """Start to report deliveries."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def produce(self, topic: str, partition: int, key: bytes, value: bytes, done: Done) -> None:
        """Send a record; `done` is called on the event loop. Raises NotProduced."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._reports.append((done, message.offset() or 0, error))
            self._wake()

        try:
            self._producer.produce(topic, value, key, partition, on_delivery=delivered)
        except BufferError:
            raise NotProduced("too many commands are waiting for Kafka") from None
        except KafkaException as error:
            cause = error.args[0]
            too_large = cause.code() == KafkaError.MSG_SIZE_TOO_LARGE
            raise NotProduced(cause.str(), too_large=too_large) from error

    async def stop(self) -> None:
        """Flush for a short time, then stop."""
        await asyncio.to_thread(self._producer.flush, FLUSH_S)
        self._stopped.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._producer.poll(POLL_S)

    def _wake(self) -> None:
        if not self._woken and not self._loop.is_closed():
            self._woken = True
            self._loop.call_soon_threadsafe(self._report)

    def _report(self) -> None:
        self._woken = False
        while self._reports:
            done, offset, error = self._reports.popleft()
            done(offset, error)
