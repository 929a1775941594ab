"""Real brokers as a fleet: they follow the metadata log, send heartbeats, and take over what it says.

The controller opens no connections to lead brokers; they come to it. Their requests are answered by the handlers in
`controller.apis.kraft`, with the parts that are here: the metadata log, which is the quorum's, who is a member, and how
far each broker is. The fleet puts the parts together, and passes on what became durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain

from controller.brokers.kraft.balancing import balance_leaders
from controller.brokers.kraft.checks import Checks
from controller.brokers.kraft.confirmations import Confirmations
from controller.brokers.kraft.epoch import KraftOptions, QuorumEpoch
from controller.brokers.kraft.log.projection import is_real_broker
from controller.brokers.kraft.log.projector import MetadataProjector
from controller.brokers.kraft.membership import Membership
from controller.brokers.kraft.quorum.node import QuorumNode
from controller.brokers.kraft.readiness import Readiness
from controller.brokers.kraft.replication import QuorumReplication
from controller.brokers.kraft.unreadable_configs import UnreadableConfigs
from controller.brokers.port import CommandSink, stamp
from controller.machine.commands.commands import AnyCommand, UnregisterBroker
from events.catalog import BrokerFenced, BrokerRegistered, BrokerUnfenced, BrokerUnregistered, Recorded
from events.names import BrokerId
from projections.store.store import topic_slices


class KraftFleet:
    """The brokers of one cluster. `clock` gives seconds and only goes forward."""

    def __init__(
        self,
        projector: MetadataProjector,
        node: QuorumNode,
        replication: QuorumReplication,
        options: KraftOptions,
        clock: Callable[[], float],
    ) -> None:
        self.projector, self.node, self.replication = projector, node, replication
        self._options = options
        self._clock = clock
        self.on_lead: Callable[[], None] = lambda: None
        """Called when this process begins to lead."""
        self.unreadable = UnreadableConfigs()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = False
        # Made at the start:
        self._controller: CommandSink
        self.epoch: QuorumEpoch
        self.membership: Membership
        self.confirmations: Confirmations
        self._readiness: Readiness

    def start(self, controller: CommandSink) -> None:
        """Put the parts together; brokers are led from the first `resume` on."""
        options, projector = self._options, self.projector
        self._controller = controller
        projector.existing_topics = lambda: chain.from_iterable(topic_slices(lambda: controller.store))
        self.epoch = QuorumEpoch(controller, self.replication, options)
        self.membership = Membership(
            controller, projector, self.replication, options.session_timeout_ms / 1000, self._clock
        )
        self.confirmations = Confirmations(controller, self.replication.applied)
        self._readiness = Readiness(controller, self._fetched_by, self.confirmations.take)
        self.node.on_fetched = self._readiness.fetched
        checks = Checks(controller, self.replication, self.membership, options, lambda: projector.mark.adopted)
        self._tasks.append(controller.background(checks.run()))
        self._tasks.append(controller.background(self.unreadable.scan(controller)))
        if options.leaders_balanced_every_s is not None:
            self._tasks.append(controller.background(balance_leaders(controller, options.leaders_balanced_every_s)))

    def _fetched_by(self, broker_id: BrokerId) -> int:
        leader = self.node.quorum.leading
        return 0 if leader is None else leader.progress.end_of(broker_id)

    def immediate_commands(self, records: Sequence[Recorded]) -> Sequence[AnyCommand]:
        """Nothing: brokers that are processes of their own need time."""
        return ()

    def learn(self, records: Sequence[Recorded]) -> None:
        """Follow who comes and goes, and how far brokers have to be."""
        end = self.replication.applied
        self.confirmations.note(end, records[-1].offset)
        for record in records:
            self._follow(record)
            self.unreadable.take(record.event)
        if self.replication.leads and not self._stopped:
            self._readiness.learn(records, end)

    def _follow(self, record: Recorded) -> None:
        match record.event:
            case BrokerRegistered() | BrokerUnfenced() | BrokerFenced() | BrokerUnregistered() as event:
                self.membership.follow(event)
                self.confirmations.forget(event.broker_id)

    def resume(self) -> None:
        """This process leads from here on, in an epoch of its own: brokers have whole sessions, and those of another
        kind, that the log may have, are forgotten."""
        self.confirmations.restart(self.replication.applied)
        self._readiness.resume()
        self.membership.resume()
        for broker in self.membership.cluster.brokers.values():
            if not is_real_broker(broker):
                stamped = stamp(self._controller, "kraft")
                self._controller.submit_internal(
                    UnregisterBroker(**stamped, broker_id=broker.broker_id, reason="not a real broker")
                )
        self.epoch.begin()
        self.unreadable.warn()
        self.on_lead()

    def gauges(self) -> list[tuple[str, str, float]]:
        """Figures: name, what it says, value."""
        return [("configs_unreadable", "Config values that Kafka's own nodes cannot read.", self.unreadable.count)]

    async def stop(self) -> None:
        """Stop checking and probing."""
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        self.confirmations.clear()
        await self._readiness.stop()
