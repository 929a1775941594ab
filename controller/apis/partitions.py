"""The handlers of ElectLeaders (KIP-460) and ListPartitionReassignments (KIP-455), which `tables` and `kraft.listener`
give to listeners, and of AlterPartitionReassignments in KRaft mode."""

import asyncio
from collections.abc import Iterator, Sequence

from controller.apis import Call
from controller.apis.limits import TOPICS_PER_SLICE, slices
from controller.controller_api import ControllerApi, in_portions
from controller.kafka.messages import topics as messages
from controller.machine.commands.commands import ElectLeaders, Reassignment, ReassignPartitions
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.machine.partitions.changes import is_reassigned
from controller.machine.partitions.placement import replica_metadata_of
from controller.machine.state import Topic
from controller.store.store import topic_slices
from events.names import BrokerId, TopicName

UNCLEAN = 1
PREFERRED = 0


async def elect_leaders(call: Call, request: messages.ElectLeadersRequest) -> messages.ElectLeadersResponse:
    """Answer ElectLeaders. For null (all partitions), results of ELECTION_NOT_NEEDED are left out."""
    if request.election_type not in (PREFERRED, UNCLEAN):
        return messages.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    results: dict[str, list[messages.ElectionPartitionResult]] = {}
    everything = request.topic_partitions is None
    for portion in in_portions(_requested(call.api, request)):
        origin = call.origin()
        commands = [
            ElectLeaders(
                **origin,
                topic=TopicName(name),
                partitions=tuple(partitions),
                unclean=request.election_type == UNCLEAN,
                api="ElectLeaders",
                api_version=call.context.api_version,
            )
            for name, partitions in portion
        ]
        for answer in await call.api.submit(commands):
            results.setdefault(answer.topic_name, []).extend(_election_results(answer, everything))
    return messages.ElectLeadersResponse(
        replica_election_results=tuple(
            messages.ReplicaElectionResult(topic=topic, partition_result=tuple(each)) for topic, each in results.items()
        )
    )


def _requested(api: ControllerApi, request: messages.ElectLeadersRequest) -> Iterator[tuple[str, Sequence[int]]]:
    if request.topic_partitions is not None:
        merged: dict[str, list[int]] = {}
        for topic in request.topic_partitions:
            merged.setdefault(topic.topic, []).extend(topic.partitions)
        yield from merged.items()
        return
    for topics in topic_slices(lambda: api.store):
        for each in topics:
            yield each.name, range(len(each.partitions))


def _election_results(answer: Answer, everything: bool) -> Iterator[messages.ElectionPartitionResult]:
    for one in answer.partitions:
        if not (everything and one.code == ErrorCode.ELECTION_NOT_NEEDED):
            yield messages.ElectionPartitionResult(
                partition_id=one.partition,
                error_code=answer.code or one.code,
                error_message=answer.message or one.message or None,
            )


async def alter_partition_reassignments(
    call: Call, request: messages.AlterPartitionReassignmentsRequest
) -> messages.AlterPartitionReassignmentsResponse:
    """Answer AlterPartitionReassignments: start, change or cancel the reassignment of each partition."""
    allowed = request.allow_replication_factor_change  # version 0 always allows it (KIP-860)
    requested: dict[str, list[Reassignment]] = {}
    for topic in request.topics:
        for one in topic.partitions:
            replicas = None if one.replicas is None else tuple(map(BrokerId, one.replicas))
            requested.setdefault(topic.name, []).append(Reassignment(one.partition_index, replicas))
    answers: dict[str, list[messages.ReassignablePartitionResponse]] = {name: [] for name in requested}
    for portion in in_portions(requested.items()):
        origin = call.origin()
        commands = [
            ReassignPartitions(
                **origin,
                topic=TopicName(name),
                reassignments=tuple(reassignments),
                allow_factor_change=allowed,
                api="AlterPartitionReassignments",
                api_version=call.context.api_version,
            )
            for name, reassignments in portion
        ]
        for answer, (name, reassignments) in zip(await call.api.submit(commands), portion, strict=True):
            answers[name] += _responses(answer, reassignments)
    return messages.AlterPartitionReassignmentsResponse(
        responses=tuple(
            messages.ReassignableTopicResponse(name=name, partitions=tuple(each)) for name, each in answers.items()
        ),
        allow_replication_factor_change=allowed,
    )


def _responses(answer: Answer, requested: Sequence[Reassignment]) -> Iterator[messages.ReassignablePartitionResponse]:
    if answer.code:
        for failed in requested:
            yield messages.ReassignablePartitionResponse(
                partition_index=failed.partition, error_code=answer.code, error_message=answer.message
            )
        return
    for one in answer.partitions:
        yield messages.ReassignablePartitionResponse(
            partition_index=one.partition, error_code=one.code, error_message=one.message or None
        )


async def list_reassignments(
    call: Call, request: messages.ListPartitionReassignmentsRequest
) -> messages.ListPartitionReassignmentsResponse:
    """Answer ListPartitionReassignments with the ongoing reassignments of all topics (null) or named partitions."""
    found: list[messages.OngoingTopicReassignment] = []
    if request.topics is None:
        for topics in topic_slices(lambda: call.api.store):
            found += (_ongoing(topic, tuple(range(len(topic.partitions)))) for topic in topics)
            await asyncio.sleep(0)
    else:
        for part in slices(request.topics, TOPICS_PER_SLICE):
            known = [(call.api.topic(one.name), one.partition_indexes) for one in part]
            found += [_ongoing(topic, indexes) for topic, indexes in known if topic is not None]
            await asyncio.sleep(0)
    return messages.ListPartitionReassignmentsResponse(topics=tuple(one for one in found if one.partitions))


def _ongoing(topic: Topic, indexes: tuple[int, ...]) -> messages.OngoingTopicReassignment:
    partitions = [
        (index, topic.partitions[index], replica_metadata_of(topic.partitions[index]))
        for index in indexes
        if 0 <= index < len(topic.partitions) and is_reassigned(topic.partitions[index])
    ]
    return messages.OngoingTopicReassignment(
        name=topic.name,
        partitions=tuple(
            messages.OngoingPartitionReassignment(
                partition_index=index,
                replicas=partition.replicas,
                adding_replicas=metadata.adding,
                removing_replicas=metadata.removing,
            )
            for index, partition, metadata in partitions
        ),
    )
