"""CreatePartitions (KIP-195)."""

from __future__ import annotations

from collections import Counter

from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from controller.machine.commands.commands import CreatePartitions
from events.names import BrokerId, TopicName


async def create_partitions(
    api: ControllerApi, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to each topic for itself."""
    controller = api.controller
    request_id, at_ms = controller.new_request_id(), controller.now_ms()
    times = Counter(topic.name for topic in request.topics)
    commands = [
        CreatePartitions(
            request_id=request_id,
            at_ms=at_ms,
            topic=TopicName(topic.name),
            count=topic.count,
            assignments=_replica_lists(topic.assignments),
            principal=context.principal,
            client_id=context.client_id,
            host=context.host,
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
        throttle_time_ms=context.silence(reply.throttle_time_ms),
        results=tuple(
            CreatePartitionsTopicResult(
                name=answer.topic_name, error_code=int(answer.code), error_message=answer.message or None
            )
            for answer in reply
        ),
    )


def _replica_lists(
    assignments: tuple[CreatePartitionsAssignment, ...] | None,
) -> tuple[tuple[BrokerId, ...], ...] | None:
    if assignments is None:
        return None
    return tuple(tuple(BrokerId(broker_id) for broker_id in one.broker_ids) for one in assignments)
