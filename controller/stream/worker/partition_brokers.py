"""Simulated brokers, as the owner of one partition plays them.

There is no process that they live in: which brokers there are, and which of them run, is what the partition's own
events say, so they are the same whoever owns it, and a broker that somebody stopped stays stopped when the owner
changes. The owner registers those that are missing, confirms what the live ones have applied, and reports in-sync
sets; each partition has its own owner, and none needs another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from controller.brokers.port import CommandSink, stamp
from controller.brokers.simulated import SimulatedBroker, SimulatedFleet, rack_of
from controller.machine.commands.commands import AnyCommand, ConfirmMetadata
from controller.stream.log.partition import PartitionState
from events.catalog import BrokerFenced, BrokerRegistered, BrokerUnfenced, BrokerUnregistered, Recorded, TopicCreated
from events.codec import decode_event
from events.names import CLUSTER_SHARD, BrokerId, Offset


class PartitionBrokers(SimulatedFleet):
    """Brokers 1 to `count`, and whichever others the partition knows. None of them has a delay."""

    def __init__(self, count: int, partition: PartitionState) -> None:
        super().__init__(count)
        self.default_endpoints = ()
        self._partition = partition

    def start(self, controller: CommandSink) -> None:
        """Register the brokers that the partition does not know, and report anew what the others did."""
        self._controller = controller
        self._loop = asyncio.get_running_loop()
        self.resume()

    def resume(self) -> None:
        """Report everything anew."""
        known = self._controller.store.durable_cluster.brokers
        halfway = self._registered_last()
        for broker_id, registered in known.items():
            self._played(broker_id, registered.rack).running = not registered.fenced
        for broker_id, broker in self.brokers.items():
            broker.confirmed = Offset(-1)
            if broker_id not in known or broker_id in halfway:
                broker.running = False
                self._join(broker, "started")
        self._applied_by_all(self._controller.last_offset)
        self._sweep()

    def immediate_commands(self, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        """Those that are live, as the events have left them, have applied a topic that was created."""
        if not any(type(record.event) is TopicCreated for record in records):
            return ()
        stamped, live = stamp(self._controller, "applied"), self._partition.state.cluster.live
        first, last = records[0].offset, records[-1].offset
        return (ConfirmMetadata(**stamped, brokers=live, offset=last, after=Offset(first - 1)),) if live else ()

    def learn(self, records: Sequence[Recorded]) -> None:
        """Follow who runs, then apply and report as brokers do."""
        for record in records:
            match record.event:
                case BrokerRegistered(broker_id=broker_id, rack=rack):
                    self._played(broker_id, rack).running = False
                case BrokerUnfenced(broker_id=broker_id) if broker_id in self.brokers:
                    self.brokers[broker_id].running = True
                    self.brokers[broker_id].confirmed = Offset(-1)
                case BrokerFenced(broker_id=broker_id) | BrokerUnregistered(broker_id=broker_id):
                    if broker_id in self.brokers:
                        self.brokers[broker_id].running = False
                case _:
                    continue
        super().learn(records)

    def _played(self, broker_id: BrokerId, rack: str | None) -> SimulatedBroker:
        return self.brokers.setdefault(broker_id, SimulatedBroker(broker_id, rack or rack_of(broker_id)))

    def _registered_last(self) -> set[BrokerId]:
        """The brokers that registered and were not heard of again: their owner died before they were live.

        The archive is not looked into, which may be away: what is there is tens of thousands of events old."""
        halfway, log = set[BrokerId](), self._partition.log
        for offset in log.shard_offsets(CLUSTER_SHARD, log.start_offset):
            event = decode_event(offset, log.read_one(offset)).event
            if isinstance(event, BrokerRegistered):
                halfway.add(event.broker_id)
            elif isinstance(event, BrokerFenced | BrokerUnfenced | BrokerUnregistered):
                halfway.discard(event.broker_id)
        return halfway
