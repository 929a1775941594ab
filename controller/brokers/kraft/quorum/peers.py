"""Connections to the other controllers: the consensus' requests go out, responses come back or nothing does.

A connection takes one request at a time, in order, as Kafka's own do: a fetch that the leader keeps waiting would hold
up a vote. So there is one for each peer and purpose. It is opened when it is needed, begins with ApiVersions, and is
closed after any trouble, a response that is late included; after each trouble in a row the next try waits for longer.

What a response says, a foreign cluster's id included, is the consensus' to judge. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from controller.brokers.cluster.connections import Address, BrokerConnection, ClusterUnreachable
from controller.brokers.cluster.security import BadCredentials, NotAuthenticated, Security
from controller.kafka.messages import APIS, Api, ApiKey, Message
from controller.kafka.messages.cluster import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, SupportedFeatureKey
from controller.release import RELEASE

BACKOFF_S: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
"""Kafka's reconnect.backoff.ms and reconnect.backoff.max.ms."""
RESPONSE_BYTES_MAX: Final = 64 << 20
"""A fetch is for 8 MB; a single batch may be larger."""
LINES_MAX: Final = 64
"""Connections; the one that was not used for longest goes first. Voters are few, but over years they come and go."""
_API_VERSIONS_VERSION: Final = 3
Spoke = Callable[[Address, Mapping[int, int], tuple[SupportedFeatureKey, ...]], None]
_API_OF: Final[Mapping[type[Message], Api]] = {api.request: api for api in APIS.values()}


class Peers:
    """The connections of one controller to all others.

    `spoke` is called when a peer has shown which versions it speaks: its address, the newest version that both sides
    speak, by API, and its features. `trouble` is called when a peer begins to fail, with why, and with None when it
    answers again.
    """

    def __init__(
        self,
        security: Security,
        spoke: Spoke = lambda *_: None,
        trouble: Callable[[Address, str | None], None] = lambda *_: None,
    ) -> None:
        self._security = security
        self._spoke = spoke
        self._trouble = trouble
        self._lines: dict[tuple[Address, str], _Line] = {}
        self._failing: set[Address] = set()

    async def send(self, address: Address, purpose: str, request: Message, timeout_s: float) -> Message | None:
        """A request, in the newest version that both sides speak, and its response; None if there is none in time."""
        line = self._lines.pop((address, purpose), None) or _Line(address, self._security, self._spoke)
        self._lines[address, purpose] = line  # the last in order, which is by use
        if len(self._lines) > LINES_MAX:
            self._end(next(iter(self._lines)))
        try:
            async with asyncio.timeout(timeout_s):
                response = await line.send(request)
        except TimeoutError:
            self._failed(address, f"{address[0]}:{address[1]} has not answered within {timeout_s:g} s")
            return None
        except (ClusterUnreachable, NotAuthenticated, BadCredentials) as error:
            self._failed(address, str(error))
            return None
        if address in self._failing:
            self._failing.remove(address)
            self._trouble(address, None)
        return response

    def close(self) -> None:
        """Close all connections; what is under way ends without a response."""
        for key in list(self._lines):
            self._end(key)

    def _end(self, key: tuple[Address, str]) -> None:
        self._lines.pop(key).end()
        self._failing.discard(key[0])

    def _failed(self, address: Address, why: str) -> None:
        if address not in self._failing:
            self._failing.add(address)
            self._trouble(address, why)


class _Line:
    """The connection to one peer for one purpose."""

    def __init__(self, address: Address, security: Security, spoke: Spoke) -> None:
        self._address = address
        self._security = security
        self._spoke = spoke
        self._connection: BrokerConnection | None = None
        self._versions: dict[int, int] = {}
        self._turn = asyncio.Lock()
        self._backoff_s = 0.0
        self._next_try = 0.0
        self._ended = False

    def end(self) -> None:
        """Close it for good."""
        self._ended = True
        self.close()

    async def send(self, request: Message) -> Message:
        """Raises ClusterUnreachable, NotAuthenticated and BadCredentials; whatever is raised, it is closed then."""
        async with self._turn:
            try:
                return await self._send(request)
            except BaseException:
                self.close()
                self._backoff_s = min(max(2 * self._backoff_s, BACKOFF_S), BACKOFF_S_MAX)
                self._next_try = asyncio.get_running_loop().time() + self._backoff_s
                raise

    def close(self) -> None:
        """Close it; the next request opens another."""
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
            raise ClusterUnreachable(f"{self._address[0]}:{self._address[1]} is a peer no more")
        api = _API_OF[type(request)]
        version = self._versions.get(api.key)
        if version is None:
            host, port = self._address
            raise ClusterUnreachable(f"{host}:{port} speaks no version of {api.name} that is known here")
        response = await self._connection.call(api.key, version, request, api.response)
        self._backoff_s = 0.0
        return response

    async def _open(self) -> BrokerConnection:
        connection = await BrokerConnection.open(self._address, self._security, RESPONSE_BYTES_MAX)
        try:
            request = ApiVersionsRequest(client_software_name="topicwright", client_software_version=RELEASE)
            key, version = ApiKey.API_VERSIONS, _API_VERSIONS_VERSION
            shown = await connection.call(key, version, request, ApiVersionsResponse)
            self._versions = {each.api_key: newest for each in shown.api_keys if (newest := _newest(each)) is not None}
            self._spoke(self._address, self._versions, shown.supported_features)
        except BaseException:
            connection.close()
            raise
        return connection


def _newest(shown: ApiVersion) -> int | None:
    """The newest version of an API that both sides speak."""
    api = APIS.get(shown.api_key)
    if api is None or shown.max_version < api.min_version or shown.min_version > api.max_version:
        return None
    return min(shown.max_version, api.max_version)
