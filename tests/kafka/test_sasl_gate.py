"""SASL: no request before authentication, one log line per failure, reauthentication when the session ends."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.kafka.messages import ApiKey
from controller.kafka.messages.access import SaslAuthenticateRequest, SaslHandshakeRequest
from controller.kafka.messages.cluster import ApiVersionsRequest
from controller.kafka.server.server import Limits
from tests.kafka.sasl_users import MECHANISMS, MemoryUsers, ScramClient, rules
from tests.kafka.server.listener import (
    Client,
    Seen,
    connected,
    frame,
    metadata_request,
    on_each_loop,
    request,
    serving,
    until,
)

HANDSHAKE, AUTHENTICATE = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
PLAIN_ALICE = b"\0alice\0alice-secret"


async def handshake(client: Client, mechanism: str, version: int = 1) -> Any:
    client.send(request(1, SaslHandshakeRequest(mechanism=mechanism), version=version))
    return (await client.answer_to(HANDSHAKE, version))[1]


async def token(client: Client, said: bytes, version: int = 2) -> Any:
    client.send(request(2, SaslAuthenticateRequest(auth_bytes=said), version=version))
    return (await client.answer_to(AUTHENTICATE, version))[1]


async def log_in(client: Client, said: bytes = PLAIN_ALICE) -> Any:
    """Log in with PLAIN; returns the last response."""
    assert (await handshake(client, "PLAIN")).error_code == 0
    return await token(client, said)


def failures(logs: list[Any]) -> list[tuple[str, str]]:
    return [(line["reason"], line["user"]) for line in logs if line["event"] == "authentication_failed"]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@on_each_loop
async def test_scram_login_succeeds(mechanism: str) -> None:
    seen = Seen()
    async with serving({ApiKey.METADATA: seen}, sasl=rules()) as server, connected(server) as client:
        scram = ScramClient(mechanism, "alice", "alice-secret")
        answer = await handshake(client, mechanism)
        assert (answer.error_code, answer.mechanisms) == (0, tuple(MECHANISMS))
        challenge = await token(client, scram.first())
        verdict = await token(client, scram.final(challenge.auth_bytes))
        assert scram.trusts(verdict.auth_bytes)
        client.send(metadata_request(3))
        await client.receive()
        assert seen.principals == ["User:alice"]


@on_each_loop
async def test_pipelined_requests_wait_for_the_login() -> None:
    seen, sasl = Seen(), rules()
    async with serving({ApiKey.METADATA: seen}, sasl=sasl) as server, connected(server) as client:
        client.send(
            request(1, ApiVersionsRequest(client_software_name="a", client_software_version="1"), version=3),
            request(2, SaslHandshakeRequest(mechanism="PLAIN"), version=1),
            request(3, SaslAuthenticateRequest(auth_bytes=PLAIN_ALICE), version=1),
            metadata_request(4),
        )
        assert await client.correlation_ids(4) == [1, 2, 3, 4]
        assert seen.principals == ["User:alice"]
    assert isinstance(sasl.users, MemoryUsers)
    assert sasl.users.addresses == ["127.0.0.1"], "the client address reaches the password check"


BEFORE = [
    (metadata_request(1), "unexpected request Metadata before authentication; expected ApiVersions or SaslHandshake"),
    (
        request(1, SaslAuthenticateRequest(auth_bytes=PLAIN_ALICE), version=1),
        "unexpected request SaslAuthenticate before authentication; expected ApiVersions or SaslHandshake",
    ),
    (
        request(1, SaslHandshakeRequest(mechanism="PLAIN"), version=1) + metadata_request(2),
        "unexpected request Metadata before authentication; expected SaslAuthenticate",
    ),
    (frame(b"\x60\x01\x02"), "request header: the bytes end early"),
    ((600 * 1024).to_bytes(4, "big"), "frame: 614400 bytes announced, 0 to 524288 allowed"),
]


@pytest.mark.parametrize(("sent", "reason"), BEFORE, ids=[reason for _, reason in BEFORE])
@on_each_loop
async def test_unauthenticated_requests_are_rejected(sent: bytes, reason: str) -> None:
    seen = Seen()
    async with serving({ApiKey.METADATA: seen}, sasl=rules()) as server, connected(server) as client:
        with capture_logs() as logs:
            client.send(sent)
            await client.closed()
        assert [line["reason"] for line in logs if line["event"] == "connection_closed"] == [reason]
        assert seen.principals == []


WRONG = [
    (
        b"\0alice\0PLANTED",
        "wrong user name or password",
        "alice",
        "Authentication failed: Invalid username or password",
    ),
    (
        b"\0nobody\0PLANTED",
        "wrong user name or password",
        "nobody",
        "Authentication failed: Invalid username or password",
    ),
    (b"\0alice\0", "no password", "alice", "Authentication failed: password not specified"),
    (b"\0\0PLANTED", "no user name", "", "Authentication failed: username not specified"),
    (b"PLANTED", "Invalid SASL/PLAIN response: expected 3 tokens, got 1", "", ""),
    (b"a\0b\0c\0PLANTED", "Invalid SASL/PLAIN response: expected 3 tokens, got 4", "", ""),
    (b"\0\xff\xfe\0PLANTED", "a PLAIN message that is not UTF-8", "", INVALID.replace("SCRAM-SHA-256", "PLAIN")),
    (
        b"bob\0alice\0alice-secret",
        "the authorization id differs from the user name",
        "alice",
        "Authentication failed: Client requested an authorization id that is different from username",
    ),
]


@pytest.mark.parametrize(("said", "reason", "user", "message"), WRONG, ids=[str(row[0]) for row in WRONG])
@on_each_loop
async def test_failed_plain_login_is_logged_and_disconnects(said: bytes, reason: str, user: str, message: str) -> None:
    async with serving({}, sasl=rules()) as server, connected(server) as client:
        with capture_logs() as logs:
            answer = await log_in(client, said)
            assert await client.closed() == b""
        assert (answer.error_code, answer.error_message) == (58, message or reason)
        assert failures(logs) == [(reason, user)]
        assert [line["event"] for line in logs] == ["authentication_failed"], "one log line"
        assert "PLANTED" not in str(logs) + str(answer)


@pytest.mark.parametrize("user", ["alice", "nobody"])
@on_each_loop
async def test_failed_scram_login_disconnects(user: str) -> None:
    async with serving({}, sasl=rules()) as server, connected(server) as client:
        await handshake(client, "SCRAM-SHA-256")
        scram = ScramClient("SCRAM-SHA-256", user, "wrong")
        answer = await token(client, scram.first())
        if user == "alice":
            answer = await token(client, scram.final(answer.auth_bytes))
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (58, INVALID, b"")
        assert await client.closed() == b""


@on_each_loop
async def test_failed_login_response_is_delayed() -> None:
    async with serving({}, sasl=rules(failed_delay_ms=300)) as server, connected(server) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await log_in(client, b"\0alice\0wrong")).error_code == 58
        assert loop.time() - began >= 0.29, "no earlier than the delay"


@on_each_loop
async def test_an_unsupported_sasl_mechanism_disconnects() -> None:
    async with serving({}, sasl=rules()) as server, connected(server) as client:
        answer = await handshake(client, "GSSAPI")
        assert (answer.error_code, answer.mechanisms) == (33, tuple(MECHANISMS))
        assert await client.closed() == b""


@on_each_loop
async def test_sasl_handshake_v0_accepts_raw_tokens() -> None:
    seen = Seen()
    async with serving({ApiKey.METADATA: seen}, sasl=rules()) as server, connected(server) as client:
        await handshake(client, "SCRAM-SHA-512", version=0)
        scram = ScramClient("SCRAM-SHA-512", "bob", "bob-secret")
        client.send(frame(scram.first()))
        client.send(frame(scram.final(await client.receive())))
        assert scram.trusts(await client.receive())
        client.send(metadata_request(1))
        await client.receive()
        assert seen.principals == ["User:bob"]


@on_each_loop
async def test_wrong_raw_token_disconnects() -> None:
    async with serving({}, sasl=rules()) as server, connected(server) as client:
        with capture_logs() as logs:
            await handshake(client, "PLAIN", version=0)
            client.send(frame(b"\0alice\0PLANTED"))
            assert await client.closed() == b""
        assert [line["event"] for line in logs] == ["authentication_failed"]
        assert "PLANTED" not in str(logs)


@on_each_loop
async def test_authentication_timeout_ends_with_the_login() -> None:
    limits = Limits(authentication_ms_max=500)
    handlers = {ApiKey.METADATA: Seen()}
    async with serving(handlers, sasl=rules(), limits=limits) as server, connected(server) as client:
        await log_in(client)
        async with connected(server) as later:
            with capture_logs() as logs:
                await handshake(later, "PLAIN")
                assert await later.closed() == b"", "the second client did not authenticate in time"
            assert [line["reason"] for line in logs] == ["not authenticated in time"]
        client.send(metadata_request(3))
        assert await client.correlation_ids(1) == [3]


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@on_each_loop
async def test_expired_session_must_reauthenticate() -> None:
    seen, clock = Seen(), Clock()
    handlers = {ApiKey.METADATA: seen}
    async with serving(handlers, sasl=rules(session_ms_max=5000), clock=clock) as server:
        async with connected(server) as client:
            assert (await log_in(client)).session_lifetime_ms == 5000
            clock.now += 4
            client.send(metadata_request(3))
            await client.receive()
            clock.now += 2
            assert (await log_in(client)).session_lifetime_ms == 5000, "reauthenticated, same connection (KIP-368)"
            client.send(metadata_request(4))
            await client.receive()
            clock.now += 6
            with capture_logs() as logs:
                client.send(metadata_request(5))
                assert await client.closed() == b""
            assert [line["reason"] for line in logs] == ["the session has expired and was not re-authenticated"]
        assert seen.principals == ["User:alice", "User:alice"]
        async with connected(server) as client:
            await handshake(client, "PLAIN")
            answer = await token(client, PLAIN_ALICE, version=0)
            assert answer.session_lifetime_ms == 0, "version 0 has no session lifetime"


def bearer(token: str, extensions: str = "") -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01{extensions}\x01".encode()


@on_each_loop
async def test_an_invalid_token_gets_a_challenge_and_then_the_error() -> None:
    """As in Kafka: the challenge of RFC 7628, and the error after the client's second message."""
    async with serving({}, sasl=rules()) as server, connected(server) as client:
        with capture_logs() as logs:
            await handshake(client, "OAUTHBEARER")
            answer = await token(client, bearer("nobody.60"))
            assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
            assert failures(logs) == [("unknown token", "")], "recorded before the client's second message"
            answer = await token(client, bearer("alice.60"))
            assert (answer.error_code, answer.error_message) == (58, '{"status":"invalid_token"}'), "no second attempt"
            assert await client.closed() == b""
        assert len(failures(logs)) == 1


@on_each_loop
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\x01",
        b"y,,\x01auth=Bearer alice.60\x01\x01",
        b"n,,\x01auth=Basic alice.60\x01\x01",
        b"n,,\x01auth=Bearer alice.60\x01",
        b"n,,\x01team=a\x01\x01",
        b"n,,\x01auth=Bearer alice.60\x01t3am=a\x01\x01",
        b"n,,\x01auth=Bearer alice 60\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,," + b"\x01a=b" * 10_000 + b"\x01\x01",
    ],
)
async def test_a_malformed_oauthbearer_message_fails(said: bytes) -> None:
    async with serving({}, sasl=rules()) as server, connected(server) as client:
        await handshake(client, "OAUTHBEARER")
        answer = await token(client, said)
        assert (answer.error_code, answer.error_message) == (58, INVALID.replace("SCRAM-SHA-256", "OAUTHBEARER"))
        assert await client.closed() == b""


@pytest.mark.parametrize(
    ("lifetime_s", "reauth_ms", "session_ms"),
    [(60, 0, 60_000), (60, 5000, 5000), (3, 5000, 3000), (-5, 0, 2000), (0.5, 0, 2000)],
)
async def test_a_session_ends_with_its_token(lifetime_s: int, reauth_ms: int, session_ms: int) -> None:
    seen, clock = Seen(), Clock()
    async with serving({ApiKey.METADATA: seen}, sasl=rules(session_ms_max=reauth_ms), clock=clock) as server:
        async with connected(server) as client:
            for _ in range(2):  # a login, and another one on the same connection (KIP-368)
                await handshake(client, "OAUTHBEARER")
                answer = await token(client, bearer(f"alice.{lifetime_s}", "traceId=1\x01"))
                assert (answer.error_code, answer.session_lifetime_ms) == (0, session_ms)
                clock.now += 2
            clock.now += session_ms / 1000
            client.send(metadata_request(3))
            assert await client.closed() == b""
        assert seen.principals == []


@on_each_loop
async def test_reauthentication_requires_the_same_principal() -> None:
    async with serving({}, sasl=rules()) as server, connected(server) as client:
        await log_in(client)
        answer = await log_in(client, b"\0bob\0bob-secret")
        message = "Cannot change principals during re-authentication from User.alice: User.bob"
        assert (answer.error_code, answer.error_message) == (58, message)
        assert await client.closed() == b""


@on_each_loop
async def test_reauthentication_requires_the_same_mechanism() -> None:
    async with serving({}, sasl=rules()) as server, connected(server) as client:
        await log_in(client)
        assert (await handshake(client, "SCRAM-SHA-256")).error_code == 0, "Kafka too rejects only the token"
        answer = await token(client, ScramClient("SCRAM-SHA-256", "alice", "alice-secret").first())
        assert answer.error_code == 58
        assert "is not supported for re-authentication of mechanism 'PLAIN'" in answer.error_message


@on_each_loop
async def test_reauthentication_is_rate_limited() -> None:
    clock = Clock()
    async with serving({}, sasl=rules(), clock=clock) as server, connected(server) as client:
        await log_in(client)
        await log_in(client)
        assert (await handshake(client, "PLAIN")).error_code == 34
        assert (await token(client, PLAIN_ALICE)).error_code == 34
        clock.now += 1.1
        assert (await log_in(client)).error_code == 0


@on_each_loop
async def test_buffers_of_unauthenticated_clients_are_shed_first() -> None:
    limits = Limits(held_bytes_max=1_000_000)
    async with AsyncExitStack() as stack:
        service = serving({ApiKey.METADATA: Seen()}, sasl=rules(), limits=limits)
        server = await stack.enter_async_context(service)
        known = await stack.enter_async_context(connected(server))
        assert (await log_in(known)).error_code == 0
        known.send((700_000).to_bytes(4, "big") + bytes(600_000))
        await until(lambda: server._held == 600_004)
        for _ in range(20):
            stranger = await stack.enter_async_context(connected(server))
            stranger.send((500_000).to_bytes(4, "big") + bytes(100_000))
        await until(lambda: server.connections == 4)
        assert server._held == 600_004 + 3 * 100_004
        known.send(bytes(100_000))  # completes the frame, which is no valid request: the connection was not shed
        assert await known.closed() == b""
