"""DescribeTopicPartitions (KIP-966): topics in order, paged by a cursor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from controller.apis.limits import slices
from controller.apis.metadata import response_topic
from controller.controller_api import ControllerApi
from controller.kafka.codec.codec import encode_element
from controller.kafka.handling import RequestContext
from controller.kafka.messages import Encoded
from controller.kafka.messages.message import OPERATIONS_OMITTED
from controller.kafka.messages.topics import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataResponseTopic,
)
from controller.machine import validation
from controller.machine.errors import ErrorCode
from controller.machine.state import Topic
from events.names import shard_key

TOPICS_PER_SLICE = 200
TOPICS_ENCODED_AT_ONCE_MAX = 2000


class DescribeTopicPartitionsHandler:
    """Answers DescribeTopicPartitions. All topics are in order of shard keys, named topics in order of names.

    A page has at most as many partitions as the request and `max.request.partition.size.limit` allow.
    """

    def __init__(self, api: ControllerApi) -> None:
        self._api = api

    async def __call__(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        """One page, with a cursor if there are more."""
        if not _is_cursor_valid(request):
            names = dict.fromkeys(topic.name for topic in request.topics)
            return await _page(context, [_failed(name, ErrorCode.INVALID_REQUEST) for name in names], None)
        left = max(1, min(request.response_partition_limit, self._api.partitions_per_response_max))
        topics: list[MetadataResponseTopic] = []
        denied = await self._denied(context, request)
        async for name, topic in self._topics(context, request):
            start = _start_in(name, request.cursor)
            if left <= 0:
                return await _page(context, [*topics, *denied], Cursor(topic_name=name, partition_index=start))
            if topic is None:
                operations = self._api.topic_operations(context, name)
                error = validation.name(name)
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is None else error.code
                topics.append(_failed(name, code, operations))
                continue
            end = max(start, min(len(topic.partitions), start + left))
            topics.append(self._response_topic(context, topic, start, end))
            left -= end - start
            if end < len(topic.partitions):
                return await _page(context, [*topics, *denied], Cursor(topic_name=name, partition_index=end))
        return await _page(context, [*topics, *denied], None)

    async def _denied(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> list[MetadataResponseTopic]:
        """Named topics that the client may not describe, existing or not; they do not count for the page size."""
        denied = []
        for part in slices(sorted({topic.name for topic in request.topics}), TOPICS_PER_SLICE):
            denied += [
                _failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                for name in part
                if _is_in_page(name, request.cursor) and not self._api.grants(context, "Describe", name)
            ]
            await asyncio.sleep(0)
        return denied

    async def _topics(
        self, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> AsyncIterator[tuple[str, Topic | None]]:
        cursor = request.cursor
        if request.topics:
            for part in slices(sorted({topic.name for topic in request.topics}), TOPICS_PER_SLICE):
                for name in part:
                    if _is_in_page(name, cursor) and self._api.allows(context, "Describe", name):
                        yield name, self._api.topic(name)
                await asyncio.sleep(0)
            return
        topic = None if cursor is None else self._api.topic(cursor.topic_name)
        if topic is not None and self._api.allows(context, "Describe", topic.name):
            yield topic.name, topic
        after = None if cursor is None else str(shard_key(cursor.topic_name))
        while topics := self._api.store.durable_slice(after, TOPICS_PER_SLICE):
            after = shard_key(topics[-1].name)
            for topic in topics:
                if self._api.knows(topic) and self._api.allows(context, "Describe", topic.name):
                    yield topic.name, topic
            await asyncio.sleep(0)

    def _response_topic(self, context: RequestContext, topic: Topic, start: int, end: int) -> MetadataResponseTopic:
        operations = self._api.topic_operations(context, topic.name)
        return response_topic(topic, topic.partitions[start:end], self._api.cluster.live, operations, start)


def _is_cursor_valid(request: DescribeTopicPartitionsRequest) -> bool:
    """True if the index of the cursor is not negative and its topic is one of the named ones."""
    cursor = request.cursor
    if cursor is None:
        return True
    is_among = not request.topics or any(topic.name == cursor.topic_name for topic in request.topics)
    return cursor.partition_index >= 0 and is_among


def _is_in_page(name: str, cursor: Cursor | None) -> bool:
    return cursor is None or name >= cursor.topic_name


def _failed(name: str, code: ErrorCode, operations: int = OPERATIONS_OMITTED) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=int(code), name=name, topic_authorized_operations=operations)


def _start_in(name: str, cursor: Cursor | None) -> int:
    return cursor.partition_index if cursor is not None and name == cursor.topic_name else 0


async def _page(
    context: RequestContext, topics: Sequence[MetadataResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    if len(topics) <= TOPICS_ENCODED_AT_ONCE_MAX:
        return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=cursor)
    encoded: list[bytes] = []
    for part in slices(topics, TOPICS_PER_SLICE):
        encoded += [encode_element(context.api_key, context.api_version, topic) for topic in part]
        await asyncio.sleep(0)
    return DescribeTopicPartitionsResponse(topics=Encoded(encoded), next_cursor=cursor)
