"""The handlers of AlterPartition (KIP-497), AssignReplicasToDirs (KIP-858) and AllocateProducerIds (KIP-730), which
Kafka brokers send to the controller. `listener` uses them.

Broker epochs on the wire are offsets in the metadata log (KIP-631). The state machine (`controller.machine`) numbers
registrations instead; these handlers convert.
"""

from __future__ import annotations

from controller.brokers.kraft.membership import Membership
from controller.brokers.port import stamp
from controller.controller_api import ControllerApi, in_portions
from controller.kafka.handling import RequestContext
from controller.kafka.messages import cluster
from controller.machine.commands.commands import AllocateProducerIds, AlterPartition, AssignDirectories, IsrReport
from controller.machine.decision import PartitionAnswer
from controller.machine.errors import ErrorCode
from controller.machine.partitions.placement import replica_metadata_of
from controller.machine.partitions.requests import PRODUCER_IDS_PER_BLOCK
from events.names import BrokerId, TopicId, TopicName


def broker_error(code: int) -> int:
    """The top-level error for a broker: NOT_CONTROLLER while the log cannot be written, so that the broker retries."""
    retry = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR)
    return int(ErrorCode.NOT_CONTROLLER) if code in retry else code


async def alter_partition(
    api: ControllerApi, members: Membership, context: RequestContext, request: cluster.AlterPartitionRequest
) -> cluster.AlterPartitionResponse:
    """Answer AlterPartition: submit one command for each topic, in portions. Unknown topics get UNKNOWN_TOPIC_ID."""
    found = {topic.topic_id: api.store.durable_name_of(topic.topic_id) for topic in request.topics}
    names = {topic_id: name for topic_id, name in found.items() if name is not None}
    known = [(topic, topic.partitions) for topic in request.topics if topic.topic_id in names]
    epoch = members.machine_epoch(request.broker_id, request.broker_epoch)
    answers: dict[TopicName, list[PartitionAnswer]] = {}
    for portion in in_portions(known):
        stamped = stamp(api.controller, "isr")
        commands = [
            AlterPartition(
                **stamped,
                topic=names[topic.topic_id],
                topic_id=TopicId(topic.topic_id),
                broker_id=BrokerId(request.broker_id),
                broker_epoch=epoch,
                reports=tuple(_report(members, one) for one in partitions),
            )
            for topic, partitions in portion
        ]
        for answer in await api.submit(commands):
            if answer.code:
                return cluster.AlterPartitionResponse(error_code=broker_error(answer.code))
            answers.setdefault(answer.topic_name, []).extend(answer.partitions)
    topics = []
    for topic in request.topics:
        parts = answers[names[topic.topic_id]] if topic.topic_id in names else _unknown(topic)
        topics.append(
            cluster.AlterPartitionTopicResult(topic_id=topic.topic_id, partitions=tuple(map(_partition, parts)))
        )
    return cluster.AlterPartitionResponse(topics=tuple(topics))


def _report(members: Membership, one: cluster.AlterPartitionData) -> IsrReport:
    """From version 3 each member of the ISR has its epoch (KIP-903); before, `new_isr` has only ids."""
    with_epochs = one.new_isr_with_epochs
    isr = tuple(map(BrokerId, one.new_isr or [member.broker_id for member in with_epochs]))
    epochs = tuple(members.machine_epoch(member.broker_id, member.broker_epoch) for member in with_epochs)
    return IsrReport(
        one.partition_index, isr, one.leader_epoch, one.partition_epoch, one.leader_recovery_state == 1, epochs
    )


def _unknown(topic: cluster.AlterPartitionTopic) -> list[PartitionAnswer]:
    return [PartitionAnswer(one.partition_index, int(ErrorCode.UNKNOWN_TOPIC_ID)) for one in topic.partitions]


def _partition(answer: PartitionAnswer) -> cluster.AlterPartitionResult:
    state = answer.state
    if state is None:
        return cluster.AlterPartitionResult(partition_index=answer.partition, error_code=answer.code)
    return cluster.AlterPartitionResult(
        partition_index=answer.partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        leader_recovery_state=int(replica_metadata_of(state).recovering),
        partition_epoch=state.partition_epoch,
    )


_Codes = dict[tuple[bytes, int], int]
"""The error code of each partition, by topic id and index."""


async def assign_replicas_to_dirs(
    api: ControllerApi, members: Membership, context: RequestContext, request: cluster.AssignReplicasToDirsRequest
) -> cluster.AssignReplicasToDirsResponse:
    """Answer AssignReplicasToDirs: submit one command for each topic, in portions."""
    if any(members.is_unknown_directory(request.broker_id, directory.id_) for directory in request.directories):
        # A second process uses the broker's id, and has read the broker's epoch from the metadata log. The two
        # would overwrite each other's assignments forever.
        return cluster.AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    epoch = members.machine_epoch(request.broker_id, request.broker_epoch)
    codes: _Codes = {}
    for portion in in_portions(_by_topic(request).items()):
        stamped = stamp(api.controller, "directories")
        commands = [
            AssignDirectories(
                **stamped,
                broker_id=BrokerId(request.broker_id),
                broker_epoch=epoch,
                # Missing topics are submitted too, so that a stale broker epoch is rejected as such.
                topic=api.store.durable_name_of(topic_id) or TopicName(topic_id.hex()),
                topic_id=TopicId(topic_id),
                directories=tuple(pairs),
            )
            for topic_id, pairs in portion
        ]
        for command, answer in zip(commands, await api.submit(commands), strict=True):
            if answer.code:
                return cluster.AssignReplicasToDirsResponse(error_code=broker_error(answer.code))
            codes.update({(command.topic_id, one.partition): one.code for one in answer.partitions})
    directories = tuple(
        cluster.AssignReplicasDirectory(
            id_=directory.id_, topics=tuple(_coded(topic, codes) for topic in directory.topics)
        )
        for directory in request.directories
    )
    return cluster.AssignReplicasToDirsResponse(directories=directories)


def _by_topic(request: cluster.AssignReplicasToDirsRequest) -> dict[bytes, list[tuple[int, bytes]]]:
    """By topic id: the partitions, each with the log directory of the broker's replica."""
    found: dict[bytes, list[tuple[int, bytes]]] = {}
    for directory in request.directories:
        for topic in directory.topics:
            pairs = [(one.partition_index, directory.id_) for one in topic.partitions]
            found.setdefault(topic.topic_id, []).extend(pairs)
    return found


def _coded(topic: cluster.AssignReplicasTopic, codes: _Codes) -> cluster.AssignReplicasTopic:
    return cluster.AssignReplicasTopic(
        topic_id=topic.topic_id,
        partitions=tuple(
            cluster.AssignReplicasPartition(
                partition_index=one.partition_index, error_code=codes[topic.topic_id, one.partition_index]
            )
            for one in topic.partitions
        ),
    )


async def allocate_producer_ids(
    api: ControllerApi, members: Membership, context: RequestContext, request: cluster.AllocateProducerIdsRequest
) -> cluster.AllocateProducerIdsResponse:
    command = AllocateProducerIds(
        **stamp(api.controller, "producers"),
        broker_id=BrokerId(request.broker_id),
        broker_epoch=members.machine_epoch(request.broker_id, request.broker_epoch),
    )
    (answer,) = await api.submit([command])
    if answer.code:
        return cluster.AllocateProducerIdsResponse(error_code=broker_error(answer.code))
    return cluster.AllocateProducerIdsResponse(producer_id_start=answer.number, producer_id_len=PRODUCER_IDS_PER_BLOCK)
