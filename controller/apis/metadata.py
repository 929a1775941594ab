"""The handler of Metadata: it returns brokers, controller and topics. Missing topics are created automatically if
client and controller both allow that (KIP-361). `tables` gives the handler to listeners.

The encoded bytes of a topic are cached by version until the topic or the brokers change. A long list is encoded in
slices, so that other clients are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from controller.apis import origin_of
from controller.apis.limits import slices
from controller.controller_api import ControllerApi, Node, new_topic_ids
from controller.kafka.codec.codec import encode_element
from controller.kafka.handling import JAVA, LIBRDKAFKA, RequestContext
from controller.kafka.messages import ApiKey, Encoded
from controller.kafka.messages.message import OPERATIONS_OMITTED, ZERO_UUID, NodeEndpoint
from controller.kafka.messages.topics import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from controller.machine import validation
from controller.machine.commands.commands import AUTO_CREATION, CreateTopic
from controller.machine.errors import ErrorCode
from controller.machine.state import Topic
from events.catalog import Partition
from events.names import BrokerId, TopicName, shard_key
from events.values import Configs
from projections.views.topics import offline_replicas

TOPICS_PER_SLICE = 200
"""Bounds how long one slice of a response blocks the event loop: a few milliseconds with nothing cached."""
PARTITIONS_CACHED_MAX = 200_000  # bounds memory
LARGE = 2_000
"""Topics with more partitions are encoded in another thread: 100,000 partitions take 300 ms."""
TOPIC_IDS_SINCE = 12
"""The version from which topics may be requested by id (KIP-516)."""
AUTO_CREATION_WAIT_MS = 30_000
"""Timeout of an auto-creation. Its client polls Metadata meanwhile."""


CREATED_AT_ONCE_MAX = 1000
"""The number of topics that one request may create. The client requests the remaining topics again."""
_Parts = dict[str | bytes | None, bytes]
"""Encoded elements of a response, by topic name, or by id if the name is unknown."""


class MetadataHandler:
    """Answers Metadata. Auto-creations are submitted to the controller, also from the listeners of brokers."""

    def __init__(self, api: ControllerApi) -> None:
        self._api = api
        self._cache = _EncodedTopics()

    def __call__(
        self, context: RequestContext, request: MetadataRequest
    ) -> MetadataResponse | asyncio.Future[MetadataResponse]:
        """The nodes and the requested topics. Null means all topics; in version 0 an empty array does."""
        if _wants_all(context, request):
            return asyncio.ensure_future(self._all(context, request))
        assert request.topics is not None, "null is a request for all"
        if any(not _is_named(context, topic) for topic in request.topics):
            return _invalid_request(request.topics)
        if len(request.topics) > TOPICS_PER_SLICE or any(self._large(context, one) for one in request.topics):
            return asyncio.ensure_future(self._many(context, request, request.topics))
        parts: _Parts = {}
        self._auto_create(context, self._named(context, request, request.topics, parts))
        return self._respond(context, request, tuple(parts.values()))

    async def _all(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        parts: list[bytes] = []
        after: str | None = None
        is_last = False
        while not is_last:
            async with self._api.turns:
                topics = self._api.store.durable_slice(after, TOPICS_PER_SLICE)
                visible = [
                    topic
                    for topic in topics
                    if self._api.knows(topic) and self._api.allows(context, "Describe", topic.name)
                ]
                parts += [await self._encoded_in_thread(context, request, topic) for topic in visible]
            is_last = not topics
            after = None if is_last else shard_key(topics[-1].name)
            await asyncio.sleep(0)
        return self._respond(context, request, parts)

    async def _many(
        self, context: RequestContext, request: MetadataRequest, requested: Sequence[MetadataRequestTopic]
    ) -> MetadataResponse:
        parts: _Parts = {}
        to_create = CREATED_AT_ONCE_MAX
        for slice_ in slices(requested, TOPICS_PER_SLICE):
            async with self._api.turns:
                for one in slice_:
                    topic = self._large(context, one)
                    if topic is not None:
                        parts[_key(one)] = await self._encoded_in_thread(context, request, topic)
                missing = self._named(context, request, slice_, parts)[:to_create]
                self._auto_create(context, missing)
                to_create -= len(missing)
            await asyncio.sleep(0)
        return self._respond(context, request, tuple(parts.values()))

    def _named(
        self,
        context: RequestContext,
        request: MetadataRequest,
        requested: Sequence[MetadataRequestTopic],
        parts: _Parts,
    ) -> list[str]:
        """Add these topics to the response, each once. Returns the names of those to create."""
        missing: list[str] = []
        for one in requested:
            if _key(one) in parts:
                continue
            found = self._find(context, request, one, missing)
            if isinstance(found, Topic):
                parts[found.name] = self._encoded(context, request, found)
            else:
                parts[found.name or found.topic_id] = encode_element(ApiKey.METADATA, context.api_version, found)
        return missing

    def _find(
        self, context: RequestContext, request: MetadataRequest, requested: MetadataRequestTopic, to_create: list[str]
    ) -> Topic | MetadataResponseTopic:
        """The topic, or the response for a missing or denied one; adds its name to `to_create` if the request creates
        it."""
        api, name = self._api, requested.name
        if requested.topic_id != ZERO_UUID:
            name = api.store.durable_name_of(requested.topic_id)
            if name is None or not api.grants(context, "Describe", name):
                code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
                no_name = None if context.api_version >= TOPIC_IDS_SINCE else ""
                return MetadataResponseTopic(error_code=int(code), name=no_name, topic_id=requested.topic_id)
        assert name is not None, "a topic has a name or an id"
        if not api.grants(context, "Describe", name):
            return MetadataResponseTopic(error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), name=name)
        topic = api.topic(name)
        if topic is not None:
            return topic
        wrong = validation.name(name)
        if self._creates(request, name):
            if api.denial_of_create(context, name):
                api.grants(context, "Create", name)
                return MetadataResponseTopic(error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), name=name)
            to_create += [name] if wrong is None else []
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if wrong is None else wrong.code
        operations = self._operations(context, request, name)
        return MetadataResponseTopic(error_code=int(code), name=name, topic_authorized_operations=operations)

    def _operations(self, context: RequestContext, request: MetadataRequest, name: str) -> int:
        wants_operations = request.include_topic_authorized_operations
        return self._api.topic_operations(context, name) if wants_operations else OPERATIONS_OMITTED

    def _encoded(self, context: RequestContext, request: MetadataRequest, topic: Topic) -> bytes:
        shown = topic, context.api_version, self._api.cluster.live, self._operations(context, request, topic.name)
        encoded = self._cache.find(*shown)
        if encoded is None:
            encoded = _encode(*shown)
            self._cache.store(*shown, encoded)
        return encoded

    def _large(self, context: RequestContext, requested: MetadataRequestTopic) -> Topic | None:
        """The topic if it has more than `LARGE` partitions and the client may describe it."""
        store = self._api.store
        name = requested.name if requested.topic_id == ZERO_UUID else store.durable_name_of(requested.topic_id)
        topic = None if name is None else self._api.topic(name)
        if topic is None or len(topic.partitions) <= LARGE:
            return None
        return topic if self._api.allows(context, "Describe", topic.name) else None

    async def _encoded_in_thread(self, context: RequestContext, request: MetadataRequest, topic: Topic) -> bytes:
        """As `_encoded`, with large topics encoded in another thread."""
        if len(topic.partitions) <= LARGE:
            return self._encoded(context, request, topic)
        shown = topic, context.api_version, self._api.cluster.live, self._operations(context, request, topic.name)
        encoded = self._cache.find(*shown)
        if encoded is None:
            encoded = await asyncio.to_thread(_encode, *shown)
            self._cache.store(*shown, encoded)
        return encoded

    def _respond(self, context: RequestContext, request: MetadataRequest, topics: Sequence[bytes]) -> MetadataResponse:
        api = self._api
        shows_brokers = self._shows_brokers(context, request)
        nodes = api.nodes() if shows_brokers else api.admin_nodes()
        wants_operations = request.include_cluster_authorized_operations
        operations = api.cluster_operations(context) if wants_operations else OPERATIONS_OMITTED
        return MetadataResponse(
            brokers=tuple(
                NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=rack)
                for node, rack in zip(nodes, self._racks(nodes), strict=True)
            ),
            cluster_id=api.cluster_id,
            controller_id=api.controller_id() if shows_brokers else api.admin_controller_id(),
            topics=Encoded(topics),
            cluster_authorized_operations=operations,
        )

    def _shows_brokers(self, context: RequestContext, request: MetadataRequest) -> bool:
        """True if the response has the brokers' own addresses, which the client needs to produce and consume.

        A Java consumer of a pattern requests all topics; Java's admin client ignores the nodes of such a list. Without
        listeners for brokers, librdkafka finds its coordinator only among the nodes of a request without topics.
        """
        if request.topics:
            return True
        has_listeners = self._api.broker_ports is not None
        if _wants_all(context, request):
            return not has_listeners or context.software.startswith(JAVA)
        return not has_listeners and LIBRDKAFKA in context.software

    def _racks(self, nodes: Sequence[Node]) -> Sequence[str | None]:
        """The racks of the nodes, or none if nodes share an address: kafkajs would take these nodes for one broker
        whose rack changes, and disconnect. DescribeCluster always has racks."""
        distinct = len({(node.host, node.port) for node in nodes}) == len(nodes)
        return [node.rack if distinct else None for node in nodes]

    def _creates(self, request: MetadataRequest, name: str) -> bool:
        """True if the request creates a missing topic. The brokers of a target cluster create its internal topics."""
        settings = self._api.cluster.settings
        if name in INTERNAL_TOPICS and settings.has_target_cluster:
            return False
        return request.allow_auto_topic_creation and settings.auto_create_topics_enable

    def _auto_create(self, context: RequestContext, names: Sequence[str]) -> None:
        if not names:
            return
        origin = origin_of(self._api, context, "auto")
        commands = [
            CreateTopic(
                **origin,
                topic=TopicName(name),
                topic_id=topic_id,
                num_partitions=INTERNAL_PARTITIONS if name in INTERNAL_TOPICS else -1,
                replication_factor=INTERNAL_FACTOR if name in INTERNAL_TOPICS else -1,
                configs=INTERNAL_TOPICS.get(name, ()),
                timeout_ms=AUTO_CREATION_WAIT_MS,
                api=AUTO_CREATION,
                api_version=context.api_version,
                denied=self._api.denial_of_create(context, name),
            )
            for name, topic_id in zip(names, new_topic_ids(len(names)), strict=True)
        ]
        self._api.submit(commands, AUTO_CREATION_WAIT_MS)


def _wants_all(context: RequestContext, request: MetadataRequest) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _is_named(context: RequestContext, topic: MetadataRequestTopic) -> bool:
    return topic.name is not None if topic.topic_id == ZERO_UUID else context.api_version >= TOPIC_IDS_SINCE


def _invalid_request(topics: Sequence[MetadataRequestTopic]) -> MetadataResponse:
    """The response to an invalid request, as Kafka's: no nodes, and the error at each topic."""
    code = int(ErrorCode.INVALID_REQUEST)
    return MetadataResponse(
        controller_id=-1,
        topics=tuple(
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id) for topic in topics
        ),
        error_code=code,
    )


def response_topic(
    topic: Topic, partitions: Sequence[Partition], live: Sequence[BrokerId], operations: int, start: int = 0
) -> MetadataResponseTopic:
    """A topic in a response, with some of its partitions: `start` is the index of the first one."""
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=0 if partition.leader >= 0 else int(ErrorCode.LEADER_NOT_AVAILABLE),
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=offline_replicas(partition, live),
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for index, partition in enumerate(partitions, start)
        ),
        topic_authorized_operations=operations,
    )


def _encode(topic: Topic, version: int, live: tuple[BrokerId, ...], operations: int) -> bytes:
    return encode_element(ApiKey.METADATA, version, response_topic(topic, topic.partitions, live, operations))


def _key(requested: MetadataRequestTopic) -> str | bytes | None:
    return requested.name if requested.topic_id == ZERO_UUID else requested.topic_id


class _EncodedTopics:
    """Encoded topics by name, version and operations, valid while the topic and the live brokers are unchanged."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int, int], tuple[Topic, bytes]] = {}
        self._live: tuple[BrokerId, ...] = ()
        self._partitions = 0

    def find(self, topic: Topic, version: int, live: tuple[BrokerId, ...], operations: int) -> bytes | None:
        entry = self._entries.get((topic.name, version, operations)) if live == self._live else None
        return entry[1] if entry is not None and (entry[0] is topic or entry[0] == topic) else None

    def store(self, topic: Topic, version: int, live: tuple[BrokerId, ...], operations: int, encoded: bytes) -> None:
        if live != self._live or self._partitions > PARTITIONS_CACHED_MAX:
            self._entries.clear()
            self._live, self._partitions = live, 0
        key = (topic.name, version, operations)
        known = self._entries.get(key)
        self._partitions += len(topic.partitions) - (0 if known is None else len(known[0].partitions))
        self._entries[key] = (topic, encoded)


INTERNAL_PARTITIONS: Final = 50
INTERNAL_FACTOR: Final = 3
_MIN_ISR: Final = ("min.insync.replicas", "2")
_SEGMENT_BYTES: Final = ("segment.bytes", "104857600")

INTERNAL_TOPICS: Final[Mapping[str, Configs]] = {
    "__consumer_offsets": (("cleanup.policy", "compact"), ("compression.type", "producer"), _SEGMENT_BYTES),
    "__transaction_state": (
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed"),
        _MIN_ISR,
        _SEGMENT_BYTES,
        ("unclean.leader.election.enable", "false"),
    ),
    "__share_group_state": (
        ("cleanup.policy", "delete"),
        ("compression.type", "producer"),
        _MIN_ISR,
        ("retention.ms", "-1"),
        _SEGMENT_BYTES,
    ),
}
"""Kafka's internal topics and the configs with which `AutoTopicCreationManager` creates them."""
