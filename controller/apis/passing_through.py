"""What is not about topics, passed to a broker of the cluster byte for byte: groups, transactions, offsets, ACLs, …

Clients that bootstrap here take this node for a broker, and request of any broker to find a coordinator, to give out a
producer id or to list groups. Such a request goes on as it came, and its answer comes back as it is; so whatever
versions and fields the two sides agree on, nothing of it has to be known here. ApiVersions lists what brokers speak.

What it does not do: it reads nothing of what it passes, and passes nothing that brokers say only to each other. It
speaks to the cluster as Topicwright, so the cluster's ACLs see Topicwright and not the client.
"""

from __future__ import annotations

import asyncio
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
    PassedAnswer,
    PassedRequest,
    RequestContext,
)
from controller.kafka.messages.api_versions import ApiVersion
from controller.kafka.messages.metadata import MetadataRequest
from events.names import BrokerId


class PassOn(Protocol):
    """Sends a request frame to a broker, whichever it is or the one at an address, and gives the frame of its answer,
    within so many seconds. Raises ClusterUnreachable, NotAuthenticated."""

    def __call__(self, payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> Awaitable[bytes]: ...


WITHIN_S: Final = 330.0
"""How long a broker may keep a request waiting: a join of a group may last as long as a member may poll."""

JAVA: Final = "apache-kafka-java"
LIBRDKAFKA: Final = "rdkafka"

BETWEEN_BROKERS: Final = frozenset(
    (4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82, *range(83, 88))
)
"""What brokers and controllers say to each other: state of replicas, Raft, registration, markers of transactions."""

BY_IDENTITY: Final = frozenset((17, 36, 38, 39, 40, 41))
"""SASL and delegation tokens: they are about who is connected, which is Topicwright here."""


PRODUCE: Final = 0
FIND_COORDINATOR: Final = 10


def to_broker(api: ControllerApi, broker_id: BrokerId, pass_on: PassOn) -> PassOn:
    """Passes everything on to one broker, wherever it is now."""

    async def pass_to(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        broker = api.cluster.brokers.get(broker_id)
        if broker is None or not broker.endpoints:
            raise ClusterUnreachable(f"broker {broker_id} is not registered in the cluster")
        endpoint = broker.endpoints[0]
        return await pass_on(payload, within_s, (endpoint.host, endpoint.port))

    return pass_to


def closing_after_addresses(metadata: ApiHandler) -> ApiHandler:
    """The row for Metadata at a broker's listener.

    Java clients keep a connection that they opened there before they knew the broker's own address. It is closed behind
    the answer that names that address.
    """

    def handle(context: RequestContext, request: MetadataRequest) -> Any:
        context.connection.ends = bool(request.topics) and context.software.startswith(JAVA)
        return metadata.handle(context, request)

    return replace(metadata, handle=handle)


def closing(spoken: Iterable[ApiVersion]) -> dict[int, ApiHandler]:
    """The row of a broker's listener for Produce: the client then requests the broker's own address.

    Fetch is passed on: a consumer of a pattern that lists all topics, franz-go's or kafka-python's, learns no other
    address and would wait for ever.
    """

    def close(context: RequestContext, _: PassedRequest) -> Answer:
        context.connection.ends = True
        return NO_RESPONSE

    return {
        api.api_key: ApiHandler(api.min_version, api.max_version, close, passes=True)
        for api in spoken
        if api.api_key == PRODUCE
    }


def passing(
    spoken: Iterable[ApiVersion],
    own: Collection[int],
    pass_on: PassOn,
    may_pass: Callable[[RequestContext], bool],
    at_broker: bool = True,
) -> dict[int, ApiHandler]:
    """The rows of a listener's table for what brokers speak (`spoken`) and this listener does not (`own`).

    The cluster sees Topicwright's credentials and not the client's, so `may_pass` decides first. Not `at_broker`, at
    this process's own listener, librdkafka finds no coordinator: it requests its topics' metadata where it found one,
    drops this node because the coordinator does not list it, and waits five minutes for the answer that it dropped.
    """

    def handle(context: RequestContext, request: PassedRequest) -> asyncio.Task[PassedAnswer] | Answer:
        if not may_pass(context):
            raise Disconnect(f"{context.principal} may not have requests passed on: ClusterAction is needed")
        if context.api_key == FIND_COORDINATOR and not at_broker and LIBRDKAFKA in context.software:
            context.connection.ends = True  # it tries another broker
            return NO_RESPONSE
        return asyncio.ensure_future(passed(request))

    async def passed(request: PassedRequest) -> PassedAnswer:
        try:
            return PassedAnswer(frame=await pass_on(request.frame, WITHIN_S))
        except (ClusterUnreachable, NotAuthenticated) as unreachable:
            raise Disconnect(f"nobody to pass it to: {unreachable}") from unreachable

    return {
        api.api_key: ApiHandler(api.min_version, api.max_version, handle, passes=True, alone=True)
        for api in spoken
        if api.api_key not in own and api.api_key not in BETWEEN_BROKERS and api.api_key not in BY_IDENTITY
    }
