"""DeleteTopics: by name, and from version 6 by id (KIP-516)."""

from __future__ import annotations

import asyncio
from collections import Counter

from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages.message import ZERO_UUID
from controller.kafka.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from controller.machine.commands.commands import DeleteTopic
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.names import RequestId, TopicId, TopicName

TOPICS_PER_SLICE = 200  # the loop serves others in between


class DeleteTopicsHandler:
    """Answers DeleteTopics on the controller's listener."""

    def __init__(self, api: ControllerApi) -> None:
        self._api = api

    async def __call__(self, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Delete each topic for itself; what does not come to one name is answered without being put."""
        wanted = request.topics or tuple(DeleteTopicState(name=name) for name in request.topic_names)
        controller = self._api.controller
        request_id, at_ms = controller.new_request_id(), controller.now_ms()
        named = Counter(state.name for state in wanted if state.name is not None)
        by_id = Counter(state.topic_id for state in wanted if state.topic_id != ZERO_UUID)
        results: dict[object, DeletableTopicResult] = {}
        commands: dict[str, DeleteTopic] = {}
        for number, state in enumerate(wanted):
            if number % TOPICS_PER_SLICE == TOPICS_PER_SLICE - 1:
                await asyncio.sleep(0)
            name = self._resolve(context, state, named, by_id)
            if isinstance(name, DeletableTopicResult):
                results[name.name or name.topic_id] = name
            elif name not in commands:
                commands[name] = self._command(context, request_id, at_ms, name, state, named[name] > 1)
        wanted_now = [command for name, command in commands.items() if name not in results]
        ids = {command.topic: self._id_of(command) for command in wanted_now}
        reply = await self._api.submit_change(wanted_now, request.timeout_ms)
        answered = [_result(answer, commands[answer.topic_name], ids[answer.topic_name]) for answer in reply]
        throttle_time_ms = context.silence(reply.throttle_time_ms)
        return DeleteTopicsResponse(throttle_time_ms=throttle_time_ms, responses=(*results.values(), *answered))

    def _resolve(
        self, context: RequestContext, state: DeleteTopicState, named: Counter[str], by_id: Counter[bytes]
    ) -> str | DeletableTopicResult:
        if state.topic_id == ZERO_UUID:
            if state.name is None:
                return _refused(state, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
            return self._named(context, state, state.name, named[state.name] > 1)
        if state.name is not None:
            return _refused(state, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if by_id[state.topic_id] > 1:
            return _refused(state, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
        name = self._api.store.durable_name_of(state.topic_id)
        if name is None:
            return _refused(state, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        denial = self._api.denial_of_delete(context, name, by_id=True)
        if denial and not self._api.allows(context, "Describe", name):
            self._api.grants(context, "Delete", name)
            return _refused(state, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        if name in named:
            message = "The provided topic name maps to an ID that was already supplied."
            known = DeleteTopicState(name=name, topic_id=state.topic_id)
            return _refused(known, ErrorCode.INVALID_REQUEST, message)
        return name

    def _id_of(self, command: DeleteTopic) -> bytes:
        topic = self._api.topic(command.topic)
        return command.topic_id or (topic.topic_id if topic is not None else ZERO_UUID)

    def _named(
        self, context: RequestContext, state: DeleteTopicState, name: str, twice: bool
    ) -> str | DeletableTopicResult:
        """The name to delete. Whoever may see the topic but not delete it learns that it is not there, as others do."""
        api = self._api
        is_seen = api.allows(context, "Describe", name)
        if not twice and is_seen and api.denial_of_delete(context, name) and api.topic(name) is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return _refused(state, code, "This server does not host this topic-partition.")
        return name

    def _command(
        self,
        context: RequestContext,
        request_id: RequestId,
        at_ms: int,
        name: str,
        state: DeleteTopicState,
        twice: bool,
    ) -> DeleteTopic:
        return DeleteTopic(
            request_id=request_id,
            at_ms=at_ms,
            topic=TopicName(name),
            topic_id=None if state.topic_id == ZERO_UUID else TopicId(state.topic_id),
            principal=context.principal,
            client_id=context.client_id,
            host=context.host,
            api="DeleteTopics",
            api_version=context.api_version,
            duplicate=twice,
            denied=self._api.denial_of_delete(context, name, by_id=state.topic_id != ZERO_UUID),
        )


def _refused(state: DeleteTopicState, code: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=int(code), error_message=message)


def _result(answer: Answer, command: DeleteTopic, known_id: bytes) -> DeletableTopicResult:
    """`known_id` is the id of the topic as it was when it was requested: where a cluster deletes it, it is gone.

    Kafka answers the id of what it deleted; with an error only the one in the request.
    """
    deleted_id = answer.topic.topic_id if answer.topic is not None else known_id
    topic_id = (command.topic_id or ZERO_UUID) if answer.code else deleted_id
    return DeletableTopicResult(
        name=answer.topic_name,
        topic_id=topic_id,
        error_code=int(answer.code),
        error_message=answer.message or None,
    )
