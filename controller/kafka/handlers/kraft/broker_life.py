"""BrokerRegistration, BrokerHeartbeat and UnregisterBroker: how brokers come, live, and go (KIP-631, KIP-746)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from controller.brokers.kraft import registration
from controller.brokers.kraft.fleet import KraftFleet
from controller.kafka.handling import RequestContext
from controller.kafka.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from controller.kafka.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from controller.kafka.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from controller.machine.commands import (
    BeginShutdown,
    ChangeLogDirs,
    FenceBroker,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
)
from controller.machine.errors import ErrorCode
from controller.machine.state import Broker
from events.names import BrokerId

PREVIOUS_EPOCH_SINCE = 4
"""The version of BrokerRegistration from which on a broker tells its last incarnation's epoch, -1 if it did not end
in order (KIP-966)."""


class BrokerRegistrationHandler:
    """Answers BrokerRegistration."""

    def __init__(self, fleet: KraftFleet) -> None:
        self._fleet = fleet

    async def __call__(self, context: RequestContext, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        """The broker's epoch once its registration is durable, or the error that Kafka gives."""
        fleet = self._fleet
        broker_id = BrokerId(request.broker_id)
        has_session = fleet.sessions.is_valid(broker_id, fleet.clock())
        refused = registration.refusal(request, fleet.cluster, fleet.cluster_id, has_session=has_session)
        if refused is not None:
            fleet.log.warning(
                "broker refused", broker=broker_id, peer=context.peer, code=int(refused.code), why=refused.why
            )
            return BrokerRegistrationResponse(error_code=int(refused.code))
        await _decide(
            fleet,
            RegisterBroker,
            broker_id=broker_id,
            incarnation=request.incarnation_id.hex(),
            rack=request.rack,
            endpoints=registration.endpoints_of(request),
            details=registration.details_of(request, clean=self._ended_in_order(context, request)),
        )
        broker = fleet.cluster.brokers.get(broker_id)
        if broker is None or broker.incarnation != request.incarnation_id.hex():
            return BrokerRegistrationResponse(error_code=int(ErrorCode.NOT_CONTROLLER))
        fleet.sessions.touch(broker_id, fleet.clock())
        return BrokerRegistrationResponse(broker_epoch=fleet.metadata.broker_epoch(broker_id))

    def _ended_in_order(self, context: RequestContext, request: BrokerRegistrationRequest) -> bool:
        if context.api_version < PREVIOUS_EPOCH_SINCE or request.broker_id not in self._fleet.cluster.brokers:
            return True
        return request.previous_broker_epoch == self._fleet.metadata.broker_epoch(request.broker_id)


class Next(Enum):
    """What a broker is to be after a heartbeat (`BrokerControlState` in Kafka)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    LEAVING = "in controlled shutdown"
    GONE = "shut down"


class BrokerHeartbeatHandler:
    """Answers BrokerHeartbeat."""

    def __init__(self, fleet: KraftFleet) -> None:
        self._fleet = fleet

    async def __call__(self, context: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        """Whether the broker is caught up, is fenced, and may end; the change that leads to it is durable."""
        fleet = self._fleet
        if BrokerId(request.broker_id) not in fleet.cluster.brokers:
            return BrokerHeartbeatResponse(error_code=int(ErrorCode.BROKER_ID_NOT_REGISTERED))
        broker = fleet.broker(request.broker_id, request.broker_epoch)
        if broker is None:
            return BrokerHeartbeatResponse(error_code=int(ErrorCode.STALE_BROKER_EPOCH))
        fleet.heard_of(broker, request.current_metadata_offset)
        caught_up = request.current_metadata_offset >= request.broker_epoch
        next_ = self._next(broker, request, caught_up)
        await self._bring_about(broker, request, next_)
        return BrokerHeartbeatResponse(
            is_caught_up=caught_up,
            is_fenced=next_ in (Next.FENCED, Next.GONE),
            should_shut_down=next_ is Next.GONE,
        )

    def _next(self, broker: Broker, request: BrokerHeartbeatRequest, caught_up: bool) -> Next:
        """As `BrokerHeartbeatManager.calculateNextBrokerState`."""
        fleet = self._fleet
        if broker.fenced:
            if request.want_shut_down or broker.leaving:
                return Next.GONE
            # A broker that lost its place is not to return before its partitions have been looked at.
            return Next.UNFENCED if caught_up and not request.want_fence and fleet.is_settled() else Next.FENCED
        if broker.leaving:
            left = fleet.is_settled() and not fleet.leads(broker.broker_id)
            return Next.GONE if left and fleet.all_applied(broker.broker_id) else Next.LEAVING
        if request.want_fence:
            return Next.GONE if request.want_shut_down else Next.FENCED
        if request.want_shut_down:
            return Next.LEAVING if fleet.leads(broker.broker_id) else Next.GONE
        return Next.UNFENCED

    async def _bring_about(self, broker: Broker, request: BrokerHeartbeatRequest, next_: Next) -> None:
        online = tuple(each for each in broker.log_dirs if each not in request.offline_log_dirs)
        if online != broker.log_dirs:
            self._fleet.log.warning("log directories failed", broker=broker.broker_id, online=len(online))
            await _decide(self._fleet, ChangeLogDirs, broker_id=broker.broker_id, log_dirs=online)
        if broker.fenced and next_ is Next.UNFENCED:
            await _decide(self._fleet, UnfenceBroker, broker_id=broker.broker_id, reason="caught up")
        elif not broker.fenced and next_ in (Next.FENCED, Next.GONE):
            reason = "shut down in order" if next_ is Next.GONE else "asked to be fenced"
            await _decide(self._fleet, FenceBroker, broker_id=broker.broker_id, reason=reason)
        elif not broker.leaving and next_ is Next.LEAVING:
            await _decide(self._fleet, BeginShutdown, broker_id=broker.broker_id)


class UnregisterBrokerHandler:
    """Answers UnregisterBroker."""

    def __init__(self, fleet: KraftFleet) -> None:
        self._fleet = fleet

    async def __call__(self, context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        """The broker is forgotten; one that lives registers anew."""
        broker_id = BrokerId(request.broker_id)
        if broker_id not in self._fleet.cluster.brokers:
            return UnregisterBrokerResponse(
                error_code=int(ErrorCode.BROKER_ID_NOT_REGISTERED),
                error_message=f"Broker ID {broker_id} is not currently registered",
            )
        await _decide(self._fleet, UnregisterBroker, broker_id=broker_id, reason=f"asked by {context.principal}")
        return UnregisterBrokerResponse()


async def _decide(fleet: KraftFleet, kind: Callable[..., Any], **fields: Any) -> None:
    """Put a command, and wait until it is decided and durable, or was dropped."""
    sink = fleet.controller
    sink.observe(kind(request_id=sink.new_request_id("kraft"), at_ms=sink.now_ms(), **fields))
    await sink.decided()
