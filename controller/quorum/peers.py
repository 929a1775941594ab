"""Connections to the other controllers, over which `QuorumNode` and `QuorumClient` send Raft requests.

As in Kafka, a connection handles one request at a time, in order. On a shared connection a delayed fetch would delay a
vote, so each peer has one connection for each purpose. A connection is opened when it is needed, and begins with
ApiVersions. It is closed after any failure, also after a timeout. After consecutive failures the next attempt waits
longer.

No request is sent twice. The Raft roles check the responses, for example the cluster id in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from controller.kafka.connections import (
    Address,
    BadCredentials,
    BrokerConnection,
    ClusterUnreachable,
    NotAuthenticated,
    Security,
)
from controller.kafka.messages import APIS, Api, ApiKey, Message
from controller.kafka.messages.cluster import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from controller.release import RELEASE

BACKOFF_S: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
"""Kafka's reconnect.backoff.ms and reconnect.backoff.max.ms."""
RESPONSE_BYTES_MAX: Final = 64 << 20
"""A fetch requests at most 8 MB, but a single batch may be larger."""
CONNECTIONS_MAX: Final = 64
"""The least recently used connection is closed first. Voters are few, but over years they change."""
_API_VERSIONS_VERSION: Final = 3
API_VERSIONS: Final = ApiVersionsRequest(client_software_name="topicwright", client_software_version=RELEASE)
OnVersions = Callable[[Address, Mapping[int, int], tuple[SupportedFeatureKey, ...]], None]
_API_OF: Final[Mapping[type[Message], Api]] = {api.request: api for api in APIS.values()}


class Peers:
    """The connections of one controller to all others.

    `on_versions` is called with a peer's address, the newest common version of each API, and the peer's features.
    `on_failure` gets the address of a peer that begins to fail and the reason, or None when it responds again.
    """

    def __init__(
        self,
        security: Security,
        on_versions: OnVersions = lambda *_: None,
        on_failure: Callable[[Address, str | None], None] = lambda *_: None,
    ) -> None:
        self._security = security
        self._on_versions = on_versions
        self._on_failure = on_failure
        self._connections: dict[tuple[Address, str], _Connection] = {}
        self.failing: dict[Address, str] = {}
        """The first error of each peer, since it last responded."""

    async def send(self, address: Address, purpose: str, request: Message, timeout_s: float) -> Message | None:
        """Send a request in the newest common version; returns its response, or None on a failure or timeout."""
        connection = self._connections.pop((address, purpose), None) or _Connection(
            address, self._security, self._on_versions
        )
        self._connections[address, purpose] = connection  # at the end: the dict is in the order of use
        if len(self._connections) > CONNECTIONS_MAX:
            self._end(next(iter(self._connections)))
        try:
            async with asyncio.timeout(timeout_s):
                response = await connection.send(request)
        except TimeoutError:
            self._failure(address, f"{address[0]}:{address[1]} has not answered within {timeout_s:g} s")
            return None
        except (ClusterUnreachable, NotAuthenticated, BadCredentials) as error:
            self._failure(address, str(error))
            return None
        if address in self.failing:
            del self.failing[address]
            self._on_failure(address, None)
        return response

    def close(self) -> None:
        """Close all connections; pending requests end without a response."""
        for key in list(self._connections):
            self._end(key)

    def _end(self, key: tuple[Address, str]) -> None:
        self._connections.pop(key).end()
        self.failing.pop(key[0], None)

    def _failure(self, address: Address, reason: str) -> None:
        if address not in self.failing:
            self.failing[address] = reason
            self._on_failure(address, reason)


class _Connection:
    """The connection to one peer for one purpose."""

    def __init__(self, address: Address, security: Security, on_versions: OnVersions) -> None:
        self._address = address
        self._security = security
        self._on_versions = on_versions
        self._connection: BrokerConnection | None = None
        self._versions: dict[int, int] = {}
        self._lock = asyncio.Lock()
        self._backoff_s = 0.0
        self._next_try = 0.0
        self._ended = False

    def end(self) -> None:
        """Close the connection for good; later requests fail."""
        self._ended = True
        self.close()

    async def send(self, request: Message) -> Message:
        """Raises ClusterUnreachable, NotAuthenticated and BadCredentials, and closes the connection after any error."""
        async with self._lock:
            try:
                return await self._send(request)
            except BaseException:
                self.close()
                self._backoff_s = min(max(2 * self._backoff_s, BACKOFF_S), BACKOFF_S_MAX)
                self._next_try = asyncio.get_running_loop().time() + self._backoff_s
                raise

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _send(self, request: Message) -> Message:
        if self._connection is not None and not self._connection.is_open:
            self.close()  # the peer has closed it while it was idle
        if self._connection is None:
            await asyncio.sleep(self._next_try - asyncio.get_running_loop().time())
            self._connection = await self._open()
        if self._ended:
            raise ClusterUnreachable(f"{self._address[0]}:{self._address[1]} is no longer a peer")
        api = _API_OF[type(request)]
        version = self._versions.get(api.key)
        if version is None:
            host, port = self._address
            raise ClusterUnreachable(f"{host}:{port} and this release have no common version of {api.name}")
        response = await self._connection.call(api.key, version, request, api.response)
        self._backoff_s = 0.0
        return response

    async def _open(self) -> BrokerConnection:
        connection = await BrokerConnection.open(self._address, self._security, RESPONSE_BYTES_MAX)
        try:
            key, version = ApiKey.API_VERSIONS, _API_VERSIONS_VERSION
            response = await connection.call(key, version, API_VERSIONS, ApiVersionsResponse)
            self._versions = {
                each.api_key: newest for each in response.api_keys if (newest := _newest(each)) is not None
            }
            self._on_versions(self._address, self._versions, response.supported_features)
        except BaseException:
            connection.close()
            raise
        return connection


def _newest(peer: ApiVersion) -> int | None:
    """The newest version of an API that both sides support."""
    api = APIS.get(peer.api_key)
    if api is None or peer.max_version < api.min_version or peer.min_version > api.max_version:
        return None
    return min(peer.max_version, api.max_version)
