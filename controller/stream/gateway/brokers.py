"""The brokers in a gateway process: the workers' simulated brokers, or the target cluster. A gateway answers Kafka
clients, and workers decide their commands.

Simulated brokers. The HTTP API starts and stops them: the gateway sends commands to every partition, which the workers
decide. No command sets the response delay of a broker, so a gateway cannot set one.

Target cluster. The events name its brokers, so no setting does. Requests that are not about topics are forwarded to
these brokers. The gateway polls them, so that its health check reports an unreachable cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from controller.brokers.port import stamp
from controller.brokers.simulated import SimulatedBroker, UnknownBroker, rack_of
from controller.kafka.connections import ClusterUnreachable, NotAuthenticated, Security
from controller.machine.commands.commands import FenceBroker, RegisterBroker, UnfenceBroker
from controller.machine.state import Broker, Cluster
from controller.serving.process import reached
from controller.serving.reach_cluster import ReachedCluster, reach_as
from controller.stream.gateway.node import GatewayNode
from events.names import BrokerId

SIMULATED = "simulated-"


class GatewayBrokers:
    """The workers' simulated brokers, for the HTTP API. Implements `controller.http.writes.BrokerControl`."""

    def __init__(self, node: GatewayNode) -> None:
        self._node = node
        self.by_id: dict[BrokerId, SimulatedBroker] = {}
        """The brokers that this gateway changed, each as of this gateway's last change."""

    def add(self, rack: str | None = None) -> SimulatedBroker:
        """Add a broker with the next free id."""
        known = self._node.store.durable_cluster.brokers
        broker_id = BrokerId(max([0, *known, *self.by_id]) + 1)
        return self._join(broker_id, rack or rack_of(broker_id), known.get(BrokerId(1)), "joined")

    def stop_broker(self, broker_id: int) -> None:
        """Raises UnknownBroker."""
        broker = self._simulated(broker_id)
        stamped = stamp(self._node, f"broker-{broker_id}")
        self._node.broadcast([FenceBroker(**stamped, broker_id=broker.broker_id, reason="stopped")])
        self._changed(broker.broker_id, broker.rack, running=False)

    def start_broker(self, broker_id: int) -> None:
        """Raises UnknownBroker."""
        broker = self._simulated(broker_id)
        self._join(broker.broker_id, broker.rack or "", broker, "started")

    def set_delay(self, broker_id: int, delay_ms: int) -> None:
        """Accept only 0: the workers' brokers have no delay. Raises UnknownBroker, ValueError."""
        broker = self._simulated(broker_id)
        if delay_ms:
            raise ValueError("delay_ms: brokers of stream workers have no delay; allowed: 0")
        if broker.broker_id not in self.by_id:
            self._changed(broker.broker_id, broker.rack, running=not broker.fenced)

    def _join(self, broker_id: BrokerId, rack: str, like: Broker | None, reason: str) -> SimulatedBroker:
        stamped = stamp(self._node, f"broker-{broker_id}")
        register = RegisterBroker(
            **stamped,
            broker_id=broker_id,
            incarnation=f"{SIMULATED}{broker_id}",
            rack=rack,
            endpoints=like.endpoints if like is not None else (),
        )
        self._node.broadcast([register, UnfenceBroker(**stamped, broker_id=broker_id, reason=reason)])
        return self._changed(broker_id, rack, running=True)

    def _changed(self, broker_id: BrokerId, rack: str | None, *, running: bool) -> SimulatedBroker:
        broker = self.by_id[broker_id] = SimulatedBroker(broker_id, rack or "")
        broker.running = running
        return broker

    def _simulated(self, broker_id: int) -> Broker:
        brokers = self._node.store.durable_cluster.brokers
        broker = brokers.get(BrokerId(broker_id))
        if broker is None or not broker.incarnation.startswith(SIMULATED):
            known = [one.broker_id for one in brokers.values() if one.incarnation.startswith(SIMULATED)]
            raise UnknownBroker(broker_id, sorted(known))
        return broker


class GatewayCluster:
    """The target cluster, reached at the brokers that `cluster` knows, with the credentials `security`."""

    def __init__(self, cluster: Callable[[], Cluster], security: Security, poll_interval_s: float) -> None:
        self.error: str | None = "not reached yet"
        """Why the cluster is unreachable; None if it is reachable."""
        self._cluster = cluster
        self._security = security
        self._poll_interval_s = poll_interval_s
        self._log = structlog.get_logger("topicwright")
        self._reached: ReachedCluster | None = None

    async def reached(self) -> ReachedCluster:
        """Wait for the cluster. Raises SettingsError for wrong credentials."""
        self._reached = await reached("the target cluster", self._reach, ClusterUnreachable)
        return self._reached

    def close(self) -> None:
        if self._reached is not None:
            self._reached.link.close()

    async def _reach(self) -> ReachedCluster:
        """Connect to the cluster at its live brokers, or at all brokers if none is live."""
        brokers = [broker for _, broker in sorted(self._cluster().brokers.items())]
        chosen = [broker for broker in brokers if not broker.fenced] or brokers
        endpoints = [broker.endpoints[0] for broker in chosen if broker.endpoints]
        addresses = [f"{one.host}:{one.port}" for one in endpoints if one.port > 0]
        if not addresses:
            raise ClusterUnreachable("no worker has recorded the brokers of the target cluster yet: start a worker")
        return await reach_as(self._security, ",".join(addresses))

    async def poll(self) -> None:
        """Poll the cluster until cancelled; requires that `reached` has returned."""
        assert self._reached is not None, "it was reached"
        while True:
            try:
                await self._reached.link.refresh_api_versions()
                why = None
            except (ClusterUnreachable, NotAuthenticated) as error:
                why = str(error)
            if (why is None) != (self.error is None):
                self._log.warning("the cluster is lost" if why else "the cluster is back", why=why)
            self.error = why
            await asyncio.sleep(self._poll_interval_s)
