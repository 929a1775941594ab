"""The handlers of Produce, and of APIs that read offsets, groups, transactions and log directories, for listeners with
simulated brokers (`tables`). They answer like an empty Kafka cluster, so that consoles work.

Topicwright stores no records: Produce is rejected, every partition begins and ends at offset 0, and there are no groups
and no transactions. Each node coordinates every group; joining a group and committing offsets are not offered."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from controller.access.authorizer import Operation
from controller.apis import ApiFunction, Call, bound, guarded
from controller.apis.limits import in_turns
from controller.controller_api import ControllerApi
from controller.kafka.handling import ApiHandler, Disconnect, Handler, RequestContext
from controller.kafka.messages import APIS, ApiKey, clients
from controller.machine.errors import ErrorCode
from controller.machine.state import Topic

PER_SLICE = 200
LOG_DIR: Final = "simulated"
"""The log directory of a simulated broker."""
GROUP = 0
"""The key type of a group."""
SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""The first version of each special timestamp: latest, earliest, maximum, earliest local, latest tiered, earliest
pending upload."""
AT_AN_END = (-1, -2, -4)
"""The special timestamps that have an offset in an empty partition."""


def reads(api: ControllerApi) -> dict[int, Handler]:
    functions: dict[int, ApiFunction] = {
        **dict.fromkeys(_DESCRIBED, describe_groups),
        ApiKey.LIST_OFFSETS: list_offsets,
        ApiKey.OFFSET_FETCH: offset_fetch,
        ApiKey.FIND_COORDINATOR: find_coordinator,
        ApiKey.LIST_GROUPS: lambda _, __: clients.ListGroupsResponse(),
        ApiKey.DESCRIBE_PRODUCERS: describe_producers,
        ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
        ApiKey.LIST_TRANSACTIONS: list_transactions,
    }
    return bound(api, functions) | guarded(api, {ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs})


def _topic(call: Call, operation: Operation, name: str) -> tuple[Topic | None, ErrorCode]:
    """The topic, if there is one and the client may see it, and the error of partitions that it does not have."""
    if not call.grants(operation, name):
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return call.api.topic(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def list_offsets(call: Call, request: clients.ListOffsetsRequest) -> clients.ListOffsetsResponse:
    """Answer ListOffsets: offset 0 for the beginning and the end of a partition, -1 for any timestamp."""

    def result(each: clients.ListOffsetsTopic) -> clients.ListOffsetsTopicResponse:
        topic, code = _topic(call, "Describe", each.name)
        partitions = tuple(_offset(call.context.api_version, topic, one, code) for one in each.partitions)
        return clients.ListOffsetsTopicResponse(name=each.name, partitions=partitions)

    return clients.ListOffsetsResponse(topics=await in_turns(call, request.topics, PER_SLICE, result))


def _offset(
    version: int, topic: Topic | None, requested: clients.ListOffsetsPartition, missing: ErrorCode
) -> clients.ListOffsetsPartitionResponse:
    index, timestamp = requested.partition_index, requested.timestamp
    if topic is None or not 0 <= index < len(topic.partitions):
        return clients.ListOffsetsPartitionResponse(partition_index=index, error_code=missing)
    epoch = topic.partitions[index].leader_epoch
    code = ErrorCode.NONE
    if timestamp < 0 and version < SINCE.get(timestamp, version + 1):
        code = ErrorCode.UNSUPPORTED_VERSION
    elif topic.partitions[index].leader < 0:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif requested.current_leader_epoch not in (-1, epoch):
        is_older = requested.current_leader_epoch < epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
    if code or timestamp not in AT_AN_END:
        return clients.ListOffsetsPartitionResponse(partition_index=index, error_code=code)
    return clients.ListOffsetsPartitionResponse(partition_index=index, offset=0, leader_epoch=epoch)


async def offset_fetch(call: Call, request: clients.OffsetFetchRequest) -> clients.OffsetFetchResponse:
    """Answer OffsetFetch: offset -1 for every partition, also of missing topics, as in Kafka. Version 1 has no error
    field for the whole request."""
    denied = _denial(call, request.group_id)

    def result(topic: clients.OffsetFetchRequestTopic) -> clients.OffsetFetchResponseTopic:
        is_visible = call.grants("Describe", topic.name)
        code = denied or (ErrorCode.NONE if is_visible else ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partitions = tuple(
            clients.OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        )
        return clients.OffsetFetchResponseTopic(name=topic.name, partitions=partitions)

    if denied and call.context.api_version >= 2:
        return clients.OffsetFetchResponse(error_code=denied)
    topics = await in_turns(call, request.topics or (), PER_SLICE, result)
    return clients.OffsetFetchResponse(topics=topics)


def _denial(call: Call, group: str) -> ErrorCode:
    is_granted = call.grants("Describe", group, "Group")
    return ErrorCode.NONE if is_granted else ErrorCode.GROUP_AUTHORIZATION_FAILED


async def find_coordinator(call: Call, request: clients.FindCoordinatorRequest) -> clients.FindCoordinatorResponse:
    """Answer FindCoordinator with the first node, for each key; since version 4 a request has several. A group
    needs Describe on it."""
    node = call.api.nodes()[0]

    def result(key: str) -> clients.Coordinator:
        code = _denial(call, key) if request.key_type == GROUP else ErrorCode.NONE
        if code:
            return clients.Coordinator(key=key, node_id=-1, port=-1, error_code=code)
        return clients.Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port)

    if call.context.api_version >= 4:
        found = await in_turns(call, request.coordinator_keys, PER_SLICE, result)
        return clients.FindCoordinatorResponse(coordinators=found)
    one = result(request.key)
    return clients.FindCoordinatorResponse(error_code=one.error_code, node_id=one.node_id, host=one.host, port=one.port)


_DESCRIBED: Final[Mapping[int, tuple[str, Callable[[Any], Any]]]] = {
    ApiKey.DESCRIBE_GROUPS: ("groups", lambda id_: clients.DescribedGroup(group_id=id_, group_state="Dead")),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("group_ids", lambda id_: clients.ConsumerDescribedGroup(group_id=id_)),
    ApiKey.SHARE_GROUP_DESCRIBE: ("group_ids", lambda id_: clients.ShareDescribedGroup(group_id=id_)),
    ApiKey.STREAMS_GROUP_DESCRIBE: ("group_ids", lambda id_: clients.StreamsDescribedGroup(group_id=id_)),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        "groups",
        lambda group: clients.DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id),
    ),
}
"""For each API that describes groups: the field of the request with the groups, and the result for one of them, without
an error. The field of the response is `groups`."""


async def describe_groups(call: Call, request: Any) -> Any:
    """Answer an API of `_DESCRIBED`: every group is missing. Before version 6 of DescribeGroups a missing group is dead
    and has no error code (KIP-1043). One without offsets has none either."""
    field, described = _DESCRIBED[call.context.api_key]
    is_dead = call.context.api_key == ApiKey.DESCRIBE_GROUPS and call.context.api_version < 6
    has_code = not is_dead and call.context.api_key != ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS

    def result(requested: Any) -> Any:
        one = described(requested)
        code, message = _denial(call, one.group_id), None
        if not code and has_code:
            code, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {one.group_id} not found."
        return replace(one, error_code=code, error_message=message)

    groups = await in_turns(call, getattr(request, field), PER_SLICE, result)
    return APIS[call.context.api_key].response(groups=groups)


async def describe_transactions(
    call: Call, request: clients.DescribeTransactionsRequest
) -> clients.DescribeTransactionsResponse:
    missing = partial(clients.DescribedTransaction, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    ids = request.transactional_ids
    states = await in_turns(call, ids, PER_SLICE, lambda id_: missing(transactional_id=id_))
    return clients.DescribeTransactionsResponse(transaction_states=states)


async def describe_producers(
    call: Call, request: clients.DescribeProducersRequest
) -> clients.DescribeProducersResponse:
    """Answer DescribeProducers: no partition has producers."""

    def result(each: clients.DescribeProducersTopic) -> clients.DescribeProducersTopicResult:
        topic, missing = _topic(call, "Read", each.name)
        count = 0 if topic is None else len(topic.partitions)
        partitions = tuple(
            clients.DescribeProducersPartitionResult(
                partition_index=index, error_code=0 if 0 <= index < count else missing
            )
            for index in each.partition_indexes
        )
        return clients.DescribeProducersTopicResult(name=each.name, partitions=partitions)

    return clients.DescribeProducersResponse(topics=await in_turns(call, request.topics, PER_SLICE, result))


TRANSACTION_STATES: Final = frozenset(
    f"{prefix}{end}" for prefix in ("Prepare", "Complete") for end in ("Abort", "Commit")
) | {"Dead", "Empty", "Ongoing", "PrepareEpochFence"}
"""The states of a transaction by which Kafka filters."""


def list_transactions(_: Call, request: clients.ListTransactionsRequest) -> clients.ListTransactionsResponse:
    unknown = tuple(each for each in request.state_filters if each not in TRANSACTION_STATES)
    return clients.ListTransactionsResponse(unknown_state_filters=unknown)


def describe_log_dirs(
    context: RequestContext, request: clients.DescribeLogDirsRequest
) -> clients.DescribeLogDirsResponse:
    """Answer DescribeLogDirs: one directory without replicas. Java's client takes no directory for a denial."""
    return clients.DescribeLogDirsResponse(results=(clients.DescribeLogDirsResult(log_dir=LOG_DIR),))


REJECTED_PARTITIONS_MAX: Final = 10_000
PRODUCE_REJECTED: Final = "This is a controller and stores no records: produce to a broker."


def reject_produce(context: RequestContext, request: clients.ProduceRequest) -> clients.ProduceResponse:
    """Reject each partition. Raises Disconnect for `acks=0`, which has no response, as Kafka does."""
    if request.acks == 0:
        raise Disconnect(PRODUCE_REJECTED)
    if (
        len(request.topic_data) + sum(len(topic.partition_data) for topic in request.topic_data)
        > REJECTED_PARTITIONS_MAX
    ):
        raise Disconnect(f"{PRODUCE_REJECTED} At most {REJECTED_PARTITIONS_MAX} partitions are rejected one by one.")
    return clients.ProduceResponse(
        responses=tuple(
            clients.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    clients.PartitionProduceResponse(
                        index=partition.index,
                        error_code=ErrorCode.INVALID_REQUEST,
                        base_offset=-1,
                        error_message=PRODUCE_REJECTED,
                    )
                    for partition in topic.partition_data
                ),
            )
            for topic in request.topic_data
        )
    )


PRODUCE_ROW: Final = ApiHandler(
    ApiKey.PRODUCE.min_version, ApiKey.PRODUCE.max_version, reject_produce, is_advertised_from_0=True
)
"""The table row for Produce, advertised from version 0 as by Kafka 4, for old librdkafka (KAFKA-18659)."""
