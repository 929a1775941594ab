"""Real brokers as a fleet: they follow the metadata log, send heartbeats, and take over what it says.

The controller opens no connections to lead brokers; they come to it. Their requests are answered by the handlers in
`controller.apis.kraft`, with the parts that are here: the metadata log, who is a member, and how far each broker is.
The fleet puts the parts together, and passes on what became durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain

from controller.brokers.kraft.balancing import balance_leaders
from controller.brokers.kraft.checks import Checks
from controller.brokers.kraft.confirmations import Confirmations
from controller.brokers.kraft.epoch import KraftOptions, QuorumEpoch
from controller.brokers.kraft.log.metadata_log import MetadataLog
from controller.brokers.kraft.log.projection import is_real_broker
from controller.brokers.kraft.log.raft_fetch import RaftLog
from controller.brokers.kraft.membership import Membership
from controller.brokers.kraft.readiness import Readiness
from controller.brokers.port import CommandSink, stamp
from controller.machine.commands.commands import UnregisterBroker
from events.catalog import BrokerFenced, BrokerRegistered, BrokerUnfenced, BrokerUnregistered, Endpoint, Recorded
from events.logs.log import EventLog
from projections.store.store import topic_slices


class KraftFleet:
    """The brokers of one cluster. `clock` gives seconds and only goes forward."""

    def __init__(self, log: EventLog, options: KraftOptions, clock: Callable[[], float]) -> None:
        self.metadata = MetadataLog(log)
        self._cluster_id = log.cluster_id
        self._options = options
        self._clock = clock
        self._endpoint = Endpoint("CONTROLLER", "localhost", 9093)
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False
        # Made at the start:
        self._controller: CommandSink
        self.epoch: QuorumEpoch
        self.membership: Membership
        self.confirmations: Confirmations
        self.raft: RaftLog
        self._readiness: Readiness

    def reachable_at(self, endpoint: Endpoint) -> None:
        """Where brokers reach the controller: to be set before the start."""
        self._endpoint = endpoint

    def is_reached_at(self, listener: Endpoint) -> bool:
        """Whether a listener is the controller's own, which brokers come to, and not one for clients alone."""
        return listener.name == self._endpoint.name

    def start(self, controller: CommandSink) -> None:
        """Begin an epoch; brokers of another kind, that the log may have, are forgotten first."""
        options, metadata = self._options, self.metadata
        self._controller = controller
        metadata.existing_topics = lambda: chain.from_iterable(topic_slices(lambda: controller.store))
        self.epoch = QuorumEpoch(controller, metadata, options, self._endpoint)
        self.membership = Membership(controller, metadata, options.session_timeout_ms / 1000, self._clock)
        self.confirmations = Confirmations(controller, metadata.mark.end)
        self.raft = RaftLog(metadata, self._cluster_id, lambda: self.epoch.quorum, controller.now_ms)
        self._readiness = Readiness(controller, self.raft.fetched, self.confirmations.take)
        self.raft.on_fetched = lambda broker_id, _: self._readiness.fetched(broker_id)
        for broker in self.membership.cluster.brokers.values():
            if not is_real_broker(broker):
                stamped = stamp(controller, "kraft")
                controller.observe(UnregisterBroker(**stamped, broker_id=broker.broker_id, reason="not a real broker"))
        self.epoch.begin()
        self._tasks.append(controller.background(Checks(controller, metadata, self.membership, options).run()))
        if options.leaders_balanced_every_s is not None:
            self._tasks.append(controller.background(balance_leaders(controller, options.leaders_balanced_every_s)))

    def learn(self, records: Sequence[Recorded]) -> None:
        """Show brokers what became durable, and follow who comes and goes."""
        self.metadata.became_durable()
        end = self.metadata.mark.end
        self.confirmations.note(end, records[-1].offset)
        for record in records:
            self._follow(record)
        self.raft.grew()
        if not self._stopped:
            self._readiness.learn(records, end)

    def _follow(self, record: Recorded) -> None:
        match record.event:
            case BrokerRegistered() | BrokerUnfenced() | BrokerFenced() | BrokerUnregistered() as event:
                self.membership.follow(event)
                self.confirmations.forget(event.broker_id)
                if isinstance(event, BrokerUnregistered):
                    self.raft.observers.pop(event.broker_id, None)

    def resume(self) -> None:
        """Take the metadata log as the store has it: what was written in vain is gone."""
        self.metadata.reload()
        self.confirmations.restart(self.metadata.mark.end)
        self._readiness.resume()
        if self.epoch.quorum is None:
            self.epoch.begin()

    async def stop(self) -> None:
        """Stop checking and probing."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        self.confirmations.clear()
        await self._readiness.stop()
        self.raft.grew()
