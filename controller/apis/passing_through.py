"""What is not about topics, passed to a broker of the cluster byte for byte: groups, transactions, offsets, ACLs, …

Clients that bootstrap here take this node for a broker, and request of any broker to find a coordinator, to give out a
producer id or to list groups. Such a request goes on as it came, and its answer comes back as it is; so whatever
versions and fields the two sides agree on, nothing of it has to be known here. ApiVersions lists what brokers speak.

What it does not do: it reads nothing of what it passes, and passes nothing that brokers say only to each other. It
speaks to the cluster as Topicwright, so the cluster's ACLs see Topicwright and not the client.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final, Protocol

from msgspec.structs import replace

from controller.brokers.cluster.connections import ClusterUnreachable
from controller.brokers.cluster.security import NotAuthenticated
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

BETWEEN_BROKERS: Final = frozenset(
    (4, 5, 6, 7, 27, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 80, 81, 82, *range(83, 88))
)
"""What brokers and controllers say to each other: state of replicas, Raft, registration, markers of transactions."""

BY_IDENTITY: Final = frozenset((17, 36, 38, 39, 40, 41))
"""SASL and delegation tokens: they are about who is connected, which is Topicwright here."""


RECORDS: Final = frozenset((0, 1, 78, 79))
"""Produce, Fetch, ShareFetch, ShareAcknowledge: records do not pass through this process."""
OF_RECORDS: Final = RECORDS | {10, 22}
"""Requests of clients that produce or consume: also FindCoordinator and InitProducerId."""
FIND_COORDINATOR: Final = 10
OF_GROUPS: Final = 0
"""The type of a key in FindCoordinator: the last byte of its versions 1 and 2."""
BACK_WITHIN_S: Final = 5.0
"""How long a consumer that was sent on is known: it comes back after `reconnect.backoff.ms`, 0.1 s by default."""
CLIENT_ID_CHARACTERS_MAX: Final = 250
CLIENTS_MAX: Final = 10_000  # bounds memory
SENT_ON_MAX: Final = 10_000  # as well


class RecordClients:
    """Clients that produce or consume, by host and client id: all that they request shows the brokers' own addresses.

    An admin client that learned these would send its changes past this process; a client of records that learned the
    listeners here instead, by a list of all topics, would change addresses back and forth.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], None] = {}

    def add(self, context: RequestContext) -> None:
        """Remember the client of a request, and forget the one that was seen first of too many."""
        self._seen[_client(context)] = None
        if len(self._seen) > CLIENTS_MAX:
            del self._seen[next(iter(self._seen))]

    def __contains__(self, context: object) -> bool:
        return isinstance(context, RequestContext) and _client(context) in self._seen


def _client(context: RequestContext) -> tuple[str, str]:
    return context.host, context.client_id[:CLIENT_ID_CHARACTERS_MAX]


class SentOn:
    """Without listeners of brokers: consumers of librdkafka that looked for a coordinator here, by host and
    client id. They are sent on to the cluster's brokers, of which they learn when they come back.

    To answer them would be a race. Such a consumer requests a topic from this node next, drops this node as soon as the
    coordinator shows it the cluster's brokers alone, and then waits for what it requested here until it refreshes its
    metadata, five minutes later. If the connection is closed behind the answer, it waits as long when it is late to see
    that; and when it sees it early, it knows no node any more, and begins anew.
    """

    def __init__(self) -> None:
        self._sent_s: dict[tuple[str, str], float] = {}
        """When, by the loop's clock."""

    def takes(self, context: RequestContext, frame: bytes) -> bool:
        """Whether this is such a consumer, in one of the versions by which it looks for its coordinator. One that was
        shown the brokers and looks here all the same is of an older release (2.8 is), which drops no node."""
        if context.connection.wants_brokers:
            return False
        version = context.api_version
        is_of_group = version == 0 or (version <= 2 and frame[-1] == OF_GROUPS)
        return context.api_key == FIND_COORDINATOR and is_of_group and "rdkafka" in context.software

    def send_on(self, context: RequestContext) -> Answer:
        """Close its connection without an answer: it will look again."""
        client = _client(context)
        self._sent_s.pop(client, None)
        self._sent_s[client] = asyncio.get_running_loop().time()
        if len(self._sent_s) > SENT_ON_MAX:
            del self._sent_s[next(iter(self._sent_s))]
        context.connection.ends = True
        return NO_RESPONSE

    def answering(self, metadata: ApiHandler) -> ApiHandler:
        """The row for Metadata, which shows one that comes back the brokers without this node, so that it goes there
        for all that it needs."""

        def handle(context: RequestContext, request: MetadataRequest) -> Any:
            if request.topics != () or context.api_version == 0 or not self._is_back(context):  # 0: all topics
                return metadata.handle(context, request)
            context.connection.wants_brokers = True
            answer: Any = metadata.handle(context, request)
            brokers = tuple(each for each in answer.brokers if each.node_id != answer.controller_id)
            return replace(answer, brokers=brokers, controller_id=brokers[0].node_id) if brokers else answer

        return replace(metadata, handle=handle)

    def _is_back(self, context: RequestContext) -> bool:
        sent_s = self._sent_s.pop(_client(context), -math.inf)
        return asyncio.get_running_loop().time() - sent_s < BACK_WITHIN_S


def to_broker(api: ControllerApi, broker_id: BrokerId, forward: PassOn) -> PassOn:
    """Passes everything on to one broker, wherever it is now."""

    async def pass_to(payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        broker = api.cluster.brokers.get(broker_id)
        if broker is None or not broker.endpoints:
            raise ClusterUnreachable(f"broker {broker_id} is not registered in the cluster")
        endpoint = broker.endpoints[0]
        return await forward(payload, within_s, (endpoint.host, endpoint.port))

    return pass_to


def showing_addresses(metadata: ApiHandler, clients: RecordClients, closes: bool) -> ApiHandler:
    """The row for Metadata, which tells clients of records from others.

    Java clients keep a connection that they opened at a listener here before they knew the broker's own address. So
    with `closes` it is closed behind the answer that names that address.
    """

    def handle(context: RequestContext, request: MetadataRequest) -> Any:
        context.connection.wants_brokers = context in clients
        context.connection.ends = closes and bool(request.topics) and context.software.startswith(JAVA)
        return metadata.handle(context, request)

    return replace(metadata, handle=handle)


def closing(spoken: Iterable[ApiVersion], clients: RecordClients) -> dict[int, ApiHandler]:
    """The rows of a broker's listener for records: the client is sent to the broker's own address."""

    def close(context: RequestContext, _: PassedRequest) -> Answer:
        clients.add(context)
        context.connection.ends = True
        return NO_RESPONSE

    return {
        api.api_key: ApiHandler(api.min_version, api.max_version, close, passes=True)
        for api in spoken
        if api.api_key in RECORDS
    }


def passing(
    spoken: Iterable[ApiVersion],
    own: Collection[int],
    forward: PassOn,
    may_pass: Callable[[RequestContext], bool],
    clients: RecordClients,
    sent_on: SentOn | None = None,
) -> dict[int, ApiHandler]:
    """The rows of a listener's table for what brokers speak (`spoken`) and this listener does not (`own`).

    The cluster sees Topicwright's credentials and not the client's, so `may_pass` decides first.
    """

    def handle(context: RequestContext, request: PassedRequest) -> asyncio.Task[PassedAnswer] | Answer:
        if not may_pass(context):
            raise Disconnect(f"{context.principal} may not have requests passed on: ClusterAction is needed")
        if sent_on is not None and sent_on.takes(context, request.frame):
            return sent_on.send_on(context)
        if context.api_key in OF_RECORDS:
            clients.add(context)
        return asyncio.ensure_future(passed(request))

    async def passed(request: PassedRequest) -> PassedAnswer:
        try:
            return PassedAnswer(frame=await forward(request.frame, WITHIN_S))
        except (ClusterUnreachable, NotAuthenticated) as unreachable:
            raise Disconnect(f"nobody to pass it to: {unreachable}") from unreachable

    return {
        api.api_key: ApiHandler(api.min_version, api.max_version, handle, passes=True, alone=True)
        for api in spoken
        if api.api_key not in own and api.api_key not in BETWEEN_BROKERS and api.api_key not in BY_IDENTITY
    }
