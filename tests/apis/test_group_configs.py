"""Configs of groups over Kafka's wire, with simulated brokers."""

from __future__ import annotations

from typing import Any

from controller.kafka.messages import ApiKey
from controller.kafka.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from controller.machine.configs.changes import OpType
from controller.machine.configs.groups import GROUP_CONFIGS, GROUPS
from tests.apis.rig import Rig, rig

KEY = "consumer.session.timeout.ms"
OF_GROUP, STATIC, DEFAULT = 8, 4, 5


async def described(a: Rig, name: str, *keys: str, principal: str = "User:ANONYMOUS") -> Any:
    resource = DescribeConfigsResource(resource_type=GROUPS, resource_name=name, configuration_keys=keys or None)
    request = DescribeConfigsRequest(resources=(resource,), include_synonyms=True, include_documentation=True)
    (result,) = (await a.call(ApiKey.DESCRIBE_CONFIGS, 4, request, principal)).results
    return result


async def altered(a: Rig, name: str, value: str, principal: str = "User:ANONYMOUS") -> tuple[int, str | None]:
    config = AlterableConfig(name=KEY, config_operation=OpType.SET, value=value)
    resource = AlterConfigsResource(resource_type=GROUPS, resource_name=name, configs=(config,))
    request = IncrementalAlterConfigsRequest(resources=(resource,))
    (done,) = (await a.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, principal)).responses
    return done.error_code, done.error_message


async def test_describe_group_configs_with_sources() -> None:
    async with rig() as a:
        found = await described(a, "g")
        assert [each.name for each in found.configs] == [
            name for name, row in GROUP_CONFIGS.items() if not row.internal
        ]
        assert {each.name for each in found.configs if not each.documentation or each.read_only} == set()
        a.api.static_configs = {f"group.{KEY}": "46000"}
        assert await altered(a, "g", " 50000") == (0, None)
        (own,), (other,) = (await described(a, "g", KEY)).configs, (await described(a, "h", KEY)).configs
        chain = [("50000", OF_GROUP), ("46000", STATIC), ("45000", DEFAULT)]
        assert (own.value, own.config_source) == ("50000", OF_GROUP)
        assert [(each.value, each.source) for each in own.synonyms] == chain
        assert (other.value, other.config_source) == ("46000", STATIC)


async def test_group_configs_need_a_name() -> None:
    async with rig() as a:
        found = await described(a, "")
        assert (found.error_code, found.error_message) == (42, "Group name must not be empty")
        assert (await altered(a, "", "50000"))[0] == 42
