"""The names that HTTP goes by, and who a client is behind a proxy."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from controller.access.authorizer import Operation, Requester, ResourceType
from controller.http.gate import Hosts
from controller.http.server import HttpServer
from controller.kafka.session import normal_host
from tests.http.service import Service, service

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
def test_the_names_that_a_service_goes_by(line: str) -> None:
    host, expected = (cell.strip() for cell in line.split("|"))
    assert Hosts(frozenset({"kafka.example"})).allows(host) == (expected == "yes")
    assert Hosts(frozenset({"*"})).allows(host), "any name"


async def test_a_page_of_another_site_can_change_and_see_nothing_by_a_name_that_resolves_here(one: Service) -> None:
    evil = {"Host": "evil.example", "Origin": "http://evil.example"}
    refused = (("POST", "/v1/topics"), ("DELETE", "/v1/topics/t"), ("GET", "/v1/topics"), ("GET", "/metrics"))
    for method, path in refused:
        reply = await one.request(method, path, 421, headers=evil, json={"name": "t"})
        assert reply["message"].startswith("Host 'evil.example' is not a name of this service")
    assert (await one.get("/v1/topics"))["topics"] == []
    assert (await one.client.get("/health/live", headers=evil)).status_code == 200, "which says nothing"
    long = await one.request("GET", "/v1/topics", 421, headers={"Host": "x" * 5000})
    assert len(long["message"]) < 300


async def test_what_is_advertised_or_listened_on_or_set_is_a_name_too(one: Service) -> None:
    hosts = Hosts(frozenset({"kafka.example"}))
    other = HttpServer(one.api, one.brokers, one.query, one.metrics, hosts=hosts)
    port = await other.start("127.0.0.1", 0)
    for host, status in (("kafka.example", 200), (f"kafka.example:{port}", 200), ("evil.example", 421)):
        answer = await one.client.get(f"http://127.0.0.1:{port}/topics", headers={"Host": host})
        assert answer.status_code == status, host
    await other.stop()


# the peer, what X-Forwarded-For says, who the client is; trusted are 10.0.0.0/8 and ::1
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
10.0.0.1           | 198.51.100.7, unknown           | 10.0.0.1
10.0.0.1           | 198.51.100.7, unknown, 10.0.0.3 | 10.0.0.3
10.0.0.1           | 10.0.0.2                        | 10.0.0.2
unix               | 198.51.100.7                    | unix
"""


@pytest.mark.parametrize("line", FORWARDED.strip().splitlines())
def test_who_a_client_is_behind_proxies(line: str) -> None:
    peer, said, client = (cell.strip() for cell in line.split("|"))
    hosts = Hosts(proxies=(ip_network("10.0.0.0/8"), ip_network("::1")))
    assert hosts.client_behind(peer, [each for each in said.split(";") if each]) == client


class RecordingAuthorizer:
    """Allows everything, and keeps where requests came from."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self.seen.add(requester.host)
        return True

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        return True


async def _seen(one: Service, authorizer: RecordingAuthorizer, base: str, **more: Any) -> set[str]:
    authorizer.seen.clear()
    assert (await one.client.get(f"{base}/v1/brokers", **more)).status_code == 200
    return set(authorizer.seen)


async def test_what_a_client_says_of_its_address_counts_for_a_trusted_proxy_only() -> None:
    authorizer = RecordingAuthorizer()
    said = {"X-Forwarded-For": "198.51.100.7", "X-Real-IP": "198.51.100.8", "Forwarded": "for=198.51.100.9"}
    async with service(authorizer=authorizer) as one:
        assert await _seen(one, authorizer, "", headers=said) == {"127.0.0.1"}
        hosts = Hosts(proxies=(ip_network("127.0.0.1"),))
        other = HttpServer(one.api, one.brokers, one.query, one.metrics, hosts=hosts)
        base = f"http://127.0.0.1:{await other.start('127.0.0.1', 0)}"
        assert await _seen(one, authorizer, base, headers=said) == {"198.51.100.7"}
        await other.stop()


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
def test_addresses_have_one_form(line: str) -> None:
    text, expected = (cell.strip() for cell in line.split("|"))
    assert normal_host(text) == expected
    assert normal_host(expected) == expected
