"""ACLs that cannot be read for long, and hostile messages of logins that the target cluster would check."""

import base64
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from controller.access.authorizer import StandardAuthorizer
from controller.access.tokens import part_of, user_of
from controller.brokers.cluster.access import STALE_S, ClusterAcls, ClusterLogins
from controller.kafka.codec.codec import encode_response
from controller.kafka.connections import CORRELATION_ID, ClusterUnreachable, Security
from controller.kafka.handling import Disconnect
from controller.kafka.messages import ApiKey
from controller.kafka.messages.access import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from controller.kafka.sasl import AuthenticationFailed
from controller.kafka.sasl_gate import SaslRules
from controller.machine.access.acls import ALLOW, LITERAL, READ, TOPIC
from controller.machine.state import Cluster
from tests.access.test_authorizer import Somebody
from tests.kafka.sasl_users import MECHANISMS, MemoryUsers
from tests.kafka.server.listener import connected, on_each_loop, request, serving, until


class _Link:
    """Answers DescribeAcls with one ACL, or an error."""

    address = "a", 1

    def __init__(self) -> None:
        self.error: int | None = 0

    async def forward(self, payload: bytes, within_s: float) -> bytes:
        if self.error is None:
            raise ClusterUnreachable("gone")
        acl = AclDescription(principal="User:bob", host="*", operation=READ, permission_type=ALLOW)
        on = DescribeAclsResource(resource_type=TOPIC, resource_name="t", pattern_type=LITERAL, acls=(acl,))
        answer = DescribeAclsResponse(error_code=self.error, error_message="denied", resources=(on,))
        return encode_response(ApiKey.DESCRIBE_ACLS, 3, CORRELATION_ID, answer)[4:]


@pytest.mark.parametrize("is_open", [False, True])
async def test_unread_acls_apply_for_a_time_and_then_everything_is_denied(is_open: bool) -> None:
    now_s, link = [1000.0], _Link()
    acls = ClusterAcls(lambda: now_s[0])
    acls.link = link  # type: ignore[assignment]
    authorizer = StandardAuthorizer(acls.current, super_users=["User:root"], allow_everyone_if_no_acl_found=is_open)

    def may(user: str, topic: str) -> bool:
        return authorizer.allows(Somebody(user), "Describe", "Topic", topic)

    assert not may("bob", "t"), "before the first answer"
    assert not may("bob", "u"), "before the first answer"
    await acls.read()
    assert [may("bob", "t"), may("eve", "t"), may("bob", "u")] == [True, False, is_open]
    kept = acls.current()
    await acls.read()
    assert acls.current() is kept, "an unchanged response leaves the authorizer's index"
    for link.error in (None, 31):
        with pytest.raises(ClusterUnreachable):
            await acls.read()
    now_s[0] += STALE_S
    assert may("bob", "t")
    now_s[0] += 1
    assert [may("bob", "t"), may("bob", "u"), may("root", "u")] == [False, False, True]
    link.error = 0
    await acls.read()
    assert may("bob", "t")


async def test_users_and_quotas_that_cannot_be_read_are_an_error() -> None:
    acls, link = ClusterAcls(lambda: 0.0), _Link()
    acls.link = link  # type: ignore[assignment]
    link.error = None
    with pytest.raises(ClusterUnreachable, match="gone"):
        await acls.applied_to(Cluster())


def _user(token: str) -> str:
    return user_of(part_of(token, 1, dict[str, Any]), "sub")


def _token(claims: object) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in ({}, claims)]
    return ".".join([*parts, "sig"])


@pytest.mark.parametrize(
    "claims", [{}, {"sub": 1}, {"sub": " "}, {"sub": "root\u2003"}, {"sub": "x" * 256}, ["sub"], "sub", None]
)
def test_a_token_without_a_user_never_reaches_the_cluster(claims: Any) -> None:
    with pytest.raises(AuthenticationFailed):
        _user(_token(claims))


@pytest.mark.parametrize("token", ["", ".", "a.b.c", "a.\u00e9.c", "[" * 9000, "a." + "W" * 9000 + ".c"])
def test_a_malformed_token_never_reaches_the_cluster(token: str) -> None:
    with pytest.raises(AuthenticationFailed):
        _user(token)


MESSAGES = [
    ("SCRAM-SHA-512", b"n,,n=bob,r=abc,tokenauth=TRUE", "delegation tokens"),
    ("SCRAM-SHA-512", b"n,a=root,n=bob,r=abc", "authorization id"),
    ("SCRAM-SHA-256", b"n,,n=bob", "malformed"),
    ("PLAIN", b"\0bob\0", "no password"),
    ("PLAIN", b"\0bob\0pw\0more", "expected 3 tokens"),
    ("OAUTHBEARER", b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer x y\x01\x01", "malformed"),
    ("OAUTHBEARER", b"n,,\x01auth=Bearer a.b\x01\x01", "a token"),
]


@pytest.mark.parametrize(("mechanism", "message", "why"), MESSAGES)
async def test_a_message_that_is_read_in_two_ways_never_reaches_the_cluster(
    mechanism: str, message: bytes, why: str
) -> None:
    logins = ClusterLogins("sub", lambda: 0.0)
    logins.link = object()  # type: ignore[assignment]  # its use would fail the test
    with pytest.raises(AuthenticationFailed, match=why):
        await logins.start(mechanism)(None, "10.0.0.1")(message)  # type: ignore[arg-type]


async def test_logins_wait_for_the_cluster() -> None:
    with pytest.raises(Disconnect, match="not reached yet"):
        await ClusterLogins("sub", lambda: 0.0).start("PLAIN")(None, "10.0.0.1")(b"\0bob\0pw")  # type: ignore[arg-type]


@on_each_loop
async def test_a_client_that_leaves_in_the_middle_of_a_login_leaves_no_connection_to_a_broker() -> None:
    users = MemoryUsers({"bob": "pw"})
    logins = ClusterLogins("sub", time.time)
    async with serving({}, sasl=SaslRules(mechanisms=MECHANISMS, users=users, now=time.time)) as broker:
        link = SimpleNamespace(address=("127.0.0.1", broker.port), security=Security(mechanism="PLAIN"))
        logins.reach(link)  # type: ignore[arg-type]
        rules = SaslRules(mechanisms={"SCRAM-SHA-512": logins.start("SCRAM-SHA-512")}, users=users, now=time.time)
        async with serving({}, sasl=rules) as here:
            async with connected(here) as client:
                client.send(request(1, SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1))
                await client.answer_to(ApiKey.SASL_HANDSHAKE, 1)
                client.send(request(2, SaslAuthenticateRequest(auth_bytes=b"n,,n=bob,r=abc"), 1))
                _, answer = await client.answer_to(ApiKey.SASL_AUTHENTICATE, 1)
                assert answer.auth_bytes.startswith(b"r=abc")
                assert broker.connections == 1
            await until(lambda: here.connections == 0)
            await until(lambda: broker.connections == 0)
