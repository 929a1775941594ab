"""Requests that are not about topics (groups, transactions, offsets, …), forwarded unread to a broker of the cluster.

Clients that bootstrap here take this node for a broker, and send any broker requests to find a coordinator, allocate a
producer id or list groups. The frame is forwarded and the response returned byte for byte, so client and broker may use
any versions and fields. ApiVersions lists the brokers' versions.

Non-goals: forwarded frames are not parsed, and inter-broker APIs are not forwarded. The cluster's ACLs see
Topicwright's principal, not the client's.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final, Protocol

from msgspec.structs import replace

from controller.brokers.cluster.security import NotAuthenticated
from controller.brokers.cluster.wire import ClusterUnreachable
from controller.controller_api import ControllerApi
from controller.kafka.handling import (
    NO_RESPONSE,
    Answer,
    ApiHandler,
    Disconnect,
    ForwardedRequest,
    ForwardedResponse,
    RequestContext,
)
from controller.kafka.messages.cluster import ApiVersion
from controller.kafka.messages.topics import MetadataRequest
from events.names import BrokerId


class PassOn(Protocol):
    """Sends a request frame to the broker at an address, or to any, and returns the frame of its response. Raises
    ClusterUnreachable after `within_s` seconds, NotAuthenticated."""

    def __call__(self, payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> Awaitable[bytes]: ...


WITHIN_S: Final = 330.0
"""Timeout of a forwarded request: JoinGroup may wait for `max.poll.interval.ms`."""

JAVA: Final = "apache-kafka-java"

BETWEEN_BROKERS: Final = frozenset(
    (4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82, *range(83, 88))
)
"""Inter-broker and controller APIs: replica state, Raft, registration, transaction markers."""

BY_IDENTITY: Final = frozenset((17, 36, 38, 39, 40, 41))
"""SASL and delegation tokens: the brokers would apply them to Topicwright's own principal."""


RECORDS: Final = frozenset((0, 1, 78, 79))
"""Produce, Fetch, ShareFetch, ShareAcknowledge: records do not pass through this process."""
OF_RECORDS: Final = RECORDS | {10, 22}
"""Requests of clients that produce or consume: also FindCoordinator and InitProducerId."""
FIND_COORDINATOR: Final = 10
OF_GROUPS: Final = 0
"""The key type of groups in FindCoordinator: the last byte in versions 1 and 2."""
REDIRECTED_WITHIN_S: Final = 5.0
"""How long a redirected consumer is remembered: it reconnects after `reconnect.backoff.ms`, 0.1 s by default."""
CLIENT_ID_CHARACTERS_MAX: Final = 250
CLIENTS_MAX: Final = 10_000  # bounds memory
REDIRECTED_MAX: Final = 10_000  # bounds memory


class RecordClients:
    """Clients that produce or consume, by host and client id: their responses have the brokers' own addresses.

    An admin client with these addresses would bypass this process. A producer or consumer that got this process's
    listeners, for example from a list of all topics, would switch addresses back and forth.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], None] = {}

    def add(self, context: RequestContext) -> None:
        """Remember the client of a request; of too many, the oldest is forgotten."""
        self._seen[_client(context)] = None
        if len(self._seen) > CLIENTS_MAX:
            del self._seen[next(iter(self._seen))]

    def __contains__(self, context: object) -> bool:
        return isinstance(context, RequestContext) and _client(context) in self._seen


def _client(context: RequestContext) -> tuple[str, str]:
    return context.host, context.client_id[:CLIENT_ID_CHARACTERS_MAX]


class RedirectedConsumers:
    """Consumers of librdkafka that sent FindCoordinator here, without per-broker listeners, by host and client id.

    Their connection is closed; when they reconnect, Metadata returns only the cluster's brokers.

    A response would cause a race. The consumer sends its next Metadata request to this node, and drops this node when
    the coordinator returns only the cluster's brokers; then it waits for the lost response until it refreshes metadata,
    five minutes later. Closing the connection after the response has the same race.
    """

    def __init__(self) -> None:
        self._redirected_at: dict[tuple[str, str], float] = {}
        """When, by the loop's clock."""

    def takes(self, context: RequestContext, frame: bytes) -> bool:
        """True for a FindCoordinator request of such a consumer. One that already knows the brokers is older (2.8), and
        does not drop nodes."""
        if context.connection.wants_brokers:
            return False
        version = context.api_version
        is_of_group = version == 0 or (version <= 2 and frame[-1] == OF_GROUPS)
        return context.api_key == FIND_COORDINATOR and is_of_group and "rdkafka" in context.software

    def redirect(self, context: RequestContext) -> Answer:
        """Close the connection without a response, so that the consumer retries."""
        client = _client(context)
        self._redirected_at.pop(client, None)
        self._redirected_at[client] = asyncio.get_running_loop().time()
        if len(self._redirected_at) > REDIRECTED_MAX:
            del self._redirected_at[next(iter(self._redirected_at))]
        context.connection.ends = True
        return NO_RESPONSE

    def wrap_metadata(self, metadata: ApiHandler) -> ApiHandler:
        """The table row for Metadata, which returns the brokers without this node to a redirected consumer."""

        def handle(context: RequestContext, request: MetadataRequest) -> Any:
            if request.topics != () or context.api_version == 0 or not self._was_redirected(context):  # 0: all topics
                return metadata.handle(context, request)
            context.connection.wants_brokers = True
            answer: Any = metadata.handle(context, request)
            brokers = tuple(each for each in answer.brokers if each.node_id != answer.controller_id)
            return replace(answer, brokers=brokers, controller_id=brokers[0].node_id) if brokers else answer

        return replace(metadata, handle=handle)

    def _was_redirected(self, context: RequestContext) -> bool:
        redirected_at = self._redirected_at.pop(_client(context), -math.inf)
        return asyncio.get_running_loop().time() - redirected_at < REDIRECTED_WITHIN_S


def to_broker(api: ControllerApi, broker_id: BrokerId, pass_on: PassOn) -> PassOn:
    """Forwards everything to one broker, at its current address."""

    async def pass_to(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        broker = api.cluster.brokers.get(broker_id)
        if broker is None or not broker.endpoints:
            raise ClusterUnreachable(f"broker {broker_id} is not registered in the cluster")
        endpoint = broker.endpoints[0]
        return await pass_on(payload, within_s, (endpoint.host, endpoint.port))

    return pass_to


def with_broker_addresses(metadata: ApiHandler, clients: RecordClients, closes: bool) -> ApiHandler:
    """The table row for Metadata, which returns the brokers' own addresses to producers and consumers.

    Java clients keep a connection that they opened at a listener here before they knew the broker's own address. With
    `closes` it is closed after the response that has that address.
    """

    def handle(context: RequestContext, request: MetadataRequest) -> Any:
        context.connection.wants_brokers = context in clients
        context.connection.ends = closes and bool(request.topics) and context.software.startswith(JAVA)
        return metadata.handle(context, request)

    return replace(metadata, handle=handle)


def closing_rows(broker_apis: Iterable[ApiVersion], clients: RecordClients) -> dict[int, ApiHandler]:
    """The table rows of a broker's listener for records: they close the connection, so that the client connects to the
    broker's own address."""

    def close(context: RequestContext, _: ForwardedRequest) -> Answer:
        clients.add(context)
        context.connection.ends = True
        return NO_RESPONSE

    return {
        api.api_key: ApiHandler(api.min_version, api.max_version, close, passes=True)
        for api in broker_apis
        if api.api_key in RECORDS
    }


def forwarding_rows(
    broker_apis: Iterable[ApiVersion],
    own: Collection[int],
    pass_on: PassOn,
    may_forward: Callable[[RequestContext], bool],
    clients: RecordClients,
    redirected: RedirectedConsumers | None = None,
) -> dict[int, ApiHandler]:
    """The table rows for APIs of brokers (`broker_apis`) that this listener lacks (`own`). `may_forward` authorizes."""

    def handle(context: RequestContext, request: ForwardedRequest) -> asyncio.Task[ForwardedResponse] | Answer:
        if not may_forward(context):
            raise Disconnect(f"{context.principal} may not have requests forwarded: ClusterAction is needed")
        if redirected is not None and redirected.takes(context, request.frame):
            return redirected.redirect(context)
        if context.api_key in OF_RECORDS:
            clients.add(context)
        return asyncio.ensure_future(forward(request))

    async def forward(request: ForwardedRequest) -> ForwardedResponse:
        try:
            return ForwardedResponse(frame=await pass_on(request.frame, WITHIN_S))
        except (ClusterUnreachable, NotAuthenticated) as unreachable:
            raise Disconnect(f"cannot forward it: {unreachable}") from unreachable

    return {
        api.api_key: ApiHandler(api.min_version, api.max_version, handle, passes=True, alone=True)
        for api in broker_apis
        if api.api_key not in own and api.api_key not in BETWEEN_BROKERS and api.api_key not in BY_IDENTITY
    }
