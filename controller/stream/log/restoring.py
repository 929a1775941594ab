"""Restores an events topic that Kafka lost, from folders of workers and gateways (`topicwright restore-topic`).

Method. For each partition, the folder with the most events is the source. Its events are written in fences, records
with a new epoch each, enough to exceed the epoch of every earlier worker. The first fence names the next command
(`events.logs.events_topic`). All partitions are written in one transaction: readers see all or nothing, and a killed
restore can be repeated.

Non-goals: records without events, such as dry runs, and their answers. The next worker decides the commands that Kafka
has after the last decided one; commands that Kafka lost stay lost.

Everything here blocks.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from controller.kafka.connections import Security
from controller.release import RELEASE
from controller.serving.process import lock_folder
from controller.settings.load import ServeSettings
from controller.stream.log.partition import RECORD_BYTES_MAX, StoredPosition, stored_position
from controller.stream.log.topics import offset_ranges, offsets_consumer, prepare_topics
from events.catalog import EVENT_VERSION
from events.errors import UserError
from events.logs.events_topic import Fence, Position, encode_record
from events.logs.log import grouped
from projections.replay.log.kafka_ref import KafkaTopic, TopicReader
from projections.replay.log.secondary import FrozenLog

WRITER = "restore"
CHUNK_BYTES = 1 << 19
IN_FLIGHT_MAX = 50  # records, whose bytes are far below librdkafka's limit
TRANSACTION_MS = 900_000  # Kafka's default of transaction.max.timeout.ms
_WAIT_S = 60.0


class NotRestored(UserError):
    """The events topic cannot be restored. The message says why."""


def restore_topic(bootstrap: str, security: Security, settings: ServeSettings, folders: Sequence[Path]) -> list[str]:
    """Create the missing topics, and write the events topic. Returns a line about each partition.

    Raises NotRestored, TopicsMismatch and KafkaUnavailable; LogError and OSError for unreadable folders.
    """
    properties, partitions = {**security.properties, "bootstrap.servers": bootstrap}, settings.stream_partitions
    with ExitStack() as held:
        for folder in folders:
            if not folder.is_dir():
                raise NotRestored(f"{folder} is not a folder")
            held.enter_context(lock_folder(folder))
        sources = [_furthest(held, folders, number) for number in range(partitions)]
        if any((folder / f"partition-{partitions:05}").exists() for folder in folders):
            raise NotRestored(f"the folders hold more than stream.partitions={partitions} partitions")
        if len({(log.cluster_id, reached.topic_id) for log, reached in sources}) > 1:
            raise NotRestored("the folders are of different events topics: name those of one")
        topics = prepare_topics(properties, settings, Path(os.devnull))
        commands = offset_ranges(offsets_consumer(properties), topics.commands, topics.partitions)
        written = [
            _ToRestore(log, reached.position, *_next_source(reached.position, *there))
            for (log, reached), there in zip(sources, commands, strict=True)
        ]
        url, keys = f"kafka://{bootstrap}/{topics.events}", tuple(security.properties.items())
        topic = KafkaTopic(url, bootstrap, topics.events, keys)
        _write(properties, topic, written)
        return [f"partition {number}: {one}" for number, one in enumerate(written)]


class _ToRestore(msgspec.Struct, frozen=True):
    log: FrozenLog
    position: Position
    next_source: int
    commands_lost: int
    """Undecided commands that Kafka lacks."""

    def __str__(self) -> str:
        lost = f"; Kafka lost {self.commands_lost} undecided commands" if self.commands_lost else ""
        return f"{self.log.next_offset} events from {self.log.path}{lost}"

    def records(self) -> Iterator[bytes]:
        chunks, epoch = grouped((value for _, value in self.log.read()), CHUNK_BYTES, len), 0
        while (chunk := next(chunks, None)) is not None or epoch <= self.position.epoch:
            epoch += 1
            yield encode_record(Fence(epoch, WRITER, RELEASE, EVENT_VERSION, tuple(chunk or ()), self.next_source))


def _furthest(held: ExitStack, folders: Sequence[Path], number: int) -> tuple[FrozenLog, StoredPosition]:
    found = []
    for path in (folder / f"partition-{number:05}" for folder in folders):
        if (path / "CURRENT").exists():
            log = held.enter_context(closing(FrozenLog(path)))
            reached = stored_position(log)
            if reached is not None and log.next_offset == reached.position.next_event:
                found.append((log, reached))
    if not found:
        where = ", ".join(map(str, folders))
        raise NotRestored(
            f"there is no partition {number} in {where}: name the folder of a gateway, or of more workers"
        )
    return max(found, key=lambda one: (one[1].position.next_event, one[1].position.next_source))


def _next_source(position: Position, first: int, end: int) -> tuple[int, int]:
    """The next command to decide among those in the commands topic, and the number of lost ones before it."""
    return min(max(position.next_source, first), end), max(0, first - position.next_source)


def _write(properties: Mapping[str, Any], topic: KafkaTopic, partitions: Sequence[_ToRestore]) -> None:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            **properties,
            "transactional.id": f"topicwright-restore-{topic.topic}",
            "transaction.timeout.ms": TRANSACTION_MS,
            "message.max.bytes": RECORD_BYTES_MAX,
        }
    )
    try:
        producer.init_transactions(_WAIT_S)  # aborts the transaction of a killed restore
        _check_empty(topic)
        producer.begin_transaction()
        for number, one in enumerate(partitions):
            for value in one.records():
                producer.produce(topic.topic, value, partition=number, on_delivery=delivered)
                if len(producer) >= IN_FLIGHT_MAX:
                    producer.flush(_WAIT_S)
                if failed:
                    raise KafkaException(failed[0])
        producer.commit_transaction(TRANSACTION_MS / 1000)  # fails if a record was not delivered
    except KafkaException as error:
        raise NotRestored(f"Kafka did not take the events; nothing is restored: {error.args[0].str()}") from error


def _check_empty(topic: KafkaTopic) -> None:
    """Raise NotRestored for a topic with records: restored records after them would not count."""
    with closing(TopicReader(topic)) as kafka:
        _, ranges = kafka.current_ranges()
        for number, (first, end) in ranges.items():
            if first > 0 or next(kafka.records(number, 0, end), None) is not None:
                raise NotRestored(
                    f"topic {topic.topic} has or had records: if the folders have all that is left in it, delete it "
                    "(kafka-topics --delete) and try again"
                )
