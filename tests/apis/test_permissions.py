"""The permission hook (KIP-4 rule 3): what a refused principal gets, and what it is not shown."""

from __future__ import annotations

from controller.access.authorizer import Operation, Requester, ResourceType
from controller.kafka.messages import ApiKey
from controller.kafka.messages.access import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    UserName,
)
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
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeTopicPartitionsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from controller.machine.errors import ErrorCode
from events.catalog import CreateRejected
from events.codec import decode_event
from tests.apis.rig import Rig, rig

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


def create(*names: str, validate_only: bool = False) -> CreateTopicsRequest:
    topics = tuple(CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names)
    return CreateTopicsRequest(topics=topics, timeout_ms=5000, validate_only=validate_only)


async def codes_of_create(a: Rig, *names: str, version: int = 7) -> dict[str, int]:
    answer = await a.call(ApiKey.CREATE_TOPICS, version, create(*names), BOB)
    return {topic.name: topic.error_code for topic in answer.topics}


async def test_create_topics_needs_create_on_cluster_or_topic() -> None:
    async with rig(authorizer=Granted()) as a:
        assert await codes_of_create(a, "mine") == {"mine": DENIED}
    async with rig(authorizer=Granted(("Create", "Topic", "mine"))) as a:
        assert await codes_of_create(a, "mine", "other") == {"mine": 0, "other": DENIED}
    async with rig(authorizer=Granted(("Create", "Cluster", "kafka-cluster"))) as a:
        assert await codes_of_create(a, "mine", "other") == {"mine": 0, "other": 0}


async def test_denied_create_is_recorded_with_rule_authorizer() -> None:
    async with rig(authorizer=Granted()) as a:
        await codes_of_create(a, "mine")
        log = a.log
        rejected = [e for e in (decode_event(*pair).event for pair in log.read()) if isinstance(e, CreateRejected)]
        assert [(e.topic, e.rule, e.error_code) for e in rejected] == [("mine", "authorizer", DENIED)]


async def test_denied_principal_cannot_probe_topic_existence() -> None:
    async with rig(authorizer=Granted()) as a:
        await a.call(ApiKey.CREATE_TOPICS, 7, create("there"))
        assert await codes_of_create(a, "there", "missing", "bad name") == dict.fromkeys(
            ("there", "missing", "bad name"), DENIED
        )
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


async def test_denied_principal_cannot_resolve_topic_ids() -> None:
    async with rig(authorizer=Granted()) as a:
        made = await a.call(ApiKey.CREATE_TOPICS, 7, create("there"))
        by_id = DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=made.topics[0].topic_id),))
        (answer,) = (await a.call(ApiKey.DELETE_TOPICS, 6, by_id, BOB)).responses
        assert (answer.name, answer.error_code) == (None, DENIED)


async def test_metadata_lists_only_describable_topics() -> None:
    async with rig(authorizer=Granted(("Describe", "Topic", "open"))) as a:
        await a.call(ApiKey.CREATE_TOPICS, 7, create("open", "secret"))
        everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        assert len((await a.call(ApiKey.METADATA, 12, everything)).topics) == 2
        assert len((await a.call(ApiKey.METADATA, 12, everything, BOB)).topics) == 1
        paged = await a.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, DescribeTopicPartitionsRequest(), BOB)
        assert [topic.name for topic in paged.topics] == ["open"]


async def test_create_topics_returns_configs_with_describe_configs() -> None:
    async with rig(authorizer=Granted(("Create", "Topic", "mine"))) as a:
        (made,) = (await a.call(ApiKey.CREATE_TOPICS, 7, create("mine"), BOB)).topics
        assert (made.error_code, made.topic_config_error_code, made.num_partitions) == (0, DENIED, -1)
        assert made.configs == (), "none, as from Kafka, and not null"


async def test_describe_scram_needs_describe_on_the_cluster() -> None:
    async with rig(authorizer=Granted()) as a:
        for names in ((), ("ann",), ("ann", "ben", "ann")):
            request = DescribeUserScramCredentialsRequest(users=tuple(UserName(name=name) for name in names))
            answer = await a.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request, BOB)
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert answer.error_code == code
            assert answer.results == (DescribeUserScramCredentialsResult(error_code=code),) * len(names)


async def test_auto_creation_needs_create() -> None:
    async with rig(authorizer=Granted(("Describe", "Topic", "mine"))) as a:
        request = MetadataRequest(topics=(MetadataRequestTopic(name="mine"),), allow_auto_topic_creation=True)
        await a.call(ApiKey.METADATA, 12, request, BOB)
        await a.controller.decided()
        assert a.api.store.durable_named("mine") is None


async def test_offsets_and_groups_need_describe() -> None:
    async with rig(authorizer=Granted(("Describe", "Topic", "mine"), ("Describe", "Group", "ours"))) as a:
        await a.call(ApiKey.CREATE_TOPICS, 7, create("mine", "other"))
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


async def test_reassignments_need_describe_on_the_cluster() -> None:
    async with rig(authorizer=Granted()) as a:
        answer = await a.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest(), BOB)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
