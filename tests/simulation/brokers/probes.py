"""The controller's probes of brokers, to check the metadata that they have applied."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from controller.brokers.kraft.readiness import TIMEOUT_S
from controller.kafka.connections import Address, ClusterUnreachable
from events.names import TopicName
from tests.simulation.brokers.machine import PORT

if TYPE_CHECKING:
    from tests.simulation.brokers.broker import Broker
    from tests.simulation.brokers.world import World


class Probes:
    """Replaces `BrokerProbes`, for the last of `worlds`."""

    def __init__(self, worlds: list[World]) -> None:
        self._worlds = worlds

    async def knows(self, address: Address, topic: str) -> bool:
        """True if the broker's metadata have the topic. Raises ClusterUnreachable."""
        broker = await self._broker(address)
        return broker.view.topic_id(topic) is not None

    async def leads(self, address: Address, partitions: Mapping[TopicName, Sequence[int]]) -> bool:
        """True if the broker serves as leader of all these partitions, by topic. Raises ClusterUnreachable."""
        broker = await self._broker(address)
        ids = {name: broker.view.topic_id(name) for name in partitions}
        return all(
            (topic_id := ids[name]) is not None and broker.replicas.serves(topic_id, index)
            for name, indexes in partitions.items()
            for index in indexes
        )

    def close(self) -> None:
        """Does nothing: there is no connection."""

    async def _broker(self, address: Address) -> Broker:
        machine = self._worlds[-1].machines[address[1] - PORT]
        await asyncio.sleep(0.0005)
        broker = machine.broker
        if broker is None:
            raise ClusterUnreachable("refused")
        if machine.is_cut or broker.is_paused:
            await asyncio.sleep(TIMEOUT_S)
            raise ClusterUnreachable("silent")
        return broker
