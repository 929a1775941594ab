"""Connections to the other controllers, over which `QuorumNode` and `QuorumClient` send Raft requests.

A connection carries one request at a time, so a delayed fetch delays no vote. A connection is opened when it is needed,
and begins with ApiVersions. It is closed after any failure, also after a timeout. After consecutive failures the next
attempt to connect waits longer.

No request is sent twice. The Raft roles check the responses, for example the cluster id in them.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from controller.kafka.connections import (
    Address,
    BadCredentials,
    BrokerConnection,
    ClusterUnreachable,
    Connections,
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
PEERS_MAX: Final = 64
"""The least recently used peer is forgotten first. Voters are few, but over years they change."""
_API_VERSIONS_VERSION: Final = 3
API_VERSIONS: Final = ApiVersionsRequest(client_software_name="topicwright", client_software_version=RELEASE)
OnVersions = Callable[[Address, Mapping[int, int], tuple[SupportedFeatureKey, ...]], None]
_API_OF: Final[Mapping[type[Message], Api]] = {api.request: api for api in APIS.values()}


class Peers(Connections):
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
        super().__init__(security, RESPONSE_BYTES_MAX)
        self._on_versions, self._on_failure = on_versions, on_failure
        self._versions: dict[Address, dict[int, int]] = {}
        self._next_try: dict[Address, tuple[float, float]] = {}
        """By address of a failing peer: the time of the next attempt to connect, and the back-off before it."""
        self.failing: dict[Address, str] = {}
        """The first error of each peer, since it last responded."""

    async def send(self, address: Address, request: Message, timeout_s: float) -> Message | None:
        """Send a request in the newest common version; returns its response, or None on a failure or timeout."""
        api, (host, port) = _API_OF[type(request)], address
        self._idle[address] = self._idle.pop(address, [])  # at the end: the dict is in the order of use
        while len(self._idle) > PEERS_MAX:
            self._forget(next(iter(self._idle)))
        try:
            async with asyncio.timeout(timeout_s), self.borrowed(address) as connection:
                version = self._versions.get(address, {}).get(api.key)
                if version is None:
                    raise ClusterUnreachable(f"{host}:{port} and this release have no common version of {api.name}")
                response = await connection.call(api.key, version, request, api.response)
        except TimeoutError:
            self._failed(address, f"{host}:{port} has not answered within {timeout_s:g} s")
            return None
        except (ClusterUnreachable, NotAuthenticated, BadCredentials) as error:
            self._failed(address, str(error))
            return None
        self._next_try.pop(address, None)
        if self.failing.pop(address, None) is not None:
            self._on_failure(address, None)
        return response

    def _forget(self, address: Address) -> None:
        for connection in self._idle.pop(address):
            connection.close()
        for known in (self._versions, self._next_try, self.failing):
            known.pop(address, None)

    def _failed(self, address: Address, reason: str) -> None:
        backoff_s = min(max(2 * self._next_try.get(address, (0.0, 0.0))[1], BACKOFF_S), BACKOFF_S_MAX)
        self._next_try[address] = asyncio.get_running_loop().time() + backoff_s, backoff_s
        if address not in self.failing:
            self.failing[address] = reason
            self._on_failure(address, reason)

    async def _open(self, address: Address) -> BrokerConnection:
        await asyncio.sleep(self._next_try.get(address, (0.0, 0.0))[0] - asyncio.get_running_loop().time())
        connection = await super()._open(address)
        try:
            key, version = ApiKey.API_VERSIONS, _API_VERSIONS_VERSION
            response = await connection.call(key, version, API_VERSIONS, ApiVersionsResponse)
        except BaseException:
            connection.close()
            raise
        known = self._versions[address] = {
            each.api_key: newest for each in response.api_keys if (newest := _newest(each)) is not None
        }
        self._on_versions(address, known, response.supported_features)
        return connection


def _newest(peer: ApiVersion) -> int | None:
    """The newest version of an API that both sides support."""
    api = APIS.get(peer.api_key)
    if api is None or peer.max_version < api.min_version or peer.min_version > api.max_version:
        return None
    return min(peer.max_version, api.max_version)
