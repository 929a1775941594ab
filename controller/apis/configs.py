"""The handlers of DescribeConfigs (KIP-133, KIP-226, KIP-569), AlterConfigs (KIP-133) and IncrementalAlterConfigs
(KIP-339), for topics, brokers, groups and client metrics. `tables` gives them to listeners."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from controller.access.authorizer import Operation
from controller.apis import Call, Origin, broker_configs, errors_of
from controller.apis.limits import RESPONSE_BYTES_MAX, in_turns, slices
from controller.controller_api import ControllerApi
from controller.kafka.messages import ApiKey
from controller.kafka.messages import configs as messages
from controller.machine import validation
from controller.machine.commands.commands import AlterResourceConfigs, AlterTopicConfigs
from controller.machine.configs.changes import check_resources
from controller.machine.configs.groups import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, GroupConfig
from controller.machine.configs.views import ConfigEntry, ConfigSource, ConfigSynonym, described_configs
from controller.machine.errors import ErrorCode, Rejection
from controller.machine.state import BROKER_LOGGERS, BROKERS, CLIENT_METRICS, GROUPS, TOPICS
from controller.store.store import topic_slices
from events.catalog import ConfigOp
from events.names import TopicName

RESOURCES_PER_SLICE = 20
REJECTIONS_PER_SLICE = 200  # one error message may name all brokers
_ALTERABLE = frozenset({BROKERS, CLIENT_METRICS, GROUPS})
"""The resource types, in addition to topics, whose configs can be altered."""


async def describe_configs(call: Call, request: messages.DescribeConfigsRequest) -> messages.DescribeConfigsResponse:
    """Answer DescribeConfigs. Null or empty keys mean all configs. Equal resources are in the response once."""
    once = list(dict.fromkeys(request.resources))
    too_large = f"The response would be larger than {RESPONSE_BYTES_MAX} bytes: describe fewer resources at once."
    results = await in_turns(
        call,
        once,
        RESOURCES_PER_SLICE,
        partial(_describe, call, request),
        lambda resource: _described_resource(resource, ErrorCode.INVALID_REQUEST, too_large),
    )
    return messages.DescribeConfigsResponse(results=results)


def _describe(
    call: Call, request: messages.DescribeConfigsRequest, resource: messages.DescribeConfigsResource
) -> messages.DescribeConfigsResult:
    found = _entries(call, resource.resource_type, resource.resource_name)
    if isinstance(found, Rejection):
        return _described_resource(resource, found.code, found.message)
    keys = frozenset(resource.configuration_keys or ())
    configs = tuple(
        described(entry, request.include_synonyms, request.include_documentation)
        for entry in found
        if not keys or entry.name in keys
    )
    return _described_resource(resource, configs=configs)


def _described_resource(
    resource: messages.DescribeConfigsResource,
    code: ErrorCode = ErrorCode.NONE,
    message: str = "",
    configs: tuple[messages.DescribeConfigsResourceResult, ...] = (),
) -> messages.DescribeConfigsResult:
    return messages.DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _entries(call: Call, kind: int, name: str) -> Iterable[ConfigEntry] | Rejection:
    if kind == TOPICS:
        return _entries_of_topic(call, name)
    denied = _denied_resource(call, "DescribeConfigs", kind, name)
    if denied is not None:
        return denied
    if kind == BROKERS:
        return broker_configs.entries_of_brokers(call.api, name)
    if kind == BROKER_LOGGERS:
        return broker_configs.entries_of_loggers(call.api, name)
    if kind in (GROUPS, CLIENT_METRICS):
        return _entries_of_named(call.api, kind, name)
    return Rejection(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}", "validation:configs")


def _entries_of_topic(call: Call, name: str) -> tuple[ConfigEntry, ...] | Rejection:
    if not call.grants("DescribeConfigs", name):
        return Rejection(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.", "authorizer")
    wrong, topic = validation.name(name), call.api.topic(name)
    if wrong is not None:
        return wrong
    if topic is None:
        return Rejection(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "", "validation:exists")
    settings = call.api.cluster.settings
    return described_configs(topic.configs, settings.topic_defaults, settings.dynamic_defaults)


def described(entry: ConfigEntry, synonyms: bool, documentation: bool) -> messages.DescribeConfigsResourceResult:
    """A config as DescribeConfigs answers it, optionally with its synonyms and documentation."""
    return messages.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=entry.is_default,
        config_source=int(entry.source),
        is_sensitive=entry.sensitive,
        synonyms=tuple(
            messages.DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source) for one in entry.synonyms
        )
        if synonyms
        else (),
        config_type=int(entry.config_type),
        documentation=entry.documentation if documentation else None,
    )


def _denied_resource(call: Call, operation: Operation, kind: int, name: str) -> Rejection | None:
    """The authorizer's rejection for a resource other than a topic; brokers and client metrics need the cluster."""
    if kind == GROUPS:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        is_granted = call.grants(operation, name, "Group")
        return None if is_granted else Rejection(code, "Group authorization failed.", "authorizer")
    if kind not in (BROKERS, BROKER_LOGGERS, CLIENT_METRICS) or call.grants(operation):
        return None
    return Rejection(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.", "authorizer")


class _Alteration(NamedTuple):
    """One resource of an AlterConfigs or IncrementalAlterConfigs request, with its config changes."""

    kind: int
    name: str
    ops: tuple[ConfigOp, ...]

    @property
    def answer_name(self) -> TopicName:
        """The key of its answer; topic names have no colon."""
        return TopicName(self.name if self.kind == TOPICS else f"{self.kind}:{self.name}")


async def alter_configs(call: Call, request: messages.AlterConfigsRequest) -> messages.AlterConfigsResponse:
    """Answers AlterConfigs, which replaces all configs of a resource, and IncrementalAlterConfigs, which changes some.

    Resources are topics, brokers, groups and client metrics. Each is rejected here or becomes a command; the results
    are in the order of the request. The only operation of AlterConfigs is SET (0).
    """
    alterations = [
        _Alteration(
            r.resource_type, r.resource_name, tuple(ConfigOp(c.name, c.config_operation, c.value) for c in r.configs)
        )
        for r in request.resources
    ]
    checked = check_resources([(one.kind, one.name) for one in alterations], _ALTERABLE)
    rejections: list[Rejection | None] = []
    for part in slices(list(zip(alterations, checked, strict=True)), REJECTIONS_PER_SLICE):
        if rejections:  # a short request is submitted at once, before later pipelined requests
            await asyncio.sleep(0)
        rejections += [_rejection(call, one, wrong) for one, wrong in part]
    origin, outcomes = call.origin(), list(zip(alterations, rejections, strict=True))
    commands = [_command(call, origin, one, request.validate_only) for one, rejection in outcomes if rejection is None]
    answers = {answer.topic_name: answer for answer in await call.api.submit_change(commands)}
    return messages.AlterConfigsResponse(
        responses=tuple(
            messages.AlterConfigsResourceResponse(
                resource_type=one.kind, resource_name=one.name, **errors_of(rejection or answers[one.answer_name])
            )
            for one, rejection in outcomes
        )
    )


def _rejection(call: Call, one: _Alteration, wrong: Rejection | None) -> Rejection | None:
    """The rejection of a resource, or None if it becomes a command. A denied client gets only the denial. Configs of
    simulated brokers are validated here, as Kafka brokers validate theirs."""
    is_simulated_broker = one.kind == BROKERS and not call.api.cluster.has_kraft_brokers
    if wrong is None and not is_simulated_broker:
        return None
    denied = _denied_resource(call, "AlterConfigs", one.kind, one.name)
    if denied is not None or wrong is not None:
        return denied or wrong
    incremental = call.context.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS
    return broker_configs.refused_change(call.api.cluster, one.name, one.ops, incremental)


def _command(
    call: Call, origin: Origin, one: _Alteration, validate_only: bool
) -> AlterTopicConfigs | AlterResourceConfigs:
    is_topic = one.kind == TOPICS
    if is_topic:
        denied = call.api.denial(call.context, "AlterConfigs", one.name)
    else:
        rejection = _denied_resource(call, "AlterConfigs", one.kind, one.name)
        denied = 0 if rejection is None else int(rejection.code)
    make = AlterTopicConfigs if is_topic else partial(AlterResourceConfigs, kind=one.kind, name=one.name)
    return make(
        **origin,
        topic=one.answer_name,
        ops=one.ops,
        incremental=call.context.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS,
        api=call.context.api,
        api_version=call.context.api_version,
        validate_only=validate_only,
        denied=denied,
    )


async def list_config_resources(
    call: Call, request: messages.ListConfigResourcesRequest
) -> messages.ListConfigResourcesResponse:
    """Answer ListConfigResources (KIP-1142): the names of the resources of some types, of all types without any.
    Version 0 lists client metrics."""
    if not call.grants("DescribeConfigs"):
        return messages.ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    every = (TOPICS, BROKERS, BROKER_LOGGERS, CLIENT_METRICS, GROUPS)
    kinds = frozenset(request.resource_types or every if call.context.api_version else (CLIENT_METRICS,))
    if not kinds <= set(every):
        return messages.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    named = [(kind, name) for kind, name in call.api.cluster.resource_configs if kind in kinds - {BROKERS}]
    named += [(kind, str(id_)) for kind in kinds & {BROKERS, BROKER_LOGGERS} for id_ in call.api.cluster.brokers]
    if TOPICS in kinds:
        for some in topic_slices(lambda: call.api.store):
            named += [(TOPICS, topic.name) for topic in some if call.api.knows(topic)]
            await asyncio.sleep(0)
    resources = await in_turns(
        call,
        named,
        REJECTIONS_PER_SLICE,
        lambda one: messages.ConfigResource(resource_type=one[0], resource_name=one[1]),
    )
    return messages.ListConfigResourcesResponse(config_resources=resources)


def _entries_of_named(api: ControllerApi, kind: int, name: str) -> list[ConfigEntry] | Rejection:
    """The configs of a group or of a client metrics subscription, which need not exist."""
    if not name:
        named = "Group" if kind == GROUPS else "Client metrics subscription"
        return Rejection(ErrorCode.INVALID_REQUEST, f"{named} name must not be empty", "validation:configs")
    own = dict(api.cluster.configs_of(kind, name))
    if kind == GROUPS:
        return [_entry(api, row, own.get(row.name)) for row in GROUP_CONFIGS.values() if not row.internal]
    sources = ConfigSource.DEFAULT_CONFIG, ConfigSource.CLIENT_METRICS_CONFIG
    return [
        ConfigEntry(row.name, own.get(row.name, row.default), sources[row.name in own], row.kind, "", ())
        for row in CLIENT_METRICS_CONFIGS.values()
    ]


def _entry(api: ControllerApi, row: GroupConfig, own: str | None) -> ConfigEntry:
    if not row.documentation:
        entry = broker_configs.cluster_wide_config(api, f"group.{row.name}")
        value, chain, doc = entry.value, entry.synonyms, entry.documentation
    else:
        value, doc = row.default, row.documentation
        chain = () if value is None else (ConfigSynonym(row.name, value, ConfigSource.DEFAULT_CONFIG),)
    if own is not None:
        value = row.canonical(own)
        chain = (ConfigSynonym(row.name, value, ConfigSource.GROUP_CONFIG), *chain)
    source = chain[0].source if chain else ConfigSource.DEFAULT_CONFIG
    return ConfigEntry(row.name, value, source, row.kind, doc, chain)
