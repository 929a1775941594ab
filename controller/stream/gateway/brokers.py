"""Simulated brokers of the workers, as a gateway's HTTP moves them: by commands to every partition.

The workers' brokers takes a broker's end and start from the log like everybody else. A delay is nothing that a command
says, so a gateway cannot set one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from controller.brokers.simulated import UnknownBroker, rack_of
from controller.machine.commands.commands import FenceBroker, RegisterBroker, UnfenceBroker
from controller.machine.state import Broker
from controller.stream.gateway.node import GatewayNode
from events.names import BrokerId

SIMULATED = "simulated-"


class BrokerShown(msgspec.Struct, frozen=True):
    """A simulated broker as it was last made to be here."""

    broker_id: BrokerId
    rack: str
    running: bool
    delay_ms: int = 0


class GatewayBrokers:
    """Adds, stops and starts simulated brokers."""

    def __init__(self, node: GatewayNode) -> None:
        self._node = node
        self._changed: dict[BrokerId, BrokerShown] = {}

    @property
    def by_id(self) -> Mapping[BrokerId, BrokerShown]:
        """Those that were changed here."""
        return self._changed

    def add(self, rack: str | None = None) -> BrokerShown:
        """A further broker joins, with the next free id."""
        known = self._node.store.durable_cluster.brokers
        broker_id = BrokerId(max([0, *known, *self._changed]) + 1)
        self._join(broker_id, rack or rack_of(broker_id), known.get(BrokerId(1)), "joined")
        return self._changed[broker_id]

    def stop_broker(self, broker_id: int) -> None:
        """A broker dies. Raises UnknownBroker."""
        broker = self._simulated(broker_id)
        request_id = self._node.new_request_id(f"broker-{broker_id}")
        at_ms = self._node.now_ms()
        fence = FenceBroker(request_id=request_id, at_ms=at_ms, broker_id=broker.broker_id, reason="stopped")
        self._node.broadcast([fence])
        self._changed[broker.broker_id] = BrokerShown(broker.broker_id, broker.rack or "", running=False)

    def start_broker(self, broker_id: int) -> None:
        """A broker comes back. Raises UnknownBroker."""
        broker = self._simulated(broker_id)
        self._join(broker.broker_id, broker.rack or "", broker, "started")

    def set_delay(self, broker_id: int, delay_ms: int) -> None:
        """Brokers of workers have no delay. Raises UnknownBroker, ValueError."""
        broker = self._simulated(broker_id)
        if delay_ms:
            raise ValueError("delay_ms: brokers of stream workers cannot be made slow; allowed is 0")
        shown = BrokerShown(broker.broker_id, broker.rack or "", running=not broker.fenced)
        self._changed.setdefault(broker.broker_id, shown)

    def _join(self, broker_id: BrokerId, rack: str, like: Broker | None, reason: str) -> None:
        request_id, at_ms = self._node.new_request_id(f"broker-{broker_id}"), self._node.now_ms()
        register = RegisterBroker(
            request_id=request_id,
            at_ms=at_ms,
            broker_id=broker_id,
            incarnation=f"{SIMULATED}{broker_id}",
            rack=rack,
            endpoints=like.endpoints if like is not None else (),
        )
        unfence = UnfenceBroker(request_id=request_id, at_ms=at_ms, broker_id=broker_id, reason=reason)
        self._node.broadcast([register, unfence])
        self._changed[broker_id] = BrokerShown(broker_id, rack, running=True)

    def _simulated(self, broker_id: int) -> Broker:
        brokers = self._node.store.durable_cluster.brokers
        broker = brokers.get(BrokerId(broker_id))
        if broker is None or not broker.incarnation.startswith(SIMULATED):
            known = [one.broker_id for one in brokers.values() if one.incarnation.startswith(SIMULATED)]
            raise UnknownBroker(broker_id, sorted(known))
        return broker
