"""AlterPartition (KIP-497): leaders report their in-sync sets; each partition is answered with how it stands then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.apis.kraft.epochs import BrokerEpochs, as_brokers_take_it
from controller.brokers.port import stamp
from controller.controller_api import ControllerApi, in_portions
from controller.kafka.handling import RequestContext
from controller.kafka.messages.cluster import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AlterPartitionTopic,
    AlterPartitionTopicResult,
)
from controller.machine.commands.commands import AlterPartition, IsrReport
from controller.machine.decision import PartitionAnswer
from controller.machine.errors import ErrorCode
from controller.machine.partitions.changes import upkeep_of
from events.names import BrokerId, TopicId, TopicName

EPOCHS_SINCE = 3
"""The version from which each member of an in-sync set comes with its epoch (KIP-903)."""


class AlterPartitionHandler:
    """Answers AlterPartition of real brokers."""

    def __init__(self, api: ControllerApi, epochs: BrokerEpochs) -> None:
        self._api = api
        self._epochs = epochs

    async def __call__(self, context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Put the reports in portions, one command a topic; unknown topics are answered without one."""
        if not self._api.grants(context, "ClusterAction"):
            return AlterPartitionResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        names = {topic.topic_id: self._api.store.durable_name_of(topic.topic_id) for topic in request.topics}
        known = [(topic, topic.partitions) for topic in request.topics if names[topic.topic_id] is not None]
        answers: dict[TopicName, list[PartitionAnswer]] = {}
        for portion in in_portions(known):
            for answer in await self._api.submit(self._commands(context, request, names, portion)):
                if answer.code:
                    return AlterPartitionResponse(error_code=as_brokers_take_it(answer.code))
                answers.setdefault(answer.topic_name, []).extend(answer.partitions)
        topics = []
        for topic in request.topics:
            name = names[topic.topic_id]
            parts = _unknown(topic) if name is None else answers[name]
            topics.append(AlterPartitionTopicResult(topic_id=topic.topic_id, partitions=tuple(map(_partition, parts))))
        return AlterPartitionResponse(topics=tuple(topics))

    def _commands(
        self,
        context: RequestContext,
        request: AlterPartitionRequest,
        names: Mapping[bytes, TopicName | None],
        portion: Sequence[tuple[AlterPartitionTopic, Sequence[AlterPartitionData]]],
    ) -> list[AlterPartition]:
        stamped = stamp(self._api.controller, "isr")
        return [
            AlterPartition(
                **stamped,
                topic=names[topic.topic_id] or TopicName(""),
                topic_id=TopicId(topic.topic_id),
                broker_id=BrokerId(request.broker_id),
                broker_epoch=self._epochs.machine_epoch(request.broker_id, request.broker_epoch),
                reports=tuple(self._report(one, context.api_version) for one in partitions),
            )
            for topic, partitions in portion
        ]

    def _report(self, one: AlterPartitionData, version: int) -> IsrReport:
        if version >= EPOCHS_SINCE:
            isr = tuple(BrokerId(member.broker_id) for member in one.new_isr_with_epochs)
            epochs = tuple(
                self._epochs.machine_epoch(member.broker_id, member.broker_epoch) for member in one.new_isr_with_epochs
            )
        else:
            isr, epochs = tuple(BrokerId(member) for member in one.new_isr), ()
        return IsrReport(
            one.partition_index, isr, one.leader_epoch, one.partition_epoch, one.leader_recovery_state == 1, epochs
        )


def _unknown(topic: AlterPartitionTopic) -> tuple[PartitionAnswer, ...]:
    return tuple(PartitionAnswer(one.partition_index, int(ErrorCode.UNKNOWN_TOPIC_ID)) for one in topic.partitions)


def _partition(answer: PartitionAnswer) -> AlterPartitionResult:
    state = answer.state
    if state is None:
        return AlterPartitionResult(partition_index=answer.partition, error_code=answer.code)
    return AlterPartitionResult(
        partition_index=answer.partition,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        leader_recovery_state=int(upkeep_of(state).recovering),
        partition_epoch=state.partition_epoch,
    )
