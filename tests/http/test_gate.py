"""Access over HTTP: allowed host names, the client's address behind a proxy, required logins, principals, and the cost
of a failed login."""

import base64
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.access.users import Users, set_password
from controller.http.gate import Hosts, Logins, host_check
from controller.kafka.handling import normal_host
from tests.http.service import Rules, Service, service

HOSTS = """
127.0.0.1          | yes
127.0.0.1:8080     | yes
[::1]:8080         | yes
[::1]              | yes
10.1.2.3:80        | yes
localhost:8080     | yes
LOCALHOST          | yes
kafka.example      | yes
Kafka.Example:8080 | yes
kafka.example.     | yes
evil.example       | no
evil.example:8080  | no
kafka.example.evil | no
localhost.evil     | no
127.0.0.1.evil     | no
127.0.0.1:x        | no
1.1.1.1%evil.example | no
[::1].evil:80      | no
"""


@pytest.mark.parametrize("line", HOSTS.strip().splitlines())
def test_allowed_host_headers(line: str) -> None:
    host, expected = (cell.strip() for cell in line.split("|"))
    assert Hosts(frozenset({"kafka.example"})).allows(host) == (expected == "yes")
    assert Hosts(frozenset({"*"})).allows(host), "* allows any name"


async def test_an_unknown_host_header_is_rejected_against_dns_rebinding(one: Service) -> None:
    evil = {"Host": "evil.example", "Origin": "http://evil.example"}
    refused = (("POST", "/v1/topics"), ("DELETE", "/v1/topics/t"), ("GET", "/v1/topics"), ("GET", "/metrics"))
    for method, path in refused:
        reply = await one.request(method, path, 421, headers=evil, json={"name": "t"})
        assert reply["message"].startswith("Host 'evil.example' is not a name of this service")
    assert (await one.get("/v1/topics"))["topics"] == []
    assert (await one.client.get("/health/live", headers=evil)).status_code == 200, "health is open to all hosts"
    long = await one.request("GET", "/v1/topics", 421, headers={"Host": "x" * 5000})
    assert len(long["message"]) < 300


async def test_configured_host_names_are_allowed(one: Service) -> None:
    hosts = Hosts(frozenset({"kafka.example"}))
    async with one.another(hosts=hosts) as (_, port):
        for host, status in (("kafka.example", 200), (f"kafka.example:{port}", 200), ("evil.example", 421)):
            answer = await one.client.get(f"http://127.0.0.1:{port}/topics", headers={"Host": host})
            assert answer.status_code == status, host


# peer, X-Forwarded-For, resulting client address; trusted proxies are 10.0.0.0/8 and ::1
FORWARDED = """
192.0.2.1          | 198.51.100.7                    | 192.0.2.1
10.0.0.1           |                                 | 10.0.0.1
10.0.0.1           | 198.51.100.7                    | 198.51.100.7
10.0.0.1           | 203.0.113.9, 198.51.100.7       | 198.51.100.7
10.0.0.1           | 203.0.113.9;198.51.100.7        | 198.51.100.7
10.0.0.1           | 198.51.100.7, 10.0.0.2          | 198.51.100.7
10.0.0.1           | 198.51.100.7:1234               | 198.51.100.7
10.0.0.1           | ::ffff:198.51.100.7             | 198.51.100.7
::1                | [2001:DB8::1]:1234              | 2001:db8::1
10.0.0.1           | 198.51.100.7, unknown           |
10.0.0.1           | 198.51.100.7, unknown, 10.0.0.3 |
10.0.0.1           | 10.0.0.2                        | 10.0.0.2
unix               | 198.51.100.7                    |
"""


@pytest.mark.parametrize("line", FORWARDED.strip().splitlines())
async def test_client_address_from_x_forwarded_for(line: str) -> None:
    peer, said, client = (cell.strip() for cell in line.split("|"))
    headers = [(b"x-forwarded-for", each.encode()) for each in said.split(";") if each]
    scope: Any = {"type": "http", "path": "/", "client": (peer, 1), "headers": headers}
    seen: list[str] = []

    async def app(scope: Any, *_: object) -> None:
        seen.append(scope["client"][0])

    await host_check(app, Hosts(proxies=("10.0.0.0/8", "::1")))(scope, None, None)  # type: ignore[arg-type]
    assert seen == [client]


async def test_x_forwarded_for_is_trusted_only_from_trusted_proxies() -> None:
    seen: set[str] = set()
    authorizer = Rules(lambda requester, *_: seen.add(requester.host) or True)  # type: ignore[func-returns-value]
    said = {"X-Forwarded-For": "198.51.100.7", "X-Real-IP": "198.51.100.8", "Forwarded": "for=198.51.100.9"}
    async with service(authorizer=authorizer) as one:
        assert (await one.client.get("/v1/brokers", headers=said)).status_code == 200
        assert seen == {"127.0.0.1"}
        seen.clear()
        async with one.another(hosts=Hosts(proxies=("127.0.0.1",))) as (_, port):
            assert (await one.client.get(f"http://127.0.0.1:{port}/v1/brokers", headers=said)).status_code == 200
        assert seen == {"198.51.100.7"}


FORMS = """
10.0.0.1                | 10.0.0.1
::ffff:10.0.0.1         | 10.0.0.1
::FFFF:0a00:0001        | 10.0.0.1
0:0:0:0:0:0:0:1         | ::1
2001:DB8:0:0::0:1       | 2001:db8::1
fe80::1%eth0            | fe80::1
*                       | *
kafka.example           | kafka.example
                        |
"""


@pytest.mark.parametrize("line", FORMS.strip("\n").splitlines())
def test_addresses_are_normalized(line: str) -> None:
    text, expected = (cell.strip() for cell in line.split("|"))
    assert normal_host(text) == expected
    assert normal_host(expected) == expected


def basic(user: str, password: str) -> str:
    """The Basic authorization header of a user."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def logins(users: Users, required: bool = True, reported: list[tuple[str, ...]] | None = None) -> Logins:
    """Logins without a delay. Failed logins are appended to `reported`."""
    logins: list[tuple[str, ...]] = [] if reported is None else reported
    return Logins(users, required, 0, lambda *login: logins.append(login))


async def test_the_401_response_has_basic_and_bearer_challenges(users: Users) -> None:
    async with service(logins=logins(users)) as one:
        with capture_logs() as lines:
            answer = await one.client.get("/v1/topics")
        assert answer.status_code == 401
        challenges = answer.headers.get_list("www-authenticate")
        assert [one.partition(" ")[0] for one in challenges] == ["Basic", "Bearer"]
        assert answer.json()["error"] == "SASL_AUTHENTICATION_FAILED"
        assert lines == [], "no credentials are no failed login"
        for path in ("/openapi.json", "/", "/metrics", "/no/such/path", "/v1/events/follow", "/health/ready/x"):
            assert (await one.client.get(path)).status_code == 401, path
        assert (await one.client.post("/v1/topics", json={"name": "a.b"})).status_code == 401


async def test_a_browser_gets_a_401_page_with_login_instructions(users: Users) -> None:
    async with service(logins=logins(users)) as one:
        for path in ("/", "/topics", "/requests/x", "/no/such/path"):
            for given in ({}, {"authorization": basic("carol", "PLANTED")}):
                answer = await one.client.get(path, headers=given)
                assert answer.status_code == 401, path
                assert answer.headers.get_list("www-authenticate")[0].startswith("Basic ")
                assert "default-src 'none'" in answer.headers["content-security-policy"]
                assert "asks for a user name and password" in answer.text
                assert ("invalid credentials" if given else "log in with a bearer token") in answer.text
                assert "<script" not in answer.text
                assert "PLANTED" not in answer.text
        as_json = await one.client.get("/metrics", headers={"accept": "text/html"})
        assert as_json.json()["error"] == "SASL_AUTHENTICATION_FAILED", "JSON, not a page"


async def test_health_endpoints_require_no_authentication(users: Users) -> None:
    async with service(logins=logins(users)) as one:
        for path in ("/health/live", "/health/ready"):
            assert (await one.client.get(path)).status_code == 200
            answer = await one.client.get(path, headers={"Authorization": "Bearer wrong"})
            assert answer.status_code == 200


@pytest.mark.parametrize("required", [True, False])
async def test_bearer_and_basic_credentials_authenticate(users: Users, tmp_path: Any, required: bool) -> None:
    ways = [
        ({"Authorization": f"Bearer {(tmp_path / 'token').read_text()}"}, "User:carol"),
        ({"Authorization": basic("carol", "carol-PLANTED")}, "User:carol"),
        ({"Authorization": basic("alice", "alice-PLANTED")}, "User:alice"),
        *([] if required else [({}, "User:ANONYMOUS")]),
    ]
    reported: list[tuple[str, ...]] = []
    async with service(logins=logins(users, required, reported)) as one:
        for number, (headers, principal) in enumerate(ways):
            answer = await one.client.post("/v1/topics", json={"name": f"t.{number}"}, headers=headers)
            assert answer.status_code == 201, answer.text
            events = await one.client.get(f"/v1/events?topic=t.{number}", headers=headers)
            assert events.json()["events"][0]["fields"]["principal"] == principal
    assert {login[1:] for login in reported} == {("bearer", "succeeded"), ("basic", "succeeded")}


WRONG = [
    ("Bearer tw_PLANTED", "unknown token", ""),
    (basic("alice", "PLANTED"), "wrong user name or password", "alice"),
    (basic("nobody", "PLANTED"), "wrong user name or password", "nobody"),
    ("Basic PLANTED", "malformed Basic Authorization", ""),
    ("Basic PLANTED\x83", "malformed Basic Authorization", ""),
    ("Basic " + base64.b64encode(b"\xff:PLANTED").decode(), "malformed Basic Authorization", ""),
    ("Bearer PLANTED\x83", "unknown token", ""),
    ("Basic " + base64.b64encode(b"PLANTED").decode(), "Basic Authorization without a user name or password", ""),
    ("Digest PLANTED", "the Authorization header is neither Bearer nor Basic", ""),
    ("Bearer " + "PLANTED" * 3000, "more than one Authorization header, or one that is too long", ""),
]


@pytest.mark.parametrize("required", [True, False])
async def test_invalid_credentials_are_rejected_with_401(users: Users, required: bool) -> None:
    reported: list[tuple[str, ...]] = []
    async with service(logins=logins(users, required, reported)) as one:
        for authorization, reason, user in WRONG:
            with capture_logs() as lines:
                answer = await one.client.get("/v1/topics", headers={b"Authorization": authorization.encode("latin-1")})
            assert answer.status_code == 401, authorization
            assert [(line["event"], line["reason"], line["user"]) for line in lines] == [
                ("authentication_failed", reason, user)
            ]
            assert "PLANTED" not in answer.text + str(lines)
    assert len([login for login in reported if login[2] == "failed"]) == len(WRONG)


async def test_a_changed_password_is_rejected_after_reload(users: Users, tmp_path: Any) -> None:
    assert await users.knows("carol", "carol-PLANTED", "10.0.0.1")
    set_password(tmp_path / "users", "carol", "another")
    assert await users.knows("carol", "carol-PLANTED", "10.0.0.1"), "the users file is read again only at reload"
    users.reload()
    assert not await users.knows("carol", "carol-PLANTED", "10.0.0.1")
    assert await users.knows("carol", "another", "10.0.0.1")
    users._cluster().scram.clear()  # type: ignore[attr-defined]
    assert not await users.knows("alice", "alice-PLANTED", "10.0.0.1")
