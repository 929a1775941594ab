"""Requests that are not about topics (groups, transactions, offsets, …), forwarded unread to a broker of the cluster.

Clients that bootstrap at a listener in front of a target cluster take it for a broker, and send requests to find a
coordinator, allocate a producer id or list groups. The frame is forwarded and the response returned byte for byte, so
client and broker may use any versions and fields. ApiVersions lists the brokers' versions.

With ClusterAcls, a client that has logged in has a connection of its own to a broker, and the cluster's ACLs see its
principal. All other requests reach the cluster with Topicwright's principal, after a permission check here.

Non-goals: forwarded frames are not parsed, and inter-broker APIs are not forwarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from controller.access.authorizer import Operation
from controller.controller_api import ControllerApi
from controller.kafka.connections import Address, ClusterUnreachable, NotAuthenticated
from controller.kafka.handling import (
    JAVA,
    LIBRDKAFKA,
    NO_RESPONSE,
    Answer,
    ApiHandler,
    Disconnect,
    ForwardedRequest,
    ForwardedResponse,
    RequestContext,
)
from controller.kafka.messages import ApiKey
from controller.kafka.messages.cluster import ApiVersion
from controller.kafka.messages.topics import MetadataRequest
from controller.kafka.session import ClientsConnection
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

ON_CLUSTER: Final[Mapping[int, Operation]] = {
    **dict.fromkeys((29, 35, 46, 50, 55), "Describe"),
    **dict.fromkeys((30, 31, 34, 43, 45, 51, 57, 64), "Alter"),
}
"""The operation on the cluster that an API needs, of the APIs that need no other permission: ACLs, SCRAM users, log
directories, reassignments, elections, quorum, features, unregistration."""

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

    def close(context: RequestContext, _: ForwardedRequest) -> Answer:
        context.connection.closes_after_responses = True
        return NO_RESPONSE

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

    def handle(context: RequestContext, request: ForwardedRequest) -> asyncio.Task[ForwardedResponse] | Answer:
        as_client = context.connection.session.at_cluster
        operation = ON_CLUSTER.get(context.api_key, "ClusterAction")
        if as_client is None and not grants(context, operation):
            raise Disconnect(f"{context.principal} is not authorized: forwarding needs {operation} on the cluster")
        if context.api_key == ApiKey.FIND_COORDINATOR and not at_broker and LIBRDKAFKA in context.connection.software:
            context.connection.closes_after_responses = True
            return NO_RESPONSE
        return asyncio.ensure_future(forward_frame(request, as_client))

    async def forward_frame(request: ForwardedRequest, as_client: ClientsConnection | None) -> ForwardedResponse:
        try:
            if as_client is None:
                return ForwardedResponse(frame=await forward(request.frame, WITHIN_S, None))
            return ForwardedResponse(frame=await asyncio.wait_for(as_client.exchange(request.frame), WITHIN_S))
        except (ClusterUnreachable, NotAuthenticated, TimeoutError) as unreachable:
            raise Disconnect(f"cannot forward the request: {unreachable}") from unreachable

    return {
        each.api_key: ApiHandler(each.min_version, each.max_version, handle, is_undecoded=True, is_exclusive=True)
        for each in broker_apis
        if each.api_key not in own and each.api_key not in BETWEEN_BROKERS and each.api_key not in BY_IDENTITY
    }
