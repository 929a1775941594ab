"""AllocateProducerIds (KIP-730): blocks of producer ids, each given once."""

from __future__ import annotations

from controller.apis.kraft.epochs import BrokerEpochs, as_brokers_take_it
from controller.brokers.port import stamp
from controller.controller_api import ControllerApi
from controller.kafka.handling import RequestContext
from controller.kafka.messages.cluster import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from controller.machine.commands.commands import AllocateProducerIds
from controller.machine.errors import ErrorCode
from controller.machine.partitions.reports import PRODUCER_IDS_PER_BLOCK
from events.names import BrokerId


class AllocateProducerIdsHandler:
    """Answers AllocateProducerIds of real brokers."""

    def __init__(self, api: ControllerApi, epochs: BrokerEpochs) -> None:
        self._api = api
        self._epochs = epochs

    async def __call__(
        self, context: RequestContext, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        """Allocate the next block of producer ids to the broker."""
        if not self._api.grants(context, "ClusterAction"):
            return AllocateProducerIdsResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        command = AllocateProducerIds(
            **stamp(self._api.controller, "producers"),
            broker_id=BrokerId(request.broker_id),
            broker_epoch=self._epochs.machine_epoch(request.broker_id, request.broker_epoch),
        )
        (answer,) = await self._api.submit([command])
        if answer.code:
            return AllocateProducerIdsResponse(error_code=as_brokers_take_it(answer.code))
        return AllocateProducerIdsResponse(producer_id_start=answer.number, producer_id_len=PRODUCER_IDS_PER_BLOCK)
