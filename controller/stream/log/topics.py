"""Creates the commands and events topics, checks existing ones, and watches them; for workers and gateways.

Requirements. Both topics have exactly `stream.partitions` partitions, because a topic must never change its partition.
Events are retained for ever and never compacted, because they are the source of truth. Commands are not compacted,
because events refer to their offsets. With several brokers, both topics keep acknowledged records when a broker dies.
A process refuses to start if an existing topic does not match; it never changes an existing topic.

Watch. If a topic is deleted and recreated, by an operator or by auto-creation, it is another log, so deciding must
stop. Idle processes would not notice for minutes, so `TopicWatch` polls topic ids. A topic counts as deleted if two
polls in a row do not find it. If the events topic has lost its first records, running processes continue, but none can
start with an empty folder: `error` reports this. Other errors of Kafka are logged once, and polling continues.

All functions block, so call them in a thread.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]  # not in its __all__

from controller.settings.load import ServeSettings, SettingsError
from controller.stream.log.partition import RECORD_BYTES_MAX, events_in

TIMEOUT_S = 10.0
DEFAULT_REPLICAS_MAX = 3
"""Limit of the replicas of a new topic with stream.replication.factor=-1."""
COMMANDS_RETENTION_MS = 7 * 24 * 3600 * 1000
"""How long all workers may be down before an undecided command is lost."""
GATEWAYS_RETENTION_MS = 3_600_000
_NOT_COMPACTED = {"cleanup.policy": "delete", "unclean.leader.election.enable": "false"}
_RETAINED_FOREVER = {**_NOT_COMPACTED, "retention.ms": "-1", "retention.bytes": "-1"}


class KafkaUnavailable(Exception):
    """Kafka failed or timed out; the request may still have taken effect."""


class Topics(msgspec.Struct, frozen=True):
    """The names of both topics, the events topic's id, and the cluster id. Changed ids reveal a recreated topic."""

    commands: str
    events: str
    partitions: int
    cluster_id: str
    events_id: str


class TopicsMismatch(SettingsError):
    """An existing topic does not match the settings. The message names the topic, its value and the required value."""


def prepare_topics(
    properties: Mapping[str, Any], settings: ServeSettings, data: Path, *, for_gateway: bool = False
) -> Topics:
    """Create missing topics, check both, and return their descriptions. If the folder `data` has events, a missing
    topic is an error, because Kafka has lost it. `for_gateway` also creates the topic of the gateways' heartbeats.

    `properties` are librdkafka's, with `bootstrap.servers`. Raises KafkaUnavailable, TopicsMismatch; LogError for an
    unreadable folder.
    """
    names = settings.stream_commands_topic, settings.stream_events_topic
    try:
        admin = AdminClient({**properties, "socket.connection.setup.timeout.ms": 5000, "log_level": 0})
        cluster = admin.list_topics(timeout=TIMEOUT_S)
        there = cluster.topics
        factor = settings.stream_replication_factor
        if factor <= 0:
            factor = max(1, min(DEFAULT_REPLICAS_MAX, len(cluster.brokers)))
        _make_missing(admin, settings, factor, data, there)
        futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT_S)
        found = [futures[name].result(TIMEOUT_S + 1) for name in names]
        configs = _configs(admin, names)
    except KafkaException as error:
        raise _classified(error.args[0]) from error
    for name, description, required in zip(names, found, (_NOT_COMPACTED, _RETAINED_FOREVER), strict=True):
        _check(name, [len(one.replicas) for one in description.partitions], configs[name], required, settings)
    if for_gateway and settings.stream_gateways_topic not in there:
        short = dict.fromkeys(("retention.ms", "segment.ms"), str(GATEWAYS_RETENTION_MS))
        topic = NewTopic(settings.stream_gateways_topic, 1, factor, config={"cleanup.policy": "delete", **short})
        _create(admin, [topic])
    return Topics(*names, settings.stream_partitions, str(cluster.cluster_id), str(found[1].topic_id))


def _make_missing(admin: AdminClient, settings: ServeSettings, factor: int, data: Path, there: Container[str]) -> None:
    common = {"min.insync.replicas": str(_min_insync(factor)), "max.message.bytes": str(RECORD_BYTES_MAX + (1 << 20))}
    events = {**_RETAINED_FOREVER, **common}
    commands = {**events, "retention.ms": str(COMMANDS_RETENTION_MS)}
    missing = [
        NewTopic(name, num_partitions=settings.stream_partitions, replication_factor=factor, config=configs)
        for name, configs in ((settings.stream_commands_topic, commands), (settings.stream_events_topic, events))
        if name not in there
    ]
    if not missing:
        return
    if held := events_in(data):
        raise TopicsMismatch(
            f"topic {missing[0].topic} is missing in Kafka, but {data} has {held} events and may be their last copy. "
            "If Kafka lost the topic, stop all workers and gateways and write the events back with "
            "`topicwright restore-topic`. Otherwise choose another folder with --data, or remove this one"
        )
    _create(admin, missing)


def _create(admin: AdminClient, topics: list[NewTopic]) -> None:
    for name, future in admin.create_topics(topics, operation_timeout=TIMEOUT_S).items():
        try:
            future.result(TIMEOUT_S + 1)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # else another process was first
                raise TopicsMismatch(f"topic {name} cannot be created: {error.args[0].str()}") from error


def _configs(admin: AdminClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    futures = admin.describe_configs(resources, request_timeout=TIMEOUT_S)
    return {
        resource.name: {key: str(entry.value) for key, entry in future.result(TIMEOUT_S + 1).items()}
        for resource, future in futures.items()
    }


def _min_insync(factor: int) -> int:
    """The lowest safe min.insync.replicas: an acknowledged record survives the loss of one broker."""
    return max(1, factor - 1)


def _check(
    name: str, replicas: Sequence[int], configs: Mapping[str, str], required: Mapping[str, str], settings: ServeSettings
) -> None:
    """Raise TopicsMismatch for a topic with other partitions, replicas (their number in each partition) or configs."""
    found, count = len(replicas), settings.stream_partitions
    if found != count:
        raise TopicsMismatch(
            f"topic {name} has {found} partitions, and stream.partitions={count}: set stream.partitions={found}, or "
            "name other topics with stream.commands.topic and stream.events.topic; the count cannot be changed later"
        )
    factor, wanted = min(replicas), settings.stream_replication_factor
    if wanted > 0 and factor != wanted:
        raise TopicsMismatch(
            f"topic {name} has {factor} replicas a partition, and stream.replication.factor={wanted}: reassign its "
            f"partitions, or set stream.replication.factor={factor}"
        )
    min_insync, least = configs.get("min.insync.replicas", ""), _min_insync(factor)
    if not min_insync.isdecimal() or not least <= int(min_insync) <= factor:
        allowed = str(least) if least == factor else f"{least} to {factor}"
        raise TopicsMismatch(
            f"topic {name} has min.insync.replicas={min_insync}, and for {factor} replicas a partition must have "
            f"{allowed}; fewer may lose acknowledged records with one broker, more block all writes: change it"
        )
    for key, value in required.items():
        if configs.get(key) != value:
            raise TopicsMismatch(f"topic {name} has {key}={configs.get(key)}, and must have {key}={value}: change it")


_NOT_READY = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,  # of a topic that was just created
)


def _classified(error: KafkaError) -> Exception:
    if error.code() in _NOT_READY or error.retriable():
        return KafkaUnavailable(f"Kafka is not ready yet: {error.str()}")
    if error.code() == KafkaError._INVALID_ARG:
        return TopicsMismatch(f"the properties for Kafka are invalid: {error.str()}")
    if error.code() < 0 or error.code() == KafkaError.REQUEST_TIMED_OUT:
        return KafkaUnavailable(f"Kafka does not answer: {error.str()}")
    return TopicsMismatch(f"Kafka refused: {error.str()}")


def offsets_consumer(properties: Mapping[str, Any]) -> Consumer:
    """The client for `offset_ranges`. It is a consumer because AdminClient.list_offsets of confluent-kafka 2.16 frees
    memory twice when it times out, which ends the process."""
    settings = {"group.id": "topicwright-offsets", "isolation.level": "read_uncommitted", "log_level": 0}
    return Consumer({**properties, **settings})


def offset_ranges(consumer: Consumer, topic: str, partitions: int) -> list[tuple[int, int]]:
    """The earliest and latest offset of each partition. Raises KafkaUnavailable, TopicsMismatch."""
    try:
        return [consumer.get_watermark_offsets(TopicPartition(topic, each), TIMEOUT_S) for each in range(partitions)]
    except KafkaException as error:
        raise _classified(error.args[0]) from error


POLL_INTERVAL_S = 5.0
MISSES_MAX = 2  # a single miss may be a broker with stale metadata


class TopicGone(Exception):
    """The commands or the events topic was deleted or recreated. The message says which, and what to do."""


class TopicWatch:
    """Polls the topics; `properties` are librdkafka's, with `bootstrap.servers`."""

    def __init__(self, properties: Mapping[str, Any], topics: Topics, *, is_archived: bool) -> None:
        """`is_archived`: a process with an empty folder starts from the archive, so Kafka need not have all records."""
        self.error: str | None = None
        """A problem that does not stop running processes; None if there is none."""
        self._properties = {**properties, "log_level": 0}
        self._topics = topics
        self._clients: tuple[AdminClient, Consumer] | None = None
        self._is_archived = is_archived
        self._deleted = 0
        self._ids = {topics.events: topics.events_id}
        """The expected topic ids; the first poll adds that of the commands topic."""
        self._misses: dict[str, int] = {}

    async def watch(self, fail: Callable[[TopicGone], None]) -> None:
        """Poll until cancelled, or until a topic is gone: then call `fail`."""
        logged = ""
        while True:
            try:
                await asyncio.to_thread(self._poll)
            except TopicGone as gone:
                fail(gone)
                return
            except Exception as error:
                if (why := type(error).__name__) != logged:
                    logged = why
                    log = structlog.get_logger("topicwright")
                    log.warning("cannot poll the topics of the log", why=f"{why}: {error}", exc_info=error)
            await asyncio.sleep(POLL_INTERVAL_S)

    def check_id(self, name: str, topic_id: str | None) -> None:
        """Check a polled topic id, None if the topic is missing. Raises TopicGone."""
        self._misses[name] = self._misses.get(name, 0) + 1 if topic_id is None else 0
        if self._misses[name] >= MISSES_MAX:
            raise TopicGone(f"topic {name} was deleted: {self._remedy(name)}")
        if topic_id is not None and self._ids.setdefault(name, topic_id) != topic_id:
            raise TopicGone(f"topic {name} was deleted and recreated: {self._remedy(name)}")

    def check_first_records(self, firsts: Sequence[int]) -> None:
        """Check the earliest offset of each partition of the events topic, and set `error`."""
        self._deleted = sum(firsts)
        if self._is_archived or not self._deleted:
            self.error = None
        elif self.error is None:
            partitions = ", ".join(str(number) for number, first in enumerate(firsts) if first)
            self.error = (
                f"topic {self._topics.events} has lost its first records (of partitions {partitions}): a process with "
                "an empty folder cannot start. Restore the topic while the folders of workers still have all events "
                "(`topicwright restore-topic`), or set log.archive.url and wait until the archive has a base"
            )
            structlog.get_logger("topicwright").warning("the events topic lacks its first records", why=self.error)

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        yield "records_deleted", "Records of the events topic that Kafka has deleted.", self._deleted

    def _poll(self) -> None:
        if self._clients is None:
            self._clients = AdminClient(self._properties), offsets_consumer(self._properties)
        admin, consumer = self._clients
        names = [self._topics.commands, self._topics.events]
        for name, future in admin.describe_topics(TopicCollection(names), request_timeout=TIMEOUT_S).items():
            try:
                self.check_id(name, str(future.result(TIMEOUT_S + 1).topic_id))
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self.check_id(name, None)
            except TimeoutError:  # librdkafka is late; this proves nothing
                continue
        ranges = offset_ranges(consumer, self._topics.events, self._topics.partitions)
        self.check_first_records([first for first, _ in ranges])

    def _remedy(self, name: str) -> str:
        if name == self._topics.events:
            return "it had the whole history; restore it from a backup, or start over with other topics"
        return (
            "undecided commands are lost, and events refer to its offsets; start over with other topics "
            "(stream.commands.topic, stream.events.topic), or restore it"
        )
