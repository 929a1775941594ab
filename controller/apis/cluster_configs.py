"""Configs of a cluster's brokers and groups, where that cluster carries decisions out: it stores them.

Of a request about configs, what concerns one broker goes to that broker, what concerns all of them or a group to any,
and the rest is answered here. The cluster sees Topicwright and not the client, so the client's permission counts first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any

from msgspec.structs import replace

from controller.access.authorizer import Operation
from controller.apis.bounds import slices
from controller.apis.configs import BROKER, GROUP, TOPIC
from controller.apis.passing_through import PassOn
from controller.brokers.cluster.connections import CLIENT_ID, Address, ClusterUnreachable
from controller.brokers.cluster.security import NotAuthenticated
from controller.controller_api import ControllerApi
from controller.kafka.codec.codec import decode_response, encode_request
from controller.kafka.codec.primitives import MalformedRequest
from controller.kafka.handling import Answer, ApiHandler, RequestContext
from controller.kafka.messages import ApiKey, alter_configs, describe_configs, incremental_alter_configs
from controller.kafka.messages.api_versions import ApiVersion
from controller.machine.errors import ErrorCode
from events.names import BrokerId

WITHIN_S = 15.0
"""How long a broker may take: longer than a busy one takes, shorter than clients wait."""
RESOURCES_AT_ONCE = 1000
"""In one request to a broker."""
DEFAULT = 5
"""The source of a config that nobody set."""
_OPERATIONS: dict[int, Operation] = {
    ApiKey.DESCRIBE_CONFIGS: "DescribeConfigs",
    ApiKey.ALTER_CONFIGS: "AlterConfigs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "AlterConfigs",
}


def to_brokers(
    api: ControllerApi,
    own: dict[int, ApiHandler],
    spoken: Iterable[ApiVersion],
    forward: PassOn,
    broker_id: BrokerId | None = None,
) -> dict[int, ApiHandler]:
    """The rows of a listener's table for requests about configs; `own` are the rows for what is answered here,
    `spoken` the versions of brokers."""
    versions = {api.api_key: (api.min_version, api.max_version) for api in spoken}
    return {
        key: replace(own[key], handle=_Split(api, own[key].handle, versions[key], forward, broker_id))
        for key in _OPERATIONS
        if key in own and key in versions
    }


class _Split:
    """Answers what is about brokers and groups by one of the brokers, and the rest by `own`."""

    def __init__(
        self,
        api: ControllerApi,
        own: Callable[[RequestContext, Any], Answer | Awaitable[Answer]],
        versions: tuple[int, int],
        forward: PassOn,
        broker_id: BrokerId | None,
    ) -> None:
        self._api = api
        self._own = own
        self._versions = versions
        self._pass_on = forward
        self._broker_id = broker_id

    def __call__(self, context: RequestContext, request: Any) -> Any:
        given = Counter(_key(each) for each in request.resources if each.resource_type != TOPIC)
        given.pop((BROKER, str(self._api.node_id)), None)  # that is this node
        if context.api_key != ApiKey.DESCRIBE_CONFIGS:
            given = Counter({key: times for key, times in given.items() if times == 1})  # others are refused here
        operation = _OPERATIONS[context.api_key]
        is_theirs = [_key(each) in given and self._may(context, operation, each) for each in request.resources]
        if not any(is_theirs):
            return self._own(context, request)
        return asyncio.ensure_future(self._both(context, request, is_theirs))

    def _may(self, context: RequestContext, operation: Operation, resource: Any) -> bool:
        """True if the client may do this to a resource: a group, or what goes with the cluster."""
        if resource.resource_type == GROUP:
            return self._api.authorizer.allows(context, operation, "Group", resource.resource_name)
        return self._api.allows(context, operation)

    async def _both(self, context: RequestContext, request: Any, is_theirs: list[bool]) -> Any:
        ours = tuple(each for each, goes_on in zip(request.resources, is_theirs, strict=True) if not goes_on)
        answer: Any = self._own(context, replace(request, resources=ours))
        answer = await answer if isinstance(answer, Awaitable) else answer
        key = context.api_key
        field = "results" if key == ApiKey.DESCRIBE_CONFIGS else "responses"
        results = list(getattr(answer, field))
        for address, part in self._parts(compress(request.resources, is_theirs)):
            wanted = replace(request, resources=tuple(part))
            try:
                results += await self._of_broker(address, key, context.api_version, wanted, field)
            except (ClusterUnreachable, NotAuthenticated, MalformedRequest) as why:
                code = int(ErrorCode.REQUEST_TIMED_OUT)
                results += [_failed(key, each, code, f"The broker does not answer: {why}") for each in part]
        return replace(answer, **{field: tuple(_in_order(results, request.resources))})

    async def _of_broker(
        self, address: Address | None, key: int, version: int, request: Any, field: str
    ) -> tuple[Any, ...]:
        lowest, highest = self._versions
        version = min(max(version, lowest), highest)
        frame = encode_request(key, version, 1, CLIENT_ID, request)[4:]
        payload = await self._pass_on(frame, WITHIN_S, address)
        _, answer = decode_response(key, version, payload)
        results: tuple[Any, ...] = getattr(answer, field)
        return tuple(map(_with_defaults, results)) if key == ApiKey.DESCRIBE_CONFIGS else results

    def _parts(self, resources: Iterable[Any]) -> Iterator[tuple[Address | None, Sequence[Any]]]:
        """Resources by where their broker is, so many at once; None for all brokers, and for those that are not known,
        which any broker refuses."""
        brokers = [each for each in self._api.cluster.brokers.values() if each.endpoints]
        known = {str(each.broker_id): (each.endpoints[0].host, each.endpoints[0].port) for each in brokers}
        if self._broker_id is not None:
            known = {}
        by_address: dict[Address | None, list[Any]] = {}
        for each in resources:
            by_address.setdefault(known.get(each.resource_name), []).append(each)
        for address, there in by_address.items():
            for part in slices(there, RESOURCES_AT_ONCE):
                yield address, part


def _key(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _with_defaults(result: Any) -> Any:
    """A result as version 0 shows it too, which has no sources."""
    return replace(
        result, configs=tuple(replace(each, is_default=each.config_source == DEFAULT) for each in result.configs)
    )


def _failed(key: int, resource: Any, code: int, message: str) -> Any:
    """The row of a resource whose broker cannot be reached."""
    kinds: dict[int, Any] = {
        ApiKey.DESCRIBE_CONFIGS: describe_configs.DescribeConfigsResult,
        ApiKey.ALTER_CONFIGS: alter_configs.AlterConfigsResourceResponse,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.AlterConfigsResourceResponse,
    }
    return kinds[key](
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_code=code,
        error_message=message,
    )


def _in_order(results: list[Any], resources: tuple[Any, ...]) -> Iterable[Any]:
    """The results in the order of the resources."""
    place = {_key(each): number for number, each in enumerate(resources)}
    return sorted(results, key=lambda each: place.get(_key(each), len(place)))
