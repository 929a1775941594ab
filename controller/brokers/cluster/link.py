"""The connection to a target cluster: reads, changes and forwarded requests, for `target_cluster` and the listeners.

Metadata and configs come from one broker as long as it answers, so the view never goes back in time. Changes go through
librdkafka's AdminClient, which finds the controller. Reassignments, which AdminClient lacks, are sent directly.

This module neither retries nor decides; the caller handles failures.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic  # type: ignore[attr-defined]  # its types do not export these

from controller.kafka.codec.codec import encode_request
from controller.kafka.connections import (
    CLIENT_ID,
    CORRELATION_ID,
    Address,
    ClusterUnreachable,
    Connections,
    M,
    Security,
    addresses,
    decode_message,
)
from controller.kafka.messages import ApiKey, Message, clients, configs
from controller.kafka.messages import topics as topics_messages
from controller.kafka.messages.clients import NodeEndpoint
from controller.kafka.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.kafka.messages.topics import MetadataResponseTopic as TopicAnswer
from controller.machine.errors import ErrorCode
from controller.machine.validation import RECORDS_PER_REQUEST_MAX
from events.catalog import Configs, Partition
from events.names import BrokerId, TopicId, TopicName

T = TypeVar("T")


class SharedCall(Generic[T]):
    """A frequent call whose answer several callers share. One call runs at a time. Callers that arrive while it runs
    share the next call, so that no answer is older than its request."""

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call = call
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[T] | None = None

    async def answer(self) -> T:
        """An answer as of now. Raises whatever the call raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._call_in_turn())
            # Retrieve its exception: asyncio would log it if all waiting callers were cancelled.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next)

    async def _call_in_turn(self) -> T:
        async with self._one_at_a_time:
            self._next = None
            return await self._call()


METADATA_VERSION = 12
"""The first version of Metadata with topic ids (KIP-516): Kafka 3.1."""
CONFIGS_VERSION = 4
API_VERSIONS_VERSION = 4
"""The first version of ApiVersions that has features with lowest level 0 (KAFKA-17492)."""
REASSIGNMENTS_VERSION = 0
LOG_DIRS_VERSION = 5
"""The first version of DescribeLogDirs that has cordoned log directories: Kafka 4.3."""
METADATA_REFRESH_MS = 1000
"""The interval at which librdkafka refreshes metadata. In KRaft mode Kafka names any broker as the controller. If that
broker dies, librdkafka waits for it in a busy loop until its metadata names another."""
REQUEST_S = 15.0  # longer than a busy cluster takes, shorter than clients wait
OPERATION_S = 10.0
"""Kafka's time limit for a change. With 0 Kafka does nothing, and librdkafka reports success."""
_TIMES = {"operation_timeout": OPERATION_S, "request_timeout": REQUEST_S}
TOPIC, FROM_TOPIC = 2, 1
"""DescribeConfigs: the resource type of topics, and the source of explicit topic configs."""

_RETRIABLE = frozenset(
    (
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REASSIGNMENT_IN_PROGRESS,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    )
)
_LOCAL_REFUSALS = frozenset((KafkaError._INVALID_ARG, KafkaError._NOT_IMPLEMENTED, KafkaError._UNSUPPORTED_FEATURE))
"""librdkafka's own errors that a retry does not cure. Its other errors mean that the cluster is unreachable."""


class SeenTopic(msgspec.Struct, frozen=True):
    """A topic in the Metadata response of one broker."""

    name: TopicName
    topic_id: TopicId
    partitions: tuple[Partition, ...]


class ClusterMetadata(msgspec.Struct, frozen=True):
    """One broker's metadata: the live brokers, and the requested topics that this broker knows."""

    cluster_id: str
    brokers: tuple[NodeEndpoint, ...]
    topics: Mapping[TopicName, SeenTopic]


class Refusal(msgspec.Struct, frozen=True):
    """Why the cluster did not apply a change. `retriable` means that a retry may succeed, or that the change may have
    been applied."""

    code: int
    message: str
    retriable: bool = False


class ClusterLink:
    """A connection to one target cluster. `bootstrap` lists brokers to connect to first."""

    def __init__(self, bootstrap: str, security: Security) -> None:
        self._bootstrap = addresses(bootstrap)
        self.security, self.connections = security, Connections(security)
        self._known: tuple[Address, ...] = ()
        self._preferred: Address | None = None
        self.cluster_id = ""
        """The id of the cluster, once it was reached."""
        self.api_versions = ApiVersionsResponse()
        """The APIs and features of a broker, as of the last `refresh_api_versions`."""
        self._all_metadata = SharedCall(self._fetch_metadata)
        settings: dict[str, str | int | float | bool] = {
            "client.id": CLIENT_ID,
            "socket.timeout.ms": int(REQUEST_S * 1000),
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
            **security.properties,
            "bootstrap.servers": bootstrap,
        }
        self._admin = AdminClient(settings, logger=silent_logger())

    def close(self) -> None:
        self.connections.close()
        del self._admin  # has no close; this link is part of a cycle, and may live until the next garbage collection

    # --- reads

    async def metadata(self, topics: Iterable[str] = ()) -> ClusterMetadata:
        """Metadata of these topics from one broker. Raises ClusterUnreachable."""
        return (await self._fetch_metadata(topics))[1]

    async def all_metadata(self) -> tuple[bytes, ClusterMetadata]:
        """Metadata of all topics, with the response bytes: equal bytes mean equal metadata. Concurrent callers, such as
        the owners of many partitions, share one request. Raises ClusterUnreachable."""
        return await self._all_metadata.answer()

    async def _fetch_metadata(self, topics: Iterable[str] | None = None) -> tuple[bytes, ClusterMetadata]:
        request = _metadata_request(topics)
        payload, answer = await self._exchange(ApiKey.METADATA, METADATA_VERSION, request, MetadataResponse)
        return payload, _parse_metadata(answer)

    async def metadata_from(self, address: Address, topics: Iterable[str]) -> ClusterMetadata:
        """Metadata of these topics from a given broker. Raises ClusterUnreachable."""
        request = _metadata_request(topics)
        key, kind = ApiKey.METADATA, MetadataResponse
        return _parse_metadata(await self.connections.call(address, key, METADATA_VERSION, request, kind))

    async def configs(self, topics: Sequence[str]) -> dict[TopicName, Configs]:
        """The explicit configs of topics, sorted by name. Unknown topics are left out. Raises ClusterUnreachable."""
        resources = tuple(configs.DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in topics)
        request, kind = configs.DescribeConfigsRequest(resources=resources), configs.DescribeConfigsResponse
        _, answer = await self._exchange(ApiKey.DESCRIBE_CONFIGS, CONFIGS_VERSION, request, kind)
        return {
            TopicName(result.resource_name): tuple(
                sorted((one.name, one.value or "") for one in result.configs if one.config_source == FROM_TOPIC)
            )
            for result in answer.results
            if not result.error_code
        }

    async def cordoned(self, address: Address) -> dict[str, bool]:
        """The online log directories of a broker, each with whether it is cordoned (KIP-1066). Empty for brokers too
        old to report that. Raises ClusterUnreachable."""
        key = ApiKey.DESCRIBE_LOG_DIRS
        if not any(each.api_key == key and each.max_version >= LOG_DIRS_VERSION for each in self.api_versions.api_keys):
            return {}
        request, kind = clients.DescribeLogDirsRequest(topics=()), clients.DescribeLogDirsResponse
        answer = await self.connections.call(address, key, LOG_DIRS_VERSION, request, kind)
        return {each.log_dir: each.is_cordoned for each in answer.results if not each.error_code}

    async def refresh_api_versions(self) -> None:
        """Fetch the APIs and features of a broker. Raises ClusterUnreachable."""
        request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
        _, self.api_versions = await self._exchange(
            ApiKey.API_VERSIONS, API_VERSIONS_VERSION, request, ApiVersionsResponse
        )

    async def forward(self, payload: bytes, within_s: float, to: Address | None = None) -> bytes:
        """Forward a client's request unchanged to any broker, or to the broker at `to`, and return the response. Raises
        ClusterUnreachable."""
        return await self.connections.exchange(to or self.address, payload, within_s)

    @property
    def address(self) -> Address:
        """The broker that answers requests that any broker may answer."""
        return self._preferred or (*self._known, *self._bootstrap)[0]

    async def _exchange(self, api_key: int, version: int, request: Message, answer: type[M]) -> tuple[bytes, M]:
        """Send a request to the first broker that answers. Returns the response bytes and the decoded message."""
        frame = encode_request(api_key, version, CORRELATION_ID, CLIENT_ID, request)[4:]
        why: list[str] = []
        for address in dict.fromkeys(filter(None, (self._preferred, *self._known, *self._bootstrap))):
            try:
                payload = await self.connections.exchange(address, frame)
                message = decode_message(api_key, version, payload, answer, address)
            except ClusterUnreachable as unreachable:
                self._preferred = None
                why.append(str(unreachable))
                continue
            self._preferred = address
            if isinstance(message, MetadataResponse) and message.brokers:
                self._known = tuple((broker.host, broker.port) for broker in message.brokers)
            return payload, message
        raise ClusterUnreachable("; ".join(why))

    # --- changes: None if applied, else the refusal

    async def create(self, topics: Sequence[NewTopic], validate_only: bool = False) -> dict[str, Refusal | None]:
        """Create or validate topics, which may come from several clients' requests. They are split into requests within
        Kafka's limit for one request."""
        refusals: dict[str, Refusal | None] = {}
        for batch in split_by_limit(topics):
            begin = partial(self._admin.create_topics, batch, **_TIMES, validate_only=validate_only)
            refusals |= await self._all([topic.topic for topic in batch], begin)
        return refusals

    async def add_partitions(self, added: NewPartitions, validate_only: bool = False) -> Refusal | None:
        begin = partial(self._admin.create_partitions, [added], **_TIMES, validate_only=validate_only)
        return (await self._all([added.topic], begin))[added.topic]

    async def delete(self, names: Sequence[str]) -> dict[str, Refusal | None]:
        """Delete topics. Returns the refusal by name, None for deleted topics."""
        return await self._all(names, partial(self._admin.delete_topics, list(names), **_TIMES))

    async def set_configs(self, name: TopicName, configs: Configs, validate_only: bool = False) -> Refusal | None:
        """Replace the explicit configs of a topic, or only validate that. Raises ClusterUnreachable."""
        had = (await self.configs([name])).get(name)
        if had is None:
            return Refusal(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "This server does not host this topic-partition.")
        before, after, op = dict(had), dict(configs), AlterConfigOpType
        puts = [key for key, value in after.items() if before.get(key) != value]
        steps = [ConfigEntry(key, after[key], incremental_operation=op.SET) for key in puts]
        steps += [ConfigEntry(key, "", incremental_operation=op.DELETE) for key in before if key not in after]
        if not steps:
            return None
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=steps)
        alter = self._admin.incremental_alter_configs
        begin = partial(alter, [resource], request_timeout=REQUEST_S, validate_only=validate_only)
        return (await self._all([name], begin))[name]

    async def reassign(self, name: str, replicas: Mapping[int, tuple[BrokerId, ...]]) -> Refusal | None:
        """Reassign partitions of a topic (KIP-455). Raises ClusterUnreachable."""
        partitions = tuple(
            topics_messages.ReassignablePartition(partition_index=index, replicas=ids)
            for index, ids in sorted(replicas.items())
        )
        topic = topics_messages.ReassignableTopic(name=name, partitions=partitions)
        request = topics_messages.AlterPartitionReassignmentsRequest(topics=(topic,))
        key, kind = ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics_messages.AlterPartitionReassignmentsResponse
        answer = await self.connections.call(self.address, key, REASSIGNMENTS_VERSION, request, kind)
        each = [(one.error_code, one.error_message) for topic in answer.responses for one in topic.partitions]
        errors = [one for one in ((answer.error_code, answer.error_message), *each) if one[0]]
        return _refusal(KafkaError(*errors[0])) if errors else None

    async def _all(
        self, names: Sequence[str], begin: Callable[[], Mapping[Any, Future[Any]]]
    ) -> dict[str, Refusal | None]:
        try:
            futures = await asyncio.to_thread(begin)
        except KafkaException as error:
            return dict.fromkeys(names, _refusal(error.args[0]))
        refusals: dict[str, Refusal | None] = {}
        for key, future in futures.items():
            name = key if isinstance(key, str) else key.name
            try:
                await asyncio.wrap_future(future)
                refusals[name] = None
            except KafkaException as error:
                refusals[name] = _refusal(error.args[0])
        return refusals


def silent_logger() -> logging.Logger:
    """A logger that drops librdkafka's log lines, one for each lost connection: exceptions have the same errors."""
    logger = logging.getLogger("topicwright.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def _metadata_request(topics: Iterable[str] | None) -> MetadataRequest:
    named = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in topics)
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


def _parse_metadata(answer: MetadataResponse) -> ClusterMetadata:
    known = (_parse_topic(topic) for topic in answer.topics if topic.name is not None and not topic.error_code)
    return ClusterMetadata(answer.cluster_id or "", answer.brokers, {topic.name: topic for topic in known})


def _parse_topic(topic: TopicAnswer) -> SeenTopic:
    ordered = sorted(topic.partitions, key=lambda one: one.partition_index)
    return SeenTopic(
        TopicName(topic.name or ""),
        TopicId(topic.topic_id),
        tuple(
            Partition(
                tuple(map(BrokerId, one.replica_nodes)),
                tuple(map(BrokerId, one.isr_nodes)),
                BrokerId(one.leader_id),
                one.leader_epoch,
            )
            for one in ordered
        ),
    )


def _refusal(error: KafkaError) -> Refusal:
    code = error.code()
    if code < ErrorCode.UNKNOWN_SERVER_ERROR:  # librdkafka's own
        retriable = code not in _LOCAL_REFUSALS
        public = ErrorCode.REQUEST_TIMED_OUT if retriable else ErrorCode.UNKNOWN_SERVER_ERROR
        return Refusal(int(public), error.str(), retriable)
    return Refusal(code, error.str(), code in _RETRIABLE)


def split_by_limit(topics: Sequence[NewTopic]) -> list[list[NewTopic]]:
    """Split topics into requests within Kafka's limit, which counts a record for each topic, partition and config. A
    topic over the limit gets its own request, so that only that topic is refused."""
    requests: list[list[NewTopic]] = []
    room = 0
    for topic in topics:
        records = 1 + len(topic.replica_assignment or ()) + len(topic.config or ())
        if records > room:
            requests.append([])
            room = RECORDS_PER_REQUEST_MAX
        requests[-1].append(topic)
        room -= records
    return requests
