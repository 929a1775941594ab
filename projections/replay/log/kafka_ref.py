"""Reads the events topic of a distributed controller, for replays: `kafka://HOST:PORT[,HOST:PORT]/TOPIC`.

Each partition of the topic is a log of its own, whose events are numbered from 0. librdkafka reads records by partition
and offset. It joins no consumer group and commits nothing, so a replay leaves no trace in Kafka. TLS and SASL are
configured with librdkafka's own properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from time import monotonic  # noqa: TID251 - how long Kafka is waited for
from typing import TYPE_CHECKING

import msgspec

from events.logs.events_topic import KEEP_ALL
from projections.replay.outcome import ReplayError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

KAFKA = "kafka://"
ANSWERS_WITHIN_S = 10.0
RECORD_WITHIN_S = 30.0
"""A replay fails if it waits this long for a record that must exist."""
_RECORDS_PER_READ = 2000
_POLL_S = 1.0
_LOCATION = re.compile(r"kafka://([^/?#\s]+)/([A-Za-z0-9._-]{1,249})")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]+):(\d{1,5})")
_RESERVED_PROPERTIES = frozenset(
    ("bootstrap.servers", "group.id", "enable.auto.commit", "auto.offset.reset", "isolation.level")
)
_LOST = frozenset(("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"))
_NO_TOPIC = frozenset(("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"))
_FINAL = _NO_TOPIC | {
    "_AUTHENTICATION", "_BAD_MSG", "_UNKNOWN_PARTITION", "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_ID"
}  # fmt: skip
_UNREACHABLE = frozenset(("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN"))
Properties = tuple[tuple[str, str], ...]


class KafkaTopic(msgspec.Struct, frozen=True):
    """An events topic. `text` is its location as given; `properties` are librdkafka's, except the addresses."""

    text: str
    bootstrap: str
    topic: str
    properties: Properties = ()


def kafka_topic(text: str, properties: Properties = ()) -> KafkaTopic:
    """Parse `kafka://HOST:PORT[,HOST:PORT]/TOPIC`. Raises ReplayError, also for `properties` that a replay sets
    itself."""
    named = _LOCATION.fullmatch(text)
    addresses = named[1].split(",") if named else []
    if named is None or not all(_is_address(one) for one in addresses):
        raise ReplayError(f"{text} is not a log in Kafka: use kafka://HOST:PORT[,HOST:PORT]/TOPIC")
    for key, _ in properties:
        if key in _RESERVED_PROPERTIES:
            raise ReplayError(f"Kafka property {key} cannot be set here: a replay sets it itself")
    return KafkaTopic(text, named[1], named[2], properties)


def _is_address(text: str) -> bool:
    parts = _ADDRESS.fullmatch(text)
    return parts is not None and 0 < int(parts[2]) < 1 << 16


class TopicReader:
    """Reads one events topic from Kafka, with a consumer of librdkafka."""

    def __init__(self, topic: KafkaTopic) -> None:
        """Raises ReplayError for properties that librdkafka does not know."""
        import confluent_kafka  # 0.1 s, which other logs need not wait for

        from controller.kafka.cloud_tokens import librdkafka_settings

        self._kafka = confluent_kafka
        self._topic = topic
        self._last_error = ""
        try:
            self._consumer = confluent_kafka.Consumer(
                {
                    "client.id": "topicwright-replay",
                    "log_level": 0,
                    "socket.connection.setup.timeout.ms": 5000,
                    "fetch.wait.max.ms": 50,
                    "fetch.error.backoff.ms": 50,
                    **librdkafka_settings(dict(topic.properties)),
                    "bootstrap.servers": topic.bootstrap,
                    "group.id": "topicwright-replay",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "check.crcs": True,
                    "error_cb": self._on_error,
                }
            )
        except (confluent_kafka.KafkaException, ValueError, TypeError) as error:
            raise ReplayError(
                f"{topic.text} cannot be read with these Kafka properties: {_error_text(error)}"
            ) from None

    def close(self) -> None:
        self._consumer.close()

    def current_ranges(self) -> tuple[str, Mapping[int, tuple[int, int]]]:
        """The cluster id, and the earliest and latest offset of each partition. Raises ReplayError if Kafka does not
        answer or the topic does not exist."""
        try:
            known = self._consumer.list_topics(self._topic.topic, timeout=ANSWERS_WITHIN_S)
            found = known.topics.get(self._topic.topic)
            if found is None or found.error is not None:
                raise self._no_topic(None if found is None else found.error)
            limits = partial(self._consumer.get_watermark_offsets, timeout=ANSWERS_WITHIN_S, cached=False)
            topic, numbers = self._topic.topic, sorted(found.partitions)
            ranges = {number: limits(self._kafka.TopicPartition(topic, number)) or (0, 0) for number in numbers}
        except self._kafka.KafkaException as error:
            self._consumer.poll(0)
            raise ReplayError(f"{self._topic.text} cannot be read: {self._why(error.args[0])}") from None
        return str(known.cluster_id), ranges

    def records(self, partition: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The records at offsets in [start, end); offsets without a record are skipped. Raises ReplayError."""
        if start >= end:
            return
        self._consumer.assign([self._kafka.TopicPartition(self._topic.topic, partition, start)])
        last_record_s = monotonic()
        while start < end:
            messages = self._consumer.consume(min(_RECORDS_PER_READ, end - start), _POLL_S)
            for message in messages:
                error, offset = message.error(), message.offset()
                if error is not None and error.name() == "_PARTITION_EOF":
                    start = max(start, offset or 0)  # no records before it
                elif error is not None:
                    self._check(error, partition, start)
                elif offset is None or offset >= end:
                    return
                else:
                    last_record_s = monotonic()
                    start = offset + 1
                    yield offset, message.value() or b""
            if start < end and monotonic() - last_record_s > RECORD_WITHIN_S:
                raise ReplayError(
                    f"{self._topic.text}: partition {partition} has records up to offset {end}, but Kafka returns none "
                    f"from {start} on{self._error_suffix()}"
                )

    def _check(self, error: KafkaError, partition: int, start: int) -> None:
        """Raise ReplayError for an error that is not transient."""
        if error.name() in _LOST:
            raise ReplayError(
                f"{self._topic.text}: record {start} of partition {partition} no longer exists: {KEEP_ALL}"
            )
        if error.fatal() or error.name() in _FINAL:
            raise ReplayError(f"{self._topic.text}: partition {partition} cannot be read: {error.str()}")

    def _no_topic(self, error: KafkaError | None) -> ReplayError:
        if error is None or error.name() in _NO_TOPIC:
            return ReplayError(f"there is no topic {self._topic.topic} in Kafka at {self._topic.bootstrap}")
        return ReplayError(f"{self._topic.text} cannot be read: {error.str()}")

    def _why(self, error: KafkaError) -> str:
        if error.name() in _UNREACHABLE:
            return f"Kafka at {self._topic.bootstrap} does not answer{self._error_suffix()}"
        return error.str()

    def _error_suffix(self) -> str:
        return f" ({self._last_error})" if self._last_error else ""

    def _on_error(self, error: KafkaError) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":
            self._last_error = error.str()


def _error_text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return first.str() if hasattr(first, "str") else str(first)
