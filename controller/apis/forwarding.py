"""Requests at a listener in front of a target cluster that brokers of the cluster answer, for `tables`.

Requests that are not about topics (groups, transactions, offsets, …) are forwarded unread. Clients that bootstrap here
take the listener for a broker, and send requests to find a coordinator, allocate a producer id or list groups. The
frame is forwarded and the response returned byte for byte, so client and broker may use any versions and fields.
ApiVersions lists the brokers' versions.

DescribeConfigs, AlterConfigs and IncrementalAlterConfigs are split, because the cluster stores the configs of brokers
and groups: resources of one broker are forwarded to that broker, of all brokers or a group to any broker; the other
resources, such as topics, are answered here.

With ClusterAcls, a client that has logged in has a connection of its own to a broker, and the cluster's ACLs see its
principal. All other requests reach the cluster with Topicwright's principal, after a permission check here.

Non-goals: other forwarded frames are not parsed, and inter-broker APIs are not forwarded.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from controller.access.authorizer import Operation
from controller.apis import ON_CLUSTER
from controller.apis.limits import RESULTS, failed_results, slices
from controller.controller_api import ControllerApi
from controller.kafka.codec.codec import decode_response, encode_request, encode_response
from controller.kafka.codec.primitives import MalformedRequest
from controller.kafka.connections import CLIENT_ID, Address, ClusterUnreachable, NotAuthenticated
from controller.kafka.handling import (
    JAVA,
    LIBRDKAFKA,
    Answer,
    ApiHandler,
    ClientsConnection,
    Disconnect,
    RawFrame,
    RequestContext,
)
from controller.kafka.messages import ApiKey
from controller.kafka.messages.cluster import ApiVersion
from controller.kafka.messages.topics import MetadataRequest
from controller.machine.decision import Detail
from controller.machine.errors import ErrorCode
from controller.machine.state import BROKERS, GROUPS, TOPICS
from events.names import BrokerId

PassOn = Callable[[bytes, float, Address | None], Awaitable[bytes]]
"""Sends a request frame, within a timeout in seconds, to the broker at an address (None for any broker). Returns the
frame of the response. Raises ClusterUnreachable, also for a timeout, and NotAuthenticated."""
WITHIN_S: Final = 330.0
"""Timeout of a forwarded request: JoinGroup may wait for `max.poll.interval.ms`."""

BETWEEN_BROKERS: Final = frozenset(
    (4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82, *range(83, 88))
)
"""Inter-broker and controller APIs: replica state, Raft, registration, transaction markers."""

BY_IDENTITY: Final = frozenset((17, 36, 38, 39, 40, 41))
"""SASL and delegation tokens: the brokers would apply them to Topicwright's own principal."""


def to_broker(api: ControllerApi, broker_id: BrokerId, forward: PassOn) -> PassOn:
    """Returns a function that forwards every request to one broker, at its current address."""

    async def pass_to(payload: bytes, within_s: float, _: Address | None) -> bytes:
        return await forward(payload, within_s, broker_address(api, broker_id))

    return pass_to


def broker_address(api: ControllerApi, broker_id: BrokerId) -> Address:
    """The current address of a broker of the cluster. Raises ClusterUnreachable if it is not registered."""
    broker = api.cluster.brokers.get(broker_id)
    if broker is None or not broker.endpoints:
        raise ClusterUnreachable(f"broker {broker_id} is not registered in the cluster")
    return broker.endpoints[0].host, broker.endpoints[0].port


def metadata_then_close(metadata: ApiHandler) -> ApiHandler:
    """Returns the handler of Metadata at a listener for one broker of the target cluster.

    Java clients keep using a connection to this listener after they learn the broker's own address. So the connection
    is closed after the response that has that address.
    """

    def handle(context: RequestContext, request: MetadataRequest) -> Any:
        context.connection.closes_after_responses = bool(request.topics) and context.connection.software.startswith(
            JAVA
        )
        return metadata.handle(context, request)

    return replace(metadata, handle=handle)


def produce_closes(produce: ApiHandler) -> ApiHandler:
    """Returns the handler of Produce at a broker's listener, which closes the connection, so that the client connects
    to the broker's own address.

    Fetch is forwarded instead. Consumers that subscribe to a pattern and list all topics (franz-go, kafka-python) get
    only this listener's address, so with a closed connection they would wait forever.
    """

    def close(context: RequestContext, _: RawFrame) -> Answer:
        context.connection.closes_after_responses = True
        return None

    return replace(produce, handle=close, is_undecoded=True)


def forwarding_rows(
    broker_apis: Iterable[ApiVersion],
    own: Collection[int],
    forward: PassOn,
    grants: Callable[[RequestContext, Operation], bool],
    at_broker: bool = True,
) -> dict[int, ApiHandler]:
    """Returns the handlers of all `broker_apis` except `own`, the APIs that the listener answers. A client whose login
    the cluster has verified sends them under its own name; for others, `grants` checks the permission.

    Without `at_broker` (at this process's own listener), FindCoordinator of librdkafka closes the connection, and the
    client tries the next node. With an answer, the client would send its next Metadata request to this node, drop this
    node because the response does not list it, and wait five minutes for the lost response.
    """

    def handle(context: RequestContext, request: RawFrame) -> asyncio.Task[RawFrame] | Answer:
        as_client = context.connection.session.at_cluster
        operation = ON_CLUSTER.get(context.api_key, "ClusterAction")
        if as_client is None and not grants(context, operation):
            raise Disconnect(f"{context.principal} is not authorized: forwarding needs {operation} on the cluster")
        if context.api_key == ApiKey.FIND_COORDINATOR and not at_broker and LIBRDKAFKA in context.connection.software:
            context.connection.closes_after_responses = True
            return None
        return asyncio.ensure_future(forward_frame(request, as_client))

    async def forward_frame(request: RawFrame, as_client: ClientsConnection | None) -> RawFrame:
        try:
            if as_client is None:
                return RawFrame(frame=await forward(request.frame, WITHIN_S, None))
            return RawFrame(frame=await asyncio.wait_for(as_client.exchange(request.frame), WITHIN_S))
        except (ClusterUnreachable, NotAuthenticated, TimeoutError) as unreachable:
            raise Disconnect(f"cannot forward the request: {unreachable}") from unreachable

    return {
        each.api_key: ApiHandler(each.min_version, each.max_version, handle, is_undecoded=True, is_exclusive=True)
        for each in broker_apis
        if each.api_key not in own and each.api_key not in BETWEEN_BROKERS and each.api_key not in BY_IDENTITY
    }


def without_group(listing: ApiHandler, group_id: str) -> ApiHandler:
    """Returns the handler of ListGroups that hides a group. Consoles describe the topics of all groups, and would fail
    for the workers' group, because the topics of the log are hidden."""

    async def listed(context: RequestContext, request: RawFrame) -> RawFrame:
        answer: Any = await listing.handle(context, request)  # type: ignore[misc]
        correlation_id, found = decode_response(context.api_key, context.api_version, answer.frame)
        shown = replace(found, groups=tuple(each for each in found.groups if each.group_id != group_id))  # type: ignore
        frame = encode_response(context.api_key, context.api_version, correlation_id, shown)
        return RawFrame(frame=frame[4:])

    return replace(listing, max_version=min(listing.max_version, ApiKey.LIST_GROUPS.max_version), handle=listed)


# --- configs

CONFIGS_WITHIN_S: Final = 15.0
"""Timeout of a broker for configs: longer than a busy one takes, shorter than clients wait."""
RESOURCES_PER_REQUEST = 1000
"""Resources in one request to a broker."""
DEFAULT = 5
"""The config source of a default."""


_OPERATIONS: Final[Mapping[int, Operation]] = {
    ApiKey.DESCRIBE_CONFIGS: "DescribeConfigs",
    ApiKey.ALTER_CONFIGS: "AlterConfigs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "AlterConfigs",
}
"""The operation that an API needs on the cluster or a group."""


def to_brokers(
    api: ControllerApi, own: dict[int, ApiHandler], broker_apis: Iterable[ApiVersion], forward: PassOn
) -> dict[int, ApiHandler]:
    """Returns the handlers of the config APIs, by API key. `own` are the handlers of resources answered here,
    `broker_apis` the APIs that the brokers support."""
    versions = {api.api_key: (api.min_version, api.max_version) for api in broker_apis}
    return {
        key: replace(own[key], handle=_SplitRequest(api, own[key].handle, versions[key], forward))
        for key in _OPERATIONS
        if key in own and key in versions
    }


class _SplitRequest(NamedTuple):
    """Forwards resources of brokers and groups to a broker; `own` answers the others."""

    api: ControllerApi
    own: Callable[[RequestContext, Any], Answer | Awaitable[Answer]]
    versions: tuple[int, int]
    forward: PassOn

    def __call__(self, context: RequestContext, request: Any) -> Any:
        given = Counter(_key(each) for each in request.resources if each.resource_type != TOPICS)
        given.pop((BROKERS, str(self.api.node_id)), None)  # this node
        if context.api_key != ApiKey.DESCRIBE_CONFIGS:
            given = Counter({key: times for key, times in given.items() if times == 1})  # duplicates are rejected here
        operation = _OPERATIONS[context.api_key]
        is_forwarded = [_key(each) in given and self._may(context, operation, each) for each in request.resources]
        if not any(is_forwarded):
            return self.own(context, request)
        return asyncio.ensure_future(self._both(context, request, is_forwarded))

    def _may(self, context: RequestContext, operation: Operation, resource: Any) -> bool:
        """True if the client has this operation on the group, or else on the cluster."""
        if resource.resource_type == GROUPS:
            return self.api.allows(context, operation, resource.resource_name, "Group")
        return self.api.allows(context, operation)

    async def _both(self, context: RequestContext, request: Any, is_forwarded: list[bool]) -> Any:
        ours = tuple(each for each, forwarded in zip(request.resources, is_forwarded, strict=True) if not forwarded)
        answer: Any = self.own(context, replace(request, resources=ours))
        answer = await answer if isinstance(answer, Awaitable) else answer
        key, version = context.api_key, context.api_version
        field, _ = RESULTS[key]
        results: list[Any] = list(getattr(answer, field))
        for address, part in self._parts(compress(request.resources, is_forwarded)):
            requested = replace(request, resources=tuple(part))
            try:
                results += await self._of_broker(address, key, version, requested)
            except (ClusterUnreachable, NotAuthenticated, MalformedRequest) as why:
                error = Detail(ErrorCode.REQUEST_TIMED_OUT, f"The broker did not respond: {why}")
                results += failed_results(key, part, error)
        position = {_key(each): number for number, each in enumerate(request.resources)}
        results.sort(key=lambda each: position.get(_key(each), len(position)))
        return replace(answer, **{field: tuple(results)})

    async def _of_broker(self, address: Address | None, key: int, version: int, request: Any) -> tuple[Any, ...]:
        lowest, highest = self.versions
        version = min(max(version, lowest), highest)
        frame = encode_request(key, version, 1, CLIENT_ID, request)[4:]
        payload = await self.forward(frame, CONFIGS_WITHIN_S, address)
        _, answer = decode_response(key, version, payload)
        results: tuple[Any, ...] = getattr(answer, RESULTS[key][0])
        return tuple(map(_with_defaults, results)) if key == ApiKey.DESCRIBE_CONFIGS else results

    def _parts(self, resources: Iterable[Any]) -> Iterator[tuple[Address | None, Sequence[Any]]]:
        """Resources by the address of their broker. The address is None (any broker) for groups, for configs of all
        brokers, and for unknown brokers, which any broker rejects. A broker's own listener sends all to that broker."""
        brokers = self.api.cluster.brokers.values()
        known = {str(one.broker_id): (at.host, at.port) for one in brokers for at in one.endpoints[:1]}
        by_address: dict[Address | None, list[Any]] = {}
        for each in resources:
            by_address.setdefault(known.get(each.resource_name), []).append(each)
        for address, some in by_address.items():
            for part in slices(some, RESOURCES_PER_REQUEST):
                yield address, part


def _key(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _with_defaults(result: Any) -> Any:
    """Set `is_default`, which version 0 of DescribeConfigs has in place of config sources."""
    return replace(
        result, configs=tuple(replace(each, is_default=each.config_source == DEFAULT) for each in result.configs)
    )
