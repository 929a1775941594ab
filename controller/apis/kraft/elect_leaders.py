"""ElectLeaders (KIP-460): preferred leaders, or any for partitions that have none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from controller.brokers.port import stamp
from controller.controller_api import ControllerApi, Reply, in_portions
from controller.kafka.handling import RequestContext
from controller.kafka.messages import topics as topics_messages
from controller.machine.commands.commands import ElectLeaders
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from events.names import TopicName
from projections.store.store import topic_slices

UNCLEAN = 1
PREFERRED = 0


class ElectLeadersHandler:
    """Answers ElectLeaders."""

    def __init__(self, api: ControllerApi) -> None:
        self._api = api

    async def __call__(
        self, context: RequestContext, request: topics_messages.ElectLeadersRequest
    ) -> topics_messages.ElectLeadersResponse:
        """Elect for each partition for itself. For all partitions (null) those that need no election are left out."""
        if not self._api.grants(context, "Alter"):
            return topics_messages.ElectLeadersResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        if request.election_type not in (PREFERRED, UNCLEAN):
            return topics_messages.ElectLeadersResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        results: list[topics_messages.ReplicaElectionResult] = []
        everything = request.topic_partitions is None
        for portion in in_portions(self._wanted(request)):
            answers = await self._elect(context, portion, request.election_type == UNCLEAN)
            results += (_result(answer, everything) for answer in answers)
        return topics_messages.ElectLeadersResponse(replica_election_results=_joined(results))

    def _wanted(self, request: topics_messages.ElectLeadersRequest) -> Iterator[tuple[str, Sequence[int]]]:
        if request.topic_partitions is not None:
            merged: dict[str, list[int]] = {}
            for topic in request.topic_partitions:
                merged.setdefault(topic.topic, []).extend(topic.partitions)
            yield from merged.items()
            return
        for topics in topic_slices(lambda: self._api.store):
            for each in topics:
                yield each.name, range(len(each.partitions))

    async def _elect(
        self, context: RequestContext, wanted: Sequence[tuple[str, Sequence[int]]], unclean: bool
    ) -> Reply:
        stamped = stamp(self._api.controller, "")
        return await self._api.submit(
            [
                ElectLeaders(
                    **stamped,
                    topic=TopicName(name),
                    partitions=tuple(partitions),
                    unclean=unclean,
                    principal=context.principal,
                    client_id=context.client_id,
                    host=context.host,
                    api="ElectLeaders",
                    api_version=context.api_version,
                )
                for name, partitions in wanted
            ]
        )


def _joined(
    results: Iterable[topics_messages.ReplicaElectionResult],
) -> tuple[topics_messages.ReplicaElectionResult, ...]:
    """The results, each topic once: one that has many partitions comes in several portions."""
    by_topic: dict[str, list[topics_messages.ElectionPartitionResult]] = {}
    for result in results:
        by_topic.setdefault(result.topic, []).extend(result.partition_result)
    return tuple(
        topics_messages.ReplicaElectionResult(topic=topic, partition_result=tuple(each))
        for topic, each in by_topic.items()
    )


def _result(answer: Answer, everything: bool) -> topics_messages.ReplicaElectionResult:
    not_needed = int(ErrorCode.ELECTION_NOT_NEEDED)
    return topics_messages.ReplicaElectionResult(
        topic=answer.topic_name,
        partition_result=tuple(
            topics_messages.ElectionPartitionResult(
                partition_id=one.partition,
                error_code=answer.code or one.code,
                error_message=answer.message or one.message or None,
            )
            for one in answer.partitions
            if not (everything and one.code == not_needed)
        ),
    )
