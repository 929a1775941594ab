"""The handler of Metadata: it returns brokers, controller and topics. Missing topics are created automatically if
client and controller both allow that (KIP-361). `tables` gives the handler to listeners.

The encoded bytes of a topic are cached by version until the topic or the brokers change. A long list is encoded in
slices, so that other clients are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from controller.apis import Call
from controller.apis.limits import TOPICS_PER_SLICE, slices
from controller.controller_api import ControllerApi
from controller.kafka.codec.codec import encode_element
from controller.kafka.handling import JAVA, LIBRDKAFKA, Handler, RequestContext
from controller.kafka.messages import ZERO_UUID, ApiKey, Encoded
from controller.kafka.messages.clients import NodeEndpoint
from controller.kafka.messages.message import OPERATIONS_OMITTED
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
from controller.store.store import PARTITIONS_SHOWN_AT_ONCE, topic_slices
from events.catalog import Partition
from events.names import BrokerId, TopicName
from events.values import Configs
from projections.views.topics import offline_replicas

PARTITIONS_CACHED_MAX = 200_000  # bounds memory
LARGE = 2_000
"""Topics with more partitions are encoded in another thread: 100,000 partitions take 300 ms."""
TOPIC_IDS_SINCE = 12
"""The version from which topics may be requested by id (KIP-516)."""
AUTO_CREATION_WAIT_MS = 30_000
"""Timeout of an auto-creation. Its client polls Metadata meanwhile."""
CREATED_AT_ONCE_MAX = 1000
"""The number of topics that one request may create. The client requests the remaining topics again."""


def metadata_handler(api: ControllerApi) -> Handler:
    """Returns the handler. It submits auto-creations to the controller, also at the listeners of brokers."""
    cache = _EncodedTopics()
    return lambda context, request: _Response(api, cache, context, request).respond()


class _Response(msgspec.Struct):
    """The response to one request, while it is built."""

    api: ControllerApi
    cache: _EncodedTopics
    context: RequestContext
    request: MetadataRequest
    parts: dict[str | bytes | None, bytes] = {}
    """The encoded topics, by name, or by id if the name is unknown."""

    async def respond(self) -> MetadataResponse:
        """The nodes and the requested topics. Null means all topics; in version 0 an empty array does."""
        if self._wants_all():
            return await self._all()
        requested = self.request.topics
        assert requested is not None, "null is a request for all"
        has_ids = self.context.api_version >= TOPIC_IDS_SINCE
        if not all(has_ids if one.topic_id != ZERO_UUID else one.name is not None for one in requested):
            return _invalid_request(requested)
        if len(requested) <= TOPICS_PER_SLICE:
            self._auto_create(await self._add(requested))
            return self._finished()
        to_create = CREATED_AT_ONCE_MAX
        for slice_ in slices(requested, TOPICS_PER_SLICE):
            async with self.api.turns:
                missing = (await self._add(slice_))[:to_create]
                self._auto_create(missing)
                to_create -= len(missing)
            await asyncio.sleep(0)
        return self._finished()

    async def _all(self) -> MetadataResponse:
        slices = topic_slices(lambda: self.api.store, PARTITIONS_SHOWN_AT_ONCE)
        while True:
            async with self.api.turns:
                topics = next(slices, ())
                for topic in topics:
                    if self.api.knows(topic) and self.api.allows(self.context, "Describe", topic.name):
                        self.parts[topic.name] = await self._encoded(topic)
            await asyncio.sleep(0)
            if not topics:
                return self._finished()

    async def _add(self, requested: Sequence[MetadataRequestTopic]) -> list[str]:
        """Add these topics to the response, each once. Returns the names of those to create."""
        missing: list[str] = []
        for one in requested:
            if (one.name if one.topic_id == ZERO_UUID else one.topic_id) in self.parts:
                continue
            found = self._find(one, missing)
            if isinstance(found, Topic):
                self.parts[found.name] = await self._encoded(found)
            else:
                encoded = encode_element(ApiKey.METADATA, self.context.api_version, found)
                self.parts[found.name or found.topic_id] = encoded
        return missing

    def _find(self, requested: MetadataRequestTopic, to_create: list[str]) -> Topic | MetadataResponseTopic:
        """The topic, or the response for a missing or denied one; adds its name to `to_create` if the request creates
        it."""
        api, context, name = self.api, self.context, requested.name
        if requested.topic_id != ZERO_UUID:
            name = api.store.durable_name_of(requested.topic_id)
            if name is None or not api.grants(context, "Describe", name):
                code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
                no_name = None if context.api_version >= TOPIC_IDS_SINCE else ""
                return MetadataResponseTopic(error_code=code, name=no_name, topic_id=requested.topic_id)
        assert name is not None, "a topic has a name or an id"
        if not api.grants(context, "Describe", name):
            return failed_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = api.topic(name)
        if topic is not None:
            return topic
        wrong = validation.name(name)
        if self._creates(name):
            if api.denial_of_create(context, name):
                api.grants(context, "Create", name)
                return failed_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            to_create += [name] if wrong is None else []
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if wrong is None else wrong.code
        return failed_topic(name, code, self._operations(name))

    def _operations(self, name: str) -> int:
        wants_operations = self.request.include_topic_authorized_operations
        return self.api.topic_operations(self.context, name) if wants_operations else OPERATIONS_OMITTED

    async def _encoded(self, topic: Topic) -> bytes:
        """The bytes of a topic, which depend on `shown`. Large topics are encoded in another thread, one at a time."""
        shown = topic, self.context.api_version, self.api.cluster.live, self._operations(topic.name)
        found = self.cache.find(*shown)
        if found is None and len(topic.partitions) > LARGE:
            async with self.cache.large:
                found = self.cache.find(*shown) or self.cache.store(*shown, await asyncio.to_thread(_encode, *shown))
        return found or self.cache.store(*shown, _encode(*shown))

    def _finished(self) -> MetadataResponse:
        api, shows_brokers = self.api, self.shows_brokers()
        nodes = api.nodes() if shows_brokers else api.admin_nodes()
        # If nodes share an address, kafkajs would take them for one broker whose rack changes, and disconnect.
        # DescribeCluster always has racks.
        has_racks = len({(node.host, node.port) for node in nodes}) == len(nodes)
        wants_operations = self.request.include_cluster_authorized_operations
        operations = api.cluster_operations(self.context) if wants_operations else OPERATIONS_OMITTED
        return MetadataResponse(
            brokers=tuple(
                NodeEndpoint(
                    node_id=node.node_id, host=node.host, port=node.port, rack=node.rack if has_racks else None
                )
                for node in nodes
            ),
            cluster_id=api.cluster_id,
            controller_id=api.controller_id() if shows_brokers else api.admin_controller_id(),
            topics=Encoded(self.parts.values()),
            cluster_authorized_operations=operations,
        )

    def shows_brokers(self) -> bool:
        """True if the response has the brokers' own addresses, which the client needs to produce and consume.

        A Java consumer of a pattern requests all topics; Java's admin client ignores the nodes of such a list. Without
        listeners for brokers, librdkafka finds its coordinator only among the nodes of a request without topics.
        """
        if self.request.topics:
            return True
        has_listeners = self.api.broker_ports is not None
        if self._wants_all():
            return not has_listeners or self.context.connection.software.startswith(JAVA)
        return not has_listeners and LIBRDKAFKA in self.context.connection.software

    def _creates(self, name: str) -> bool:
        """True if the request creates a missing topic. The brokers of a target cluster create its internal topics."""
        settings = self.api.cluster.settings
        if name in INTERNAL_TOPICS and settings.has_target_cluster:
            return False
        return self.request.allow_auto_topic_creation and settings.auto_create_topics_enable

    def _auto_create(self, names: Sequence[str]) -> None:
        if not names:
            return
        origin = Call(self.api, self.context).origin("auto")
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
                api_version=self.context.api_version,
                denied=self.api.denial_of_create(self.context, name),
            )
            for name, topic_id in zip(names, self.api.new_topic_ids(len(names)), strict=True)
        ]
        self.api.submit(commands, AUTO_CREATION_WAIT_MS)

    def _wants_all(self) -> bool:
        topics = self.request.topics
        return topics is None or (self.context.api_version == 0 and not topics)


def _invalid_request(topics: Sequence[MetadataRequestTopic]) -> MetadataResponse:
    """The response to an invalid request, as Kafka's: no nodes, and the error at each topic."""
    code = ErrorCode.INVALID_REQUEST
    named = ((topic.name or "", topic.topic_id) for topic in topics)
    failed = tuple(MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id) for name, topic_id in named)
    return MetadataResponse(controller_id=-1, topics=failed, error_code=code)


def failed_topic(name: str, code: ErrorCode, operations: int = OPERATIONS_OMITTED) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_authorized_operations=operations)


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
                error_code=0 if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
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


class _EncodedTopics:
    """Encoded topics by name, version and operations, valid while the topic and the live brokers are unchanged."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int, int], tuple[Topic, bytes]] = {}
        self._live: tuple[BrokerId, ...] = ()
        self._partitions = 0
        self.large = asyncio.Lock()
        """Held while a thread encodes a large topic."""

    def find(self, topic: Topic, version: int, live: tuple[BrokerId, ...], operations: int) -> bytes | None:
        entry = self._entries.get((topic.name, version, operations)) if live == self._live else None
        return entry[1] if entry is not None and (entry[0] is topic or entry[0] == topic) else None

    def store(self, topic: Topic, version: int, live: tuple[BrokerId, ...], operations: int, encoded: bytes) -> bytes:
        if live != self._live or self._partitions > PARTITIONS_CACHED_MAX:
            self._entries.clear()
            self._live, self._partitions = live, 0
        key = (topic.name, version, operations)
        known = self._entries.get(key)
        self._partitions += len(topic.partitions) - (0 if known is None else len(known[0].partitions))
        self._entries[key] = (topic, encoded)
        return encoded


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
