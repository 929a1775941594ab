"""The handler of DescribeTopicPartitions (KIP-966), which `tables` gives to listeners: partitions of topics, in pages.
The cursor of a response is the start of the next page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from controller.apis.limits import TOPICS_PER_SLICE, in_turns, slices
from controller.apis.metadata import failed_topic, response_topic
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
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


async def describe_topic_partitions(
    api: ControllerApi, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """One page, with a cursor if there are more. All topics are in order of shard keys, named topics in order of names.

    A page has at most as many partitions as the request and `max.request.partition.size.limit` allow.
    """
    begin, cursor = request.cursor, None
    topics: list[MetadataResponseTopic] = []
    if not _is_cursor_valid(request):
        names = dict.fromkeys(topic.name for topic in request.topics)
        return await _page(api, context, [failed_topic(name, ErrorCode.INVALID_REQUEST) for name in names], None)
    left = max(1, min(request.response_partition_limit, api.partitions_per_response_max))
    denied = [  # existing or not; they do not count for the page size
        failed_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        async for name in _names(request)
        if not api.grants(context, "Describe", name)
    ]
    async for name, topic in _topics(api, context, request):
        start = begin.partition_index if begin is not None and name == begin.topic_name else 0
        if left <= 0:
            cursor = Cursor(topic_name=name, partition_index=start)
            break
        operations = api.topic_operations(context, name)
        if topic is None:
            error = validation.name(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is None else error.code
            topics.append(failed_topic(name, code, operations))
            continue
        end = max(start, min(len(topic.partitions), start + left))
        topics.append(response_topic(topic, topic.partitions[start:end], api.cluster.live, operations, start))
        left -= end - start
        if end < len(topic.partitions):
            cursor = Cursor(topic_name=name, partition_index=end)
            break
    return await _page(api, context, [*topics, *denied], cursor)


async def _topics(
    api: ControllerApi, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> AsyncIterator[tuple[str, Topic | None]]:
    cursor = request.cursor
    if request.topics:
        async for name in _names(request):
            if api.allows(context, "Describe", name):
                yield name, api.topic(name)
        return
    topic = None if cursor is None else api.topic(cursor.topic_name)
    if topic is not None and api.allows(context, "Describe", topic.name):
        yield topic.name, topic
    after = None if cursor is None else str(shard_key(cursor.topic_name))
    while topics := api.store.durable_slice(after, TOPICS_PER_SLICE):
        after = shard_key(topics[-1].name)
        for topic in topics:
            if api.knows(topic) and api.allows(context, "Describe", topic.name):
                yield topic.name, topic
        await asyncio.sleep(0)


async def _names(request: DescribeTopicPartitionsRequest) -> AsyncIterator[str]:
    """The named topics from the cursor on, each once and in order."""
    for part in slices(sorted({topic.name for topic in request.topics}), TOPICS_PER_SLICE):
        for name in part:
            if request.cursor is None or name >= request.cursor.topic_name:
                yield name
        await asyncio.sleep(0)


def _is_cursor_valid(request: DescribeTopicPartitionsRequest) -> bool:
    """True if the index of the cursor is not negative and its topic is one of the named ones."""
    cursor = request.cursor
    if cursor is None:
        return True
    is_among = not request.topics or any(topic.name == cursor.topic_name for topic in request.topics)
    return cursor.partition_index >= 0 and is_among


async def _page(
    api: ControllerApi, context: RequestContext, topics: Sequence[MetadataResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    elements = await in_turns(api, context, topics, TOPICS_PER_SLICE, iter)
    return DescribeTopicPartitionsResponse(topics=elements, next_cursor=cursor)
