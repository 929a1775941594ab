"""CreateTopics (KIP-4, KIP-108), CreatePartitions (KIP-195) and DeleteTopics (KIP-516): one command for each topic."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from controller.apis import Origin, errors_of, origin_of
from controller.apis.config_entries import creatable_configs
from controller.controller_api import ControllerApi, new_topic_ids
from controller.kafka.handling import Disconnect, RequestContext
from controller.kafka.messages.message import ZERO_UUID
from controller.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from controller.machine.commands.commands import CreatePartitions, CreateTopic, DeleteTopic
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.catalog import Assignment
from events.names import BrokerId, TopicId, TopicName

VERSION_WITHOUT_MESSAGES = 0
"""Version 0 has no message: an invalid request is logged, and the client disconnected (KIP-4)."""


class CreateTopicsHandler:
    def __init__(self, api: ControllerApi, timeout_ms_max: int | None = None) -> None:
        """`timeout_ms_max` caps the timeout of requests."""
        self._api = api
        self._timeout_ms_max = timeout_ms_max

    async def __call__(self, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Submit a command for each topic and wait. Raises Disconnect for errors that version 0 cannot carry."""
        if not request.topics:
            return CreateTopicsResponse()
        if self._timeout_ms_max is not None and request.timeout_ms > self._timeout_ms_max:
            request = replace(request, timeout_ms=self._timeout_ms_max)
        commands = self._commands(context, request)
        if context.api_version == VERSION_WITHOUT_MESSAGES:
            await self._disconnect_if_invalid(commands)
        reply = await self._api.submit(commands, 0 if request.validate_only else request.timeout_ms)
        throttle_time_ms = context.throttle(reply.throttle_time_ms)
        return self._response(context, reply.answers, throttle_time_ms)

    def _commands(self, context: RequestContext, request: CreateTopicsRequest) -> list[CreateTopic]:
        origin = origin_of(self._api, context)
        topics = {topic.name: topic for topic in request.topics}
        repeated: set[str] = set()
        if len(topics) < len(request.topics):
            repeated = {name for name, times in Counter(t.name for t in request.topics).items() if times > 1}
        ids = new_topic_ids(len(topics))
        return [
            self._command(context, request, topic, origin, topic_id, topic.name in repeated)
            for topic, topic_id in zip(topics.values(), ids, strict=True)
        ]

    def _command(
        self,
        context: RequestContext,
        request: CreateTopicsRequest,
        topic: CreatableTopic,
        origin: Origin,
        topic_id: bytes,
        duplicate: bool,
    ) -> CreateTopic:
        return CreateTopic(
            **origin,
            topic=TopicName(topic.name),
            topic_id=topic_id,  # type: ignore[arg-type]
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=tuple(
                Assignment(a.partition_index, tuple(BrokerId(b) for b in a.broker_ids)) for a in topic.assignments
            ),
            configs=tuple((config.name, config.value) for config in topic.configs),
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
            api_version=context.api_version,
            duplicate=duplicate,
            denied=self._api.denial_of_create(context, topic.name),
        )

    async def _disconnect_if_invalid(self, commands: Sequence[CreateTopic]) -> None:
        """Record the rejections, then disconnect; no topic of the request is created."""
        invalid = [command for command in commands if command.duplicate or _defined_twice(command)]
        if invalid:
            answers = await self._api.submit(invalid)
            raise Disconnect("InvalidRequest: " + "; ".join(f"topic {a.topic_name!r}: {a.message}" for a in answers))

    def _response(
        self, context: RequestContext, answers: Sequence[Answer], throttle_time_ms: int
    ) -> CreateTopicsResponse:
        shows_configs = context.api_version >= 5
        return CreateTopicsResponse(
            throttle_time_ms=throttle_time_ms,
            topics=tuple(
                self._created(context, answer, shows_configs)
                if answer.code == 0
                else CreatableTopicResult(name=answer.topic_name, **errors_of(answer))
                for answer in answers
            ),
        )

    def _created(self, context: RequestContext, answer: Answer, shows_configs: bool) -> CreatableTopicResult:
        topic = answer.topic
        assert topic is not None, "a create that succeeded shows its topic"
        if not shows_configs:
            return CreatableTopicResult(name=topic.name)
        if not self._api.allows(context, "DescribeConfigs", topic.name):
            denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return CreatableTopicResult(name=topic.name, topic_id=topic.topic_id, topic_config_error_code=denied)
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            num_partitions=len(topic.partitions),
            replication_factor=topic.replication_factor,
            configs=creatable_configs(topic.configs, self._api.cluster.settings, context.api_version),
        )


def _defined_twice(command: CreateTopic) -> bool:
    return bool(command.assignments) and (command.num_partitions != -1 or command.replication_factor != -1)


async def create_partitions(
    api: ControllerApi, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    origin = origin_of(api, context)
    times = Counter(topic.name for topic in request.topics)
    commands = [
        CreatePartitions(
            **origin,
            topic=TopicName(topic.name),
            count=topic.count,
            assignments=_replica_lists(topic.assignments),
            api="CreatePartitions",
            api_version=context.api_version,
            validate_only=request.validate_only,
            duplicate=times[topic.name] > 1,
            denied=api.denial(context, "Alter", topic.name),
        )
        for topic in {topic.name: topic for topic in request.topics}.values()
    ]
    reply = await api.submit_change(commands, request.timeout_ms)
    return CreatePartitionsResponse(
        throttle_time_ms=context.throttle(reply.throttle_time_ms),
        results=tuple(CreatePartitionsTopicResult(name=answer.topic_name, **errors_of(answer)) for answer in reply),
    )


def _replica_lists(
    assignments: tuple[CreatePartitionsAssignment, ...] | None,
) -> tuple[tuple[BrokerId, ...], ...] | None:
    if assignments is None:
        return None
    return tuple(tuple(BrokerId(broker_id) for broker_id in one.broker_ids) for one in assignments)


TOPICS_PER_SLICE = 200


class DeleteTopicsHandler:
    def __init__(self, api: ControllerApi) -> None:
        self._api = api

    async def __call__(self, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Submit a command for each topic. Ids and names that do not resolve to one topic are answered directly."""
        states = request.topics or tuple(DeleteTopicState(name=name) for name in request.topic_names)
        origin = origin_of(self._api, context)
        named = Counter(state.name for state in states if state.name is not None)
        by_id = Counter(state.topic_id for state in states if state.topic_id != ZERO_UUID)
        results: dict[object, DeletableTopicResult] = {}
        commands: dict[str, DeleteTopic] = {}
        for number, state in enumerate(states):
            if number % TOPICS_PER_SLICE == TOPICS_PER_SLICE - 1:
                await asyncio.sleep(0)
            name = self._resolve(context, state, named, by_id)
            if isinstance(name, DeletableTopicResult):
                results[name.name or name.topic_id] = name
            elif name not in commands:
                commands[name] = self._command(context, origin, name, state, named[name] > 1)
        to_submit = [command for name, command in commands.items() if name not in results]
        ids = {command.topic: self._id_of(command) for command in to_submit}
        reply = await self._api.submit_change(to_submit, request.timeout_ms)
        answered = [_deleted(answer, commands[answer.topic_name], ids[answer.topic_name]) for answer in reply]
        throttle_time_ms = context.throttle(reply.throttle_time_ms)
        return DeleteTopicsResponse(throttle_time_ms=throttle_time_ms, responses=(*results.values(), *answered))

    def _resolve(
        self, context: RequestContext, state: DeleteTopicState, named: Counter[str], by_id: Counter[bytes]
    ) -> str | DeletableTopicResult:
        if state.topic_id == ZERO_UUID:
            if state.name is None:
                return _not_deleted(state, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
            return self._by_name(context, state, state.name, named[state.name] > 1)
        if state.name is not None:
            return _not_deleted(state, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if by_id[state.topic_id] > 1:
            return _not_deleted(state, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        name = self._api.store.durable_name_of(state.topic_id)
        if name is None:
            return _not_deleted(state, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        denial = self._api.denial_of_delete(context, name, by_id=True)
        if denial and not self._api.allows(context, "Describe", name):
            self._api.grants(context, "Delete", name)
            return _not_deleted(state, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        if name in named:
            message = "The provided topic name maps to an ID that was already supplied."
            known = DeleteTopicState(name=name, topic_id=state.topic_id)
            return _not_deleted(known, ErrorCode.INVALID_REQUEST, message)
        return name

    def _id_of(self, command: DeleteTopic) -> bytes:
        topic = self._api.topic(command.topic)
        return command.topic_id or (topic.topic_id if topic is not None else ZERO_UUID)

    def _by_name(
        self, context: RequestContext, state: DeleteTopicState, name: str, twice: bool
    ) -> str | DeletableTopicResult:
        """The name to delete, or UNKNOWN_TOPIC_OR_PARTITION for a client that may describe but not delete it."""
        api = self._api
        is_seen = api.allows(context, "Describe", name)
        if not twice and is_seen and api.denial_of_delete(context, name) and api.topic(name) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return _not_deleted(state, code, "This server does not host this topic-partition.")
        return name

    def _command(
        self,
        context: RequestContext,
        origin: Origin,
        name: str,
        state: DeleteTopicState,
        twice: bool,
    ) -> DeleteTopic:
        return DeleteTopic(
            **origin,
            topic=TopicName(name),
            topic_id=None if state.topic_id == ZERO_UUID else TopicId(state.topic_id),
            api="DeleteTopics",
            api_version=context.api_version,
            duplicate=twice,
            denied=self._api.denial_of_delete(context, name, by_id=state.topic_id != ZERO_UUID),
        )


def _not_deleted(state: DeleteTopicState, code: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=int(code), error_message=message)


def _deleted(answer: Answer, command: DeleteTopic, known_id: bytes) -> DeletableTopicResult:
    """`known_id` is the id of the topic before the deletion: a target cluster has deleted it by now.

    Kafka returns the id of the deleted topic; with an error only the one in the request.
    """
    deleted_id = answer.topic.topic_id if answer.topic is not None else known_id
    topic_id = (command.topic_id or ZERO_UUID) if answer.code else deleted_id
    return DeletableTopicResult(name=answer.topic_name, topic_id=topic_id, **errors_of(answer))
