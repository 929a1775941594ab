"""Requests that are not about topics (groups, transactions, offsets, …), forwarded unread to a broker of the cluster.

Clients that bootstrap at a listener in front of a target cluster take it for a broker, and send requests to find a
coordinator, allocate a producer id or list groups. The frame is forwarded and the response returned byte for byte, so
client and broker may use any versions and fields. ApiVersions lists the brokers' versions.

Non-goals: forwarded frames are not parsed, and inter-broker APIs are not forwarded. The cluster's ACLs see
Topicwright's principal, not the client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final

from msgspec.structs import replace

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
        broker = api.cluster.brokers.get(broker_id)
        if broker is None or not broker.endpoints:
            raise ClusterUnreachable(f"broker {broker_id} is not registered in the cluster")
        endpoint = broker.endpoints[0]
        return await forward(payload, within_s, (endpoint.host, endpoint.port))

    return pass_to


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
    may_forward: Callable[[RequestContext], bool],
    at_broker: bool = True,
) -> dict[int, ApiHandler]:
    """Returns the handlers of all `broker_apis` except `own`, the APIs that the listener answers. `may_forward` is the
    permission check.

    Without `at_broker` (at this process's own listener), FindCoordinator of librdkafka closes the connection, and the
    client tries the next node. With an answer, the client would send its next Metadata request to this node, drop this
    node because the response does not list it, and wait five minutes for the lost response.
    """

    def handle(context: RequestContext, request: ForwardedRequest) -> asyncio.Task[ForwardedResponse] | Answer:
        if not may_forward(context):
            raise Disconnect(f"{context.principal} is not authorized: forwarding needs ClusterAction on the cluster")
        if context.api_key == ApiKey.FIND_COORDINATOR and not at_broker and LIBRDKAFKA in context.connection.software:
            context.connection.closes_after_responses = True
            return NO_RESPONSE
        return asyncio.ensure_future(forward_frame(request))

    async def forward_frame(request: ForwardedRequest) -> ForwardedResponse:
        try:
            return ForwardedResponse(frame=await forward(request.frame, WITHIN_S, None))
        except (ClusterUnreachable, NotAuthenticated) as unreachable:
            raise Disconnect(f"cannot forward the request: {unreachable}") from unreachable

    return {
        api.api_key: ApiHandler(api.min_version, api.max_version, handle, is_undecoded=True, is_exclusive=True)
        for api in broker_apis
        if api.api_key not in own and api.api_key not in BETWEEN_BROKERS and api.api_key not in BY_IDENTITY
    }
