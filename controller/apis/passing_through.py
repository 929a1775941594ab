"""What is not about topics, passed to a broker of the cluster byte for byte: groups, transactions, offsets, ACLs, …

Clients that bootstrap here take this node for a broker, and ask any broker to find a coordinator, to give out a
producer id or to list groups. Such a request goes on as it came, and its answer comes back as it is; so whatever
versions and fields the two sides agree on, nothing of it has to be known here. ApiVersions lists what brokers speak.

What it does not do: it reads nothing of what it passes, and passes nothing that brokers say only to each other. It
speaks to the cluster as Topicwright, so the cluster's ACLs see Topicwright and not the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from controller.brokers.cluster.security import NotAuthenticated
from controller.brokers.cluster.wire import ClusterUnreachable
from controller.kafka.handling import ApiHandler, Disconnect, PassedAnswer, PassedRequest, RequestContext
from controller.kafka.messages.api_versions import ApiVersion

PassOn = Callable[[bytes, float], Awaitable[bytes]]
"""Sends a request frame to a broker and gives the frame of its answer, within so many seconds."""

WITHIN_S: Final = 330.0
"""How long a broker may keep a request waiting: a join of a group may last as long as a member may poll."""

BETWEEN_BROKERS: Final = frozenset(
    (4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82, *range(83, 88))
)
"""What brokers and controllers say to each other: state of replicas, Raft, registration, markers of transactions."""

BY_IDENTITY: Final = frozenset((17, 36, 38, 39, 40, 41))
"""SASL and delegation tokens: they are about who is connected, which is Topicwright here."""


FIND_COORDINATOR: Final = 10
OF_GROUPS: Final = 0
"""The type of a key in FindCoordinator: the last byte of its versions 1 and 2."""

OF_BROKERS: Final = frozenset((10, 22))
"""FindCoordinator and InitProducerId: their client goes on to the broker that is named."""


def _looks_for_group(context: RequestContext, frame: bytes) -> bool:
    """Whether a consumer of librdkafka looks for its group's coordinator, in the versions in which it does.

    It waits for minutes for an answer that is under way from a node which it drops meanwhile, and it drops this node as
    soon as the coordinator shows it the cluster's brokers alone. So its connection ends with the coordinator's name:
    what it has to know of topics then, it asks a broker.
    """
    version = context.api_version
    return context.api_key == FIND_COORDINATOR and (version == 0 or (version <= 2 and frame[-1] == OF_GROUPS))


def passing(
    spoken: Iterable[ApiVersion], own: Collection[int], pass_on: PassOn, may_pass: Callable[[RequestContext], bool]
) -> dict[int, ApiHandler]:
    """The rows of a listener's table for what brokers speak (`spoken`) and this listener does not (`own`).

    The cluster sees Topicwright's credentials and not the client's, so `may_pass` decides first.
    """

    def handle(context: RequestContext, request: PassedRequest) -> asyncio.Task[PassedAnswer]:
        if not may_pass(context):
            raise Disconnect(f"{context.principal} may not have requests passed on: ClusterAction is needed")
        if context.api_key in OF_BROKERS:
            context.connection.wants_brokers = True
        if "rdkafka" in context.software and _looks_for_group(context, request.frame):
            context.connection.ends = True
        return asyncio.ensure_future(passed(request))

    async def passed(request: PassedRequest) -> PassedAnswer:
        try:
            return PassedAnswer(frame=await pass_on(request.frame, WITHIN_S))
        except (ClusterUnreachable, NotAuthenticated) as unreachable:
            raise Disconnect(f"nobody to pass it to: {unreachable}") from unreachable

    return {
        api.api_key: ApiHandler(api.min_version, api.max_version, handle, passes=True)
        for api in spoken
        if api.api_key not in own and api.api_key not in BETWEEN_BROKERS and api.api_key not in BY_IDENTITY
    }
