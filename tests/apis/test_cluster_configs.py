"""Configs of brokers before a cluster: a request goes to the broker that it is about, with permission, and comes back
in its place among what is answered here. And configs of groups, with simulated brokers."""

from __future__ import annotations

import inspect
from typing import Any

from controller.apis.cluster_configs import RESOURCES_PER_REQUEST, to_brokers
from controller.brokers.cluster.connections import ClusterUnreachable
from controller.kafka.codec.codec import encode_response, parse_header, read_request
from controller.kafka.handling import ClientConnection, RequestContext
from controller.kafka.messages import ApiKey
from controller.kafka.messages.cluster import ApiVersion
from controller.kafka.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from controller.kafka.session import Session
from controller.machine.configs.changes import OpType
from controller.machine.configs.groups import GROUP_CONFIGS, GROUPS
from tests.apis.rig import Rig, rig
from tests.apis.test_permissions import BOB, Granted

TOPIC, BROKER = 2, 4
SPOKEN = [ApiVersion(api_key=ApiKey.DESCRIBE_CONFIGS, min_version=1, max_version=4)]


class Brokers:
    """Brokers of a cluster, and what came to which of them: an address, None for any, and names of resources."""

    def __init__(self) -> None:
        self.came: list[tuple[tuple[str, int] | None, list[str]]] = []
        self.silent = False

    async def __call__(self, payload: bytes, within_s: float, to: tuple[str, int] | None = None) -> bytes:
        if self.silent:
            raise ClusterUnreachable("nobody there")
        header = parse_header(payload)
        request = read_request(header.api_key, header.api_version, payload, header.body_offset)[0]
        assert isinstance(request, DescribeConfigsRequest)
        assert header.api_version >= 1, "the oldest that the brokers speak"
        names = [each.resource_name for each in request.resources]
        self.came.append((to, names))
        configs = (DescribeConfigsResourceResult(name="node.id", value="7", config_source=5),)
        results = tuple(
            DescribeConfigsResult(resource_type=BROKER, resource_name=name, configs=configs) for name in names
        )
        return encode_response(header.api_key, header.api_version, 1, DescribeConfigsResponse(results=results))[4:]


async def described(a: Rig, brokers: Brokers, *names: tuple[int, str], version: int = 4, principal: str = "") -> Any:
    resources = tuple(DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in names)
    row = to_brokers(a.api, dict(a.listener), SPOKEN, brokers)[ApiKey.DESCRIBE_CONFIGS]
    connection = ClientConnection(session=Session(principal=principal or "User:ANONYMOUS"))
    context = RequestContext(ApiKey.DESCRIBE_CONFIGS, version, connection=connection)
    answer: Any = row.handle(context, DescribeConfigsRequest(resources=resources))
    answer = await answer if inspect.isawaitable(answer) else answer
    return [(each.resource_name, each.error_code, len(each.configs)) for each in answer.results], answer.results


async def test_broker_configs_are_forwarded_to_the_broker(served: Rig) -> None:
    brokers = Brokers()
    rows, _ = await described(served, brokers, (BROKER, "2"), (TOPIC, "missing"), (BROKER, ""), (BROKER, "9"))
    assert rows == [("2", 0, 1), ("missing", 3, 0), ("", 0, 1), ("9", 0, 1)]
    assert brokers.came == [(("127.0.0.1", 9092), ["2"]), (None, ["", "9"])]


async def test_configs_of_unknown_brokers_are_forwarded_in_batches(served: Rig) -> None:
    brokers = Brokers()
    names = [str(number) for number in range(10, 10 + 2 * RESOURCES_PER_REQUEST)]
    rows, _ = await described(served, brokers, *((BROKER, name) for name in names))
    assert rows == [(name, 0, 1) for name in names]
    assert brokers.came == [(None, names[:RESOURCES_PER_REQUEST]), (None, names[RESOURCES_PER_REQUEST:])]


async def test_own_node_configs_are_not_forwarded() -> None:
    async with rig(broker_listeners=True) as a:
        brokers = Brokers()
        ((name, code, shown),), _ = await described(a, brokers, (BROKER, "0"))
        assert (name, code, brokers.came) == ("0", 0, [])
        assert shown > 300


async def test_is_default_in_version_0(served: Rig) -> None:
    _, (result,) = await described(served, Brokers(), (BROKER, "1"), version=0)
    assert result.configs[0].is_default


async def test_denied_configs_are_not_forwarded() -> None:
    async with rig(authorizer=Granted()) as a:
        brokers = Brokers()
        rows, _ = await described(a, brokers, (BROKER, "1"), principal=BOB)
        assert (rows, brokers.came) == ([("1", 31, 0)], [])


async def test_unreachable_broker_fails_only_its_own_resources(served: Rig) -> None:
    brokers = Brokers()
    brokers.silent = True
    rows, (_, failed) = await described(served, brokers, (TOPIC, "missing"), (BROKER, "1"))
    assert rows == [("missing", 3, 0), ("1", 7, 0)]
    assert failed.error_message == "The broker did not respond: nobody there"


KEY = "consumer.session.timeout.ms"
OF_GROUP, STATIC, DEFAULT = 8, 4, 5


async def test_describe_group_configs_with_sources(served: Rig) -> None:
    found = await served.describe_configs(GROUPS, "g")
    assert [each.name for each in found.configs] == [name for name, row in GROUP_CONFIGS.items() if not row.internal]
    assert {each.name for each in found.configs if not each.documentation or each.read_only} == set()
    served.api.static_configs = {f"group.{KEY}": "46000"}
    assert await served.alter_configs(GROUPS, "g", (KEY, OpType.SET, " 50000")) == (0, None)
    (own,) = (await served.describe_configs(GROUPS, "g", KEY)).configs
    (other,) = (await served.describe_configs(GROUPS, "h", KEY)).configs
    chain = [("50000", OF_GROUP), ("46000", STATIC), ("45000", DEFAULT)]
    assert (own.value, own.config_source) == ("50000", OF_GROUP)
    assert [(each.value, each.source) for each in own.synonyms] == chain
    assert (other.value, other.config_source) == ("46000", STATIC)


async def test_group_configs_need_a_name(served: Rig) -> None:
    found = await served.describe_configs(GROUPS, "")
    assert (found.error_code, found.error_message) == (42, "Group name must not be empty")
    assert (await served.alter_configs(GROUPS, "", (KEY, OpType.SET, "50000")))[0] == 42
