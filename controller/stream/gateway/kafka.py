"""The Kafka client of a gateway: consumes the events topic and produces commands, through librdkafka in threads.

Following. Partitions are assigned manually and read from where the gateway's local copies end, without a consumer
group or committed offsets. Records are handed to the event loop in batches. The same consumer reads the events and the
gateways' heartbeats, so a gateway that receives its own heartbeat receives events too.

Sending. The producer is idempotent, and all in-sync replicas acknowledge a command. Deliveries are reported on the
event loop. A command that Kafka did not acknowledge in time may still be in the topic: this is unknown until Kafka is
reachable.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from controller.stream.log.partition import RECORD_BYTES_MAX
from events.logs.log import grouped

RECORDS_PER_BATCH, BATCH_BYTES = 500, 128 * 1024
"""Limits of a batch, which the loop processes in about ten milliseconds; it ends with the record that fills it. A
record of a reconciliation has a thousand events, and as many bytes as hundreds of creates."""
POLL_S = 0.2

Place = tuple[str, int]
"""A topic and a partition."""
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
"""librdkafka reports such an error only if a topic is missing for longer than its creation takes to propagate."""


class Record(msgspec.Struct, frozen=True, gc=False):
    topic: str
    partition: int
    offset: int
    value: bytes


class FollowedEvents(msgspec.Struct, frozen=True, gc=False):
    """Records in order, and the partitions that were read up to their end."""

    records: tuple[Record, ...]
    ended: frozenset[Place] = frozenset()


class FollowingFailed(Exception):
    """A permanent error of reading the events topic. The message has the reason and, if there is one, the remedy."""


async def follow(
    properties: Mapping[str, str | int | float | bool],
    topic: str,
    offsets: Sequence[int],
    newest_of: str,
    take: Callable[[FollowedEvents], None],
) -> None:
    """Read every partition of the events topic `topic` from its offset, until cancelled. Also read new records of
    partition 0 of `newest_of`, the topic with the gateways' heartbeats.

    Calls `take` with every batch. Waits for temporary errors, such as unreachable brokers. Raises FollowingFailed.
    """
    consumer = await asyncio.to_thread(
        Consumer,
        {
            **properties,
            "group.id": "topicwright-gateway",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.error.backoff.ms": 50,
        },
    )
    places = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    consumer.assign([*places, TopicPartition(newest_of, 0, OFFSET_END)])
    thread, loop = ThreadPoolExecutor(1, thread_name_prefix="follow"), asyncio.get_running_loop()
    try:
        while True:
            for batch in await loop.run_in_executor(thread, read_batches, consumer):
                take(batch)
                await asyncio.sleep(0)
    finally:
        thread.submit(consumer.close)
        thread.shutdown(wait=False)


def read_batches(consumer: Consumer) -> list[FollowedEvents]:
    """Wait for records for a short time, and return them in batches. Raises FollowingFailed."""
    first = consumer.poll(POLL_S)
    if first is None:
        return []
    records, ended = list[Record](), set[Place]()
    for message in (first, *consumer.consume(RECORDS_PER_BATCH - 1, 0)):
        error = message.error()
        topic, partition = str(message.topic()), int(message.partition() or 0)
        if error is None:
            value = message.value()
            records.append(Record(topic, partition, int(message.offset() or 0), bytes(value or b"")))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add((topic, partition))
        else:
            _raise_if_final(error, topic, partition)
    *early, last = [tuple(part) for part in grouped(records, BATCH_BYTES, lambda one: len(one.value))] or [()]
    batches = [FollowedEvents(part) for part in early]
    return [*batches, FollowedEvents(last, frozenset(ended))] if last or ended else batches


def _raise_if_final(error: KafkaError, topic: str, partition: int) -> None:
    """Raise FollowingFailed for permanent errors."""
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise FollowingFailed(
            f"partition {partition} of {topic} no longer has the records that this gateway must read next: "
            f"{error.str()}. The topic must retain all records that are not in a base of the archive "
            "(cleanup.policy=delete, retention.ms=-1, retention.bytes=-1). If the archive has a base, restart this "
            "gateway: it begins with the newest one"
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
    """A record was not sent. The message says why. `too_large` means that Kafka accepts only smaller records."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


class CommandProducer:
    """Produces the commands and heartbeats of this gateway."""

    def __init__(self, properties: Mapping[str, str | int | float | bool], *, within_ms: int) -> None:
        """`within_ms` is the delivery timeout of a record (librdkafka's `message.timeout.ms`)."""
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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="produce")

    def produce(self, topic: str, partition: int, key: bytes, value: bytes, done: Done) -> None:
        """Send a record; `done` is called on the event loop. Raises NotProduced."""
        call_soon = asyncio.get_running_loop().call_soon_threadsafe

        def delivered(error: KafkaError | None, message: Message) -> None:
            call_soon(done, message.offset() or 0, error)

        try:
            self._producer.produce(topic, value, key, partition, on_delivery=delivered)
        except BufferError:
            raise NotProduced("too many commands are waiting for Kafka") from None
        except KafkaException as error:
            cause = error.args[0]
            too_large = cause.code() == KafkaError.MSG_SIZE_TOO_LARGE
            raise NotProduced(cause.str(), too_large=too_large) from error

    async def run(self) -> None:
        """Report deliveries until cancelled."""
        while True:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._producer.poll, POLL_S)

    async def stop(self) -> None:
        """Flush for a short time, then stop."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._producer.flush, FLUSH_S)
        self._thread.shutdown()
