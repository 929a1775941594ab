"""Connections to other controllers, tested with Topicwright listeners and with sockets that act as broken peers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.apis.cluster import with_api_versions
from controller.kafka.codec.codec import encode_response
from controller.kafka.connections import Security, security_of
from controller.kafka.handling import Answer, ApiHandler, RequestContext
from controller.kafka.messages import APIS, ApiKey
from controller.kafka.messages.cluster import ApiVersion, ApiVersionsResponse
from controller.kafka.messages.quorum import FetchRequest, FetchResponse, VoteRequest, VoteResponse
from controller.kafka.server.server import KafkaServer
from controller.kafka.server.tls import Tls
from controller.quorum import peers as peers_of
from controller.quorum.peers import BACKOFF_S_MAX, Peers
from tests.kafka.sasl_users import rules
from tests.kafka.server.listener import serving
from tests.security.certificates import Authority
from tests.support.ports import free_ports

PATIENCE_S = 30.0
VOTE = VoteRequest(cluster_id="cluster", voter_id=3)


class Noted:
    """Records the callbacks of peers."""

    def __init__(self) -> None:
        self.spoken: list[Mapping[int, int]] = []
        self.troubles: list[str | None] = []

    def peers(self, security: Security | None = None) -> Peers:
        """Peers with callbacks to this object."""
        return Peers(
            security or Security(),
            lambda _, versions, __: self.spoken.append(versions),
            lambda _, why: self.troubles.append(why),
        )


async def _granted(context: RequestContext, request: VoteRequest) -> Answer:
    return VoteResponse(error_code=context.api_version)


async def test_peer_requests_use_the_newest_common_version() -> None:
    noted = Noted()
    rows = with_api_versions({ApiKey.VOTE: ApiHandler(0, 1, _granted)})
    server = KafkaServer("127.0.0.1", 0, rows)
    await server.start()
    peers = noted.peers()
    address = "127.0.0.1", server.port
    assert await peers.send(address, VOTE, PATIENCE_S) == VoteResponse(error_code=1)
    assert await peers.send(address, VOTE, PATIENCE_S) == VoteResponse(error_code=1)
    newest = APIS[ApiKey.API_VERSIONS].max_version
    assert noted.spoken == [{ApiKey.VOTE: 1, ApiKey.API_VERSIONS: newest}], "expected: one report per connection"
    assert await peers.send(address, FetchRequest(), PATIENCE_S) is None
    assert noted.troubles == [f"127.0.0.1:{server.port} and this release have no common version of Fetch"]
    peers.close()
    await server.stop(0.1)


async def test_a_delayed_fetch_delays_no_vote() -> None:
    noted, begun, fetch_arrived, release = Noted(), list[int](), asyncio.Event(), asyncio.Event()

    async def delayed(_: RequestContext, request: FetchRequest) -> Answer:
        begun.append(request.max_wait_ms)
        fetch_arrived.set()
        await release.wait()
        return FetchResponse(error_code=request.max_wait_ms)

    async with serving({ApiKey.VOTE: _granted, ApiKey.FETCH: delayed}) as server:
        peers, address = noted.peers(), ("127.0.0.1", server.port)
        fetches = [
            asyncio.create_task(peers.send(address, FetchRequest(max_wait_ms=number), PATIENCE_S)) for number in (1, 2)
        ]
        assert await peers.send(address, VOTE, PATIENCE_S) is not None
        await asyncio.wait_for(fetch_arrived.wait(), PATIENCE_S)
        release.set()
        assert await asyncio.gather(*fetches) == [FetchResponse(error_code=1), FetchResponse(error_code=2)]
        peers.close()


async def test_a_late_response_is_not_used_for_another_request() -> None:
    noted, waits = Noted(), [PATIENCE_S, 0.0]

    async def slow_at_first(_: RequestContext, request: VoteRequest) -> Answer:
        await asyncio.sleep(waits.pop(0))
        return VoteResponse(error_code=request.voter_id)

    async with serving({ApiKey.VOTE: slow_at_first}) as server:
        peers, address = noted.peers(), ("127.0.0.1", server.port)
        assert await peers.send(address, VoteRequest(voter_id=1), 0.5) is None
        assert noted.troubles == [f"127.0.0.1:{server.port} has not answered within 0.5 s"]
        assert await peers.send(address, VoteRequest(voter_id=2), PATIENCE_S) == VoteResponse(error_code=2)
        assert noted.troubles[1:] == [None]
        peers.close()


async def test_a_peer_that_fails_and_recovers_is_reported_once_each() -> None:
    noted, rows = Noted(), with_api_versions({ApiKey.VOTE: ApiHandler(0, 2, _granted)})
    (port,) = free_ports(1)
    peers, address = noted.peers(), ("127.0.0.1", port)
    for _ in range(3):
        assert await peers.send(address, VOTE, PATIENCE_S) is None
    assert [str(why).partition(":")[0] for why in noted.troubles] == ["127.0.0.1"]
    for round_number in (1, 2):
        server = KafkaServer("127.0.0.1", port, rows)
        await server.start()
        assert await peers.send(address, VOTE, PATIENCE_S) == VoteResponse(error_code=2)
        assert noted.troubles[-1] is None
        await server.stop(0.1)
        assert await peers.send(address, VOTE, PATIENCE_S) is None
        assert len(noted.troubles) == 1 + 2 * round_number
    peers.close()


@asynccontextmanager
async def _socket(does: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]) -> AsyncIterator[Any]:
    """A listener that calls `does` for each connection and then closes it."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await does(reader, writer)
            await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()
        await server.wait_closed()


async def test_a_peer_that_closes_is_retried_with_a_growing_back_off() -> None:
    accepted = 0

    async def close_at_once(*_: Any) -> None:
        nonlocal accepted
        accepted += 1

    async with _socket(close_at_once) as address:
        peers, loop = Noted().peers(), asyncio.get_running_loop()
        begun = loop.time()
        while loop.time() - begun < 2 * BACKOFF_S_MAX:
            assert await peers.send(address, VOTE, 2 * BACKOFF_S_MAX) is None
        peers.close()
    assert accepted <= 8, "expected back-off: 50, 100, 200, 400, 800 ms, then a second each"


def _versions(correlation_id: int = 1) -> bytes:
    row = ApiVersion(api_key=int(ApiKey.VOTE), min_version=0, max_version=2)
    return encode_response(ApiKey.API_VERSIONS, 3, correlation_id, ApiVersionsResponse(api_keys=(row,)))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([b"\x7f\xff\xff\xff"], "announces a response of 2147483647 bytes; the limit is 67108864"),
        ([b"\xff\xff\xff\xff"], "announces a response of -1 bytes"),
        ([b"HTTP/1.1 400 Bad"], "announces a response of 1213486160 bytes"),
        ([b"\0\0\0\x02ab"], "sent an invalid response"),
        ([_versions(7)], "answered request 7 instead of 1"),
        ([_versions(), b"\0\0\0\x09\0\0\0\x01\0\0"], "closed the connection"),
        ([_versions(), encode_response(ApiKey.VOTE, 2, 2, VoteResponse())], "answered request 2 instead of 1"),
    ],
    ids=["huge", "negative", "http", "short", "other id", "cut", "other vote"],
)
async def test_a_peer_that_sends_invalid_bytes_is_reported(said: list[bytes], why: str) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for each in said:
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            writer.write(each)

    noted = Noted()
    async with _socket(speak) as address:
        peers = noted.peers()
        assert await peers.send(address, VOTE, PATIENCE_S) is None
        peers.close()
    assert len(noted.troubles) == 1
    assert why in str(noted.troubles[0])


async def test_the_least_recently_used_peer_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_of, "PEERS_MAX", 1)
    noted = Noted()
    async with serving({ApiKey.VOTE: _granted}) as one, serving({ApiKey.VOTE: _granted}) as other:
        peers = noted.peers()
        for server in (one, other, one):
            assert await peers.send(("127.0.0.1", server.port), VOTE, PATIENCE_S) is not None
        assert len(noted.spoken) == 3, "its connection was closed"
        peers.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_peers_authenticate_over_tls(tmp_path: Path, mechanism: str) -> None:
    authority = Authority(tmp_path)
    tls = Tls(keystore=authority.issue("controller").keystore)
    login = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.file),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
    }
    right = security_of({**login, "sasl.password": "alice-secret"})
    wrong = security_of({**login, "sasl.password": "bob-secret"})
    async with serving({ApiKey.VOTE: _granted}, sasl=rules(), tls=tls) as server:
        address = "127.0.0.1", server.port
        for security, works in ((right, True), (wrong, False), (Security(), False)):
            noted = Noted()
            peers = noted.peers(security)
            response = await peers.send(address, VOTE, PATIENCE_S)
            assert (response == VoteResponse(error_code=2)) == works
            assert len(noted.troubles) == (0 if works else 1)
            if security is wrong:
                assert "rejects the credentials" in str(noted.troubles[0])
            peers.close()
