"""A connection to a broker, to ask it whether it knows a topic and serves as leader of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from controller.kafka import codec
from controller.kafka.messages import ApiKey, Message
from controller.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from controller.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from controller.machine.errors import ErrorCode
from events.catalog import Endpoint
from events.names import TopicName

CLIENT_ID: Final = "topicwright"
METADATA, LIST_OFFSETS = 12, 7
"""Versions that brokers from 3.7 to 4.3 speak."""
TIMEOUT_S: Final = 2.0
ANSWER_BYTES_MAX: Final = 16 << 20
_LATEST: Final = -1
_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


class Unanswered(Exception):
    """The broker could not be asked, or said that it will not tell; the message says why."""


class BrokerConnection:
    """One connection, opened when it is first needed; used by one task at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._sent = 0

    async def knows(self, topic: str) -> bool:
        """Whether the broker's metadata have the topic. Raises Unanswered."""
        asked = MetadataRequestTopic(name=topic)
        request = MetadataRequest(topics=(asked,), allow_auto_topic_creation=False)
        answer = await self._ask(ApiKey.METADATA, METADATA, request)
        assert isinstance(answer, MetadataResponse), "that is what Metadata is answered with"
        code = answer.topics[0].error_code if answer.topics else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return _judge(code) and bool(answer.topics[0].partitions)

    async def leads(self, partitions: Mapping[TopicName, Sequence[int]]) -> bool:
        """Whether the broker serves as leader of all these partitions, by topic. Raises Unanswered."""
        topics = tuple(
            ListOffsetsTopic(
                name=name,
                partitions=tuple(ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in indexes),
            )
            for name, indexes in partitions.items()
        )
        answer = await self._ask(ApiKey.LIST_OFFSETS, LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, topics=topics))
        assert isinstance(answer, ListOffsetsResponse), "that is what ListOffsets is answered with"
        return all(_judge(partition.error_code) for topic in answer.topics for partition in topic.partitions)

    def close(self) -> None:
        """Let go of the connection; the next question opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _ask(self, key: ApiKey, version: int, request: Message) -> Message:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._exchange(key, version, request)
        except (OSError, EOFError, TimeoutError, codec.MalformedRequest) as error:
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
        if size > ANSWER_BYTES_MAX:
            raise EOFError(f"an answer of {size} bytes")
        sent, answer = codec.decode_response(key, version, await reader.readexactly(size))
        if sent != self._sent:
            raise EOFError(f"the answer to request {sent}, not {self._sent}")
        return answer


def _judge(code: int) -> bool:
    """Whether the code is that of success; what it is in a moment may be another. Raises Unanswered if it stays."""
    if code in _DENIED:
        raise Unanswered(f"the broker does not allow to be asked (error {code})")
    return code == 0
