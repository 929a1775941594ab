"""The permission hook (KIP-4 rule 3): what a refused principal gets, and what it is not shown."""

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
from controller.kafka.messages.configs import AlterConfigsRequest, DescribeConfigsRequest, DescribeConfigsResource
from controller.kafka.messages.configs import AlterConfigsResource as Resource
from controller.kafka.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from controller.machine.errors import ErrorCode
from events.catalog import CreateRejected
from tests.apis.rig import rig

BOB = "User:bob"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Granted:
    """Everybody may do what is listed, and User:ANONYMOUS everything."""

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


async def test_denied_principal_cannot_probe_topic_existence() -> None:
    async with rig(authorizer=Granted()) as a:
        await a.create("there")
        created = await a.create("there", "missing", "bad name", principal=BOB)
        assert [each.error_code for each in created] == [DENIED, DENIED, DENIED]
        names = ("there", "ghost")
        deleted = await a.call(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=names), BOB)
        assert [each.error_code for each in deleted.responses] == [DENIED, DENIED]
        more = CreatePartitionsRequest(topics=tuple(CreatePartitionsTopic(name=name, count=3) for name in names))
        added = await a.call(ApiKey.CREATE_PARTITIONS, 3, more, BOB)
        assert [each.error_code for each in added.results] == [DENIED, DENIED]
        alter = AlterConfigsRequest(resources=tuple(Resource(resource_type=2, resource_name=name) for name in names))
        altered = await a.call(ApiKey.ALTER_CONFIGS, 2, alter, BOB)
        assert [each.error_code for each in altered.responses] == [DENIED, DENIED]
        describe = DescribeConfigsRequest(
            resources=tuple(DescribeConfigsResource(resource_type=2, resource_name=name) for name in names)
        )
        described = await a.call(ApiKey.DESCRIBE_CONFIGS, 4, describe, BOB)
        assert [(each.error_code, each.configs) for each in described.results] == [(DENIED, ()), (DENIED, ())]
        metadata = MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in names))
        seen = await a.call(ApiKey.METADATA, 12, metadata, BOB)
        assert len(seen.topics) == 2
        there, ghost = seen.topics
        assert there.replace(b"there", b"ghost") == ghost, "nothing but the name may distinguish the two"
        pages = DescribeTopicPartitionsRequest(topics=tuple(TopicRequest(name=name) for name in names))
        shown = await a.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, pages, BOB)
        assert len({(each.error_code, each.topic_id, each.partitions) for each in shown.topics}) == 1


async def test_offsets_and_groups_need_describe() -> None:
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
