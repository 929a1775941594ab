"""AllocateProducerIds (KIP-730): blocks of producer ids, each given once."""

from __future__ import annotations

from controller.kafka.handlers.kraft.epochs import BrokerEpochs, as_brokers_take_it
from controller.kafka.handling import RequestContext
from controller.kafka.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from controller.machine.commands import AllocateProducerIds
from controller.machine.errors import ErrorCode
from controller.machine.partition_reports import PRODUCER_IDS_PER_BLOCK
from controller.runtime.front import Front
from events.names import BrokerId


class AllocateProducerIdsHandler:
    """Answers AllocateProducerIds of real brokers."""

    def __init__(self, front: Front, epochs: BrokerEpochs) -> None:
        self._front = front
        self._epochs = epochs

    async def __call__(
        self, context: RequestContext, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """The next block."""
        if not self._front.grants(context, "ClusterAction"):
            return AllocateProducerIdsResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        controller = self._front.controller
        command = AllocateProducerIds(
            request_id=controller.new_request_id("producers"),
            at_ms=controller.now_ms(),
            broker_id=BrokerId(request.broker_id),
            broker_epoch=self._epochs.machine_epoch(request.broker_id, request.broker_epoch),
        )
        (answer,) = await self._front.ask([command])
        if answer.code:
            return AllocateProducerIdsResponse(error_code=as_brokers_take_it(answer.code))
        return AllocateProducerIdsResponse(producer_id_start=answer.number, producer_id_len=PRODUCER_IDS_PER_BLOCK)
