"""CreatePartitions (KIP-195)."""

from __future__ import annotations

from collections import Counter

from controller.kafka.handling import RequestContext
from controller.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from controller.kafka.throttling import throttle_ms
from controller.machine.commands import CreatePartitions
from controller.runtime.front import Front
from controller.runtime.mutation_quotas import Throttle
from events.names import BrokerId, TopicName


class CreatePartitionsHandler:
    """Answers CreatePartitions on the controller's listener."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def __call__(self, context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """Add partitions to each topic for itself."""
        controller = self._front.controller
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
                api="CreatePartitions",
                api_version=context.api_version,
                validate_only=request.validate_only,
                duplicate=times[topic.name] > 1,
                denied=self._front.denial(context, "Alter", topic.name),
            )
            for topic in {topic.name: topic for topic in request.topics}.values()
        ]
        throttle = Throttle()
        answers = await self._front.ask_change(commands, request.timeout_ms, throttle) if commands else []
        return CreatePartitionsResponse(
            throttle_time_ms=throttle_ms(self._front, context, throttle),
            results=tuple(
                CreatePartitionsTopicResult(
                    name=answer.topic_name, error_code=int(answer.code), error_message=answer.message or None
                )
                for answer in answers
            ),
        )


def _replica_lists(
    assignments: tuple[CreatePartitionsAssignment, ...] | None,
) -> tuple[tuple[BrokerId, ...], ...] | None:
    if assignments is None:
        return None
    return tuple(tuple(BrokerId(broker_id) for broker_id in one.broker_ids) for one in assignments)
