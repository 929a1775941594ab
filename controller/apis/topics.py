"""The handlers of CreateTopics (KIP-4, KIP-108), CreatePartitions (KIP-195), DeleteTopics (KIP-516) and
DescribeTopicPartitions (KIP-966), which `tables` gives to listeners.

Changes submit one command for each topic. Descriptions come in pages; the cursor of a response is the start of the next
page.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache

from msgspec.structs import replace

from controller.apis import Call, errors_of
from controller.apis.configs import described
from controller.apis.limits import TOPICS_PER_SLICE, in_turns, slices
from controller.apis.metadata import failed_topic, response_topic
from controller.controller_api import ControllerApi
from controller.kafka.codec.codec import encode_element
from controller.kafka.handling import Disconnect
from controller.kafka.messages import ZERO_UUID, ApiKey, Encoded
from controller.kafka.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    Cursor,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataResponseTopic,
)
from controller.machine import validation
from controller.machine.commands.commands import CreatePartitions, CreateTopic, DeleteTopic
from controller.machine.configs.views import effective_configs
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.state import Topic
from controller.store.store import PARTITIONS_SHOWN_AT_ONCE, topic_slices
from events.catalog import Assignment, Configs
from events.names import BrokerId, TopicId, TopicName, shard_key

VERSION_WITHOUT_MESSAGES = 0
"""Version 0 has no message: an invalid request is logged, and the client disconnected (KIP-4)."""


async def create_topics(timeout_ms_max: int | None, call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Answer CreateTopics: submit a command for each topic and wait, at most `timeout_ms_max`. Raises Disconnect for
    errors that version 0 cannot express."""
    if not request.topics:
        return CreateTopicsResponse()
    if timeout_ms_max is not None and request.timeout_ms > timeout_ms_max:
        request = replace(request, timeout_ms=timeout_ms_max)
    commands = _create_commands(call, request)
    if call.context.api_version == VERSION_WITHOUT_MESSAGES:
        await _disconnect_if_invalid(call.api, commands)
    reply = await call.api.submit(commands, 0 if request.validate_only else request.timeout_ms)
    return CreateTopicsResponse(
        throttle_time_ms=call.context.throttle(reply.throttle_time_ms),
        topics=tuple(_created(call, answer) for answer in reply),
    )


def _create_commands(call: Call, request: CreateTopicsRequest) -> list[CreateTopic]:
    origin = call.origin()
    topics = {topic.name: topic for topic in request.topics}
    times = Counter([topic.name for topic in request.topics]) if len(topics) < len(request.topics) else {}
    may_create_all = call.allows("Create")
    return [
        CreateTopic(
            **origin,
            topic=TopicName(topic.name),
            topic_id=topic_id,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=tuple(
                [Assignment(a.partition_index, tuple(BrokerId(b) for b in a.broker_ids)) for a in topic.assignments]
            ),
            configs=tuple([(config.name, config.value) for config in topic.configs]),
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
            api_version=call.context.api_version,
            duplicate=times.get(topic.name, 1) > 1,
            denied=0 if may_create_all else call.api.denial_of_create(call.context, topic.name),
        )
        for topic, topic_id in zip(topics.values(), call.api.new_topic_ids(len(topics)), strict=True)
    ]


async def _disconnect_if_invalid(api: ControllerApi, commands: Sequence[CreateTopic]) -> None:
    """Record the rejections, then disconnect; no topic of the request is created."""
    invalid = [
        one
        for one in commands
        if one.duplicate or (one.assignments and (one.num_partitions != -1 or one.replication_factor != -1))
    ]
    if invalid:
        answers = await api.submit(invalid)
        raise Disconnect("InvalidRequest: " + "; ".join(f"topic {a.topic_name!r}: {a.message}" for a in answers))


def _created(call: Call, answer: Answer) -> CreatableTopicResult:
    if answer.code:
        return CreatableTopicResult(name=answer.topic_name, **errors_of(answer))
    topic = answer.topic
    assert topic is not None, "a create that succeeded shows its topic"
    if call.context.api_version < 5:
        return CreatableTopicResult(name=topic.name)
    if not call.allows("DescribeConfigs", topic.name):
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(name=topic.name, topic_id=topic.topic_id, topic_config_error_code=denied)
    settings = call.api.cluster.settings
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        num_partitions=len(topic.partitions),
        replication_factor=topic.replication_factor,
        configs=_configs(topic.configs, settings.topic_defaults, settings.dynamic_defaults, call.context.api_version),
    )


@lru_cache(maxsize=256)
def _configs(explicit: Configs, defaults: Configs, dynamic: Configs, version: int) -> Encoded:
    """All configs of a topic, from version 5 (KIP-525), encoded once for topics with the same configs."""
    entries = effective_configs(explicit, defaults, dynamic)
    elements = [described(entry, synonyms=False, documentation=False) for entry in entries]
    return Encoded(encode_element(ApiKey.CREATE_TOPICS, version, each) for each in elements)


async def create_partitions(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Answer CreatePartitions (KIP-195); needs Alter on each topic. A topic that is named twice is rejected, as in
    Kafka."""
    origin = call.origin()
    times = Counter(topic.name for topic in request.topics)
    commands = [
        CreatePartitions(
            **origin,
            topic=TopicName(topic.name),
            count=topic.count,
            assignments=None
            if topic.assignments is None
            else tuple(tuple(map(BrokerId, one.broker_ids)) for one in topic.assignments),
            api="CreatePartitions",
            api_version=call.context.api_version,
            validate_only=request.validate_only,
            duplicate=times[topic.name] > 1,
            denied=call.api.denial(call.context, "Alter", topic.name),
        )
        for topic in {topic.name: topic for topic in request.topics}.values()
    ]
    reply = await call.api.submit_change(commands, request.timeout_ms)
    return CreatePartitionsResponse(
        throttle_time_ms=call.context.throttle(reply.throttle_time_ms),
        results=tuple(CreatePartitionsTopicResult(name=answer.topic_name, **errors_of(answer)) for answer in reply),
    )


async def delete_topics(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Answer DeleteTopics. Ids and names that do not resolve to one topic are answered without a command."""
    states = request.topics or tuple(DeleteTopicState(name=name) for name in request.topic_names)
    origin = call.origin()
    named = Counter(state.name for state in states if state.name is not None)
    by_id = Counter(state.topic_id for state in states if state.topic_id != ZERO_UUID)
    results: dict[object, DeletableTopicResult] = {}
    commands: dict[str, DeleteTopic] = {}
    for number, state in enumerate(states):
        if number % TOPICS_PER_SLICE == TOPICS_PER_SLICE - 1:
            await asyncio.sleep(0)
        name = _resolve(call, state, named, by_id)
        if isinstance(name, DeletableTopicResult):
            results[name.name or name.topic_id] = name
        elif name not in commands:
            commands[name] = DeleteTopic(
                **origin,
                topic=TopicName(name),
                topic_id=None if state.topic_id == ZERO_UUID else TopicId(state.topic_id),
                api="DeleteTopics",
                api_version=call.context.api_version,
                duplicate=named[name] > 1,
                denied=call.api.denial_of_delete(call.context, name, by_id=state.topic_id != ZERO_UUID),
            )
    to_submit = [command for name, command in commands.items() if name not in results]
    before = {command.topic: call.api.topic(command.topic) for command in to_submit}
    reply = await call.api.submit_change(to_submit, request.timeout_ms)
    answered = [_deleted(answer, commands[answer.topic_name], before[answer.topic_name]) for answer in reply]
    throttle_time_ms = call.context.throttle(reply.throttle_time_ms)
    return DeleteTopicsResponse(throttle_time_ms=throttle_time_ms, responses=(*results.values(), *answered))


def _resolve(
    call: Call, state: DeleteTopicState, named: Counter[str], by_id: Counter[bytes]
) -> str | DeletableTopicResult:
    if state.topic_id == ZERO_UUID:
        if state.name is None:
            return _not_deleted(state, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        return _by_name(call, state, state.name, named[state.name] > 1)
    if state.name is not None:
        return _not_deleted(state, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if by_id[state.topic_id] > 1:
        return _not_deleted(state, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    name = call.api.store.durable_name_of(state.topic_id)
    if name is None:
        return _not_deleted(state, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    denial = call.api.denial_of_delete(call.context, name, by_id=True)
    if denial and not call.allows("Describe", name):
        call.grants("Delete", name)
        return _not_deleted(state, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    if name in named:
        message = "The provided topic name maps to an ID that was already supplied."
        known = DeleteTopicState(name=name, topic_id=state.topic_id)
        return _not_deleted(known, ErrorCode.INVALID_REQUEST, message)
    return name


def _by_name(call: Call, state: DeleteTopicState, name: str, twice: bool) -> str | DeletableTopicResult:
    """The name to delete, or UNKNOWN_TOPIC_OR_PARTITION for a client that may describe but not delete it."""
    is_seen = call.allows("Describe", name)
    if not twice and is_seen and call.api.denial_of_delete(call.context, name) and call.api.topic(name) is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _not_deleted(state, code, "This server does not host this topic-partition.")
    return name


def _not_deleted(state: DeleteTopicState, code: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=code, error_message=message)


def _deleted(answer: Answer, command: DeleteTopic, before: Topic | None) -> DeletableTopicResult:
    """`before` is the topic before the deletion: a target cluster has deleted it by now.

    As in Kafka, the response has the id of the deleted topic. With an error it has only an id from the request.
    """
    deleted = None if answer.code else answer.topic or before
    topic_id = (command.topic_id or ZERO_UUID) if deleted is None else deleted.topic_id
    return DeletableTopicResult(name=answer.topic_name, topic_id=topic_id, **errors_of(answer))


async def describe_topic_partitions(
    call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """One page, with a cursor if there are more. All topics are in order of shard keys, named topics in order of names.

    A page has at most as many partitions as the request and `max.request.partition.size.limit` allow.
    """
    begin, cursor = request.cursor, None
    topics: list[MetadataResponseTopic] = []
    if not _is_cursor_valid(request):
        names = dict.fromkeys(topic.name for topic in request.topics)
        return await _page(call, [failed_topic(name, ErrorCode.INVALID_REQUEST) for name in names], None)
    left = max(1, min(request.response_partition_limit, call.api.partitions_per_response_max))
    denied = [  # existing or not; they do not count for the page size
        failed_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        async for name in _names(request)
        if not call.grants("Describe", name)
    ]
    async for name, topic in _topics(call, request):
        start = begin.partition_index if begin is not None and name == begin.topic_name else 0
        if left <= 0:
            cursor = Cursor(topic_name=name, partition_index=start)
            break
        operations = call.api.topic_operations(call.context, name)
        if topic is None:
            error = validation.name(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is None else error.code
            topics.append(failed_topic(name, code, operations))
            continue
        end = max(start, min(len(topic.partitions), start + left))
        topics.append(response_topic(topic, topic.partitions[start:end], call.api.cluster.live, operations, start))
        left -= end - start
        if end < len(topic.partitions):
            cursor = Cursor(topic_name=name, partition_index=end)
            break
    return await _page(call, [*topics, *denied], cursor)


async def _topics(call: Call, request: DescribeTopicPartitionsRequest) -> AsyncIterator[tuple[str, Topic | None]]:
    cursor = request.cursor
    if request.topics:
        async for name in _names(request):
            if call.allows("Describe", name):
                yield name, call.api.topic(name)
        return
    topic = None if cursor is None else call.api.topic(cursor.topic_name)
    if topic is not None and call.allows("Describe", topic.name):
        yield topic.name, topic
    after = None if cursor is None else str(shard_key(cursor.topic_name))
    for topics in topic_slices(lambda: call.api.store, PARTITIONS_SHOWN_AT_ONCE, after):
        for topic in topics:
            if call.api.knows(topic) and call.allows("Describe", topic.name):
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
    call: Call, topics: Sequence[MetadataResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    elements = await in_turns(call, topics, TOPICS_PER_SLICE, lambda topic: topic)
    return DescribeTopicPartitionsResponse(topics=elements, next_cursor=cursor)
