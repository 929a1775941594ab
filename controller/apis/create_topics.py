"""CreateTopics (KIP-4, KIP-108): a request becomes a command for each topic, its answers become the response."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from controller.apis.config_entries import creatable_configs
from controller.controller_api import ControllerApi, new_topic_ids
from controller.kafka.handling import Disconnect, RequestContext
from controller.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from controller.machine.commands.commands import CreateTopic
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.catalog import Assignment
from events.names import BrokerId, RequestId, TopicName

VERSION_WITHOUT_MESSAGES = 0
"""Version 0 cannot say what was wrong with a request as a whole: it is logged and the client disconnected (KIP-4)."""


class CreateTopicsHandler:
    """Answers CreateTopics on the controller's listener."""

    def __init__(self, api: ControllerApi, timeout_ms_max: int | None = None) -> None:
        """No client is kept waiting for longer than `timeout_ms_max`, if that is given, whatever its request says."""
        self._api = api
        self._timeout_ms_max = timeout_ms_max

    async def __call__(self, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Put the topics, wait until each is answered. Raises Disconnect where version 0 cannot carry the error."""
        if not request.topics:
            return CreateTopicsResponse()
        if self._timeout_ms_max is not None and request.timeout_ms > self._timeout_ms_max:
            request = replace(request, timeout_ms=self._timeout_ms_max)
        commands = self._commands(context, request)
        if context.api_version == VERSION_WITHOUT_MESSAGES:
            await self._disconnect_if_invalid(commands)
        reply = await self._api.submit(commands, 0 if request.validate_only else request.timeout_ms)
        throttle_time_ms = context.silence(reply.throttle_time_ms)
        return self._response(context, reply.answers, throttle_time_ms)

    def _commands(self, context: RequestContext, request: CreateTopicsRequest) -> list[CreateTopic]:
        controller = self._api.controller
        request_id, at_ms = controller.new_request_id(), controller.now_ms()
        topics = {topic.name: topic for topic in request.topics}
        repeated: set[str] = set()
        if len(topics) < len(request.topics):
            repeated = {name for name, times in Counter(t.name for t in request.topics).items() if times > 1}
        ids = new_topic_ids(len(topics))
        return [
            self._command(context, request, topic, request_id, at_ms, topic_id, topic.name in repeated)
            for topic, topic_id in zip(topics.values(), ids, strict=True)
        ]

    def _command(
        self,
        context: RequestContext,
        request: CreateTopicsRequest,
        topic: CreatableTopic,
        request_id: RequestId,
        at_ms: int,
        topic_id: bytes,
        duplicate: bool,
    ) -> CreateTopic:
        return CreateTopic(
            request_id=request_id,
            at_ms=at_ms,
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
            principal=context.principal,
            client_id=context.client_id,
            host=context.host,
            api_version=context.api_version,
            duplicate=duplicate,
            denied=self._api.denial_of_create(context, topic.name),
        )

    async def _disconnect_if_invalid(self, commands: Sequence[CreateTopic]) -> None:
        """Record the rejections, then disconnect: no topic of such a request is created."""
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
                else CreatableTopicResult(
                    name=answer.topic_name, error_code=int(answer.code), error_message=answer.message or None
                )
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
