"""DescribeConfigs (KIP-133, KIP-226, KIP-569), AlterConfigs (KIP-133) and IncrementalAlterConfigs (KIP-339), for
topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controller.kafka.handlers.config_entries import describable_configs
from controller.kafka.handling import RequestContext
from controller.kafka.messages import alter_configs as alter
from controller.kafka.messages import incremental_alter_configs as incremental
from controller.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from controller.machine import validation
from controller.machine.commands import AlterResourceConfigs, AlterTopicConfigs, ConfigOp
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.topic_config_changes import OpType, check_resources
from controller.runtime.authorizer import Operation
from controller.runtime.front import Front
from events.names import TopicName

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


class DescribeConfigsHandler:
    """Answers DescribeConfigs on any listener."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def __call__(self, context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        """The configs of each resource; without keys, null or none, all of them."""
        return DescribeConfigsResponse(
            results=tuple(self._describe(context, request, resource) for resource in request.resources)
        )

    def _describe(
        self, context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
    ) -> DescribeConfigsResult:
        kind, name = resource.resource_type, resource.resource_name
        if kind != TOPIC:
            return self._describe_other(context, kind, name)
        if not self._front.grants(context, "DescribeConfigs", name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return _refused(kind, name, code, "Topic authorization failed.")
        wrong = validation.name(name)
        if wrong is not None:
            return _refused(kind, name, wrong.code, wrong.message)
        topic = self._front.topic(name)
        if topic is None:
            return _refused(kind, name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        keys = frozenset(resource.configuration_keys) if resource.configuration_keys else None
        settings = self._front.cluster.settings
        return DescribeConfigsResult(
            error_message="",
            resource_type=kind,
            resource_name=name,
            configs=describable_configs(
                topic.configs, settings, keys, request.include_synonyms, request.include_documentation
            ),
        )

    def _describe_other(self, context: RequestContext, kind: int, name: str) -> DescribeConfigsResult:
        denied = _denied_beside_topics(self._front, context, "DescribeConfigs", kind, name)
        if denied is not None:
            return _refused(kind, name, denied.code, denied.message)
        if kind == BROKER:
            message = f"Broker configs are not kept by this controller; resource BROKER {name!r} has none to describe."
            return _refused(kind, name, ErrorCode.INVALID_REQUEST, message)
        return _refused(kind, name, ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _denied_beside_topics(
    front: Front, context: RequestContext, operation: Operation, kind: int, name: str
) -> Rejection | None:
    """What the authorizer says about configs of what is no topic: brokers and client metrics go with the cluster."""
    if kind == GROUP:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        is_granted = front.grants_on(context, operation, "Group", name, code)
        return None if is_granted else Rejection(code, "Group authorization failed.", "authorizer")
    if kind not in (BROKER, BROKER_LOGGER, CLIENT_METRICS) or front.grants(context, operation):
        return None
    return Rejection(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.", "authorizer")


def _refused(kind: int, name: str, code: ErrorCode, message: str) -> DescribeConfigsResult:
    return DescribeConfigsResult(error_code=int(code), error_message=message, resource_type=kind, resource_name=name)


class _Altering:
    """What the two alter APIs share: each resource is one ask, refused or put."""

    def __init__(self, front: Front, api: str, others: frozenset[int]) -> None:
        self._front = front
        self._api = api
        self._others = others

    async def alter(
        self,
        context: RequestContext,
        resources: Sequence[tuple[int, str, tuple[ConfigOp, ...]]],
        validate_only: bool,
    ) -> list[tuple[int, str, int, str | None]]:
        """Resource type, name, error code and message of each resource, in order."""
        refusals = [
            (refusal and _denied_beside_topics(self._front, context, "AlterConfigs", kind, name)) or refusal
            for (kind, name, _), refusal in zip(
                resources, check_resources([(kind, name) for kind, name, _ in resources], self._others), strict=True
            )
        ]
        controller = self._front.controller
        stamps = {
            "request_id": controller.new_request_id(),
            "at_ms": controller.now_ms(),
            "incremental": self._api == "IncrementalAlterConfigs",
            "principal": context.principal,
            "client_id": context.client_id,
            "api": self._api,
            "api_version": context.api_version,
            "validate_only": validate_only,
        }
        commands = [
            self._command(context, kind, name, ops, stamps)
            for (kind, name, ops), refusal in zip(resources, refusals, strict=True)
            if refusal is None
        ]
        answers = {answer.topic_name: answer for answer in await self._front.ask_change(commands)} if commands else {}
        return [
            (kind, name, *_outcome(refusal, answers.get(_answer_name(kind, name))))
            for (kind, name, _), refusal in zip(resources, refusals, strict=True)
        ]

    def _command(
        self, context: RequestContext, kind: int, name: str, ops: tuple[ConfigOp, ...], stamps: dict[str, Any]
    ) -> AlterTopicConfigs | AlterResourceConfigs:
        topic = _answer_name(kind, name)
        if kind == TOPIC:
            denied = self._front.denial(context, "AlterConfigs", name)
            return AlterTopicConfigs(topic=topic, ops=ops, denied=denied, **stamps)
        refused = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        denied = 0 if self._front.grants(context, "AlterConfigs") else refused
        return AlterResourceConfigs(topic=topic, kind=kind, name=name, ops=ops, denied=denied, **stamps)


def _answer_name(kind: int, name: str) -> TopicName:
    """The name under which a resource's answer is found: no topic's name has a colon."""
    return TopicName(name if kind == TOPIC else f"{kind}:{name}")


def _outcome(refusal: Rejection | None, answer: Answer | None) -> tuple[int, str | None]:
    if refusal is not None:
        return int(refusal.code), refusal.message
    assert answer is not None, "what is not refused is put"
    return int(answer.code), answer.message or None


class AlterConfigsHandler:
    """Answers AlterConfigs: the configs given replace all that a topic, or one of the kinds `others`, has."""

    def __init__(self, front: Front, others: frozenset[int] = frozenset()) -> None:
        self._altering = _Altering(front, "AlterConfigs", others)

    async def __call__(self, context: RequestContext, request: alter.AlterConfigsRequest) -> alter.AlterConfigsResponse:
        """Replace the configs of each topic for itself."""
        resources = [
            (r.resource_type, r.resource_name, tuple(ConfigOp(c.name, OpType.SET, c.value) for c in r.configs))
            for r in request.resources
        ]
        outcomes = await self._altering.alter(context, resources, request.validate_only)
        return alter.AlterConfigsResponse(
            responses=tuple(
                alter.AlterConfigsResourceResponse(
                    resource_type=kind, resource_name=name, error_code=code, error_message=message
                )
                for kind, name, code, message in outcomes
            )
        )


class IncrementalAlterConfigsHandler:
    """Answers IncrementalAlterConfigs: set, delete, append and subtract, for topics and the kinds `others`."""

    def __init__(self, front: Front, others: frozenset[int] = frozenset()) -> None:
        self._altering = _Altering(front, "IncrementalAlterConfigs", others)

    async def __call__(
        self, context: RequestContext, request: incremental.IncrementalAlterConfigsRequest
    ) -> incremental.IncrementalAlterConfigsResponse:
        """Change the configs of each topic for itself."""
        resources = [
            (r.resource_type, r.resource_name, tuple(ConfigOp(c.name, c.config_operation, c.value) for c in r.configs))
            for r in request.resources
        ]
        outcomes = await self._altering.alter(context, resources, request.validate_only)
        return incremental.IncrementalAlterConfigsResponse(
            responses=tuple(
                incremental.AlterConfigsResourceResponse(
                    resource_type=kind, resource_name=name, error_code=code, error_message=message
                )
                for kind, name, code, message in outcomes
            )
        )
