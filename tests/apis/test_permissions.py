"""The permission hook (KIP-4 rule 3): errors of an unauthorized principal, and the data hidden from it."""

import re

from controller.access.authorizer import Operation, Requester, ResourceType, StandardAuthorizer
from controller.kafka.messages import ApiKey
from controller.kafka.messages.clients import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeProducersTopic,
    FindCoordinatorRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from controller.kafka.messages.cluster import UpdateFeaturesRequest
from controller.kafka.messages.configs import ListConfigResourcesRequest
from controller.kafka.messages.quorum import DescribeQuorumPartition, DescribeQuorumRequest
from controller.kafka.messages.topics import ElectLeadersRequest
from controller.machine.access.acls import Acls
from controller.machine.errors import ErrorCode
from controller.quorum.raft.role import topics_of
from events.catalog import CreateRejected
from tests.apis.rig import rig

BOB = "User:bob"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Granted(StandardAuthorizer):
    """Everybody may do the listed operations; User:ANONYMOUS may do everything."""

    def __init__(self, *grants: tuple[Operation, ResourceType, str]) -> None:
        super().__init__(Acls)
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
        for kind in (ConsumerGroupDescribeRequest, ShareGroupDescribeRequest, StreamsGroupDescribeRequest):
            key = ApiKey[re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removesuffix("Request")).upper()]
            described = await a.call(key, key.max_version, kind(group_ids=("ours", "theirs")), BOB)
            assert [each.error_code for each in described.groups] == [
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ]
        read = DescribeProducersRequest(topics=(DescribeProducersTopic(name="mine", partition_indexes=(0,)),))
        producers = await a.call(ApiKey.DESCRIBE_PRODUCERS, 0, read, BOB)
        assert producers.topics[0].partitions[0].error_code == DENIED, "it needs READ"


async def test_reads_of_consoles_and_elections_require_the_cluster() -> None:
    async with rig(authorizer=Granted()) as a:
        for key, request in (
            (ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest()),
            (ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=topics_of(DescribeQuorumPartition()))),
            (ApiKey.LIST_CONFIG_RESOURCES, ListConfigResourcesRequest()),
            (ApiKey.ELECT_LEADERS, ElectLeadersRequest()),
            (ApiKey.UPDATE_FEATURES, UpdateFeaturesRequest()),
        ):
            denied = await a.call(key, key.max_version, request, BOB)
            assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, key
            assert (await a.call(key, key.max_version, request)).error_code == ErrorCode.NONE, key
