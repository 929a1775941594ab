"""ElectLeaders (KIP-460): preferred leaders, or any for partitions that have none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from controller.kafka.handling import RequestContext
from controller.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from controller.machine.commands import ElectLeaders
from controller.machine.decision import Answer
from controller.machine.errors import ErrorCode
from controller.runtime.front import Front
from events.names import TopicName, shard_key

UNCLEAN = 1
PREFERRED = 0
TOPICS_PER_SLICE = 200
PARTITIONS_PER_SLICE = 2000


class ElectLeadersHandler:
    """Answers ElectLeaders."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def __call__(self, context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elect for each partition for itself. For all partitions (null) those that need no election are not told."""
        if not self._front.grants(context, "Alter"):
            return ElectLeadersResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        if request.election_type not in (PREFERRED, UNCLEAN):
            return ElectLeadersResponse(error_code=int(ErrorCode.INVALID_REQUEST))
        results: list[ReplicaElectionResult] = []
        everything = request.topic_partitions is None
        async for wanted in self._slices(request):
            answers = await self._elect(context, wanted, request.election_type == UNCLEAN)
            results += (_result(answer, everything) for answer in answers)
        return ElectLeadersResponse(replica_election_results=tuple(results))

    async def _slices(self, request: ElectLeadersRequest) -> AsyncIterator[list[tuple[str, tuple[int, ...]]]]:
        if request.topic_partitions is not None:
            merged: dict[str, tuple[int, ...]] = {}
            for topic in request.topic_partitions:
                merged[topic.topic] = (*merged.get(topic.topic, ()), *topic.partitions)
            if merged:
                yield list(merged.items())
            return
        after: str | None = None
        while topics := self._front.store.durable_slice(after, TOPICS_PER_SLICE, PARTITIONS_PER_SLICE):
            after = shard_key(topics[-1].name)
            yield [(topic.name, tuple(range(len(topic.partitions)))) for topic in topics]

    async def _elect(
        self, context: RequestContext, wanted: Sequence[tuple[str, tuple[int, ...]]], unclean: bool
    ) -> list[Answer]:
        controller = self._front.controller
        request_id, at_ms = controller.new_request_id(), controller.now_ms()
        return await self._front.ask(
            [
                ElectLeaders(
                    request_id=request_id,
                    at_ms=at_ms,
                    topic=TopicName(name),
                    partitions=partitions,
                    unclean=unclean,
                    principal=context.principal,
                    client_id=context.client_id,
                    api="ElectLeaders",
                    api_version=context.api_version,
                )
                for name, partitions in wanted
            ]
        )


def _result(answer: Answer, everything: bool) -> ReplicaElectionResult:
    not_needed = int(ErrorCode.ELECTION_NOT_NEEDED)
    return ReplicaElectionResult(
        topic=answer.topic_name,
        partition_result=tuple(
            PartitionResult(
                partition_id=one.partition,
                error_code=answer.code or one.code,
                error_message=answer.message or one.message or None,
            )
            for one in answer.partitions
            if not (everything and one.code == not_needed)
        ),
    )
