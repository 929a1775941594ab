"""The connection to a target cluster: reads, changes and forwarded requests, for `target_cluster` and the listeners.

Metadata and configs come from one broker as long as it answers, so the view never goes back in time. Changes go to the
same broker, which forwards them to the controller (KIP-590), over their own connections: a quota may mute those.

This module neither retries nor decides; the caller handles failures.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from confluent_kafka import KafkaError

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
from controller.kafka.messages import ApiKey, Message, clients, configs, topics
from controller.kafka.messages.clients import NodeEndpoint
from controller.kafka.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.kafka.messages.topics import MetadataResponseTopic as TopicAnswer
from controller.machine.configs.changes import OpType
from controller.machine.configs.views import ConfigSource
from controller.machine.errors import ErrorCode
from controller.machine.state import TOPICS
from controller.machine.validation import RECORDS_PER_REQUEST_MAX
from events.catalog import Configs, Partition
from events.names import BrokerId, TopicId, TopicName

METADATA_VERSION = 12
"""The first version of Metadata with topic ids (KIP-516): Kafka 3.1."""
CONFIGS_VERSION = 4
API_VERSIONS_VERSION = 4
"""The first version of ApiVersions that has features with lowest level 0 (KAFKA-17492)."""
CHANGE_VERSIONS: Mapping[ApiKey, int] = {
    ApiKey.CREATE_TOPICS: 4,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
}
"""Versions in which the cluster delays changes above a quota (KIP-599), but refuses DeleteTopics: v6 has topic ids."""
LOG_DIRS_VERSION = 5
"""The first version of DescribeLogDirs that has cordoned log directories: Kafka 4.3."""
OPERATION_MS = 10_000
"""Kafka's time limit for a change."""

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
        self.security, self.connections, self._changes = security, Connections(security), Connections(security)
        self._known: tuple[Address, ...] = ()
        self._preferred: Address | None = None
        self.cluster_id = ""
        """The id of the cluster, once it was reached."""
        self.api_versions = ApiVersionsResponse()
        """The APIs and features of a broker, as of the last `refresh_api_versions`."""
        self._one_scan_at_a_time = asyncio.Lock()
        self._next_scan: asyncio.Task[tuple[bytes, ClusterMetadata]] | None = None

    def close(self) -> None:
        self.connections.close()
        self._changes.close()

    # --- reads

    async def metadata(self, topics: Iterable[str] = ()) -> ClusterMetadata:
        """Metadata of these topics from one broker. Raises ClusterUnreachable."""
        return (await self._fetch_metadata(topics))[1]

    async def all_metadata(self) -> tuple[bytes, ClusterMetadata]:
        """Metadata of all topics, with the response bytes: equal bytes mean equal metadata. Raises ClusterUnreachable.

        One request runs at a time. Callers that arrive meanwhile, such as the owners of many partitions, share the next
        one, so that no answer is older than its request."""
        if self._next_scan is None:
            self._next_scan = asyncio.create_task(self._scan_in_turn())
            # Retrieve its exception: asyncio would log it if all waiting callers were cancelled.
            self._next_scan.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next_scan)

    async def _scan_in_turn(self) -> tuple[bytes, ClusterMetadata]:
        async with self._one_scan_at_a_time:
            self._next_scan = None
            return await self._fetch_metadata()

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
        resources = tuple(configs.DescribeConfigsResource(resource_type=TOPICS, resource_name=name) for name in topics)
        request, kind = configs.DescribeConfigsRequest(resources=resources), configs.DescribeConfigsResponse
        _, answer = await self._exchange(ApiKey.DESCRIBE_CONFIGS, CONFIGS_VERSION, request, kind)
        return {
            TopicName(result.resource_name): tuple(
                sorted(
                    (one.name, one.value or "")
                    for one in result.configs
                    if one.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
                )
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

    # --- changes: None if applied, else the refusal; all raise ClusterUnreachable

    async def create(
        self, new_topics: Sequence[topics.CreatableTopic], validate_only: bool = False
    ) -> dict[str, Refusal | None]:
        """Create or validate topics, which may come from several clients' requests. They are split into requests within
        Kafka's limit for one request."""
        refusals: dict[str, Refusal | None] = {}
        for batch in split_by_limit(new_topics):
            request = topics.CreateTopicsRequest(
                topics=tuple(batch), timeout_ms=OPERATION_MS, validate_only=validate_only
            )
            answer = await self._change(ApiKey.CREATE_TOPICS, request, topics.CreateTopicsResponse)
            refusals |= {one.name: _refusal(one.error_code, one.error_message) for one in answer.topics}
        return refusals

    async def add_partitions(self, added: topics.CreatePartitionsTopic, validate_only: bool = False) -> Refusal | None:
        request = topics.CreatePartitionsRequest(topics=(added,), timeout_ms=OPERATION_MS, validate_only=validate_only)
        answer = await self._change(ApiKey.CREATE_PARTITIONS, request, topics.CreatePartitionsResponse)
        return _first_refusal(answer.results)

    async def delete(self, names: Sequence[TopicName]) -> dict[str, Refusal | None]:
        """Delete topics, by the ids that they have now: a request that arrives late spares a newer topic of the name.
        Returns the refusal by name, None for deleted topics."""
        seen, state = (await self.metadata(names)).topics, topics.DeleteTopicState
        states = (state(topic_id=seen[name].topic_id) if name in seen else state(name=name) for name in names)
        request = topics.DeleteTopicsRequest(topics=tuple(states), timeout_ms=OPERATION_MS)
        answer = await self._change(ApiKey.DELETE_TOPICS, request, topics.DeleteTopicsResponse)
        named: dict[bytes, str] = {each.topic_id: each.name for each in seen.values()}
        return {
            each.name or named[each.topic_id]: _refusal(each.error_code, each.error_message)
            for each in answer.responses
        }

    async def set_configs(self, name: TopicName, wanted: Configs, validate_only: bool = False) -> Refusal | None:
        """Replace the explicit configs of a topic, or only validate that."""
        had = (await self.configs([name])).get(name)
        if had is None:
            return Refusal(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "This server does not host this topic-partition.")
        before, after, step = dict(had), dict(wanted), configs.AlterableConfig
        steps = [
            step(name=key, value=value, config_operation=OpType.SET)
            for key, value in after.items()
            if before.get(key) != value
        ]
        steps += [step(name=key, config_operation=OpType.DELETE) for key in before if key not in after]
        if not steps:
            return None
        resource = configs.AlterConfigsResource(resource_type=TOPICS, resource_name=name, configs=tuple(steps))
        request = configs.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
        key, kind = ApiKey.INCREMENTAL_ALTER_CONFIGS, configs.IncrementalAlterConfigsResponse
        return _first_refusal((await self._change(key, request, kind)).responses)

    async def reassign(self, name: str, replicas: Mapping[int, tuple[BrokerId, ...]]) -> Refusal | None:
        """Reassign partitions of a topic (KIP-455)."""
        partitions = tuple(
            topics.ReassignablePartition(partition_index=index, replicas=ids) for index, ids in sorted(replicas.items())
        )
        topic = topics.ReassignableTopic(name=name, partitions=partitions)
        request = topics.AlterPartitionReassignmentsRequest(topics=(topic,))
        key, kind = ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics.AlterPartitionReassignmentsResponse
        answer = await self._change(key, request, kind)
        return _first_refusal((answer, *(one for topic in answer.responses for one in topic.partitions)))

    async def _change(self, api_key: ApiKey, request: Message, answer: type[M]) -> M:
        """Send a change to one broker. After an error it is unknown whether the cluster has applied the change, so no
        other broker gets it; the next change does not go to this broker."""
        address = self.address
        try:
            return await self._changes.call(address, api_key, CHANGE_VERSIONS[api_key], request, answer)
        except ClusterUnreachable:
            self._preferred, self._known = None, tuple(each for each in self._known if each != address)
            raise


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


def _refusal(code: int, message: str | None) -> Refusal | None:
    return Refusal(code, KafkaError(code, message or None).str(), code in _RETRIABLE) if code else None


def _first_refusal(answers: Iterable[Any]) -> Refusal | None:
    """The refusal in the first answer with an error code."""
    return next(filter(None, (_refusal(each.error_code, each.error_message) for each in answers)), None)


def split_by_limit(new_topics: Sequence[topics.CreatableTopic]) -> list[list[topics.CreatableTopic]]:
    """Split topics into requests within Kafka's limit, which counts a record for each topic, partition and config. A
    topic over the limit gets its own request, so that only that topic is refused."""
    requests: list[list[topics.CreatableTopic]] = []
    room = 0
    for topic in new_topics:
        records = 1 + len(topic.assignments) + len(topic.configs)
        if records > room:
            requests.append([])
            room = RECORDS_PER_REQUEST_MAX
        requests[-1].append(topic)
        room -= records
    return requests
