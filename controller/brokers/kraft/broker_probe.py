"""A connection to a broker, to find out whether it knows a topic and serves as leader of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from controller.kafka.codec import codec
from controller.kafka.codec.primitives import MalformedRequest
from controller.kafka.messages import ApiKey, Message, list_offsets
from controller.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.machine.errors import ErrorCode
from events.catalog import Endpoint
from events.names import TopicName

CLIENT_ID: Final = "topicwright"
METADATA_VERSION, LIST_OFFSETS_VERSION = 12, 7
"""Versions of the requests that brokers from 3.7 to 4.3 speak."""
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
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._sent = 0

    async def knows(self, topic: str) -> bool:
        """Whether the broker's metadata have the topic. Raises Unanswered."""
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        response = await self._send(ApiKey.METADATA, METADATA_VERSION, request)
        assert isinstance(response, MetadataResponse), "that is what Metadata is answered with"
        code = response.topics[0].error_code if response.topics else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _judge(code) and bool(response.topics[0].partitions)

    async def leads(self, partitions: Mapping[TopicName, Sequence[int]]) -> bool:
        """Whether the broker serves as leader of all these partitions, by topic. Raises Unanswered."""
        topics = tuple(
            list_offsets.ListOffsetsTopic(
                name=name,
                partitions=tuple(
                    list_offsets.ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in indexes
                ),
            )
            for name, indexes in partitions.items()
        )
        request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)
        response = await self._send(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)
        assert isinstance(response, list_offsets.ListOffsetsResponse), "that is what ListOffsets is answered with"
        return all(_judge(partition.error_code) for topic in response.topics for partition in topic.partitions)

    def close(self) -> None:
        """Let go of the connection; the next request opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _send(self, key: ApiKey, version: int, request: Message) -> Message:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._exchange(key, version, request)
        except (OSError, EOFError, TimeoutError, MalformedRequest) as error:
            self.close()
            raise Unanswered(f"{self.endpoint.host}:{self.endpoint.port}: {error or type(error).__name__}") from None
        except asyncio.CancelledError:
            self.close()
            raise

    async def _exchange(self, key: ApiKey, version: int, request: Message) -> Message:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.endpoint.host, self.endpoint.port)
        reader, writer = self._streams
        self._sent += 1
        writer.write(codec.encode_request(key, version, self._sent, CLIENT_ID, request))
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > RESPONSE_BYTES_MAX:
            raise EOFError(f"a response of {size} bytes")
        sent, response = codec.decode_response(key, version, await reader.readexactly(size))
        if sent != self._sent:
            raise EOFError(f"the response to request {sent}, not {self._sent}")
        return response


def _judge(code: int) -> bool:
    """Whether the code is that of success; what it is in a moment may be another. Raises Unanswered if it stays."""
    if code in _DENIED:
        raise Unanswered(f"the broker refuses to be probed (error {code})")
    return code == 0
