"""CreateAcls, DescribeAcls, DeleteAcls and quotas through the handlers, with the standard authorizer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.access.authorizer import StandardAuthorizer
from controller.apis import access as users_api
from controller.kafka.handling import Disconnect
from controller.kafka.messages import ApiKey
from controller.kafka.messages.access import (
    AclCreation,
    AlterClientQuotasRequest,
    ComponentData,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from controller.kafka.messages.topics import MetadataRequest, MetadataRequestTopic
from controller.machine.access.acls import Acls
from controller.machine.errors import ErrorCode
from events.access import AclsCreated, AclsDeleted, QuotasChanged, RequestsRefused
from tests.apis.rig import Rig, rig

ADMIN, BOB = "User:admin", "User:bob"
READS = AclCreation(resource_type=2, resource_name="t", principal=BOB, host="*", operation=3, permission_type=3)
EVERY = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)


@asynccontextmanager
async def guarded() -> AsyncIterator[Rig]:
    """A controller whose only super user is the admin."""
    made: list[Rig] = []

    def held() -> Acls:
        return made[0].api.cluster.acls

    async with rig(authorizer=StandardAuthorizer(held, super_users=[ADMIN])) as one:
        made.append(one)
        yield one


async def create(one: Rig, *acls: AclCreation, principal: str = ADMIN) -> list[int]:
    answer = await one.call(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=acls), principal)
    return [each.error_code for each in answer.results]


async def test_acl_applies_from_create_until_delete() -> None:
    async with guarded() as one:
        named = MetadataRequest(topics=(MetadataRequestTopic(name="t"),), allow_auto_topic_creation=False)
        denied = await one.call(ApiKey.METADATA, 12, named, BOB)
        assert await create(one, READS) == [0]
        seen = await one.call(ApiKey.METADATA, 12, named, BOB)
        assert b"".join(seen.topics) != b"".join(denied.topics)
        found = await one.call(ApiKey.DESCRIBE_ACLS, 3, EVERY, ADMIN)
        ((entry,),) = [each.acls for each in found.resources]
        assert (entry.principal, entry.operation, entry.permission_type) == (BOB, 3, 3)
        wanted = DeleteAclsFilter(
            resource_type_filter=2, resource_name_filter="t", pattern_type_filter=2, operation=1, permission_type=1
        )
        deletion = DeleteAclsRequest(filters=(wanted,))
        (gone,) = (await one.call(ApiKey.DELETE_ACLS, 3, deletion, ADMIN)).filter_results
        assert [each.resource_name for each in gone.matching_acls] == ["t"]
        again = await one.call(ApiKey.METADATA, 12, named, BOB)
        assert b"".join(again.topics) == b"".join(denied.topics)
        assert len(one.events(AclsCreated)) == len(one.events(AclsDeleted)) == 1
        await one.controller.decided()
        assert [(each.principal, each.resource) for each in one.events(RequestsRefused)] == [(BOB, "Topic:t")]


async def test_acls_without_an_authorizer_are_rejected(served: Rig) -> None:
    assert await create(served, READS) == [ErrorCode.SECURITY_DISABLED]
    assert (await served.call(ApiKey.DESCRIBE_ACLS, 3, EVERY)).error_code == ErrorCode.SECURITY_DISABLED


@pytest.mark.parametrize(
    "wrong", [{"resource_type": 0}, {"operation": 99}, {"permission_type": 0}, {"resource_pattern_type": 9}]
)
async def test_unknown_acl_codes_disconnect(wrong: dict[str, int]) -> None:
    fields = {"resource_type": 2, "operation": 3, "permission_type": 3, "resource_pattern_type": 3, **wrong}
    async with guarded() as one:
        with pytest.raises(Disconnect, match=r"unknown .* known are 1 to"):
            await create(one, AclCreation(resource_name="t", principal=BOB, host="*", **fields))


async def test_broker_listener_changes_acls() -> None:
    async with guarded() as one:
        answer = await one.call_broker(ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=(READS,)), ADMIN)
        assert [each.error_code for each in answer.results] == [ErrorCode.NONE]
        assert (await one.call(ApiKey.DESCRIBE_ACLS, 3, EVERY, ADMIN)).resources


def quota(rate: float | None, user: str | None = "bob") -> AlterClientQuotasRequest:
    op = OpData(key="controller_mutation_rate", value=rate or 0.0, remove=rate is None)
    entity = (EntityData(entity_type="user", entity_name=user),)
    return AlterClientQuotasRequest(entries=(EntryData(entity=entity, ops=(op,)),))


async def test_altered_client_quotas_are_described(served: Rig) -> None:
    for request in (quota(2.5), quota(7.0, None)):
        (entry,) = (await served.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)).entries
        assert entry.error_code == 0
    everything = DescribeClientQuotasRequest()
    seen = await served.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, everything)
    assert [[part.entity_name for part in each.entity] for each in seen.entries] == [[None], ["bob"]]
    exact = ComponentData(entity_type="user", match_type=0, match="bob")
    (bob,) = (
        await served.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest(components=(exact,)))
    ).entries
    assert [(each.key, each.value) for each in bob.values] == [("controller_mutation_rate", 2.5)]
    default = ComponentData(entity_type="user", match_type=1)
    found = await served.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest(components=(default,)))
    assert len(found.entries) == 1
    await served.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, quota(None))
    assert len((await served.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, everything)).entries) == 1
    assert len(served.events(QuotasChanged)) == 3


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ((ComponentData(entity_type="", match_type=2),), 42),
        ((ComponentData(entity_type="group", match_type=2),), 35),
        ((ComponentData(entity_type="user", match_type=0),), 42),
        ((ComponentData(entity_type="user", match_type=1, match="x"),), 42),
        ((ComponentData(entity_type="user", match_type=7),), 42),
        ((ComponentData(entity_type="user", match_type=2), ComponentData(entity_type="user", match_type=1)), 42),
        ((ComponentData(entity_type="user", match_type=2), ComponentData(entity_type="ip", match_type=2)), 42),
    ],
)
async def test_invalid_quota_filter_is_rejected(served: Rig, components: tuple[ComponentData, ...], code: int) -> None:
    response = await served.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest(components=components))
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message


async def test_many_quotas_are_altered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_api, "PER_SLICE", 10)
    users = [*(f"u{number}" for number in range(35)), "u3", "u34"]
    async with rig() as one:
        entries = tuple(quota(2.0, user).entries[0] for user in users)
        answer = await one.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries=entries))
        assert [entry.entity[0].entity_name for entry in answer.entries] == users
        assert [entry.error_code for entry in answer.entries] == [0] * 35 + [42, 42], "a repeated user, in any list"
        assert {entity[0][1] for entity in one.api.cluster.quotas} == set(users)
