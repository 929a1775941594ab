"""The permission hook (KIP-4 rule 3): errors of an unauthorized principal, and the data hidden from it."""

from __future__ import annotations

from controller.access.authorizer import Operation, Requester, ResourceType
from controller.kafka.messages import ApiKey
from controller.kafka.messages.clients import (
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    FindCoordinatorRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from controller.machine.errors import ErrorCode
from events.catalog import CreateRejected
from tests.apis.rig import rig

BOB = "User:bob"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Granted:
    """Everybody may do the listed operations; User:ANONYMOUS may do everything."""

    def __init__(self, *grants: tuple[Operation, ResourceType, str]) -> None:
        self._grants = set(grants)

    def allows(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return requester.principal != BOB or (operation, resource_type, name) in self._grants

    def allows_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        return True


async def test_denied_create_is_recorded_with_rule_authorizer() -> None:
    async with rig(authorizer=Granted()) as a:
        await a.create("mine", principal=BOB)
        rejected = [(event.topic, event.rule, event.error_code) for event in a.events(CreateRejected)]
        assert rejected == [("mine", "authorizer", DENIED)]


async def test_offsets_and_groups_require_describe() -> None:
    async with rig(authorizer=Granted(("Describe", "Topic", "mine"), ("Describe", "Group", "ours"))) as a:
        await a.create("mine", "other")
        wanted = tuple(ListOffsetsTopic(name=name, partitions=(ListOffsetsPartition(),)) for name in ("mine", "other"))
        offsets = await a.call(ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(topics=wanted), BOB)
        assert [each.partitions[0].error_code for each in offsets.topics] == [0, DENIED]
        committed = tuple(OffsetFetchRequestTopic(name=name, partition_indexes=(0,)) for name in ("mine", "other"))
        codes = {}
        for group in ("ours", "theirs"):
            request = OffsetFetchRequest(group_id=group, topics=committed)
            answer = await a.call(ApiKey.OFFSET_FETCH, 7, request, BOB)
            codes[group] = (answer.error_code, [each.partitions[0].error_code for each in answer.topics])
            found = await a.call(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key=group), BOB)
            assert found.error_code == answer.error_code
        assert codes == {"ours": (0, [0, DENIED]), "theirs": (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])}
        described = await a.call(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=("ours", "theirs")), BOB)
        assert [each.error_code for each in described.groups] == [0, ErrorCode.GROUP_AUTHORIZATION_FAILED]
        dirs = await a.call(ApiKey.DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(), BOB)
        assert dirs.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
