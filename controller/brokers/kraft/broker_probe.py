"""A connection to a broker, to find out whether it knows a topic and serves as leader of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from controller.brokers.cluster import wire
from controller.brokers.cluster.security import Security
from controller.brokers.cluster.wire import ClusterUnreachable, M
from controller.kafka.messages import ApiKey, Message, clients
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.machine.errors import ErrorCode
from events.catalog import Endpoint
from events.names import TopicName

METADATA_VERSION, LIST_OFFSETS_VERSION = 12, 7
"""Versions of the requests that brokers from 3.7 to 4.4 speak."""
TIMEOUT_S: Final = 2.0
"""Opening a connection included: as long as between two heartbeats, which have to do otherwise."""
RESPONSE_BYTES_MAX: Final = 16 << 20
"""Metadata of one topic with 100,000 partitions takes less."""
_LATEST: Final = -1
_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class Unanswered(Exception):
    """The broker could not be reached, or refused; the message says why."""


class BrokerConnection:
    """One connection, opened when it is first needed; used by one task at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._connection: wire.BrokerConnection | None = None

    async def knows(self, topic: str) -> bool:
        """Whether the broker's metadata have the topic. Raises Unanswered."""
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        response = await self._send(ApiKey.METADATA, METADATA_VERSION, request, MetadataResponse)
        code = response.topics[0].error_code if response.topics else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _judge(code) and bool(response.topics[0].partitions)

    async def leads(self, partitions: Mapping[TopicName, Sequence[int]]) -> bool:
        """Whether the broker serves as leader of all these partitions, by topic. Raises Unanswered."""
        topics = tuple(
            clients.ListOffsetsTopic(
                name=name,
                partitions=tuple(
                    clients.ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in indexes
                ),
            )
            for name, indexes in partitions.items()
        )
        request = clients.ListOffsetsRequest(replica_id=-1, topics=topics)
        kind = clients.ListOffsetsResponse
        response = await self._send(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request, kind)
        return all(_judge(partition.error_code) for topic in response.topics for partition in topic.partitions)

    def close(self) -> None:
        """Let go of the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _send(self, key: ApiKey, version: int, request: Message, response: type[M]) -> M:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if self._connection is None:
                    address = self.endpoint.host, self.endpoint.port
                    self._connection = await wire.BrokerConnection.open(address, Security(), RESPONSE_BYTES_MAX)
                return await self._connection.call(key, version, request, response)
        except BaseException as error:
            self.close()
            if isinstance(error, ClusterUnreachable):
                raise Unanswered(str(error)) from None
            if isinstance(error, TimeoutError):
                raise Unanswered(f"{self.endpoint.host}:{self.endpoint.port} does not answer") from None
            raise


def _judge(code: int) -> bool:
    """Whether the code is that of success; what it is in a moment may be another. Raises Unanswered if it stays."""
    if code in _DENIED:
        raise Unanswered(f"the broker refuses to be probed (error {code})")
    return code == 0
